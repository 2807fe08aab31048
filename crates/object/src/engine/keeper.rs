//! The keeper: checkpoints, and the removal of what is dead.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc as orders;
use std::time::Instant;

use super::api::{BlobId, EngineError};
use super::blob::{Alive, Blob, Place, Queue, blob_key, dead_before, last_number, segment_key};
use super::core::wall;
use super::hand::Hand;
use super::index::Mark;
use super::layers::Changes;
use super::scrub;
use super::writer::{CHANGED_SOON, Order};

/// Dead blobs that one change forgets.
const BURY_AT_ONCE: usize = 256;

pub(super) struct Keeper {
    pub hand: Hand,
    /// Set aside by the writer, not yet in the index.
    pub pending: Option<(Changes, Mark)>,
    /// The segment from which a replay would begin.
    pub covered: u64,
    /// Segments that cannot be rewritten, because they are damaged.
    pub fixed: BTreeSet<u64>,
    /// The count of groups when segments were last looked at.
    pub tidied: u64,
}

impl Keeper {
    /// Works until it is told to stop.
    pub fn run(mut self) {
        let core = self.hand.core.clone();
        let mut last = Instant::now();
        loop {
            let wanted = core.signal.wait(core.config.checkpoint.saturating_sub(last.elapsed()));
            if let Some(done) = wanted.close {
                // What an earlier failure left, then what came after it.
                self.report("checkpoint", |keeper| keeper.checkpoint().and_then(|()| keeper.checkpoint()));
                let _ = done.send(());
            }
            if wanted.stop {
                break;
            }
            core.files.sweep();
            let due = last.elapsed() >= core.config.checkpoint;
            if due || core.state().active.len() >= CHANGED_SOON {
                last = Instant::now();
                self.report("checkpoint", Self::checkpoint);
            }
            if due && !core.stopped.load(Ordering::Acquire) {
                self.report("reclaim", Self::reclaim);
                let groups = core.counters.groups.load(Ordering::Relaxed);
                if std::mem::replace(&mut self.tidied, groups) != groups {
                    self.report("removal of segments", Self::remove_segments);
                    self.report("compaction", Self::compact);
                }
                if core.depot.is_none() {
                    self.report("check of suspects", |keeper| scrub::check_suspects(&keeper.hand));
                }
            }
        }
        core.files.sweep();
    }

    fn report(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Result<(), EngineError>) {
        match work(self) {
            Ok(()) | Err(EngineError::Stopped) => {}
            Err(error) => tracing::warn!(%error, "{what} failed; it is tried again"),
        }
    }

    /// Brings the index up to the journal.
    fn checkpoint(&mut self) -> Result<(), EngineError> {
        if self.pending.is_none() {
            let (reply, answer) = orders::channel();
            self.hand.order(Order::Freeze(reply))?;
            self.pending = answer.recv().map_err(|_| EngineError::Stopped)?;
        }
        let Some((changes, mark)) = &self.pending else { return Ok(()) };
        let core = &self.hand.core;
        let mut index = core.index.lock().expect("no panic under this lock");
        let applied = index.apply(changes, mark);
        let base = index.base();
        drop(index);
        match applied {
            Ok(()) => {
                let base = base?;
                core.index_fails.store(false, Ordering::Relaxed);
                self.covered = mark.segment;
                core.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
                self.pending = None;
                self.hand.order(Order::Thaw(base))
            }
            Err(error) => {
                core.index_fails.store(true, Ordering::Relaxed);
                if let Ok(base) = base {
                    self.hand.order(Order::Rebase(base))?;
                }
                Err(error)
            }
        }
    }

    /// The file goes first: a record without a file is found again, a file without a record is not.
    fn reclaim(&mut self) -> Result<(), EngineError> {
        let core = self.hand.core.clone();
        reclaim(&self.hand, Queue::Local, |dead| {
            let files: Vec<BlobId> =
                dead.iter().filter(|(_, place)| *place == Place::File).map(|(id, _)| *id).collect();
            Ok(core.files.remove_all(&files)?)
        })
    }

    /// Removes segments in which nothing is alive and which no replay needs.
    pub fn remove_segments(&mut self) -> Result<(), EngineError> {
        let core = self.hand.core.clone();
        for number in core.segments.ends().into_keys().filter(|number| *number < self.covered) {
            let key = segment_key(number);
            if Alive::decode(core.state().get(&key)?.as_deref())? == Alive::default() {
                if core.state().get(&key)?.is_some() {
                    self.hand.write(move |tx| {
                        tx.delete(key);
                        Ok(())
                    })?;
                }
                core.segments.remove(number)?;
                self.fixed.remove(&number);
            }
        }
        Ok(())
    }
}

/// Forgets the blobs that nobody has held for a while, after `remove` took away their bytes.
pub(super) fn reclaim(
    hand: &Hand,
    queue: Queue,
    mut remove: impl FnMut(&[(BlobId, Place)]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let core = hand.core.clone();
    let grace = i64::try_from(core.config.grace.as_millis()).unwrap_or(i64::MAX);
    loop {
        let before = wall().saturating_sub(grace).min(core.pins.oldest().unwrap_or(i64::MAX));
        let state = core.state();
        let mut dead = Vec::new();
        state.scan(&dead_before(queue, before), None, |key, _| {
            dead.extend(last_number(key).map(|id| (key.to_vec(), BlobId(id))));
            dead.len() < BURY_AT_ONCE
        })?;
        let more = dead.len() == BURY_AT_ONCE;
        if dead.is_empty() {
            return Ok(());
        }
        let mut gone = Vec::new();
        for (_, id) in &dead {
            let blob = state.get(&blob_key(*id))?.map(|bytes| Blob::decode(&bytes)).transpose()?;
            gone.extend(blob.filter(|blob| blob.refs == 0).map(|blob| (*id, blob.place)));
        }
        remove(&gone)?;
        hand.write(move |tx| dead.into_iter().try_for_each(|(key, id)| tx.bury(key, id)))?;
        // The rest is for the next time where everyone waits for a checkpoint.
        if !more || core.is_behind() {
            return Ok(());
        }
    }
}
