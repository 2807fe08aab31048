//! Several root servers on one store: who is there, and which of them holds each duty.
//!
//! A *server* is a record that its owner writes anew once a second. A *duty* (placing and folding, keeping
//! workloads, sweeping) is a record that names its holder and changes only when the holder does.
//!
//! ```text
//!            joins: writes its record        its record stood still through 4 beats of another
//!   (start) ───────────────────────▶ there ──────────────────────────────────────────▶ forgotten
//!                                      ▲  │ stops: deletes its record                      │
//!                                      │  └────────────────▶ (end)                          │
//!                                      └──────── beats again, with its next beat ◀──────────┘
//!   What was forgotten leaves a record of its own, for operators, until it is back or they remove it.
//!
//!   duty:  vacant (no record, or its holder is not there) ── claimed by compare-and-set, term + 1 ──▶ held
//! ```
//!
//! - No two clocks are compared: silence is counted in beats of one's own that the store has taken, so an
//!   outage of the store makes nobody silent.
//! - **Fence**: what is committed under a duty checks the version of the duty's record. A holder that slept
//!   and wakes up after another took over cannot write; it sees the new holder with its next beat.
//! - A server whose beats fail for [`VALID`] stops acting for its duties before another can take them, unless
//!   it knows of no other server.
//! - With SQLite or in memory there is one server. It holds every duty, and nothing is written for that.

mod core;
mod run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use api::Server;
use model::Timestamp;
use store::Txn;
use tokio::sync::watch;
use tokio::time::Instant;
use work::{Clock, SystemClock};

use crate::state::State;
use crate::tables::{ServerRecord, kind};

/// Placing, folding, and the zones' links.
pub const TREE: &str = "tree";
/// Keeping workloads as they should be.
pub const WORKLOADS: &str = "workloads";
/// Ending what has had its time.
pub const SWEEP: &str = "sweep";

/// Giving out the tasks of clusters.
pub const CLUSTERS: &str = "clusters";

pub const ALL: &[&str] = &[TREE, WORKLOADS, SWEEP, CLUSTERS];

/// A server writes its record this often.
pub const BEAT: Duration = Duration::from_secs(1);
/// A beat that the store took is good for this long; shorter than four beats of another.
pub const VALID: Duration = Duration::from_secs(3);

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct Duties(Arc<Inner>);

struct Inner {
    /// `None` where one server is all there is.
    shared: Option<Shared>,
    held: watch::Sender<BTreeMap<&'static str, Fence>>,
    /// Of the only server: where it is, once it is known.
    alone: OnceLock<ServerRecord>,
    started: Timestamp,
}

struct Shared {
    state: State,
    id: String,
    /// Known once our listeners are up.
    me: OnceLock<ServerRecord>,
    /// Until when we may act without another beat.
    valid_until: Mutex<Instant>,
}

/// The right to commit under a duty. It ends without a word when another server takes the duty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    duty: &'static str,
    /// Of the duty's record; `None` where one server is all there is.
    version: Option<i64>,
}

impl Fence {
    /// Makes the transaction fail when the duty has another holder.
    pub fn guard(&self, txn: Txn) -> Txn {
        match self.version {
            Some(version) => txn.check(kind::DUTY, self.duty, Some(version)),
            None => txn,
        }
    }
}

impl Duties {
    /// For the only server of a store.
    pub fn alone() -> Self {
        let held = ALL.iter().map(|duty| (*duty, Fence { duty, version: None })).collect();
        Self::make(None, held)
    }

    /// For one of several servers; [`Duties::join`] and [`Duties::run`] set it going.
    pub fn shared(state: State) -> Self {
        let id = format!("s-{:032x}", rand::random::<u128>());
        let valid_until = Mutex::new(Instant::now());
        let shared = Some(Shared { state, id, me: OnceLock::new(), valid_until });
        Self::make(shared, BTreeMap::new())
    }

    fn make(shared: Option<Shared>, held: BTreeMap<&'static str, Fence>) -> Self {
        let (held, started) = (watch::Sender::new(held), SystemClock.now());
        Self(Arc::new(Inner { shared, held, alone: OnceLock::new(), started }))
    }

