//! The child's HTTPS client: requests, streams and blobs. Children of both transports use it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use model::{Digest, Error, ErrorKind, Result};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::routes::MESSAGE_MAX;
use super::socket::pump;
use super::{HEADER_CONN, PATH_BLOB, PATH_STREAM};
use crate::limits::{BLOB_STALL, BODY_MAX, CONNECT_WAIT, FRAME_MAX, PARENTS_MAX, SMALL_BODY_MAX};
use crate::stream::ByteStream;
use crate::tls::client_config;
use crate::wallet::Wallet;
use crate::wire;

/// Where a parent is found: one address or several, of which one is used at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parents(Vec<String>);

impl Parents {
    fn check(&self) -> Result<()> {
        if self.0.is_empty() || self.0.len() > PARENTS_MAX {
            return Err(Error::invalid(format!("a parent has 1 to {PARENTS_MAX} addresses")));
        }
        match self.0.iter().find(|url| !url.starts_with("https://")) {
            Some(url) => Err(Error::invalid(format!(
                "'{url}' is not the address of a parent: it begins with https://"
            ))),
            None => Ok(()),
        }
    }

    pub fn urls(&self) -> &[String] {
        &self.0
    }
}

impl<S: AsRef<str>> From<&[S]> for Parents {
    fn from(urls: &[S]) -> Self {
        Self(urls.iter().map(|url| url.as_ref().trim_end_matches('/').to_owned()).collect())
    }
}

impl From<&str> for Parents {
    fn from(url: &str) -> Self {
        Self::from(&[url][..])
    }
}

impl From<&String> for Parents {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<&Parents> for Parents {
    fn from(parents: &Parents) -> Self {
        parents.clone()
    }
}

pub(crate) struct ParentClient {
    parents: Parents,
    /// Which of them is used now.
    used: AtomicUsize,
    /// HTTP/2 for the exchange: polls, pushes and beats share one connection.
    exchange_tls: ClientConfig,
    exchange: Mutex<reqwest::Client>,
    /// HTTP/1.1 for what is large, so that a blob never delays a beat.
    bulk: reqwest::Client,
    stream_tls: Arc<ClientConfig>,
    /// The number of the connection that the exchange goes over, where there is one.
    conn: Mutex<Option<u64>>,
}

impl ParentClient {
    pub(crate) fn new(wallet: &Wallet, parents: impl Into<Parents>) -> Result<Self> {
        let parents = parents.into();
        parents.check()?;
        let mut exchange_tls = client_config(wallet)?;
        exchange_tls.alpn_protocols = vec![b"h2".to_vec()];
        let mut bulk_tls = client_config(wallet)?;
        bulk_tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let exchange = Mutex::new(exchange_client(&exchange_tls)?);
        let bulk = reqwest::Client::builder()
            .tls_backend_preconfigured(bulk_tls.clone())
            .no_proxy()
            .http1_only()
            .connect_timeout(CONNECT_WAIT)
            .read_timeout(BLOB_STALL)
            .pool_max_idle_per_host(1)
            // Shorter than the parent's patience with an idle connection.
            .pool_idle_timeout(CONNECT_WAIT)
            .build()
            .map_err(unusable)?;
        let used = AtomicUsize::new(0);
        let (stream_tls, conn) = (Arc::new(bulk_tls), Mutex::default());
        Ok(Self { parents, used, exchange_tls, exchange, bulk, stream_tls, conn })
    }

    /// What goes over the exchange from now on belongs to the connection with this number.
    pub(crate) fn conn_set(&self, conn: u64) {
        *self.conn.lock().unwrap_or_else(PoisonError::into_inner) = Some(conn);
    }

    /// Drops the exchange's connection, which may be dead without knowing it.
    pub(crate) fn reconnect(&self) -> Result<()> {
        *self.exchange.lock().unwrap_or_else(PoisonError::into_inner) = exchange_client(&self.exchange_tls)?;
        Ok(())
    }

    /// How many addresses there are.
    pub(crate) fn addresses(&self) -> usize {
        self.parents.0.len()
    }

    fn url(&self) -> &str {
        &self.parents.0[self.used.load(Ordering::Relaxed) % self.parents.0.len()]
    }

    /// After an error: takes the address that the parent named, when it is one of ours, or else the next one.
    pub(crate) fn move_on(&self, error: &Error) {
        let count = self.parents.0.len();
        let named = wire::not_holder(error).and_then(|moved| moved.0.as_deref());
        let named =
            named.and_then(|url| self.parents.0.iter().position(|known| known == url.trim_end_matches('/')));
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(named.unwrap_or((used + 1) % count), Ordering::Relaxed);
    }

