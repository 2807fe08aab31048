//! What the engine offers.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::blob::{damaged, last_number};
use super::core::Core;
use super::depot::GatewayState;
use super::hand::Hand;
use super::layers::State;
use super::put::BlobWriter;
use super::scrub::Scrub;
use super::stats::Stats;
use super::tx::Tx;
use super::writer::{Job, call};
use super::{get, open, scrub};
use crate::config::Gateway;

/// Blobs up to this size live in the journal.
pub const PACKED_MAX: usize = 64 * 1024;
/// Bytes per checked (and sealed) chunk.
pub const CHUNK: usize = 64 * 1024;

/// Names bytes that are kept. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobId(pub u64);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("index: {0}")]
    Index(String),
    /// Bytes on disk do not match their checksum, or a sealed chunk does not open.
    #[error("blob {0:?} is damaged")]
    Damaged(BlobId),
    #[error("blob {0:?} is not there")]
    Missing(BlobId),
    /// A group is damaged that sound ones follow: changes that were acknowledged are lost.
    #[error("the journal is damaged in segment {segment} at byte {offset}")]
    Journal { segment: u64, offset: u64 },
    /// Someone else has the data open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The store behind this one does not do what it is asked; it may later.
    #[error("the store behind this one: {0}")]
    Away(String),
    /// The store behind this one cannot be used as it is set up.
    #[error("{0}")]
    Gateway(String),
    /// More changes than the disk takes: the index is too far behind them.
    #[error("the index is behind")]
    Behind,
    /// The engine stopped after a failure to write; it must be opened again.
    #[error("the engine has stopped")]
    Stopped,
}

impl EngineError {
    /// Whether the disk has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub data: PathBuf,
    /// How often the index is made durable and the journal let go.
    pub checkpoint: Duration,
    /// Bytes of a journal segment.
    pub segment: u64,
    /// How long dead bytes wait for readers before they are removed.
    pub grace: Duration,
    /// Room on the disk that blobs leave, so that deletes still work on a full one.
    pub reserve: u64,
    /// Bytes per second that the scrubber reads by itself; 0 is never.
    pub scrub_rate: u64,
    /// How long after a pass the scrubber begins the next.
    pub scrub_every: Duration,
    /// Where large blobs go instead of files.
    pub gateway: Option<Gateway>,
}

impl EngineConfig {
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            checkpoint: Duration::from_secs(2),
            segment: 64 << 20,
            grace: Duration::from_secs(10),
            reserve: 32 << 20,
            scrub_rate: 4 << 20,
            scrub_every: Duration::from_secs(7 * 24 * 60 * 60),
            gateway: None,
        }
    }
}

/// A key that seals the bytes of blobs. Each blob uses one derived from it and a salt of its own.
#[derive(Clone)]
pub struct SealKey(pub zeroize::Zeroizing<[u8; 32]>);

