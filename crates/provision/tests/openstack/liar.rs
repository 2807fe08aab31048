//! A server that answers everything in one way, and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub struct Liar {
    pub url: String,
    asked: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Liar {
    /// `head` is the status line and headers; the body is so many letters, in pieces without a length.
    pub async fn start(head: &str, body: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, head) = (asked.clone(), format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n"));
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 16 << 10]).await;
                let _ = stream.write_all(head.as_bytes()).await;
                for _ in 0..body >> 16 {
                    if stream.write_all(&[b'x'; 1 << 16]).await.is_err() {
                        break;
                    }
                }
            }
        });
        Self { url, asked, serving }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
