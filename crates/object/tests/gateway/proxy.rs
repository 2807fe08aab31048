//! A way to the remote that can be cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Connections end at once, also those that are there.
    Cut,
    /// Connections are taken, and nothing comes of them.
    Silent,
}

pub struct Proxy {
    pub endpoint: String,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(remote: &str) -> Self {
        let remote: SocketAddr = remote.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (way, seen) = watch::channel(Way::Open);
        let task = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(carry(inner, remote, seen.clone()));
            }
        });
        Self { endpoint, way, task }
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut inner: TcpStream, remote: SocketAddr, mut way: watch::Receiver<Way>) {
    if *way.borrow_and_update() == Way::Open {
        let Ok(mut outer) = TcpStream::connect(remote).await else { return };
        tokio::select! {
            _ = copy_bidirectional(&mut inner, &mut outer) => return,
            _ = way.changed() => {}
        }
    }
    if *way.borrow() == Way::Silent {
        let _ = way.changed().await;
    }
}
