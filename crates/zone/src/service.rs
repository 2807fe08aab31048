//! A zone on the real links: its ledger, its loop, and its two faces.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use link::{ByteStream, Calls, Rarely, Uplink};
use model::exchange::{Ask, Doorway, Revision};
use model::{Area, Check, ChildId, Desired, Error, Facts, Name, Observed, Pulse, Result, Timestamp};
use tier::inbox::Refused;
use tier::ledger::{Ledger, Write};
use tier::sync::ChildOwner;
use tier::{Doors, Leases, ParentConfig, Way};
use work::{SharedClock, Wake};

use crate::blobs::Blobs;
use crate::book::LedgerBook;
use crate::core::{Core, Kept};
use crate::history::History;
use crate::stuck::Transitions;
use crate::vitals::Vitals;

/// Leases are looked at this often when nothing else happens.
const TICK_MAX: Duration = Duration::from_secs(5);
/// Reports of nodes come in crowds: one look serves all that came in this time.
const STEP_PAUSE: Duration = Duration::from_millis(2);
/// What telling one node costs, and so the pause after it; a few at once need none.
const TELL_PAUSE: Duration = Duration::from_micros(600);
const TELL_PAUSE_MIN: Duration = Duration::from_millis(10);
const TELL_PAUSE_MAX: Duration = Duration::from_millis(500);
const REFUSED_SAID_EVERY: Duration = Duration::from_secs(60);
const LEDGER_FILE: &str = "ledger.redb";
const HISTORY_FILE: &str = "history.zst";

/// Looks at one thing that the zone itself does not know of.
pub type Probe = Box<dyn Fn(Timestamp) -> Check + Send + Sync>;

#[derive(Debug, Clone)]
pub struct ZoneConfig {
    pub name: Name,
    pub data: PathBuf,
    pub leases: Leases,
    /// Where nodes are that do not say so themselves.
    pub area: Option<Area>,
}

