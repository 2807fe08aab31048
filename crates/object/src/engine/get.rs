//! Bytes on their way out.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rustix::io::ReadWriteFlags;

use super::api::{BlobId, CHUNK, EngineError, SealKey};
use super::blob::{Blob, Place, TAG, blob_key};
use super::core::Core;
use super::journal::crc32c;
use super::seal::Cipher;

/// Chunks read at once.
const CHUNKS_AT_ONCE: u64 = 8;
/// Reads under way for one stream.
const AHEAD: usize = 2;
/// How often a packed blob is looked for again when it moved meanwhile.
const MOVES_MAX: usize = 3;

pub(super) type Stream = BoxStream<'static, Result<Bytes, EngineError>>;

/// An open blob.
#[derive(Clone)]
pub(super) struct Source {
    id: BlobId,
    blob: Blob,
    file: Arc<File>,
    cipher: Option<Cipher>,
}

pub(super) fn find(core: &Core, id: BlobId) -> Result<Blob, EngineError> {
    let bytes = core.state().get(&blob_key(id))?.ok_or(EngineError::Missing(id))?;
    Blob::decode(&bytes)
}

/// Opens a blob. Blocking.
pub(super) fn open(core: &Core, id: BlobId, seal: Option<&SealKey>) -> Result<Source, EngineError> {
    for _ in 0..MOVES_MAX {
        let blob = find(core, id)?;
        let opened = match blob.place {
            Place::Packed { segment, .. } => core.segments.file(segment),
            Place::File => File::open(core.files.path(id)).map(Arc::new),
        };
        match opened {
            Ok(file) => {
                let cipher = match (&blob.salt, seal) {
                    (Some(salt), Some(key)) => Some(Cipher::new(key, salt)),
                    _ => None,
                };
                return Ok(Source { id, blob, file, cipher });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Missing(id))
}

pub(super) async fn fetch(
    core: Arc<Core>,
    id: BlobId,
    range: Range<u64>,
    seal: Option<&SealKey>,
) -> Result<Stream, EngineError> {
    let seal = seal.cloned();
    let source = match find(&core, id)?.place {
        Place::Packed { .. } => open(&core, id, seal.as_ref())?,
        Place::File => {
            let core = core.clone();
            blocking(move || open(&core, id, seal.as_ref())).await?
        }
    };
    if range.start > range.end || range.end > source.blob.size {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the range is not within the blob").into());
    }
    if source.blob.salt.is_some() && source.cipher.is_none() {
        return Err(EngineError::Damaged(id));
    }
    if range.is_empty() {
        return Ok(stream::empty().boxed());
    }
    match source.blob.place {
        Place::Packed { .. } => {
            let bytes = source.packed().await.inspect_err(|error| suspect(&core, error))?;
            let range = usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0);
            let bytes =
                if range.end <= bytes.len() { Ok(bytes.slice(range)) } else { Err(EngineError::Damaged(id)) };
            Ok(stream::iter([bytes]).boxed())
        }
        Place::File => Ok(source.chunks(range).inspect_err(move |error| suspect(&core, error)).boxed()),
    }
}

/// Remembers a blob that did not match, so that it is looked at and reported.
fn suspect(core: &Core, error: &EngineError) {
    if let EngineError::Damaged(id) = error {
        core.suspects.lock().expect("no panic under this lock").insert(*id);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| EngineError::Io(io::Error::other(error)))?
}

impl Source {
    /// The whole of a packed blob; the async thread only reads what is in memory.
    async fn packed(self) -> Result<Bytes, EngineError> {
        let Place::Packed { offset, .. } = self.blob.place else { return Err(EngineError::Missing(self.id)) };
        let mut bytes = vec![0; usize::try_from(self.blob.stored()).unwrap_or(0)];
        let read = {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            rustix::io::preadv2(&*self.file, &mut slices, offset, ReadWriteFlags::NOWAIT)
        };
        if read.is_ok_and(|count| count == bytes.len()) {
            return self.open_packed(bytes);
        }
        blocking(move || self.packed_now()).await
    }

    /// The same, blocking.
    pub fn packed_now(&self) -> Result<Bytes, EngineError> {
        self.open_packed(self.packed_raw()?)
    }

    /// The bytes as they are stored.
    pub fn packed_raw(&self) -> Result<Vec<u8>, EngineError> {
        let Place::Packed { offset, .. } = self.blob.place else { return Err(EngineError::Missing(self.id)) };
        let mut bytes = vec![0; usize::try_from(self.blob.stored()).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| self.failed(error))?;
        self.check_packed(&bytes)?;
        Ok(bytes)
    }

    fn check_packed(&self, bytes: &[u8]) -> Result<(), EngineError> {
        match self.blob.place {
            Place::Packed { crc, .. } if crc32c(bytes) == crc => Ok(()),
            _ => Err(EngineError::Damaged(self.id)),
        }
    }

    fn open_packed(&self, bytes: Vec<u8>) -> Result<Bytes, EngineError> {
        self.check_packed(&bytes)?;
        match &self.cipher {
            Some(cipher) => {
                cipher.open(0, true, &bytes).map(Bytes::from).ok_or(EngineError::Damaged(self.id))
            }
            None => Ok(bytes.into()),
        }
    }

    fn failed(&self, error: io::Error) -> EngineError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => EngineError::Damaged(self.id),
            _ => error.into(),
        }
    }

    /// The range in pieces, some read ahead.
    fn chunks(self, range: Range<u64>) -> Stream {
        let chunk = CHUNK as u64;
        let all = range.start / chunk..range.end.div_ceil(chunk);
        let source = Arc::new(self);
        stream::iter(all.clone().step_by(CHUNKS_AT_ONCE as usize))
            .map(move |first| {
                let (source, range) = (source.clone(), range.clone());
                let chunks = first..(first + CHUNKS_AT_ONCE).min(all.end);
                blocking(move || source.span(chunks, &range))
            })
            .buffered(AHEAD)
            .boxed()
    }

    /// Reads all of it and compares the checksums, telling how much after each piece. Needs no key.
    pub fn verify(&self, mut each: impl FnMut(u64) -> Result<(), EngineError>) -> Result<(), EngineError> {
        if self.blob.place != Place::File {
            return each(self.packed_raw()?.len() as u64);
        }
        let chunks = self.blob.size.div_ceil(CHUNK as u64);
        for first in (0..chunks).step_by(CHUNKS_AT_ONCE as usize) {
            each(self.checked(first..(first + CHUNKS_AT_ONCE).min(chunks))?.len() as u64)?;
        }
        // What was read once for this is not read again soon.
        let _ = rustix::fs::fadvise(&*self.file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }

    fn step(&self) -> u64 {
        CHUNK as u64 + if self.blob.salt.is_some() { TAG } else { 0 }
    }

    /// Whole chunks as they are stored.
    fn checked(&self, chunks: Range<u64>) -> Result<Vec<u8>, EngineError> {
        let (step, stored) = (self.step(), self.blob.stored());
        let start = chunks.start * step;
        let end = (chunks.end * step).min(stored);
        let bytes = self.read(start, end - start)?;
        let crcs = self.read(stored + chunks.start * 4, (chunks.end - chunks.start) * 4)?;
        let step = usize::try_from(step).expect("a chunk is small");
        for (piece, crc) in bytes.chunks(step).zip(crcs.chunks_exact(4)) {
            if crc32c(piece).to_le_bytes() != *crc {
                return Err(EngineError::Damaged(self.id));
            }
        }
        Ok(bytes)
    }

    /// Reads and checks whole chunks; answers what of them lies in `range`.
    fn span(&self, chunks: Range<u64>, range: &Range<u64>) -> Result<Bytes, EngineError> {
        let chunk = CHUNK as u64;
        let bytes = self.checked(chunks.clone())?;
        let bytes = match &self.cipher {
            Some(cipher) => self.unseal(cipher, chunks.start, &bytes)?,
            None => bytes,
        };
        let from = range.start.saturating_sub(chunks.start * chunk);
        let to = (range.end - chunks.start * chunk).min(bytes.len() as u64);
        Ok(Bytes::from(bytes).slice(usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0)))
    }

    fn unseal(&self, cipher: &Cipher, first: u64, bytes: &[u8]) -> Result<Vec<u8>, EngineError> {
        let last = self.blob.size.div_ceil(CHUNK as u64).max(1) - 1;
        let step = usize::try_from(self.step()).expect("a chunk is small");
        let mut plain = Vec::with_capacity(bytes.len());
        for (number, piece) in (first..).zip(bytes.chunks(step)) {
            let piece = cipher.open(number, number == last, piece).ok_or(EngineError::Damaged(self.id))?;
            plain.extend_from_slice(&piece);
        }
        Ok(plain)
    }

    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, EngineError> {
        let length = usize::try_from(length).map_err(|_| EngineError::Damaged(self.id))?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = offset + bytes.len() as u64;
            let room = rustix::buffer::spare_capacity(&mut bytes);
            match rustix::io::pread(&*self.file, room, at) {
                Ok(0) => return Err(EngineError::Damaged(self.id)),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}
