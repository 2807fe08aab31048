//! Root's state: the store, and in memory the snapshot built from its change feed.
//!
//! ```text
//!  ops, tree ── commit ──▶ store ── change feed ──▶ applier task ──▶ snapshot ──▶ everyone reads
//!       ▲                                               │
//!       └───────── waits until it is visible ───────────┘
//! ```
//! One task applies changes, in order; readers take the newest snapshot without waiting for anyone.

mod apply;
mod cluster;
mod feed;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt;
use model::{Error, ErrorKind, Result};
use store::{Change, CommitError, Committed, Store, Txn};
use tokio::sync::{oneshot, watch};

pub use feed::{FEED_MAX, Feed, Notice, NoticeBody};
pub use snapshot::{Credential, Entry, Resources, Row, Snapshot, Versioned};

/// Most changes that are applied before the snapshot is shown to others.
const BATCH_MAX: usize = 1024;
/// Pause before the change feed is opened again after it broke.
const FEED_RETRY: Duration = Duration::from_millis(500);
/// Longest wait for a commit of ours to come back on the feed.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct State(Arc<Inner>);

struct Inner {
    store: Store,
    current: RwLock<Arc<Snapshot>>,
    feed: RwLock<Feed>,
    changed: watch::Sender<i64>,
    waiters: Mutex<BTreeMap<i64, Vec<oneshot::Sender<()>>>>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
    commits: AtomicU64,
    /// Whether the change feed is being read.
    following: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl State {
    /// Loads everything and follows the change feed from there.
    pub async fn open(store: Store) -> Result<Self> {
        let snapshot = load(&store).await?;
        let seq = snapshot.seq;
        let inner = Arc::new(Inner {
            store,
            current: RwLock::new(Arc::new(snapshot)),
            feed: RwLock::new(Feed::starting_at(seq)),
            changed: watch::Sender::new(seq),
            waiters: Mutex::default(),
            task: Mutex::default(),
            commits: AtomicU64::new(0),
            following: AtomicBool::new(true),
        });
        // The task holds the inner weakly, so that dropping the last handle ends it.
        let task = tokio::spawn(follow(Arc::downgrade(&inner), inner.store.clone(), seq));
        *inner.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
        Ok(Self(inner))
    }

    /// Ends the feed, then closes the store; what was committed is on the disk.
    pub async fn close(&self) {
        let task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
        self.0.store.clone().close().await;
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the seq of every new snapshot.
    pub fn changed(&self) -> watch::Receiver<i64> {
        self.0.changed.subscribe()
    }

    /// Up to `limit` notices after `since`; `None` when the ring no longer holds them.
    pub fn notices_after(&self, since: i64, limit: usize) -> Option<(Vec<Notice>, i64)> {
        self.0.feed.read().unwrap_or_else(PoisonError::into_inner).after(since, limit)
    }

    /// Commits, and returns once the snapshot includes it.
    pub async fn commit(&self, txn: Txn) -> Result<Committed> {
        self.try_commit(txn).await.map_err(commit_error)
    }

    /// As [`State::commit`], with the store's own error for callers that act on it.
    pub async fn try_commit(&self, txn: Txn) -> std::result::Result<Committed, CommitError> {
        let committed = self.0.store.commit(txn).await?;
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        self.wait_for(committed.seq).await;
        Ok(committed)
    }

    /// Whether the snapshot keeps up with the store.
    pub fn following(&self) -> bool {
        self.0.following.load(Ordering::Relaxed)
    }

    /// Transactions committed through this state.
    pub fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::Relaxed)
    }

    /// Waits until the snapshot includes `seq`.
    pub async fn wait_for(&self, seq: i64) {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiters = self.0.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if *self.0.changed.borrow() >= seq {
                return;
            }
            waiters.entry(seq).or_default().push(sender);
        }
        if tokio::time::timeout(VISIBLE_TIMEOUT, receiver).await.is_err() {
            tracing::warn!(seq, "a commit has not come back on the change feed");
        }
    }
}

impl Inner {
    fn publish(&self, snapshot: Snapshot, notices: Vec<Notice>) {
        let seq = snapshot.seq;
        {
            let mut feed = self.feed.write().unwrap_or_else(PoisonError::into_inner);
            notices.into_iter().for_each(|notice| feed.push(notice));
            feed.head_set(seq);
        }
        self.current_set(snapshot, seq);
    }

