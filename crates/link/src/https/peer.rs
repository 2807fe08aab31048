//! Root servers among themselves: a question to a zone that is connected to another of them, small
//! questions, and blobs. A peer's certificate is of the kind `root`, which only a root gives itself.
//!
//! ```text
//!  asker:     opens the stream, sends { child, ask } as its first frame
//!  answerer:  asks the child, sends {} or the error as its first frame, then joins the two streams
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::routing::{get, post};
use model::exchange::Ask;
use model::{ChildId, Digest, Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWrite;

use super::client::ParentClient;
use super::roster::Connection;
use super::routes::{Answer, MESSAGE_MAX, Peer, Refusal, Shared, answer, blob_answer};
use super::socket::pump;
use super::{PATH_PEER_ASK, PATH_PEER_BLOB, PATH_PEER_TELL};
use crate::identity::Kind;
use crate::limits::{CALL_WAIT, CONNECT_WAIT, SMALL_BODY_MAX};
use crate::parent::PeerHandler;
use crate::stream::{ByteStream, Frame, pipe};
use crate::wallet::Wallet;
use crate::wire::{self, WireError};

/// The first frame of an asker.
#[derive(Serialize, Deserialize)]
struct Relayed {
    child: ChildId,
    ask: Ask,
}

/// The first frame of the answerer.
#[derive(Serialize, Deserialize)]
struct Verdict {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route(PATH_PEER_ASK, get(ask))
        .route(PATH_PEER_TELL, post(tell))
        .route(&format!("{PATH_PEER_BLOB}/{{digest}}"), get(blob))
}

/// Another root server, by its certificate.
struct Root(Arc<dyn PeerHandler>, Arc<Connection>);

impl FromRequestParts<Arc<Shared>> for Root {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let Peer(identity, connection) = Peer::from_request_parts(parts, shared).await?;
        match &shared.peers {
            Some(handler) if identity.kind == Kind::Root => Ok(Self(handler.clone(), connection)),
            _ => {
                Err(Error::new(ErrorKind::Forbidden, format!("{identity} is no peer of this server")).into())
            }
        }
    }
}

async fn ask(Root(handler, connection): Root, upgrade: WebSocketUpgrade) -> Answer {
    let upgrade = upgrade.max_message_size(MESSAGE_MAX).max_frame_size(MESSAGE_MAX);
    Ok(upgrade.on_upgrade(async move |socket| {
        let (ours, theirs) = ByteStream::pair();
        tokio::select! {
            () = async { tokio::join!(pump(socket, ours), relay(handler, theirs)); } => {}
            () = connection.stopped() => {}
        }
    }))
}

async fn relay(handler: Arc<dyn PeerHandler>, mut asker: ByteStream) {
    let asked = match tokio::time::timeout(CONNECT_WAIT, asker.recv()).await {
        Ok(Some(Frame::Data(bytes))) => serde_json::from_slice::<Relayed>(&bytes),
        _ => return,
    };
    let found = match asked {
        Ok(Relayed { child, ask }) => handler.ask(&child, ask).await,
        Err(error) => Err(Error::invalid("the relayed question cannot be read").because(error)),
    };
    let error = found.as_ref().err().map(WireError::from);
    let verdict = serde_json::to_vec(&Verdict { error }).unwrap_or_default();
    if asker.send(Frame::Data(verdict.into())).await.is_ok()
        && let Ok(child) = found
    {
        pipe(asker, child).await;
    }
}

async fn tell(Root(handler, _): Root, body: Bytes) -> Answer {
    let question: Value = wire::decode(&body, SMALL_BODY_MAX)?;
    answer(&handler.tell(question).await?)
}

async fn blob(Root(handler, _): Root, Path(digest): Path<String>) -> Answer {
    let digest: Digest = digest.parse()?;
    blob_answer(handler.blob(&digest).await?)
}

/// Calls one other root server.
pub struct PeerClient(ParentClient);

impl PeerClient {
    pub fn new(wallet: impl Into<Wallet>, url: &str) -> Result<Self> {
        Ok(Self(ParentClient::new(&wallet.into(), url)?))
    }

    /// Puts a question to a child that is connected to the other server.
    pub async fn ask(&self, child: &ChildId, ask: Ask) -> Result<ByteStream> {
        let mut stream = self.0.stream_at(PATH_PEER_ASK).await?;
        let asked = Relayed { child: child.clone(), ask };
        let asked = serde_json::to_vec(&asked)
            .map_err(|error| Error::internal("a question cannot be written").because(error))?;
        stream.send(Frame::Data(asked.into())).await?;
        let late = || Error::unavailable("the other root server did not answer in time");
        match tokio::time::timeout(CALL_WAIT + CONNECT_WAIT, stream.recv()).await.map_err(|_| late())? {
            Some(Frame::Data(bytes)) => match serde_json::from_slice::<Verdict>(&bytes) {
                Ok(Verdict { error: None }) => Ok(stream),
                Ok(Verdict { error: Some(error) }) => Err(error.into()),
                Err(error) => Err(late().because(error)),
            },
            _ => Err(Error::unavailable("the other root server ended the stream")),
        }
    }

    pub async fn tell<Q: Serialize + Sync, A: DeserializeOwned + Send + 'static>(
        &self,
        question: &Q,
        wait: Duration,
    ) -> Result<A> {
        let told = self.0.post(PATH_PEER_TELL, question, wait).await?;
        told.ok_or_else(|| Error::unavailable("the other root server gave no answer"))
    }

    /// Fetches a blob into `to`, checks its digest and returns its length.
    pub async fn blob(&self, digest: &Digest, to: &mut (dyn AsyncWrite + Send + Unpin)) -> Result<u64> {
        self.0.blob_at(PATH_PEER_BLOB, digest, to).await
    }
}
