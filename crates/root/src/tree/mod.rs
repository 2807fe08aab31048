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

mod ask;
mod book;
mod commit;
pub mod core;
mod parent;

pub use book::StoreBook;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use link::Calls;
use model::{Error, Result, Timestamp};
use tier::{Doors, Leases, ParentConfig};
use work::{SharedClock, Wake};

use self::core::Core;
use crate::image::ImageStore;
use crate::state::{NoticeBody, State};

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
    images: ImageStore,
    core: Mutex<Core>,
    doors: Doors,
    calls: Calls,
    clock: SharedClock,
    wake: Wake,
    /// The change up to which the core has taken instances.
    since: Mutex<i64>,
    /// The fingerprint of the CA that tokens name; set where zones may join.
    ca: OnceLock<[u8; 32]>,
    lease_ms: i64,
    /// Certificates of this root with their ends, for its health.
    certificates: OnceLock<Vec<(String, Timestamp)>>,
}

impl TreeService {
    /// Builds the tree from the store. [`TreeService::run`] sets it going.
    pub async fn open(
        state: State,
        images: ImageStore,
        clock: SharedClock,
        config: TreeConfig,
    ) -> Result<Self> {
        let epoch = state.store().counter_next(EPOCH).await.map_err(Error::from)?;
        let parent = ParentConfig { leases: config.leases, ..ParentConfig::over_zones(epoch) };
        let core = Core::new(parent);
        let inner = Inner {
            state,
            images,
            core: Mutex::new(core),
            doors: Doors::new(),
            calls: Calls::new(),
            clock,
            wake: Wake::new(),
            since: Mutex::new(-1),
            ca: OnceLock::new(),
            lease_ms: config.leases.lease_ms,
            certificates: OnceLock::new(),
        };
        let tree = Self(Arc::new(inner));
        tree.reload();
        Ok(tree)
    }

    /// Lets zones join with tokens that name this CA.
    pub fn join_with(&self, ca: [u8; 32]) {
        let _ = self.0.ca.set(ca);
    }

    /// The certificates whose ends the health of root watches.
    pub fn certificates_set(&self, certificates: Vec<(String, Timestamp)>) {
        let _ = self.0.certificates.set(certificates);
    }

    /// The calls that the zones' listeners share.
    pub fn calls(&self) -> Calls {
        self.0.calls.clone()
    }

    /// Runs until dropped: wakes on changes of the state, reports and lapsing leases.
    pub async fn run(&self) {
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
        let ms = deadline.ms_since(self.now()).max(0) as u64 + 1;
        Duration::from_millis(ms).min(TICK_MAX)
    }

    /// One round; says whether there may be more to do at once.
    async fn step(&self) -> Result<bool> {
        self.take_notices();
        let now = self.now();
        let (decided, folded) = {
            let mut core = self.core();
            (core.decide(now, BATCH_MAX), core.fold(now, BATCH_MAX))
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
                    NoticeBody::InstanceGone(record) => core.forget(&record.id),
                    NoticeBody::Zone(zone) => core.zone_take(&zone, self.now()),
                    NoticeBody::ZoneGone(zone) => core.zone_remove(&zone.id),
                    NoticeBody::Image(_) | NoticeBody::ImageGone(_) => {}
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
        let now = self.now();
        let mut core = self.core();
        for zone in snapshot.zones.values() {
            core.zone_take(zone, now);
        }
        for zone in core.zone_ids() {
            if zone.as_str().parse().is_ok_and(|id: model::ZoneId| !snapshot.zones.contains_key(&id)) {
                core.zone_forget(&zone);
            }
        }
        for (id, record) in &snapshot.instances {
            match core.status(id) {
                Some(_) => core.take(record),
                None => core.restore(record, snapshot.statuses.get(id).map(|status| status.as_ref().clone())),
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

    fn since(&self) -> MutexGuard<'_, i64> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}
