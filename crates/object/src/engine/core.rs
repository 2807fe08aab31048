//! What the parts of the engine share.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use super::api::{BlobId, EngineConfig, EngineError};
use super::buffers::Buffers;
use super::depot::Depot;
use super::file::Files;
use super::index::Index;
use super::journal::Segments;
use super::layers::State;
use super::open::Lock;
use super::scrub::Scrubber;
use super::writer::CHANGED_MAX;

/// How often the writer asks for the room on the disk.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Core {
    pub config: EngineConfig,
    /// Of the groups in the journal.
    pub salt: u64,
    pub state: RwLock<Arc<State>>,
    pub index: Mutex<Index>,
    pub segments: Arc<Segments>,
    pub files: Arc<Files>,
    /// For chunks on their way out.
    pub buffers: Arc<Buffers>,
    /// The store behind this one, if there is one.
    pub depot: Option<Arc<Depot>>,
    pub room: Room,
    /// After a failure that leaves the disk's content unknown, or after `close`.
    pub stopped: AtomicBool,
    /// Whether the last checkpoint could not be written.
    pub index_fails: AtomicBool,
    pub signal: Arc<Signal>,
    pub counters: Counters,
    pub pins: Pins,
    pub scrubber: Scrubber,
    /// Blobs that a reader found damaged.
    pub suspects: Mutex<BTreeSet<BlobId>>,
    /// Held as long as the engine is open.
    pub _lock: Lock,
}

impl Core {
    pub fn state(&self) -> Arc<State> {
        self.state.read().expect("no panic under this lock").clone()
    }

    /// Whether so much has changed since the last checkpoint that the writer waits for the next.
    pub fn is_behind(&self) -> bool {
        self.state().active.len() >= CHANGED_MAX
    }
}

/// Milliseconds since 1970.
pub(super) fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Keeps some room on the disk, so that deletes and checkpoints work when nothing more can be stored.
pub(super) struct Room {
    folder: PathBuf,
    reserve: u64,
    free: AtomicU64,
    looked: Mutex<Option<Instant>>,
}

impl Room {
    pub fn new(folder: &Path, reserve: u64) -> Self {
        let room = Self {
            folder: folder.to_owned(),
            reserve,
            free: AtomicU64::new(u64::MAX),
            looked: Mutex::default(),
        };
        room.look();
        room
    }

    /// Asks the file system, now and then.
    pub fn look(&self) {
        let mut looked = self.looked.lock().expect("no panic under this lock");
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            *looked = Some(Instant::now());
            if let Ok(stat) = rustix::fs::statvfs(&self.folder) {
                self.free.store(stat.f_bavail.saturating_mul(stat.f_frsize), Ordering::Relaxed);
            }
        }
    }

    /// What is free on the disk, and what of that is kept.
    pub fn left(&self) -> (u64, u64) {
        self.look();
        (self.free.load(Ordering::Relaxed), self.reserve)
    }

    /// Takes `bytes` of the free room, if there is so much beyond the reserve.
    pub fn check(&self, bytes: u64) -> Result<(), EngineError> {
        let take = |free: u64| (free >= bytes.saturating_add(self.reserve)).then(|| free - bytes);
        match self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::new(io::ErrorKind::StorageFull, "the disk has no room left").into()),
        }
    }
}

/// Wakes the keeper.
#[derive(Default)]
pub(super) struct Signal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Wanted {
    pub work: bool,
    pub stop: bool,
    /// Told when a last checkpoint is done.
    pub close: Option<oneshot::Sender<()>>,
}

impl Signal {
    pub fn wake(&self) {
        self.wanted.lock().expect("no panic under this lock").work = true;
        self.changed.notify_all();
    }

    pub fn close(&self, done: oneshot::Sender<()>) {
        self.wanted.lock().expect("no panic under this lock").close = Some(done);
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.wanted.lock().expect("no panic under this lock").stop = true;
        self.changed.notify_all();
    }

    /// Lets those who rest look whether they are called.
    pub fn nudge(&self) {
        let _wanted = self.wanted.lock().expect("no panic under this lock");
        self.changed.notify_all();
    }

    /// Waits for the end or the time; whether it is the end.
    pub fn rest(&self, time: Duration) -> bool {
        self.rest_unless(time, || false)
    }

    /// The same, or until it is called.
    pub fn rest_unless(&self, time: Duration, called: impl Fn() -> bool) -> bool {
        let wanted = self.wanted.lock().expect("no panic under this lock");
        let (wanted, _) = self
            .changed
            .wait_timeout_while(wanted, time, |wanted| !wanted.stop && !called())
            .expect("no panic under this lock");
        wanted.stop
    }

    /// Waits for a call or the time.
    pub fn wait(&self, time: Duration) -> Wanted {
        let wanted = self.wanted.lock().expect("no panic under this lock");
        let (mut wanted, _) = self
            .changed
            .wait_timeout_while(wanted, time, |wanted| !wanted.work && !wanted.stop && wanted.close.is_none())
            .expect("no panic under this lock");
        let stop = wanted.stop;
        std::mem::replace(&mut *wanted, Wanted { stop, ..Wanted::default() })
    }
}

/// Since when readers want nothing to be removed.
#[derive(Default)]
pub(super) struct Pins(Mutex<BTreeMap<i64, usize>>);

impl Pins {
    pub fn add(&self) -> i64 {
        let time = wall();
        *self.0.lock().expect("no panic under this lock").entry(time).or_default() += 1;
        time
    }

    pub fn remove(&self, time: i64) {
        let mut pins = self.0.lock().expect("no panic under this lock");
        if let Some(count) = pins.get_mut(&time) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&time);
            }
        }
    }

    pub fn oldest(&self) -> Option<i64> {
        self.0.lock().expect("no panic under this lock").first_key_value().map(|(time, _)| *time)
    }
}

/// Counts for metrics.
#[derive(Default)]
pub(super) struct Counters {
    pub groups: AtomicU64,
    pub changes: AtomicU64,
    pub sync_micros: AtomicU64,
    pub checkpoints: AtomicU64,
    /// Bytes of the segment that is appended to.
    pub offset: AtomicU64,
}

impl Counters {
    pub fn group(&self, changes: usize, took: Duration) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.sync_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
