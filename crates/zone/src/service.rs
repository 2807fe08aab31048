//! A zone on the real links: its ledger, its loop, and its two faces.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use link::{ByteStream, Calls, Frame, Kind, MemoryBook, TokenBook, TokenRecord, Uplink};
use model::exchange::{Ask, Revision};
use model::{ChildId, Desired, Error, Facts, InstanceId, Name, Observed, PlaceMode, Result, Timestamp};
use tier::inbox::Refused;
use tier::ledger::Ledger;
use tier::sync::ChildOwner;
use tier::{Doors, Leases, ParentConfig, kept};
use work::{SharedClock, Wake};

use crate::blobs::Blobs;
use crate::core::{Core, Kept};

/// Leases are looked at this often when nothing else happens.
const TICK_MAX: Duration = Duration::from_secs(5);
/// How often unused blobs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
const LEDGER_FILE: &str = "ledger.redb";

#[derive(Debug, Clone)]
pub struct ZoneConfig {
    pub name: Name,
    pub data: PathBuf,
    pub leases: Leases,
}

impl ZoneConfig {
    pub fn new(name: Name, data: PathBuf) -> Self {
        Self { name, data, leases: Leases::NODES }
    }
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct ZoneService(Arc<Inner>);

struct Inner {
    core: Mutex<Core>,
    ledger: Ledger,
    /// Held from deciding what to keep until it is kept, so that the ledger is written in that order.
    disk: tokio::sync::Mutex<()>,
    doors: Doors,
    calls: Calls,
    blobs: Blobs,
    book: Arc<MemoryBook>,
    clock: SharedClock,
    wake: Wake,
    news: Wake,
}

impl ZoneService {
    /// Reads the ledger. [`ZoneService::run`] sets it going.
    pub fn open(config: ZoneConfig, uplink: Arc<dyn Uplink>, clock: SharedClock) -> Result<Self> {
        std::fs::create_dir_all(&config.data)?;
        let ledger = Ledger::open(&config.data.join(LEDGER_FILE))?;
        let epoch = ledger.epoch_next()?;
        let kept = Kept::read(&ledger)?;
        let leases = config.leases;
        let parent = ParentConfig { leases, ..ParentConfig::over_nodes(config.name.as_str(), epoch) };
        let core = Core::new(config.name.clone(), env!("CARGO_PKG_VERSION"), parent, kept, clock.now());
        let inner = Inner {
            core: Mutex::new(core),
            ledger,
            disk: tokio::sync::Mutex::new(()),
            doors: Doors::new(),
            calls: Calls::new(),
            blobs: Blobs::open(config.data.join("blobs"), uplink)?,
            book: Arc::default(),
            clock,
            wake: Wake::new(),
            news: Wake::new(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The calls that the nodes' listeners share.
    pub fn calls(&self) -> Calls {
        self.0.calls.clone()
    }

    /// The tokens with which nodes may join. They live an hour, so memory is enough.
    pub fn book(&self) -> Arc<MemoryBook> {
        self.0.book.clone()
    }

    /// Places what waits, lets leases lapse and clears up, until dropped.
    pub async fn run(&self) {
        tokio::join!(self.drive(), self.sweep());
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let used = self.core().digests();
            if let Err(error) = self.0.blobs.sweep(&used).await {
                tracing::warn!(%error, "unused blobs could not be removed");
            }
        }
    }

    async fn drive(&self) {
        loop {
            if let Err(error) = self.step().await {
                tracing::error!(%error, "a step of the zone failed");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            if !self.core().undecided(self.now()) {
                let _ = tokio::time::timeout(self.until_deadline(), self.0.wake.wait()).await;
            }
        }
    }

    fn until_deadline(&self) -> Duration {
        let Some(deadline) = self.core().next_deadline() else { return TICK_MAX };
        let ms = deadline.ms_since(self.now()).max(0) as u64 + 1;
        Duration::from_millis(ms).min(TICK_MAX)
    }

    async fn step(&self) -> Result<()> {
        let in_order = self.0.disk.lock().await;
        let step = self.core().step(self.now());
        if !step.decisions.is_empty() {
            let kept = self.0.ledger.commit_async(step.writes).await;
            let mut core = self.core();
            match &kept {
                Ok(()) => core.committed(&step.decisions),
                Err(_) => core.rejected(&step.decisions),
            }
            drop(core);
            kept?;
        }
        drop(in_order);
        self.changed();
        Ok(())
    }

    /// Lets nodes and root hear of what changed.
    pub(crate) fn changed(&self) {
        let told = self.core().told_take();
        self.0.doors.open(told);
        self.0.news.wake();
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(crate) fn doors(&self) -> &Doors {
        &self.0.doors
    }

    pub(crate) fn blobs(&self) -> &Blobs {
        &self.0.blobs
    }

    pub(crate) fn wake(&self) {
        self.0.wake.wake();
    }

    async fn desired_take(&self, desired: Desired) -> Result<()> {
        let _in_order = self.0.disk.lock().await;
        let (writes, decisions) = {
            let mut core = self.core();
            let mut writes = match core.desired(desired) {
                Ok(writes) => writes,
                Err(Refused::Past) => return Ok(()),
                Err(Refused::NeedWhole) => return Err(Error::conflict("the whole desired set is needed")),
            };
            // What finds its place at once is kept together with it: one wait for the disk.
            let step = core.step(self.now());
            writes.extend(step.writes);
            (writes, step.decisions)
        };
        let kept = self.0.ledger.commit_async(writes).await;
        match &kept {
            Ok(()) => self.core().committed(&decisions),
            Err(_) => {
                self.core().rejected(&decisions);
                let inbox = kept::read(&self.0.ledger)?;
                self.core().desired_restore(inbox);
            }
        }
        self.wake();
        self.changed();
        kept
    }

    async fn answer(&self, ask: Ask, stream: ByteStream) {
        let done = match &ask {
            Ask::Nodes => {
                let nodes = self.core().nodes();
                self.reply(&stream, &nodes).await
            }
            Ask::Mode { node, mode, .. } => self.mode(node, *mode, &stream).await,
            Ask::Admit { digest, expires_at } => self.admit(digest.clone(), *expires_at, &stream).await,
            Ask::Label { .. }
            | Ask::Remove { .. }
            | Ask::History { .. }
            | Ask::Usage { .. }
            | Ask::Health => Err(Error::invalid("this zone cannot answer that")),
            Ask::Logs { instance, .. } | Ask::Exec { instance, .. } | Ask::Stats { instance } => {
                return self.pass_on(instance.clone(), ask, stream).await;
            }
        };
        if let Err(error) = done {
            let _ = stream.send(Frame::Error(error.message)).await;
        }
    }

    async fn reply(&self, stream: &ByteStream, body: &impl serde::Serialize) -> Result<()> {
        let json = serde_json::to_vec(body)
            .map_err(|e| Error::internal("an answer cannot be written").because(e))?;
        stream.send(Frame::Data(json.into())).await?;
        stream.send(Frame::Eof).await
    }

    async fn mode(&self, node: &Name, mode: PlaceMode, stream: &ByteStream) -> Result<()> {
        let writes = self.core().node_mode(node.as_str(), mode);
        let writes = writes.ok_or_else(|| Error::not_found(format!("node '{node}'")))?;
        self.0.ledger.commit_async(writes).await?;
        self.wake();
        self.changed();
        self.reply(stream, &serde_json::json!({})).await
    }

    async fn admit(&self, digest: String, expires_at: Timestamp, stream: &ByteStream) -> Result<()> {
        self.0.book.add(TokenRecord { digest, kind: Kind::Node, name: None, expires_at }).await?;
        self.reply(stream, &serde_json::json!({})).await
    }

    /// Joins root's stream to one that the node opens.
    async fn pass_on(&self, instance: InstanceId, ask: Ask, stream: ByteStream) {
        let node = self.core().node_of(&instance);
        let opened = match node {
            Some(node) => self.0.calls.call(&node, ask).await,
            None => Err(Error::unavailable("the instance is on no node now")),
        };
        match opened {
            Ok(below) => link::pipe(stream, below).await,
            Err(error) => drop(stream.send(Frame::Error(error.message)).await),
        }
    }
}

impl ChildOwner for ZoneService {
    fn have(&self) -> Option<Revision> {
        self.core().have()
    }

    fn take(&self, desired: Desired) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.desired_take(desired))
    }

    fn report(&self, acked: Option<Revision>) -> Option<Observed> {
        self.core().report(acked)
    }

    fn told(&self, facts: Facts) {
        self.core().told(facts);
    }

    fn news(&self) -> Wake {
        self.0.news.clone()
    }

    fn answer(&self, ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()> {
        let zone = self.clone();
        Box::pin(async move { ZoneService::answer(&zone, ask, stream).await })
    }
}

/// Which node, for logs.
pub(crate) fn node_seen(node: &ChildId, up: bool) {
    tracing::info!(%node, up, "node link");
}
