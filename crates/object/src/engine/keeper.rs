//! The keeper: checkpoints, and the removal of what is dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as orders;
use std::time::Instant;

use tokio::sync::mpsc::WeakSender;

use super::api::{BlobId, EngineError};
use super::blob::{Blob, Place, blob_key, dead_until, last_number, segment_key};
use super::core::{Core, wall};
use super::index::Mark;
use super::layers::Changes;
use super::tx::Tx;
use super::writer::{Job, Order, call};

/// Dead blobs that one change forgets.
const BURY_AT_ONCE: usize = 256;
/// Changed records that make a checkpoint worthwhile before its time.
const CHANGED_SOON: usize = 50_000;

pub(super) struct Keeper {
    pub core: Arc<Core>,
    pub jobs: WeakSender<Job>,
    pub orders: orders::Sender<Order>,
    /// Set aside by the writer, not yet in the index.
    pub pending: Option<(Changes, Mark)>,
    /// The segment from which a replay would begin.
    pub covered: u64,
}

impl Keeper {
    /// Works until it is told to stop.
    pub fn run(mut self) {
        let mut last = Instant::now();
        loop {
            let rest = self.core.config.checkpoint.saturating_sub(last.elapsed());
            let wanted = self.core.signal.wait(rest);
            if let Some(done) = wanted.close {
                // What an earlier failure left, then what came after it.
                self.report("checkpoint", |keeper| keeper.checkpoint().and_then(|()| keeper.checkpoint()));
                let _ = done.send(());
            }
            if wanted.stop {
                break;
            }
            self.core.files.sweep();
            let due = last.elapsed() >= self.core.config.checkpoint;
            if due || self.core.state().active.len() >= CHANGED_SOON {
                last = Instant::now();
                self.report("checkpoint", Self::checkpoint);
            }
            if due {
                self.report("reclaim", Self::reclaim);
                self.report("removal of segments", Self::remove_segments);
            }
        }
        self.core.files.sweep();
    }

    fn report(&mut self, what: &str, work: impl FnOnce(&mut Self) -> Result<(), EngineError>) {
        match work(self) {
            Ok(()) | Err(EngineError::Stopped) => {}
            Err(error) => tracing::warn!(%error, "{what} failed; it is tried again"),
        }
    }

    fn order(&self, order: Order) -> Result<(), EngineError> {
        self.orders.send(order).map_err(|_| EngineError::Stopped)?;
        let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
        // A full queue means that the writer is awake.
        let _ = jobs.try_send(Job::Wake);
        Ok(())
    }

    /// Brings the index up to the journal.
    pub fn checkpoint(&mut self) -> Result<(), EngineError> {
        if self.pending.is_none() {
            let (reply, answer) = orders::channel();
            self.order(Order::Freeze(reply))?;
            self.pending = answer.recv().map_err(|_| EngineError::Stopped)?;
        }
        let Some((changes, mark)) = &self.pending else { return Ok(()) };
        let mut index = self.core.index.lock().expect("no panic under this lock");
        let applied = index.apply(changes, mark);
        let base = index.base();
        drop(index);
        match applied {
            Ok(()) => {
                self.covered = mark.segment;
                self.pending = None;
                self.core.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
                self.order(Order::Thaw(base?))
            }
            Err(error) => {
                if let Ok(base) = base {
                    self.order(Order::Rebase(base))?;
                }
                Err(error)
            }
        }
    }

    fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Tx<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (job, answer) = call(change);
        let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
        jobs.blocking_send(job).map_err(|_| EngineError::Stopped)?;
        answer.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    /// Removes the bytes of blobs that nobody has held for a while. The file goes first: a record without a file is
    /// found again, a file without a record is not.
    fn reclaim(&mut self) -> Result<(), EngineError> {
        let grace = i64::try_from(self.core.config.grace.as_millis()).unwrap_or(i64::MAX);
        loop {
            let state = self.core.state();
            let mut dead = Vec::new();
            state.scan(&dead_until(wall().saturating_sub(grace)), None, |key, _| {
                dead.extend(last_number(key).map(BlobId));
                dead.len() < BURY_AT_ONCE
            })?;
            let more = dead.len() == BURY_AT_ONCE;
            if dead.is_empty() {
                return Ok(());
            }
            let mut last = None;
            for id in &dead {
                let blob = state.get(&blob_key(*id))?.map(|bytes| Blob::decode(&bytes)).transpose()?;
                if blob.is_some_and(|blob| blob.place == Place::File) {
                    self.core.files.remove(*id)?;
                    last = Some(*id);
                }
            }
            if let Some(id) = last {
                self.core.files.sync_folder(id)?;
            }
            self.write(move |tx| dead.iter().try_for_each(|id| tx.bury(*id)))?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Removes segments in which nothing is alive and which no replay needs.
    fn remove_segments(&mut self) -> Result<(), EngineError> {
        for number in self.core.segments.list()? {
            if number >= self.covered {
                break;
            }
            let alive = self.core.state().get(&segment_key(number))?;
            let alive = alive.and_then(|bytes| last_number(&bytes)).unwrap_or(0);
            if alive == 0 {
                self.core.segments.remove(number)?;
                self.write(move |tx| {
                    tx.delete(segment_key(number));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}