    /// Posts one message to whichever address takes it.
    pub(crate) async fn post_any<B: Serialize + Sync, A: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
        body: &B,
        wait: Duration,
    ) -> Result<Option<A>> {
        let mut tried = 1;
        loop {
            match self.post(path, body, wait).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tried < self.addresses() => {
                    self.move_on(&error);
                    tried += 1;
                }
                done => return done,
            }
        }
    }

    /// Posts one message; `None` when the answer is empty.
    pub(crate) async fn post<B: Serialize + Sync, A: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
        body: &B,
        wait: Duration,
    ) -> Result<Option<A>> {
        let client = self.exchange.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.post_on(&client, path, body, wait).await
    }

    /// Makes a new connection with one message, and only then lets go of the old one.
    pub(crate) async fn hand_over<B: Serialize + Sync>(
        &self,
        path: &str,
        body: &B,
        wait: Duration,
    ) -> Result<()> {
        let client = exchange_client(&self.exchange_tls)?;
        self.post_on::<B, ()>(&client, path, body, wait).await?;
        *self.exchange.lock().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    async fn post_on<B: Serialize + Sync, A: DeserializeOwned + Send + 'static>(
        &self,
        client: &reqwest::Client,
        path: &str,
        body: &B,
        wait: Duration,
    ) -> Result<Option<A>> {
        let body = wire::encode_large(body, BODY_MAX).await?;
        let mut request = client.post(format!("{}{path}", self.url())).body(body).timeout(wait);
        let conn = *self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conn) = conn {
            request = request.header(HEADER_CONN, conn);
        }
        answer_read(request.send().await.map_err(unreachable_parent)?).await
    }

    pub(crate) async fn open_stream(&self, id: &str) -> Result<ByteStream> {
        self.stream_at(&format!("{PATH_STREAM}/{id}")).await
    }

    pub(crate) async fn stream_at(&self, path: &str) -> Result<ByteStream> {
        let url = format!("wss://{}{path}", &self.url()["https://".len()..]);
        let config = WebSocketConfig::default()
            .read_buffer_size(FRAME_MAX)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let connector = tokio_tungstenite::Connector::Rustls(self.stream_tls.clone());
        let connect =
            tokio_tungstenite::connect_async_tls_with_config(url, Some(config), true, Some(connector));
        let (socket, _) = tokio::time::timeout(CONNECT_WAIT, connect)
            .await
            .map_err(|_| Error::unavailable("the parent did not take the stream in time"))?
            .map_err(stream_refused)?;
        let (ours, theirs) = ByteStream::pair();
        tokio::spawn(pump(socket, ours));
        Ok(theirs)
    }

    /// Streams a blob into `to` and checks that it is the one asked for.
    pub(crate) async fn blob(
        &self,
        digest: &Digest,
        to: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        self.blob_at(PATH_BLOB, digest, to).await
    }

    pub(crate) async fn blob_at(
        &self,
        path: &str,
        digest: &Digest,
        to: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let request = self.bulk.get(format!("{}{path}/{digest}", self.url()));
        let sent = request.send().await.map_err(unreachable_parent);
        let mut response = sent.inspect_err(|error| self.move_on(error))?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let mut hash = Sha256::new();
        let mut len = 0u64;
        while let Some(chunk) = response.chunk().await.map_err(unreachable_parent)? {
            hash.update(&chunk);
            len += chunk.len() as u64;
            to.write_all(&chunk).await?;
        }
        to.flush().await?;
        if Digest::from_sha256(&hash.finalize()) != *digest {
            return Err(Error::unavailable(format!("what came is not {digest}: the blob is damaged")));
        }
        Ok(len)
    }
}

fn exchange_client(tls: &ClientConfig) -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .no_proxy()
        .http2_prior_knowledge()
        .connect_timeout(CONNECT_WAIT)
        .pool_max_idle_per_host(1)
        .build()
        .map_err(unusable)
}

/// Reads an answer of bounded size, or the refusal.
pub(crate) async fn answer_read<A: DeserializeOwned + Send + 'static>(
    mut response: reqwest::Response,
) -> Result<Option<A>> {
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    if response.status() == reqwest::StatusCode::NO_CONTENT {
        return Ok(None);
    }
    let body = body_read(&mut response, BODY_MAX).await?;
    wire::decode_large(body, BODY_MAX).await.map(Some)
}

async fn body_read(response: &mut reqwest::Response, max: usize) -> Result<Bytes> {
    let mut body = bytes::BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable_parent)? {
        if body.len() + chunk.len() > max {
            return Err(wire::too_large(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The parent's own words where it gave any, otherwise what the status says.
async fn refusal(mut response: reqwest::Response) -> Error {
    let status = response.status();
    let body = body_read(&mut response, SMALL_BODY_MAX).await.unwrap_or_default();
    if let Ok(error) = serde_json::from_slice::<wire::WireError>(&body) {
        return if status.as_u16() == wire::NOT_HOLDER { error.moved() } else { error.into() };
    }
    let kind = match status.as_u16() {
        400 => ErrorKind::Invalid,
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::NotFound,
        413 => ErrorKind::TooLarge,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the parent answered {status}"))
}

pub(crate) fn unreachable_parent(error: reqwest::Error) -> Error {
    let mut why = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        why = format!("{why}: {inner}");
        cause = inner.source();
    }
    Error::unavailable(format!("the parent cannot be reached: {why}"))
}

fn stream_refused(error: tungstenite::Error) -> Error {
    match &error {
        tungstenite::Error::Http(response) if response.status().as_u16() == 404 => {
            Error::not_found("stream of that name; its caller may have given up")
        }
        _ => Error::unavailable(format!("the stream cannot be opened: {error}")).because(error),
    }
}

fn unusable(error: reqwest::Error) -> Error {
    Error::internal("the HTTPS client cannot be made").because(error)
}
