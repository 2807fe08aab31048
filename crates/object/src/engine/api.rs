//! What the engine offers. (Signatures first; bodies follow.)

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

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
}

impl EngineConfig {
    pub fn new(data: PathBuf) -> Self {
        Self { data, checkpoint: Duration::from_secs(2), segment: 64 << 20, grace: Duration::from_secs(10) }
    }
}

/// A key that seals the bytes of blobs. Each blob uses one derived from it and a salt of its own.
#[derive(Clone)]
pub struct SealKey(pub zeroize::Zeroizing<[u8; 32]>);

/// Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    _inner: Arc<()>,
}

impl Engine {
    /// Opens the data, applying what the journal holds beyond the index. Blocking.
    pub fn open(_config: EngineConfig) -> Result<Self, EngineError> {
        unimplemented!()
    }

    /// A view of the index as of the last durable group. Blocking but quick.
    pub fn read(&self) -> Result<View, EngineError> {
        unimplemented!()
    }

    /// Runs `change` on the writer and answers once it is durable. An error of `change` undoes it alone.
    pub async fn write<T, E, F>(&self, _change: F) -> Result<T, E>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<EngineError> + Send + 'static,
    {
        unimplemented!()
    }

    /// Starts a blob. `size` is a hint, if known.
    pub fn blob(&self, _size: Option<u64>, _seal: Option<&SealKey>) -> BlobWriter {
        unimplemented!()
    }

    /// The bytes `range` of a blob (must lie within its size). Opens at once, so a later delete does not hurt.
    pub async fn fetch(
        &self,
        _id: BlobId,
        _range: Range<u64>,
        _seal: Option<&SealKey>,
    ) -> Result<BoxStream<'static, Result<Bytes, EngineError>>, EngineError> {
        unimplemented!()
    }

    /// Ends the writer after what it has been given; makes the index durable.
    pub async fn close(&self) {
        unimplemented!()
    }
}

/// Receives bytes. Dropped without `finish`, it leaves nothing.
pub struct BlobWriter {}

impl BlobWriter {
    /// Waits while the disk is behind.
    pub async fn write(&mut self, _bytes: Bytes) -> Result<(), EngineError> {
        unimplemented!()
    }

    /// Makes the bytes durable (a small blob becomes so with the change that stores it).
    pub async fn finish(self) -> Result<Written, EngineError> {
        unimplemented!()
    }
}

/// Bytes that have no name yet. Dropped without [`Tx::store`], they are removed.
pub struct Written {}

impl Written {
    pub fn size(&self) -> u64 {
        unimplemented!()
    }
}

/// A consistent view for reading.
pub struct View {}

impl View {
    pub fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        unimplemented!()
    }

    /// Calls `each` with keys and values of the range in order until it answers `false`. No copies are made.
    pub fn scan(
        &self,
        _range: Range<Vec<u8>>,
        _each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        unimplemented!()
    }
}

/// A change in the making; sees its own writes.
pub struct Tx<'a> {
    _group: &'a mut (),
}

impl Tx<'_> {
    pub fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        unimplemented!()
    }

    pub fn put(&mut self, _key: Vec<u8>, _value: Vec<u8>) {
        unimplemented!()
    }

    pub fn delete(&mut self, _key: Vec<u8>) {
        unimplemented!()
    }

    pub fn scan(
        &self,
        _range: Range<Vec<u8>>,
        _each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        unimplemented!()
    }

    /// The next number of a counter; numbers of undone changes may be lost.
    pub fn next(&mut self, _counter: &str) -> Result<u64, EngineError> {
        unimplemented!()
    }

    /// Gives bytes a name, held once.
    pub fn store(&mut self, _written: Written) -> Result<BlobId, EngineError> {
        unimplemented!()
    }

    /// Holds a blob once more (a copy without copying).
    pub fn hold(&mut self, _id: BlobId) -> Result<(), EngineError> {
        unimplemented!()
    }

    /// Lets go of a blob; the last one frees its bytes in the background.
    pub fn release(&mut self, _id: BlobId) -> Result<(), EngineError> {
        unimplemented!()
    }

    /// Wall clock, milliseconds since 1970, never behind an earlier change's.
    pub fn now(&self) -> i64 {
        unimplemented!()
    }
}
