//! Bytes on their way in.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::task::JoinHandle;

use super::api::{BlobId, EngineError, PACKED_MAX, SealKey};
use super::blob::Place;
use super::core::Core;
use super::depot::Cargo;
use super::file::FileGuard;
use super::journal::crc32c;
use super::seal::Cipher;
use super::sink::{SLICES_MAX, Sink};

/// Receives bytes. Dropped without `finish`, it leaves nothing.
pub struct BlobWriter {
    core: Arc<Core>,
    hint: Option<u64>,
    cipher: Option<(Cipher, [u8; 16])>,
    size: u64,
    /// What waits to be written.
    gathered: Vec<Bytes>,
    waiting: usize,
    pen: Pen,
}

/// Where a large blob is.
enum Pen {
    /// Not large so far.
    Unused,
    Writing(JoinHandle<Result<Sink, EngineError>>),
    Failed,
}

impl BlobWriter {
    pub(super) fn new(core: Arc<Core>, hint: Option<u64>, seal: Option<&SealKey>) -> Self {
        let cipher = seal.map(|key| {
            let salt = rand::random();
            (Cipher::new(key, &salt), salt)
        });
        Self { core, hint, cipher, size: 0, gathered: Vec::new(), waiting: 0, pen: Pen::Unused }
    }

    /// Waits while the disk is behind.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.size += bytes.len() as u64;
        self.waiting += bytes.len();
        self.gathered.push(bytes);
        let large = !matches!(self.pen, Pen::Unused)
            || self.size > PACKED_MAX as u64
            || self.hint.is_some_and(|hint| hint > PACKED_MAX as u64);
        if large && (self.waiting >= self.core.files.gather() || self.gathered.len() >= SLICES_MAX) {
            self.flush().await?;
        }
        Ok(())
    }

    /// Hands what is gathered to the disk, once it is done with the last.
    async fn flush(&mut self) -> Result<(), EngineError> {
        let gathered = std::mem::take(&mut self.gathered);
        self.waiting = 0;
        let mut sink = self.sink().await?;
        self.pen = Pen::Writing(tokio::task::spawn_blocking(move || {
            sink.write(gathered)?;
            Ok(sink)
        }));
        Ok(())
    }

    /// The file's end, when the disk is done with it. Makes the file at first.
    async fn sink(&mut self) -> Result<Sink, EngineError> {
        let task = match std::mem::replace(&mut self.pen, Pen::Failed) {
            Pen::Failed => return Err(io::Error::other("an earlier write of this blob failed").into()),
            Pen::Writing(task) => task,
            Pen::Unused => {
                let (core, size, hint) = (self.core.clone(), self.size, self.hint);
                let cipher = self.cipher.as_ref().map(|(cipher, _)| cipher.clone());
                tokio::task::spawn_blocking(move || Sink::new(&core, size, hint, cipher))
            }
        };
        task.await.map_err(|error| EngineError::Io(io::Error::other(error)))?
    }

    /// Makes the bytes durable (a small blob becomes so with the change that stores it).
    pub async fn finish(mut self) -> Result<Written, EngineError> {
        let salt = self.cipher.as_ref().map(|(_, salt)| *salt);
        let gathered = std::mem::take(&mut self.gathered);
        if matches!(self.pen, Pen::Unused) && self.size <= PACKED_MAX as u64 {
            let mut bytes = join(gathered);
            if let Some((cipher, _)) = &self.cipher {
                bytes = cipher.seal(0, true, &bytes).into();
            }
            let crc = crc32c(&bytes);
            return Ok(Written { size: self.size, salt, bulk: Bulk::Packed { bytes, crc } });
        }
        let mut sink = self.sink().await?;
        let core = self.core.clone();
        let done = tokio::task::spawn_blocking(move || {
            sink.write(gathered)?;
            sink.finish(&core)
        });
        let guard = done.await.map_err(|error| EngineError::Io(io::Error::other(error)))??;
        Ok(Written { size: self.size, salt, bulk: Bulk::Apart(guard) })
    }
}

fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        all.extend_from_slice(&part);
    }
    all.freeze()
}

/// Bytes that have no name yet. Dropped without [`Tx::store`](super::Tx::store), they are removed.
pub struct Written {
    pub(super) size: u64,
    pub(super) salt: Option<[u8; 16]>,
    pub(super) bulk: Bulk,
}

pub(super) enum Bulk {
    Packed { bytes: Bytes, crc: u32 },
    Apart(Guard),
}

/// A large blob that no durable record names. Dropped, its bytes go.
pub(super) enum Guard {
    File(FileGuard),
    Remote(Cargo),
}

impl Guard {
    /// The bytes stay; `named` says whether a durable record is known to name them.
    pub fn keep(self, named: bool) {
        match self {
            Self::File(guard) => guard.keep(named),
            Self::Remote(cargo) => cargo.keep(),
        }
    }

    pub fn blob(&self) -> (BlobId, Place) {
        match self {
            Self::File(guard) => (guard.id(), Place::File),
            Self::Remote(cargo) => cargo.blob(),
        }
    }
}

impl Written {
    pub fn size(&self) -> u64 {
        self.size
    }
}
