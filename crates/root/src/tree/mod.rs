//! Root over its zones: places instances, lets zones fetch what they should
//! hold, and folds what they report into the store.
//!
//! ```text
//!  state (instances) ─▶ take ─▶ core ─ decide ─┐
//!                                │             ├─ one batch ─▶ store ─▶ confirm ─▶ zones hear of it
//!  zones' reports ───────────────┴─ fold ──────┘
//! ```
//! [`core`] has no I/O and is what the simulation runs; this file and
//! [`commit`] give it the store, [`parent`] the links, [`ask`] the questions.
//!
//! Of several root servers one has the *seat*: it holds the duty `tree`, and a core that it built from the
//! store when it got it. The others have an empty core, send zones to the holder and pass questions on
//! ([`relay`]). Everything is committed under the duty's fence, so a core that is out of date writes nothing.

mod ask;
mod book;
mod commit;
pub mod core;
mod hosts;
mod parent;
mod relay;
mod sign;
mod vitals;

pub use book::StoreBook;
pub use sign::Signer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use link::Calls;
use model::{Error, Result, Timestamp, ZoneId};
use tier::{Doors, Leases, ParentConfig};
use tokio::sync::watch;
use work::{SharedClock, Wake};

use self::core::Core;
use self::vitals::Vitals;
use crate::duty::{self, Fence};
use crate::image::ImageStore;
use crate::peer::{Peers, ZoneLife};
use crate::replica::Replica;
use crate::state::{NoticeBody, State};
use crate::workload::record::may_be_missing;

/// Instances decided about, and folded, in one batch.
const BATCH_MAX: usize = 256;
/// Notices taken at once before the state is looked at again.
const NOTICES_MAX: usize = 1024;
/// Leases are looked at this often when nothing else happens.
const TICK_MAX: Duration = Duration::from_secs(5);
/// Pause after the store refused something.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const EPOCH: &str = "tree-epoch";

#[derive(Debug, Clone)]
pub struct TreeConfig {
    pub leases: Leases,
}

impl TreeConfig {
    fn core(&self, epoch: u64) -> Core {
        Core::new(ParentConfig { leases: self.leases, ..ParentConfig::over_zones(epoch) })
    }
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self { leases: Leases::ZONES }
    }
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct TreeService(Arc<Inner>);

struct Inner {
    state: State,
    config: TreeConfig,
    images: ImageStore,
    peers: Peers,
    replica: Replica,
    /// Ours while we hold the tree and the core is loaded.
    seat: watch::Sender<Option<Fence>>,
    /// What the holder says of the zones, where that is another server.
    lives: Mutex<HashMap<ZoneId, ZoneLife>>,
    core: Mutex<Core>,
    doors: Doors,
    calls: Calls,
    clock: SharedClock,
    wake: Wake,
    /// The change up to which the core has taken instances.
    since: Mutex<i64>,
    /// The fingerprint of the CA that tokens name; set where zones may join.
    ca: OnceLock<[u8; 32]>,
    /// How this server is called by those who reach it.
    names: OnceLock<Vec<String>>,
    link_url: OnceLock<String>,
    vitals: Mutex<Vitals>,
    /// Certificates of this root, from when and until when they are good, for its health.
    certificates: Mutex<Vec<(String, (Timestamp, Timestamp))>>,
}

impl TreeService {
    /// The tree of the only server of a store, built from it. [`TreeService::run`] sets it going.
    pub async fn open(
        state: State,
        images: ImageStore,
        clock: SharedClock,
        config: TreeConfig,
    ) -> Result<Self> {
        let tree = Self::open_among(state, images, clock, config, Peers::none());
        let fence = tree.0.peers.duties().wait_held(duty::TREE).await;
        tree.sit_down(fence).await?;
        Ok(tree)
    }

