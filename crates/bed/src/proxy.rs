//! A small TCP proxy whose two sides may stand in different networks, and which may take its time.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const CHUNK: usize = 16 * 1024;
/// Chunks on their way in one direction; more, and the sender waits.
const CHUNKS_MAX: usize = 256;
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Where the proxy is reached.
pub enum Side {
    /// On this machine's loopback.
    Here,
    /// At this address of the network that it also connects from.
    There(Ipv4Addr),
}

/// Runs until it is dropped; its connections end with it.
pub struct Proxy {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Connects to `target` from the network of the process `pid`.
    pub fn start(side: Side, pid: u32, target: SocketAddr, delay: Duration) -> Result<Self> {
        let network = PathBuf::from(format!("/proc/{pid}/ns/net"));
        let here = match side {
            Side::Here => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            Side::There(_) => None,
        };
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let serve = || -> Result<()> {
                let listener = match (here, side) {
                    (Some(listener), _) => listener,
                    (None, Side::There(address)) => TcpListener::bind((address, 0))?,
                    (None, Side::Here) => unreachable!("bound above"),
                };
                listener.set_nonblocking(true)?;
                tell.send(listener.local_addr()?)?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => Ok(()),
                        ended = serve(listener, target, delay) => ended,
                    }
                })
            };
            if let Ok(Err(error)) = net::netns_run(&network, serve) {
                eprintln!("proxy to {target}: {error:#}");
            }
        });
        let address = told.recv().map_err(|_| anyhow!("the proxy to {target} did not start"))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, delay: Duration) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("the listener is not usable")?;
    loop {
        let (near, _) = listener.accept().await?;
        tokio::spawn(async move {
            // That nobody is there is told by the end of the connection.
            if let Ok(Ok(far)) = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(target)).await {
                join(near, far, delay).await;
            }
        });
    }
}

async fn join(near: TcpStream, far: TcpStream, delay: Duration) {
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    // A broken side breaks the other; an end of sending is passed on as one.
    let _ = tokio::try_join!(carry(near_read, far_write, delay), carry(far_read, near_write, delay));
}

async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Duration,
) -> std::io::Result<()> {
    let (put, mut take) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let read = async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            let count = from.read(&mut chunk).await?;
            chunk.truncate(count);
            if put.send((Instant::now() + delay, chunk)).await.is_err() || count == 0 {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = take.recv().await {
            tokio::time::sleep_until(due).await;
            if chunk.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&chunk).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn bytes_pass_both_ways_and_an_end_is_passed_on() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let proxy = Proxy::start(Side::Here, std::process::id(), target, Duration::from_millis(20)).unwrap();
        let mut stream = std::net::TcpStream::connect(proxy.address()).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO");
        echo.join().unwrap();
    }
}