impl ZoneConfig {
    pub fn new(name: Name, data: PathBuf) -> Self {
        Self { name, data, leases: Leases::NODES, area: None }
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
    book: Arc<LedgerBook>,
    uplink: Arc<dyn Uplink>,
    name: Name,
    data: PathBuf,
    meter: sal::UsageMeter,
    way_up: Mutex<Way>,
    vitals: Mutex<Vitals>,
    history: Mutex<History>,
    transitions: Mutex<Transitions>,
    probes: Mutex<Vec<Probe>>,
    /// Where its nodes come to.
    doorway: Mutex<Doorway>,
    refused: Mutex<Rarely>,
    clock: SharedClock,
    wake: Wake,
    telling: Wake,
    news: Wake,
}

impl ZoneService {
    /// Reads the ledger. [`ZoneService::run`] sets it going.
    pub fn open(config: ZoneConfig, uplink: Arc<dyn Uplink>, clock: SharedClock) -> Result<Self> {
        std::fs::create_dir_all(&config.data)?;
        let ledger = Ledger::open(&config.data.join(LEDGER_FILE))?;
        let epoch = ledger.epoch_next(clock.now())?;
        let kept = Kept::read(&ledger)?;
        let (leases, area) = (config.leases, config.area);
        let parent = ParentConfig { leases, area, ..ParentConfig::over_nodes(config.name.as_str(), epoch) };
        let core = Core::new(config.name.clone(), env!("CARGO_PKG_VERSION"), parent, kept, clock.steady());
        let history = History::load(&config.data.join(HISTORY_FILE)).unwrap_or_else(|error| {
            tracing::warn!(%error, "the history cannot be read; it begins anew");
            History::default()
        });
        let inner = Inner {
            core: Mutex::new(core),
            book: Arc::new(LedgerBook::open(ledger.clone(), clock.clone())?),
            ledger,
            disk: tokio::sync::Mutex::new(()),
            doors: Doors::new(),
            calls: Calls::new(),
            blobs: Blobs::open(config.data.join("blobs"), uplink.clone())?,
            uplink,
            name: config.name,
            data: config.data,
            meter: sal::UsageMeter::default(),
            way_up: Mutex::default(),
            vitals: Mutex::default(),
            history: Mutex::new(history),
            transitions: Mutex::default(),
            probes: Mutex::default(),
            doorway: Mutex::default(),
            refused: Mutex::new(Rarely::new(REFUSED_SAID_EVERY)),
            clock,
            wake: Wake::new(),
            telling: Wake::new(),
            news: Wake::new(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The calls that the nodes' listeners share.
    pub fn calls(&self) -> Calls {
        self.0.calls.clone()
    }

    /// The tokens with which nodes may join.
    pub fn book(&self) -> Arc<LedgerBook> {
        self.0.book.clone()
    }

    /// What goes up with a sign of life; whoever holds the certificate adds from when and until when it is good.
    pub fn pulse(&self, certificate: Option<(Timestamp, Timestamp)>) -> Pulse {
        let usage = self.0.meter.machine_usage(&self.0.data).ok();
        Pulse {
            at: self.now(),
            usage,
            certificate_until: certificate.map(|(_, until)| until),
            certificate_from: certificate.map(|(from, _)| from),
            ..Pulse::default()
        }
    }

    /// Adds a check to the zone's health.
    pub fn probe_add(&self, probe: Probe) {
        self.probes().push(probe);
    }

    /// Says where its nodes come to; newcomers are told.
    pub fn doorway_set(&self, doorway: Doorway) {
        *self.0.doorway.lock().unwrap_or_else(PoisonError::into_inner) = doorway;
    }

    pub(crate) fn doorway(&self) -> Doorway {
        self.0.doorway.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Places what waits, lets leases lapse and clears up, until dropped.
    pub async fn run(&self) {
        tokio::join!(self.drive(), self.tell(), self.tend());
    }

    async fn drive(&self) {
        loop {
            if let Err(error) = self.step().await {
                tracing::error!(%error, "a step of the zone failed");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            if !self.core().undecided(self.steady()) {
                let _ = tokio::time::timeout(self.until_deadline(), self.0.wake.wait()).await;
                tokio::time::sleep(STEP_PAUSE).await;
            }
        }
    }

    /// Lets nodes fetch what changed for them: at once, and after a crowd of them not again before the broker
    /// had the time to serve it. What changes meanwhile goes with the next.
    async fn tell(&self) {
        loop {
            self.0.telling.wait().await;
            let told = self.core().told_take();
            let pause = TELL_PAUSE * u32::try_from(told.len()).unwrap_or(u32::MAX);
            self.0.doors.open(told);
            if pause >= TELL_PAUSE_MIN {
                tokio::time::sleep(pause.min(TELL_PAUSE_MAX)).await;
            }
        }
    }

    fn until_deadline(&self) -> Duration {
        let Some(deadline) = self.core().next_deadline() else { return TICK_MAX };
        let ms = deadline.ms_since(self.steady()).max(0) as u64 + 1;
        Duration::from_millis(ms).min(TICK_MAX)
    }

    async fn step(&self) -> Result<()> {
        let in_order = self.0.disk.lock().await;
        let step = self.core().step(self.steady());
        if !step.writes.is_empty() {
            let kept = self.0.ledger.commit_async(step.writes).await;
            let mut core = self.core();
            match &kept {
                Ok(()) => core.committed(&step.decisions, self.steady()),
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
        self.0.telling.wake();
        self.0.news.wake();
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of day, for people.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The time of leases and limits, which no correction of the clock moves.
    pub(crate) fn steady(&self) -> Timestamp {
        self.0.clock.steady()
    }

    pub(crate) fn vitals(&self) -> MutexGuard<'_, Vitals> {
        self.0.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn transitions(&self) -> MutexGuard<'_, Transitions> {
        self.0.transitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn probes(&self) -> MutexGuard<'_, Vec<Probe>> {
        self.0.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn history_path(&self) -> PathBuf {
        self.0.data.join(HISTORY_FILE)
    }

    pub(crate) fn data(&self) -> &Path {
        &self.0.data
    }

    pub(crate) fn name(&self) -> &Name {
        &self.0.name
    }

    /// Takes in how long the way to root is; what the zone says of itself changes only when that did.
    pub(crate) fn way_up_take(&self) {
        let Some(took) = self.rtt() else { return };
        let us = {
            let mut way = self.0.way_up.lock().unwrap_or_else(PoisonError::into_inner);
            way.reached(took);
            way.us()
        };
        if let Some(us) = us {
            self.core().up_us_set(us);
            self.0.news.wake();
        }
    }

    /// The way to root and back, once it was measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.0.uplink.rtt()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    pub(crate) fn disk(&self) -> &tokio::sync::Mutex<()> {
        &self.0.disk
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

    /// A node is told no, and will say the same again; not every time is worth a line.
    pub(crate) fn node_refused(&self, node: &ChildId, error: &Error) {
        if self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).due() {
            tracing::warn!(%node, %error, "a report is refused");
        } else {
            tracing::debug!(%node, %error, "a report is refused");
        }
    }

    async fn desired_take(&self, desired: Desired) -> Result<()> {
        self.desired_change(|core| match core.desired(desired) {
            Ok(writes) => Ok(Some(writes)),
            Err(Refused::Past) => Ok(None),
            Err(Refused::NeedWhole) => Err(Error::conflict("the whole desired set is needed")),
        })
        .await
    }

    /// Root gave away what this zone held: its nodes drop it, so that nothing runs twice.
    async fn desired_drop(&self) -> Result<()> {
        self.desired_change(|core| Ok(Some(core.desired_drop()))).await?;
        tracing::error!(
            "this zone was removed from root; the instances on its nodes end. To join again: stop it, empty {}, and \
             start it with a new token from 'banyan enroll zone'; its nodes join it anew",
            self.0.data.display()
        );
        Ok(())
    }

    async fn desired_change(
        &self,
        change: impl FnOnce(&mut Core) -> Result<Option<Vec<Write>>>,
    ) -> Result<()> {
        let _in_order = self.0.disk.lock().await;
        let (writes, decisions) = {
            let mut core = self.core();
            let Some(mut writes) = change(&mut core)? else { return Ok(()) };
            // What finds its place at once is kept together with it: one wait for the disk.
            let step = core.step(self.steady());
            writes.extend(step.writes);
            (writes, step.decisions)
        };
        let kept = self.0.ledger.commit_async(writes).await;
        match &kept {
            Ok(()) => self.core().committed(&decisions, self.steady()),
            Err(_) => {
                self.core().rejected(&decisions);
                let kept = Kept::read(&self.0.ledger)?;
                self.core().desired_restore(kept);
            }
        }
        self.wake();
        self.changed();
        kept
    }
}

impl ChildOwner for ZoneService {
    fn have(&self) -> Option<Revision> {
        self.core().have()
    }

    fn take(&self, desired: Desired) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.desired_take(desired))
    }

    fn removed(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.desired_drop())
    }

    fn report(&self, acked: Option<Revision>) -> Option<Observed> {
        self.core().report(acked)
    }

    fn told(&self, facts: Facts) {
        self.core().told(facts);
    }

    fn page_halve(&self) -> Option<usize> {
        self.core().page_halve()
    }

    fn page_restore(&self) {
        self.core().page_restore();
    }

    fn news(&self) -> Wake {
        self.0.news.clone()
    }

    fn answer(&self, ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()> {
        let zone = self.clone();
        Box::pin(async move { zone.reply_to(ask, stream).await })
    }
}

/// Which node, for logs.
pub(crate) fn node_seen(node: &ChildId, up: bool) {
    tracing::info!(%node, up, "node link");
}
