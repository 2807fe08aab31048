//! Opening: the index, then what the journal holds beyond it, then the threads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc as orders;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::{self, JoinHandle};

use rustix::fs::{FlockOperation, flock};
use tokio::sync::mpsc;

use super::api::{EngineConfig, EngineError};
use super::blob::{Alive, Blob, Place, blob_key, blob_of, blobs, remote_key};
use super::buffers::Buffers;
use super::core::{Core, Counters, Pins, Room, Signal};
use super::depot::{self, Depot};
use super::file::Files;
use super::get;
use super::hand::Hand;
use super::index::{Index, Mark};
use super::journal::{Journal, Segments};
use super::keeper::Keeper;
use super::layers::{Changes, State};
use super::replay::{End, replay};
use super::scrub::{self, Scrubber};
use super::writer::{Job, QUEUE_MAX, Writer};

/// Records that a replay gathers before the index takes them.
const REPLAYED_MAX: usize = 50_000;

pub(super) struct Parts {
    pub core: Arc<Core>,
    pub jobs: mpsc::Sender<Job>,
    pub threads: Vec<JoinHandle<()>>,
}

pub(super) fn open(config: EngineConfig) -> Result<Parts, EngineError> {
    let journal_folder = config.data.join("journal");
    let blobs_folder = config.data.join("blobs");
    fs::create_dir_all(&journal_folder)?;
    fs::create_dir_all(&blobs_folder)?;
    let lock = lock(&config.data)?;
    File::open(&config.data)?.sync_all()?;
    let (mut index, mark) = Index::open(&config.data)?;
    let gateway = config.gateway.as_ref();
    let depot = gateway.map(|gateway| Depot::open(gateway, &config.data, mark.salt)).transpose()?;
    let segments = Arc::new(Segments::new(journal_folder.clone()));
    let mark = apply_journal(&mut index, &segments, mark)?;

    let signal = Arc::new(Signal::default());
    let files = Files::new(blobs_folder, mark.next, signal.clone());
    let base = index.base()?;
    // A blob that lies elsewhere passed through a file, which is not its own.
    let named = |id| {
        let blob = base.get(&blob_key(id))?.map(|bytes| Blob::decode(&bytes)).transpose()?;
        Ok(blob.is_some_and(|blob| blob.place == Place::File))
    };
    files.orphans(mark.open, named)?;
    let elsewhere = Alive::decode(base.get(&remote_key())?.as_deref())?.blobs;
    if depot.is_none() && elsewhere > 0 {
        return Err(EngineError::Gateway(format!(
            "{elsewhere} blobs of this store lie in another store that its settings do not name; name it as the gateway, with 'write = false' if it is to take no more"
        )));
    }

    segments.measure()?;
    if mark.segment > 0 {
        segments.end(mark.segment, mark.offset);
    }
    let limit = config.segment;
    let state = State { active: Changes::new(), frozen: Changes::new(), base };
    let core = Arc::new(Core {
        room: Room::new(&config.data, config.reserve),
        config,
        salt: mark.salt,
        state: RwLock::new(Arc::new(state)),
        index: Mutex::new(index),
        segments: segments.clone(),
        files: Arc::new(files),
        buffers: Buffers::new(get::SPAN),
        depot,
        stopped: AtomicBool::new(false),
        index_fails: AtomicBool::new(false),
        signal,
        counters: Counters::default(),
        pins: Pins::default(),
        scrubber: Scrubber::default(),
        suspects: Mutex::default(),
        _lock: lock,
    });
    let end = (mark.segment, mark.offset);
    let journal = Journal::new(&journal_folder, segments, mark.salt, limit, end, mark.group);
    start(core, journal, &mark)
}

fn start(core: Arc<Core>, journal: Journal, mark: &Mark) -> Result<Parts, EngineError> {
    let (jobs, queue) = mpsc::channel(QUEUE_MAX);
    let (orders, obeyed) = orders::channel();
    let hand = Hand { core: core.clone(), jobs: jobs.downgrade(), orders: None };
    let keeper = Keeper {
        hand: Hand { orders: Some(orders), ..hand.clone() },
        pending: None,
        covered: mark.segment,
        fixed: BTreeSet::new(),
        tidied: u64::MAX,
    };
    let covered = (mark.segment, mark.offset);
    let writer =
        Writer { core: core.clone(), journal, jobs: queue, orders: obeyed, time: mark.time, covered };
    let porting = hand.clone();
    let mut threads = vec![
        thread::Builder::new().name("object-writer".into()).spawn(move || writer.run())?,
        thread::Builder::new().name("object-keeper".into()).spawn(move || keeper.run())?,
        thread::Builder::new().name("object-scrubber".into()).spawn(move || scrub::run(&hand))?,
    ];
    if let (Some(depot), Some(gateway)) = (core.depot.clone(), &core.config.gateway) {
        let settle = gateway.settle;
        let porter = thread::Builder::new().name("object-porter".into());
        threads.push(porter.spawn(move || depot::porter(&porting, &depot, settle))?);
    }
    Ok(Parts { core, jobs, threads })
}

/// The data is ours until this is dropped.
pub(super) struct Lock(File);

impl Drop for Lock {
    /// Closing the file would not do: a process that is being started at this moment has a copy of it.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn lock(data: &Path) -> Result<Lock, EngineError> {
    let file = File::options().write(true).create(true).truncate(false).open(data.join("lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(EngineError::InUse(data.to_owned())),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

/// Brings the index up to the end of the journal.
fn apply_journal(index: &mut Index, segments: &Segments, mark: Mark) -> Result<Mark, EngineError> {
    let mut now = mark;
    let mut changes = Changes::new();
    let from = End { segment: mark.segment, offset: mark.offset, group: mark.group };
    let end = replay(segments, mark.salt, from, |at, group| {
        if changes.len() >= REPLAYED_MAX {
            (now.segment, now.offset, now.group) = (at.segment, at.offset, at.group);
            index.apply(&changes, &now)?;
            changes = Changes::new();
        }
        now.time = now.time.max(group.head.time);
        for (key, value) in group.changes() {
            if let Some(id) = blob_of(key) {
                now.next = now.next.max(id.0 + 1);
            }
            changes.insert(key.into(), value.map(Into::into));
        }
        Ok(())
    })?;
    (now.segment, now.offset, now.group) = (end.segment, end.offset, end.group);
    if now != mark {
        tracing::info!(groups = end.group - mark.group, "applied the journal since the last checkpoint");
        index.apply(&changes, &now)?;
    }
    // A number is never used again, even if its blob was the last.
    if let Some(last) = index.base()?.last(&blobs())?.and_then(|key| blob_of(&key)) {
        now.next = now.next.max(last.0 + 1);
    }
    Ok(now)
}
