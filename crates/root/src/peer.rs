//! The other root servers, as this one calls them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use link::{ByteStream, PeerClient, Wallet};
use model::exchange::{Ask, NodeReport};
use model::{ChildId, Digest, Error, ErrorKind, Result, Timestamp, ZoneId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::duty::{self, Duties};
use crate::tables::ServerRecord;

/// How long a question waits for some server to hold the tree.
const HOLDER_WAIT: Duration = Duration::from_secs(8);
const HOLDER_PAUSE: Duration = Duration::from_millis(100);
const LIVES_WAIT: Duration = Duration::from_secs(3);
/// Another server has this long to fetch the layers of an image.
const TAKE_WAIT: Duration = Duration::from_secs(600);

/// What servers ask each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Which zones are there; the holder of the tree knows.
    Lives,
    /// Fetch these blobs from the server at this address; the answer comes when they are kept.
    Take { from: String, digests: Vec<Digest> },
}

/// What the holder of the tree knows of a zone's link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneLife {
    pub zone: ZoneId,
    pub live: bool,
    #[serde(default)]
    pub last_seen: Option<Timestamp>,
    #[serde(default)]
    pub report: Option<NodeReport>,
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    duties: Duties,
    /// Those of the kind `root`; `None` where one server is all there is.
    wallet: Option<Wallet>,
    clients: Mutex<HashMap<String, Arc<PeerClient>>>,
}

impl Peers {
    /// For the only server of a store.
    pub fn none() -> Self {
        Self::make(Duties::alone(), None)
    }

    pub fn new(duties: Duties, wallet: impl Into<Wallet>) -> Self {
        Self::make(duties, Some(wallet.into()))
    }

    fn make(duties: Duties, wallet: Option<Wallet>) -> Self {
        Self(Arc::new(Inner { duties, wallet, clients: Mutex::default() }))
    }

    /// What this server shows to the others; nothing where it is alone.
    pub fn wallet(&self) -> Option<&Wallet> {
        self.0.wallet.as_ref()
    }

    pub fn duties(&self) -> &Duties {
        &self.0.duties
    }

    /// Puts a question to a zone through whichever server holds the tree. Returns `None` when that is us.
    pub async fn ask(&self, zone: &ChildId, ask: Ask) -> Result<Option<ByteStream>> {
        let until = Instant::now() + HOLDER_WAIT;
        loop {
            if self.0.duties.held(duty::TREE).is_some() {
                return Ok(None);
            }
            if let Some(holder) = self.0.duties.holder(duty::TREE) {
                match self.client(&holder.link_url)?.ask(zone, ask.clone()).await {
                    // It has only just got the duty, or has just lost it.
                    Err(error) if error.kind == ErrorKind::Conflict && Instant::now() < until => {}
                    other => return other.map(Some),
                }
            }
            if Instant::now() >= until {
                return Err(Error::unavailable("no root server holds the tree at the moment")
                    .hint("try again in a moment"));
            }
            tokio::time::sleep(HOLDER_PAUSE).await;
        }
    }

    /// What the holder of the tree knows of its zones.
    pub async fn lives(&self, holder: &ServerRecord) -> Result<Vec<ZoneLife>> {
        self.client(&holder.link_url)?.tell(&Question::Lives, LIVES_WAIT).await
    }

    /// Lets another server fetch blobs from the server at `from`.
    pub async fn take(&self, server: &ServerRecord, from: &str, digests: Vec<Digest>) -> Result<()> {
        let question = Question::Take { from: from.to_owned(), digests };
        self.client(&server.link_url)?.tell::<_, serde_json::Value>(&question, TAKE_WAIT).await.map(drop)
    }

    pub fn client(&self, url: &str) -> Result<Arc<PeerClient>> {
        let Some(wallet) = &self.0.wallet else {
            return Err(Error::unavailable("this root has no other servers beside it"));
        };
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(url) {
            return Ok(client.clone());
        }
        // Servers that are long gone are not kept for ever.
        let known: Vec<_> =
            self.0.duties.others().into_iter().map(|server| server.link_url.clone()).collect();
        clients.retain(|url, _| known.contains(url));
        let client = Arc::new(PeerClient::new(wallet, url)?);
        clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }
}