/// Cheap to clone. When the last one is dropped, the engine ends as if the power went: nothing is lost.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.signal.stop();
        if let Some(depot) = &self.core.depot {
            depot.stop();
        }
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Engine {
    /// Opens the data, applying what the journal holds beyond the index. Blocking.
    pub fn open(config: EngineConfig) -> Result<Self, EngineError> {
        let open::Parts { core, jobs, threads } = open::open(config)?;
        Ok(Self { inner: Arc::new(Inner { core, jobs: Some(jobs), threads }) })
    }

    /// A view of the index as of the last durable group. Quick.
    pub fn read(&self) -> Result<View, EngineError> {
        Ok(View { state: self.inner.core.state() })
    }

    /// Runs `change` on the writer and answers once it is durable. An error of `change` undoes it alone.
    pub async fn write<T, E, F>(&self, change: F) -> Result<T, E>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<EngineError> + Send + 'static,
    {
        if self.inner.core.stopped.load(Ordering::Acquire) {
            return Err(EngineError::Stopped.into());
        }
        let (job, answer) = call(change);
        self.jobs()?.send(Job::Change(job)).await.map_err(|_| EngineError::Stopped)?;
        answer.await.map_err(|_| EngineError::Stopped)?
    }

    fn jobs(&self) -> Result<&mpsc::Sender<Job>, EngineError> {
        self.inner.jobs.as_ref().ok_or(EngineError::Stopped)
    }

    /// Starts a blob. `size` is a hint, if known.
    pub fn blob(&self, size: Option<u64>, seal: Option<&SealKey>) -> BlobWriter {
        BlobWriter::new(self.inner.core.clone(), size, seal)
    }

    /// The bytes `range` of a blob (must lie within its size). Opens at once, so a later delete does not hurt.
    pub async fn fetch(
        &self,
        id: BlobId,
        range: Range<u64>,
        seal: Option<&SealKey>,
    ) -> Result<BoxStream<'static, Result<Bytes, EngineError>>, EngineError> {
        get::fetch(self.inner.core.clone(), id, range, seal).await
    }

    /// As long as it is kept, no blob that is held now loses its bytes. For readers of many blobs.
    pub fn pin(&self) -> Pin {
        let core = self.inner.core.clone();
        Pin { time: core.pins.add(), core }
    }

    /// Reads every blob, at most `rate` bytes per second, and tells how far it is.
    pub async fn scrub(
        &self,
        rate: Option<u64>,
        mut progress: impl FnMut(&Scrub) + Send + 'static,
    ) -> Result<Scrub, EngineError> {
        let hand = Hand { core: self.inner.core.clone(), jobs: self.jobs()?.downgrade(), orders: None };
        let pass = tokio::task::spawn_blocking(move || {
            let mut pass = scrub::Pass::new(hand, rate);
            while pass.step()? {
                progress(&pass.seen);
            }
            Ok(pass.seen)
        });
        pass.await.map_err(|error| EngineError::Io(io::Error::other(error)))?
    }

    /// Begins a pass in the background now, at most `rate` bytes per second; 0 is no limit. One that runs goes on at
    /// this rate. [`Stats`] tell how far it is.
    pub fn scrub_start(&self, rate: u64) -> Result<(), EngineError> {
        let core = &self.inner.core;
        if core.stopped.load(Ordering::Acquire) {
            return Err(EngineError::Stopped);
        }
        core.scrubber.ask(rate);
        core.signal.nudge();
        Ok(())
    }

    /// Blobs that did not match their checksums, by the scrubber or a reader, and are still held.
    pub fn damaged(&self) -> Result<Vec<BlobId>, EngineError> {
        let mut found = Vec::new();
        self.inner.core.state().scan(&damaged(), None, |key, _| {
            found.extend(last_number(key).map(BlobId));
            true
        })?;
        Ok(found)
    }

    /// `None` where all bytes lie here.
    pub fn gateway(&self) -> Option<GatewayState> {
        self.inner.core.depot.as_ref().map(|depot| depot.state())
    }

    /// Whether the disk has more room than what is kept for deletes. Cheap.
    pub fn has_room(&self) -> bool {
        let (free, reserve) = self.inner.core.room.left();
        free > reserve
    }

    pub fn stats(&self) -> Result<Stats, EngineError> {
        Stats::of(&self.inner.core)
    }

    /// Ends the writer after what it has been given; makes the index durable. Reading goes on.
    pub async fn close(&self) {
        let (done, answer) = oneshot::channel();
        let Ok(jobs) = self.jobs() else { return };
        if jobs.send(Job::Close(done)).await.is_ok() {
            let _ = answer.await;
        }
    }
}

/// Keeps bytes from being removed.
pub struct Pin {
    core: Arc<Core>,
    time: i64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.pins.remove(self.time);
    }
}

/// A consistent view for reading.
pub struct View {
    state: Arc<State>,
}

impl View {
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.state.get(key)
    }

    /// Calls `each` with keys and values of the range in order until it answers `false`. No copies are made.
    pub fn scan(
        &self,
        range: Range<Vec<u8>>,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        self.state.scan(&range, None, each)
    }
}