    /// All servers of the store that are there, or fell silent and were not removed, by name; `now` is when the only one is heard.
    pub fn servers(&self, now: Timestamp) -> Vec<Server> {
        let Some(shared) = &self.0.shared else { return vec![self.alone_server(now)] };
        let snapshot = shared.state.snapshot();
        let duties = |id: &str| {
            let held =
                ALL.iter().filter(|duty| snapshot.duties.get(**duty).is_some_and(|row| row.holder == id));
            held.map(|duty| (*duty).to_owned()).collect()
        };
        let server = |row: &ServerRecord| Server {
            name: row.place.clone(),
            endpoint: Some(row.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
            since: row.since,
            last_heard: row.at,
            duties: duties(&row.id),
            this: row.id == shared.id,
            lost: !snapshot.servers.contains_key(&row.id),
        };
        let lost =
            snapshot.servers_lost.values().filter(|row| !snapshot.servers.contains_key(&row.server.id));
        let lost = lost.map(|row| server(&row.server));
        let mut servers: Vec<Server> =
            snapshot.servers.values().map(|row| server(&row.value)).chain(lost).collect();
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        servers
    }

    fn alone_server(&self, now: Timestamp) -> Server {
        let known = self.0.alone.get();
        Server {
            name: known.map_or_else(|| "root".to_owned(), |known| known.place.clone()),
            endpoint: known.map(|known| known.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
            since: self.0.started,
            last_heard: now,
            duties: ALL.iter().map(|duty| (*duty).to_owned()).collect(),
            this: true,
            lost: false,
        }
    }

    /// The right to act for a duty, while we hold it.
    pub fn held(&self, duty: &str) -> Option<Fence> {
        if self.0.shared.as_ref().is_some_and(|shared| !shared.valid()) {
            return None;
        }
        self.0.held.borrow().get(duty).cloned()
    }

    /// Waits until we hold the duty.
    pub async fn wait_held(&self, duty: &str) -> Fence {
        let mut held = self.0.held.subscribe();
        loop {
            if let Some(fence) = held.borrow_and_update().get(duty) {
                return fence.clone();
            }
            if held.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until we no longer hold the duty under this right.
    pub async fn wait_lost(&self, fence: &Fence) {
        let mut held = self.0.held.subscribe();
        let _ = held.wait_for(|held| held.get(fence.duty) != Some(fence)).await;
    }

    /// Runs `work` whenever we hold the duty, and drops it when we no longer do. For ever.
    pub async fn while_held<Work: Future<Output = ()>>(&self, duty: &str, work: impl Fn(Fence) -> Work) {
        loop {
            let fence = self.wait_held(duty).await;
            tokio::select! {
                () = self.wait_lost(&fence) => {}
                () = work(fence.clone()) => self.wait_lost(&fence).await,
            }
        }
    }

    /// The server that holds the duty, unless that is us or nobody.
    pub fn holder(&self, duty: &str) -> Option<Arc<ServerRecord>> {
        let shared = self.0.shared.as_ref()?;
        let snapshot = shared.state.snapshot();
        let holder = &snapshot.duties.get(duty)?.holder;
        snapshot.servers.get(holder).map(|row| row.value.clone()).filter(|server| server.id != shared.id)
    }

    /// The other servers that are there.
    pub fn others(&self) -> Vec<Arc<ServerRecord>> {
        let Some(shared) = &self.0.shared else { return Vec::new() };
        let snapshot = shared.state.snapshot();
        let servers = snapshot.servers.values().map(|row| row.value.clone());
        servers.filter(|server| server.id != shared.id).collect()
    }

    /// Where the others reach us, once we joined them.
    pub fn link_url(&self) -> Option<String> {
        self.0.shared.as_ref()?.me.get().map(|me| me.link_url.clone())
    }

    /// Our id among several servers.
    pub fn id(&self) -> Option<&str> {
        self.0.shared.as_ref().map(|shared| shared.id.as_str())
    }
}

impl Shared {
    fn valid(&self) -> bool {
        Instant::now() < *self.until() || self.only()
    }

    /// Whether no other server is known.
    fn only(&self) -> bool {
        self.state.snapshot().servers.keys().all(|id| *id == self.id)
    }

    fn until(&self) -> MutexGuard<'_, Instant> {
        self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