    /// The tree of one of several servers; it is empty until the server holds it.
    pub fn open_among(
        state: State,
        images: ImageStore,
        clock: SharedClock,
        config: TreeConfig,
        peers: Peers,
    ) -> Self {
        let inner = Inner {
            replica: Replica::new(images.clone(), peers.clone()),
            core: Mutex::new(config.core(0)),
            state,
            config,
            images,
            peers,
            seat: watch::Sender::new(None),
            lives: Mutex::default(),
            doors: Doors::new(),
            calls: Calls::new(),
            clock,
            wake: Wake::new(),
            since: Mutex::new(-1),
            ca: OnceLock::new(),
            names: OnceLock::new(),
            link_url: OnceLock::new(),
            vitals: Mutex::default(),
            certificates: Mutex::default(),
        };
        Self(Arc::new(inner))
    }

    pub fn peers(&self) -> &Peers {
        &self.0.peers
    }

    pub fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// The right to decide, while this server has the seat.
    fn seat(&self) -> Option<Fence> {
        let seat = self.0.seat.borrow().clone()?;
        (self.0.peers.duties().held(duty::TREE).as_ref() == Some(&seat)).then_some(seat)
    }

    /// Builds the core from the store, under an epoch that is above that of every holder before.
    async fn sit_down(&self, fence: Fence) -> Result<()> {
        let epoch =
            self.0.state.store().counter_from(EPOCH, self.now().epoch()).await.map_err(Error::from)?;
        *self.core() = self.0.config.core(epoch);
        self.reload();
        self.0.seat.send_replace(Some(fence));
        Ok(())
    }

    /// Another server holds the tree: what we know of it is forgotten, and zones that wait here go there.
    fn get_up(&self) {
        self.0.seat.send_replace(None);
        *self.core() = self.0.config.core(0);
    }

    /// Lets zones join with tokens that name this CA. No zone may have one of `names`.
    pub fn join_with(&self, ca: [u8; 32], names: Vec<String>) {
        let _ = self.0.names.set(names);
        let _ = self.0.ca.set(ca);
    }

    /// Where zones come to, once that is known.
    pub fn link_url_set(&self, url: String) {
        let _ = self.0.link_url.set(url);
    }

    /// Where zones come to, at every server.
    fn link_urls(&self) -> Vec<String> {
        let others = self.0.peers.duties().others();
        let others = others.iter().map(|server| server.link_url.clone());
        self.0.link_url.get().cloned().into_iter().chain(others).collect()
    }

