//! Bytes on their way in.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use tokio::task::JoinHandle;

use super::api::{CHUNK, EngineError, PACKED_MAX, SealKey};
use super::blob::stored;
use super::core::Core;
use super::file::{FileGuard, Files};
use super::journal::crc32c;
use super::seal::Cipher;

/// Bytes after which the disk begins, while more comes.
const SYNC_EVERY: u64 = 8 << 20;
/// Slices of one write.
const SLICES_MAX: usize = 256;

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
            sink.write(&gathered)?;
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
                self.core.room.look();
                self.core.room.check(self.hint.unwrap_or(self.size))?;
                let (files, hint) = (self.core.files.clone(), self.hint);
                let cipher = self.cipher.as_ref().map(|(cipher, _)| cipher.clone());
                tokio::task::spawn_blocking(move || Sink::new(&files, hint, cipher))
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
        let files = self.core.files.clone();
        let done = tokio::task::spawn_blocking(move || {
            sink.write(&gathered)?;
            sink.finish(&files)
        });
        let guard = done.await.map_err(|error| EngineError::Io(io::Error::other(error)))??;
        Ok(Written { size: self.size, salt, bulk: Bulk::File(guard) })
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
    File(FileGuard),
}

impl Written {
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// The end of a file: data in chunks, then their checksums.
struct Sink {
    /// Goes with the file, so that a write under way ends before the file does.
    guard: FileGuard,
    file: Arc<File>,
    /// The disk's work on what was written so far, while more comes.
    sync: Option<JoinHandle<io::Result<()>>>,
    synced: u64,
    offset: u64,
    /// Bytes that the file has on the disk from the start.
    reserved: u64,
    cipher: Option<Cipher>,
    /// A sealed blob's chunk that is not full, or may be the last.
    plain: Vec<u8>,
    chunk: u64,
    crcs: Vec<u8>,
    digest: Digest,
    digested: usize,
}

impl Sink {
    fn new(files: &Arc<Files>, hint: Option<u64>, cipher: Option<Cipher>) -> Result<Self, EngineError> {
        let guard = files.guard();
        let file = files.create(guard.id())?;
        let mut reserved = 0;
        if let Some(size) = hint {
            reserved = stored(size, cipher.is_some()) + size.div_ceil(CHUNK as u64) * 4;
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, reserved) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(Self {
            guard,
            file: Arc::new(file),
            sync: None,
            synced: 0,
            offset: 0,
            reserved,
            cipher,
            plain: Vec::new(),
            chunk: 0,
            crcs: Vec::new(),
            digest: Digest::new(CrcAlgorithm::Crc32Iscsi),
            digested: 0,
        })
    }

    fn write(&mut self, parts: &[Bytes]) -> Result<(), EngineError> {
        if self.cipher.is_some() {
            parts.iter().try_for_each(|part| self.seal(part))?;
        } else {
            parts.iter().for_each(|part| self.digest(part));
            self.put(parts)?;
        }
        if self.offset - self.synced >= SYNC_EVERY && self.sync.as_ref().is_none_or(JoinHandle::is_finished) {
            self.end_sync()?;
            let file = self.file.clone();
            self.sync = Some(tokio::task::spawn_blocking(move || file.sync_data()));
            self.synced = self.offset;
        }
        Ok(())
    }

    /// A failure is told only once, so it must not be missed.
    fn end_sync(&mut self) -> Result<(), EngineError> {
        if let Some(sync) = self.sync.take() {
            tokio::runtime::Handle::current().block_on(sync).map_err(io::Error::other)??;
        }
        Ok(())
    }

    fn put(&mut self, parts: &[Bytes]) -> Result<(), EngineError> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            match rustix::io::pwritev(&self.file, &slices[..slices.len().min(SLICES_MAX)], self.offset) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => {
                    self.offset += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Adds to the checksum of the chunk, and ends those that are full.
    fn digest(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(CHUNK - self.digested);
            if self.digested == 0 && take == CHUNK {
                self.crcs.extend_from_slice(&crc32c(&bytes[..take]).to_le_bytes());
            } else {
                self.digest.update(&bytes[..take]);
                self.digested += take;
                if self.digested == CHUNK {
                    self.end_chunk();
                }
            }
            bytes = &bytes[take..];
        }
    }

    fn end_chunk(&mut self) {
        let crc = self.digest.finalize_reset() as u32;
        self.crcs.extend_from_slice(&crc.to_le_bytes());
        self.digested = 0;
    }

    /// Seals the chunks that are full and not the last.
    fn seal(&mut self, mut bytes: &[u8]) -> Result<(), EngineError> {
        let mut sealed = Vec::new();
        while !bytes.is_empty() {
            if self.plain.len() == CHUNK {
                sealed.push(self.seal_chunk(false));
            }
            let take = bytes.len().min(CHUNK - self.plain.len());
            self.plain.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
        }
        self.put(&sealed)
    }

    fn seal_chunk(&mut self, last: bool) -> Bytes {
        let sealed = match &self.cipher {
            Some(cipher) => cipher.seal(self.chunk, last, &self.plain),
            None => Vec::new(),
        };
        self.crcs.extend_from_slice(&crc32c(&sealed).to_le_bytes());
        self.chunk += 1;
        self.plain.clear();
        sealed.into()
    }

    fn finish(mut self, files: &Files) -> Result<FileGuard, EngineError> {
        if self.cipher.is_some() {
            let last = self.seal_chunk(true);
            self.put(&[last])?;
        } else if self.digested > 0 {
            self.end_chunk();
        }
        let crcs = Bytes::from(std::mem::take(&mut self.crcs));
        self.put(&[crcs])?;
        if self.offset < self.reserved {
            // Gives back what was not used.
            self.file.set_len(self.offset)?;
        }
        self.end_sync()?;
        self.file.sync_data()?;
        files.sync_folder(self.guard.id())?;
        self.guard.written();
        Ok(self.guard)
    }
}
