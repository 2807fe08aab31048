//! The listening side: accepts, verifies who calls, and serves the routes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use model::{ChildId, Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

use super::roster::{Connection, Roster};
use super::routes::{Shared, router};
use crate::ca::Issuer;
use crate::calls::Calls;
use crate::dispatch::Dispatcher;
use crate::enroll::Desk;
use crate::identity::{Children, Credentials, Identity, validity_of};
use crate::limits::{
    CONNECT_WAIT, CONNECTIONS_MAX, CONNECTIONS_NEW_MAX, POLL_MAX, REQUESTS_PER_CONNECTION_MAX, STRANGER_WAIT,
    STRANGERS_MAX, STRANGERS_SAID_EVERY,
};
use crate::parent::{ParentHandler, PeerHandler};
use crate::tls::server_config;
use crate::uplink::Rarely;
use crate::wallet::Wallet;

pub struct HttpsParentConfig {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// A [`crate::Kind::Server`] certificate with the names and addresses that children use.
    pub server: Credentials,
    pub children: Children,
    /// Takes new children; without it nobody can enrol here.
    pub desk: Option<Desk>,
    /// Gives certificates to those who have one already: renewals, and a zone's nodes and listener.
    pub issuer: Option<Arc<dyn Issuer>>,
    /// Answers other root servers; without it they are nobody here.
    pub peers: Option<Arc<dyn PeerHandler>>,
    /// Gives tasks to provisioners; without it they are nobody here.
    pub dispatcher: Option<Arc<dyn Dispatcher>>,
}

/// A listener that runs until it is dropped.
pub struct HttpsParent {
    address: SocketAddr,
    roster: Arc<Roster>,
    wallet: Wallet,
    _stop: DropGuard,
}

impl HttpsParent {
    pub async fn start(
        config: HttpsParentConfig,
        handler: Arc<dyn ParentHandler>,
        calls: Calls,
    ) -> Result<Self> {
        let wallet = Wallet::from(config.server);
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&wallet)?));
        let listener = TcpListener::bind(config.listen).await.map_err(|error| {
            Error::unavailable(format!("cannot listen on {}: {error}", config.listen)).because(error)
        })?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let roster = Arc::new(Roster::new(handler.clone(), calls.clone(), stop.clone()));
        let kicks = calls.kicks();
        let shared = Arc::new(Shared {
            handler,
            calls,
            children: config.children,
            desk: config.desk,
            issuer: config.issuer,
            peers: config.peers,
            dispatcher: config.dispatcher,
            roster: roster.clone(),
        });
        let server = Server {
            acceptor,
            router: router(shared),
            roster: roster.clone(),
            strangers: Arc::new(Mutex::new(Rarely::new(STRANGERS_SAID_EVERY))),
        };
        tokio::spawn(kicks_follow(roster.clone(), kicks, stop.clone()));
        tokio::spawn(server.accept(listener, stop.clone()));
        Ok(Self { address, roster, wallet, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate that it shows. What is put there is shown to whoever connects from then on.
    pub fn wallet(&self) -> &Wallet {
        &self.wallet
    }

    /// Closes every connection: a parent that no longer holds the duty sends its children away at once.
    pub fn dismiss(&self) {
        self.roster.dismiss();
    }
}

#[derive(Clone)]
struct Server {
    acceptor: TlsAcceptor,
    router: Router,
    roster: Arc<Roster>,
    /// Anybody may come with a certificate that is of no use here, and often.
    strangers: Arc<Mutex<Rarely>>,
}

impl Server {
    /// Connections live in this task's set, so that all of them end with the listener.
    async fn accept(self, listener: TcpListener, stop: CancellationToken) {
        let rooms = Arc::new(Rooms::new());
        let mut connections = JoinSet::new();
        loop {
            let Ok(new) = rooms.new.clone().acquire_owned().await else { return };
            tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        let (server, rooms) = (self.clone(), rooms.clone());
                        connections.spawn(async move { server.connection(socket, &rooms, new).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                },
            }
            while connections.try_join_next().is_some() {}
        }
    }

    /// One that shows a certificate which has expired, is not good yet or is of another CA is worth a word: it is somebody
    /// who should be let in, or tries to.
    fn refused(&self, from: Option<SocketAddr>, error: &std::io::Error) {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let certificate = matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
        if certificate && self.strangers.lock().unwrap_or_else(PoisonError::into_inner).due() {
            tracing::warn!(?from, %error, "a certificate is refused; an expired one needs a new token");
        } else {
            tracing::debug!(?from, %error, "TLS handshake failed");
        }
    }

    async fn connection(self, socket: TcpStream, rooms: &Rooms, new: OwnedSemaphorePermit) {
        let _ = socket.set_nodelay(true);
        let from = socket.peer_addr();
        let tls = match tokio::time::timeout(CONNECT_WAIT, self.acceptor.accept(socket)).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return self.refused(from.ok(), &error),
            Err(_) => return tracing::debug!("TLS handshake took too long"),
        };
        let certificate = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = certificate
            .and_then(|der| Some((Identity::from_certificate(der).ok()?, validity_of(der).ok()?.1)));
        let stranger = peer.is_none();
        let Some(_place) = rooms.enter(stranger, new) else {
            return tracing::debug!(?from, stranger, "there is no room for one more connection");
        };
        let connection = Connection::new(peer, self.roster);
        let _close = Close(connection.clone());
        let stopped = connection.clone();
        let router = self.router;
        let spoke = Arc::new(Notify::new());
        let speaking = spoke.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            speaking.notify_one();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection.clone());
            router.clone().oneshot(request)
        });
        // Anybody may come this far; who then says nothing must not keep the place.
        let silent = async {
            if tokio::time::timeout(CONNECT_WAIT, spoke.notified()).await.is_err() {
                return;
            }
            match stranger {
                true => tokio::time::sleep(STRANGER_WAIT).await,
                false => std::future::pending::<()>().await,
            }
        };
        let protocol = protocol();
        let served = protocol.serve_connection_with_upgrades(TokioIo::new(tls), service);
        tokio::select! {
            result = served => if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            },
            () = stopped.stopped() => tracing::debug!("the connection is closed from here"),
            () = silent => tracing::debug!(stranger, "the connection brought no request in time, or took too long"),
        }
    }
}

/// Places for connections, by what is known of who came.
struct Rooms {
    new: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
}

impl Rooms {
    fn new() -> Self {
        let room = |places| Arc::new(Semaphore::new(places));
        Self { new: room(CONNECTIONS_NEW_MAX), strangers: room(STRANGERS_MAX), known: room(CONNECTIONS_MAX) }
    }

    /// A place for as long as it is held, in exchange for that of a newcomer; none when all are taken.
    fn enter(&self, stranger: bool, new: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        let room = if stranger { &self.strangers } else { &self.known };
        let place = room.clone().try_acquire_owned().ok();
        drop(new);
        place
    }
}

/// Closes the connections of children that were removed.
async fn kicks_follow(roster: Arc<Roster>, mut kicks: broadcast::Receiver<ChildId>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            kicked = kicks.recv() => match kicked {
                Ok(child) => roster.kick(&child),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}

struct Close(Arc<Connection>);

impl Drop for Close {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn protocol() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(POLL_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(REQUESTS_PER_CONNECTION_MAX)
        .keep_alive_interval(POLL_MAX)
        .keep_alive_timeout(CONNECT_WAIT);
    builder
}
