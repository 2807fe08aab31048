//! Workloads kept as their users want them.
//!
//! ```text
//!  state's feed ─▶ board (what to look at, and when) ─▶ core::step (decides) ─▶ commit (one transaction)
//!  clock ─────────▶                                         ▲
//!  zones ─▶ known (nodes, use of what scales) ──────────────┘
//! ```
//! Only workloads are looked at whose instances, wishes or places changed, or whose time came. A plan
//! is committed if the workload is still as it was looked at; otherwise it is looked at again.

mod board;
mod clock;
mod commit;
pub mod core;
mod known;
mod nodes;
pub mod record;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use model::{Mode, Timestamp, WorkloadId};

use self::board::Board;
use self::clock::ClockSet;
use self::core::{Look, Seen};
use self::known::Known;
use crate::cloud::Shared;
use crate::duty::{self, Fence};

/// Workloads that are looked at, at the same time.
const AT_ONCE: usize = 16;
/// The longest sleep.
const TICK_MAX: Duration = Duration::from_secs(5);
/// Pause after something could not be committed, or while a zone is asked.
const RETRY_MS: i64 = 200;
/// A workload of so many instances rests for a millisecond after each look.
const INSTANCES_PER_MS: usize = 50;

/// Runs for ever; acts while this server has the duty.
pub async fn run(cloud: Shared) {
    let act = |fence| {
        let cloud = cloud.clone();
        async move {
            let known = Arc::new(Known::default());
            let controller = Controller::new(cloud.clone(), known.clone(), fence);
            tokio::join!(controller.control(), known.keep(cloud));
        }
    };
    cloud.duties.while_held(duty::WORKLOADS, act).await;
}

struct Controller {
    cloud: Shared,
    known: Arc<Known>,
    fence: Fence,
    clock: ClockSet,
}

/// When to look at a workload again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// At once: there is more to do.
    Now,
    At(Timestamp),
    /// When something changes.
    Changed,
}

impl Controller {
    fn new(cloud: Shared, known: Arc<Known>, fence: Fence) -> Self {
        let clock = ClockSet::new(cloud.now(), cloud.steady());
        Self { cloud, known, fence, clock }
    }

    async fn control(&self) {
        let mut changed = self.cloud.state.changed();
        let mut board = Board::default();
        loop {
            changed.borrow_and_update();
            board.take(&self.cloud.state);
            board.mark(self.known.fresh_take());
            let (wall, now) = (self.cloud.now(), self.cloud.steady());
            let known = || self.cloud.state.snapshot().workloads.keys().cloned().collect();
            // Where the clock was set, every time that is waited for is another.
            board.mark(self.clock.look(wall, now, known));
            let due = board.due(now, AT_ONCE);
            if due.is_empty() {
                let sleep = board.sleep(now).min(TICK_MAX);
                tokio::select! {
                    _ = changed.changed() => {}
                    () = self.known.news() => {}
                    () = tokio::time::sleep(sleep) => {}
                }
                continue;
            }
            let done = join_all(due.iter().map(|id| self.look(id))).await;
            let (wall, now) = (self.cloud.now(), self.cloud.steady());
            for (id, (next, rest_ms)) in due.into_iter().zip(done) {
                let next = match next {
                    Next::At(at) => Next::At(Timestamp(now.0 + at.0 - wall.0)),
                    next => next,
                };
                board.done(id, next, now.plus_ms(rest_ms), now);
            }
        }
    }

    /// Looks at one workload and does what is to be done. Also says how long to let it rest.
    async fn look(&self, id: &WorkloadId) -> (Next, i64) {
        let snapshot = self.cloud.state.snapshot();
        let Some(row) = snapshot.workloads.get(id) else {
            self.known.forget(id);
            self.clock.told(id);
            return (Next::Changed, 0);
        };
        self.known.interest(id, &row.spec);
        // Where a preferred node is matters to which zone is chosen for what is made now.
        let wished = snapshot.zones.len() > 1 && nodes::is_wished(&row.spec.instance);
        if wished && !self.known.asked(&self.cloud, &snapshot) {
            return (Next::At(self.cloud.now().plus_ms(RETRY_MS)), 0);
        }
        let members = snapshot.members.get(id);
        let instances: Vec<Seen> =
            members.into_iter().flat_map(|all| all.values()).filter_map(|e| Seen::of(&snapshot, e)).collect();
        let nodes = match row.spec.mode {
            Mode::Daemon => self.known.nodes(&self.cloud, &snapshot, row, &instances),
            _ => None,
        };
        let state = snapshot.workload_states.get(id);
        let look = Look {
            record: row,
            version: row.version,
            state: state.map(|state| state.value.as_ref()),
            instances: &instances,
            nodes: nodes.as_deref(),
            usage: self.known.usage(id),
            now: self.cloud.now(),
            clock_set_ms: self.clock.set_ms(id),
        };
        let plan = core::step(&look);
        let rest_ms = (instances.len() / INSTANCES_PER_MS) as i64;
        match self.commit(&snapshot, row, state, plan).await {
            Ok(next) => (next, rest_ms),
            Err(error) => {
                tracing::warn!(workload = %row.name, %error, "what a workload needs was not done; once more");
                (Next::At(self.cloud.now().plus_ms(RETRY_MS * 5)), rest_ms)
            }
        }
    }
}