    fn current_set(&self, snapshot: Snapshot, seq: i64) {
        let old = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::new(snapshot))
        };
        drop(old);
        self.changed.send_replace(seq);
        let done = {
            let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            let later = waiters.split_off(&(seq + 1));
            std::mem::replace(&mut *waiters, later)
        };
        for waiter in done.into_values().flatten() {
            let _ = waiter.send(());
        }
    }

    /// Starts over from a full load; watches that were behind must list again.
    fn replace(&self, snapshot: Snapshot) {
        let seq = snapshot.seq;
        *self.feed.write().unwrap_or_else(PoisonError::into_inner) = Feed::starting_at(seq);
        self.current_set(snapshot, seq);
    }
}

async fn load(store: &Store) -> Result<Snapshot> {
    // What is read when it is asked for stays where it is.
    let (records, seq) =
        store.load_without(&[crate::tables::kind::CLUSTER_TASK, crate::tables::kind::CLUSTER_PART]).await?;
    let mut snapshot = Snapshot::default();
    for record in records {
        let change = Change {
            seq,
            kind: record.kind.clone(),
            id: record.id.clone(),
            version: record.version,
            record: Some(record),
        };
        apply::apply(&mut snapshot, &change)?;
    }
    snapshot.seq = seq;
    Ok(snapshot)
}

/// Follows the feed for ever. After an error it goes on where it stands, or from a full load when it cannot.
async fn follow(inner: std::sync::Weak<Inner>, store: Store, mut seq: i64) {
    loop {
        let Err(error) = follow_once(&inner, &store, &mut seq).await else { return };
        tracing::error!(%error, seq, "the change feed broke off");
        match inner.upgrade() {
            Some(inner) => inner.following.store(false, Ordering::Relaxed),
            None => return,
        }
        tokio::time::sleep(FEED_RETRY).await;
        if error.kind == ErrorKind::Unavailable {
            continue;
        }
        match load(&store).await {
            Ok(snapshot) => {
                let Some(inner) = inner.upgrade() else { return };
                seq = snapshot.seq;
                inner.replace(snapshot);
            }
            Err(error) => tracing::error!(%error, "the store cannot be loaded"),
        }
    }
}

/// Ends with `Ok` when nobody holds the state any more, or the store was closed.
async fn follow_once(inner: &std::sync::Weak<Inner>, store: &Store, seq: &mut i64) -> Result<()> {
    let mut changes = store.watch(*seq).await?;
    match inner.upgrade() {
        Some(inner) => inner.following.store(true, Ordering::Relaxed),
        None => return Ok(()),
    }
    loop {
        let mut batch = match changes.next_batch().await {
            // Closed on purpose: nothing more will come.
            Err(store::StoreError::Closed) => {
                if let Some(inner) = inner.upgrade() {
                    inner.following.store(false, Ordering::Relaxed);
                }
                return Ok(());
            }
            other => other?,
        };
        // What came in the meantime joins the same snapshot.
        while batch.len() < BATCH_MAX {
            match changes.next_batch().now_or_never() {
                Some(more) => batch.extend(more?),
                None => break,
            }
        }
        let Some(inner) = inner.upgrade() else { return Ok(()) };
        let mut next = inner.current.read().unwrap_or_else(PoisonError::into_inner).as_ref().clone();
        let mut notices = Vec::new();
        for change in batch {
            notices.extend(apply::apply(&mut next, &change)?);
        }
        *seq = next.seq;
        inner.publish(next, notices);
    }
}

/// `an` before the kinds that begin with a vowel that is spoken.
fn article(kind: &str) -> &'static str {
    if kind.starts_with(['e', 'i']) { "an" } else { "a" }
}

/// What a failed commit means to a caller.
pub fn commit_error(error: CommitError) -> Error {
    match error {
        CommitError::NameTaken { name, kind, .. } => {
            Error::conflict(format!("there is already {} {kind} named '{name}'", article(&kind)))
                .at("name")
                .hint("choose another name or delete the old one")
        }
        CommitError::VersionMismatch { kind, .. } | CommitError::Missing { kind, .. } => {
            Error::new(ErrorKind::VersionMismatch, format!("the {kind} changed since it was read"))
                .hint("read it again and repeat")
        }
        CommitError::AlreadyExists { kind, id } => {
            Error::conflict(format!("there is already a {kind} '{id}'"))
        }
        other => Error::from(other),
    }
}
