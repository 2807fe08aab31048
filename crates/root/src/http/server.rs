//! The listener: accepts, bounds times and numbers, and ends in good order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use model::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use super::extract::Peer;
use crate::cloud::Shared;

const CONNECTIONS_MAX: usize = 4096;
const STREAMS_PER_CONNECTION_MAX: u32 = 256;
/// Requests that are under way get this long when the server ends.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after an accept that failed, such as for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Tells streams that the server ends.
#[derive(Clone)]
pub struct Ending(watch::Receiver<bool>);

impl Ending {
    /// Returns when the server ends.
    pub async fn wait(mut self) {
        let _ = self.0.wait_for(|ended| *ended).await;
    }
}

/// A server that runs.
pub struct Running {
    pub addr: SocketAddr,
    ending: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Takes no new requests, ends streams, lets the others finish for a moment.
    pub async fn shutdown(mut self) {
        self.ending.send_replace(true);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ending.send_replace(true);
    }
}

/// Takes a place for REST. Who connects there waits until it is served.
pub async fn listen(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).await.map_err(|error| bind_error(at, error))
}

/// Listens where the configuration says.
pub async fn serve(cloud: Shared) -> Result<Running> {
    let listener = listen(cloud.config.listen).await?;
    serve_on(cloud, listener)
}

/// Serves where somebody listens already.
pub fn serve_on(cloud: Shared, listener: TcpListener) -> Result<Running> {
    let addr = listener.local_addr()?;
    let (ending, ended) = watch::channel(false);
    let router = super::router(cloud.clone(), Ending(ended.clone()));
    let head_timeout = Duration::from_millis(cloud.config.head_timeout_ms);
    let accepting = tokio::spawn(accept(listener, router, head_timeout, ended.clone()));
    let (duties, over) = (cloud.clone(), ended.clone());
    let controlling = tokio::spawn(async move {
        tokio::select! {
            () = crate::workload::run(duties) => {}
            () = Ending(over).wait() => {}
        }
    });
    let (jobs, over) = (cloud.clone(), ended.clone());
    let dispatching = tokio::spawn(async move {
        tokio::select! {
            () = crate::cluster::run(jobs) => {}
            () = Ending(over).wait() => {}
        }
    });
    let sweeping = tokio::spawn(async move {
        tokio::select! {
            _ = futures::future::join(crate::sweep::run(cloud.clone()), crate::heal::run(cloud)) => {}
            () = Ending(ended).wait() => {}
        }
    });
    Ok(Running { addr, ending, tasks: vec![accepting, controlling, dispatching, sweeping] })
}

fn bind_error(listen: SocketAddr, error: std::io::Error) -> Error {
    let sentence = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!("the address {listen} is in use by another program"),
        std::io::ErrorKind::PermissionDenied => format!("this user may not listen on {listen}"),
        _ => format!("cannot listen on {listen}: {error}"),
    };
    Error::conflict(sentence).hint("choose another with --listen").because(error)
}

async fn accept(listener: TcpListener, router: Router, head_timeout: Duration, ended: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
            () = Ending(ended.clone()).wait() => break,
        };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let task = connection(stream, peer, router.clone(), head_timeout, ended.clone());
                    connections.spawn(async move {
                        task.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            () = Ending(ended.clone()).wait() => break,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::warn!("some requests did not end in time and are cut off");
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    head_timeout: Duration,
    ended: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let spoke = Arc::new(Notify::new());
    let speaking = spoke.clone();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        speaking.notify_one();
        request.extensions_mut().insert(Peer(peer));
        router.clone().oneshot(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(head_timeout)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    // Until it is clear which protocol a client speaks, the builder's own times do not run.
    let silent = async {
        if tokio::time::timeout(head_timeout, spoke.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = silent => return tracing::debug!(%peer, "the connection brought no request in time"),
        () = Ending(ended).wait() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, error = %error, "the connection ended early");
    }
}