    /// The certificates whose ends the health of root watches; set again after a renewal.
    pub fn certificates_set(&self, certificates: Vec<(String, (Timestamp, Timestamp))>) {
        *self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    /// The calls that the zones' listeners share.
    pub fn calls(&self) -> Calls {
        self.0.calls.clone()
    }

    /// Runs until dropped: places and folds while this server holds the tree, and follows the holder otherwise.
    pub async fn run(&self) {
        tokio::join!(self.reign(), self.lives_follow());
    }

    async fn reign(&self) {
        let duties = self.0.peers.duties();
        loop {
            let fence = duties.wait_held(duty::TREE).await;
            if *self.0.seat.borrow() != Some(fence.clone())
                && let Err(error) = self.sit_down(fence.clone()).await
            {
                tracing::warn!(%error, "the tree cannot be loaded yet");
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            tokio::select! {
                () = duties.wait_lost(&fence) => {}
                () = self.serve() => {}
            }
            self.get_up();
        }
    }

    /// Wakes on changes of the state, reports and lapsing leases.
    async fn serve(&self) {
        let mut changed = self.0.state.changed();
        let wake = self.0.wake.clone();
        let forward = async {
            while changed.changed().await.is_ok() {
                wake.wake();
            }
        };
        tokio::join!(forward, self.drive());
    }

    async fn drive(&self) {
        loop {
            let busy = match self.step().await {
                Ok(busy) => busy,
                Err(error) => {
                    tracing::error!(%error, "a step of the tree failed");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    false
                }
            };
            if !busy {
                let _ = tokio::time::timeout(self.until_deadline(), self.0.wake.wait()).await;
            }
        }
    }

    fn until_deadline(&self) -> Duration {
        let Some(deadline) = self.core().next_deadline() else { return TICK_MAX };
        let ms = deadline.ms_since(self.steady()).max(0) as u64 + 1;
        Duration::from_millis(ms).min(TICK_MAX)
    }

    /// One round; says whether there may be more to do at once.
    async fn step(&self) -> Result<bool> {
        self.take_notices();
        let (now, wall) = (self.steady(), self.now());
        let (decided, folded) = {
            let mut core = self.core();
            (core.decide(now, wall, BATCH_MAX), core.fold(wall, BATCH_MAX))
        };
        self.open_doors();
        if decided.is_empty() && folded.is_empty() {
            return Ok(false);
        }
        let (decided, folded) = futures::join!(self.commit_decided(decided), self.commit_folded(folded));
        if !(decided && folded) {
            // The store did not take something; it is tried again, but not at once and for ever.
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        self.open_doors();
        let core = self.core();
        Ok(core.unfolded() || core.undecided(now))
    }

    /// Takes in the instances that users changed since the last look.
    fn take_notices(&self) {
        loop {
            let since = *self.since();
            let Some((notices, next)) = self.0.state.notices_after(since, NOTICES_MAX) else {
                return self.reload();
            };
            let mut core = self.core();
            for notice in notices {
                match notice.body {
                    NoticeBody::Instance(entry) => core.take(&entry.instance),
                    // Only this tree writes what became of instances.
                    NoticeBody::Status(_) => {}
                    NoticeBody::InstanceGone(record) => core.forget(&record.id),
                    NoticeBody::Workload(row) => {
                        let snapshot = self.0.state.snapshot();
                        let state = snapshot.workload_states.get(&row.id).map(|state| state.value.as_ref());
                        core.workload_take(&row.id, may_be_missing(&row, state));
                    }
                    NoticeBody::WorkloadGone(row) => core.workload_forget(&row.id),
                    NoticeBody::Zone(zone) => core.zone_take(&zone, self.steady()),
                    NoticeBody::ZoneGone(zone) => {
                        core.zone_remove(&zone.id);
                        self.vitals().forget(&(&zone.id).into());
                        self.0.calls.kick(&(&zone.id).into());
                    }
                    _ => {}
                }
            }
            *self.since() = next;
            if next == since {
                return;
            }
        }
    }

    /// Takes in everything: at the start, and when too much was missed.
    fn reload(&self) {
        let snapshot = self.0.state.snapshot();
        let now = self.steady();
        let mut core = self.core();
        for zone in snapshot.zones.values() {
            core.zone_take(zone, now);
        }
        for zone in core.zone_ids() {
            if zone.as_str().parse().is_ok_and(|id: model::ZoneId| !snapshot.zones.contains_key(&id)) {
                core.zone_forget(&zone);
            }
        }
        for (id, row) in &snapshot.workloads {
            let state = snapshot.workload_states.get(id).map(|state| state.value.as_ref());
            core.workload_take(id, may_be_missing(row, state));
        }
        for (id, record) in &snapshot.instances {
            match core.status(id) {
                Some(_) => core.take(record),
                None => core.restore(record, snapshot.statuses.get(id).cloned()),
            }
        }
        for id in core.ids() {
            if !snapshot.instances.contains_key(&id) {
                core.forget(&id);
            }
        }
        *self.since() = snapshot.seq;
    }

    fn open_doors(&self) {
        let told = self.core().told_take();
        self.0.doors.open(told);
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vitals(&self) -> MutexGuard<'_, Vitals> {
        self.0.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, i64> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The time by which leases run.
    fn steady(&self) -> Timestamp {
        self.0.clock.steady()
    }

    /// A time by which leases run, as people read it.
    fn wall(&self, steady: Timestamp) -> Timestamp {
        Timestamp(steady.0 + self.now().0 - self.steady().0)
    }
}
