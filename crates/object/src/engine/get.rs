//! Bytes on their way out.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;

use super::api::{BlobId, CHUNK, EngineError, SealKey};
use super::blob::{Blob, Place, TAG, blob_key};
use super::buffers::{Buffers, Lease};
use super::chunk::Layout;
use super::core::Core;
use super::depot::fetch as remote;
use super::journal::crc32c;
use super::seal::Cipher;

/// Chunks read at once.
const CHUNKS_AT_ONCE: usize = 4;
/// The most bytes of these.
pub(super) const SPAN: usize = CHUNKS_AT_ONCE * (CHUNK + TAG as usize);
/// Reads under way for one stream.
const AHEAD: usize = 2;
/// Bytes that the disk is asked for at once when something is not in memory.
const DISK_AHEAD: NonZeroU64 = NonZeroU64::new(2 << 20).expect("it is not zero");
/// How often a packed blob is looked for again when it moved meanwhile.
const MOVES_MAX: usize = 3;

pub(super) type Stream = BoxStream<'static, Result<Bytes, EngineError>>;

/// An open blob on this machine.
struct Source {
    layout: Layout,
    file: Arc<File>,
    buffers: Arc<Buffers>,
}

pub(super) fn find(core: &Core, id: BlobId) -> Result<Blob, EngineError> {
    let bytes = core.state().get(&blob_key(id))?.ok_or(EngineError::Missing(id))?;
    Blob::decode(&bytes)
}

/// Where a blob's bytes are and how they are read. Without a key a sealed one can only be verified.
fn layout(core: &Core, id: BlobId, seal: Option<&SealKey>) -> Result<Layout, EngineError> {
    let blob = find(core, id)?;
    let cipher = match (&blob.salt, seal) {
        (Some(salt), Some(key)) => Some(Cipher::new(key, salt)),
        _ => None,
    };
    Ok(Layout { id, blob, cipher })
}

/// Opens a blob on this machine. Blocking.
fn open(core: &Core, id: BlobId, seal: Option<&SealKey>) -> Result<Source, EngineError> {
    for _ in 0..MOVES_MAX {
        let layout = layout(core, id, seal)?;
        let opened = match layout.blob.place {
            Place::Packed { segment, .. } => core.segments.file(segment),
            Place::File => File::open(core.files.path(id)).map(Arc::new),
            Place::Remote { .. } => break,
        };
        match opened {
            Ok(file) => return Ok(Source { layout, file, buffers: core.buffers.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Missing(id))
}

/// Reads all of a blob and compares its checksums, telling how much after each piece. Needs no key. Blocking.
pub(super) fn verify(
    core: &Core,
    id: BlobId,
    each: impl FnMut(u64) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let layout = layout(core, id, None)?;
    match layout.blob.place {
        Place::Remote { .. } => remote::verify(core, &layout, each),
        _ => open(core, id, None)?.verify(each),
    }
}

pub(super) async fn fetch(
    core: Arc<Core>,
    id: BlobId,
    range: Range<u64>,
    seal: Option<&SealKey>,
) -> Result<Stream, EngineError> {
    let layout = layout(&core, id, seal)?;
    if range.start > range.end || range.end > layout.blob.size {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the range is not within the blob").into());
    }
    if layout.blob.salt.is_some() && layout.cipher.is_none() {
        return Err(EngineError::Damaged(id));
    }
    let seal = seal.cloned();
    match layout.blob.place {
        _ if range.is_empty() => Ok(stream::empty().boxed()),
        Place::Packed { .. } => {
            let source = open(&core, id, seal.as_ref())?;
            let bytes = source.packed().await.inspect_err(|error| suspect(&core, error))?;
            let range = usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0);
            let bytes =
                if range.end <= bytes.len() { Ok(bytes.slice(range)) } else { Err(EngineError::Damaged(id)) };
            Ok(stream::iter([bytes]).boxed())
        }
        Place::File => {
            let opening = core.clone();
            let source = blocking(move || open(&opening, id, seal.as_ref())).await?;
            Ok(source.chunks(range).inspect_err(move |error| suspect(&core, error)).boxed())
        }
        Place::Remote { .. } => {
            let stream =
                remote::fetch(&core, layout, range).await.inspect_err(|error| suspect(&core, error))?;
            Ok(stream.inspect_err(move |error| suspect(&core, error)).boxed())
        }
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
        let Place::Packed { offset, .. } = self.layout.blob.place else {
            return Err(EngineError::Missing(self.layout.id));
        };
        let mut bytes = vec![0; usize::try_from(self.layout.blob.stored()).unwrap_or(0)];
        if self.fill(&mut bytes, offset, false)? {
            return self.open_packed(bytes);
        }
        blocking(move || self.open_packed(self.packed_raw()?)).await
    }

    /// The bytes as they are stored. Blocking.
    fn packed_raw(&self) -> Result<Vec<u8>, EngineError> {
        let Place::Packed { offset, .. } = self.layout.blob.place else {
            return Err(EngineError::Missing(self.layout.id));
        };
        let mut bytes = vec![0; usize::try_from(self.layout.blob.stored()).unwrap_or(0)];
        self.fill(&mut bytes, offset, true)?;
        self.check_packed(&bytes)?;
        Ok(bytes)
    }

    fn check_packed(&self, bytes: &[u8]) -> Result<(), EngineError> {
        match self.layout.blob.place {
            Place::Packed { crc, .. } if crc32c(bytes) == crc => Ok(()),
            _ => Err(EngineError::Damaged(self.layout.id)),
        }
    }

    fn open_packed(&self, bytes: Vec<u8>) -> Result<Bytes, EngineError> {
        self.check_packed(&bytes)?;
        match &self.layout.cipher {
            Some(cipher) => {
                let opened = cipher.open(0, true, &bytes).map(Bytes::from);
                opened.ok_or(EngineError::Damaged(self.layout.id))
            }
            None => Ok(bytes.into()),
        }
    }

    fn failed(&self, error: io::Error) -> EngineError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => EngineError::Damaged(self.layout.id),
            _ => error.into(),
        }
    }

    /// The range in pieces, some read ahead. What is in memory is read on the spot; opening seals takes a core's
    /// time, so that is done elsewhere.
    fn chunks(self, range: Range<u64>) -> Stream {
        let all = Layout::touched(&range);
        let sealed = self.layout.cipher.is_some();
        let source = Arc::new(self);
        let pieces = stream::iter(all.clone().step_by(CHUNKS_AT_ONCE)).map(move |first| {
            let (source, range) = (source.clone(), range.clone());
            let chunks = first..(first + CHUNKS_AT_ONCE as u64).min(all.end);
            async move {
                if !sealed && let Some(bytes) = source.span(&chunks, &range, false)? {
                    return Ok(bytes);
                }
                let piece = blocking(move || source.span(&chunks, &range, true)).await?;
                Ok(piece.unwrap_or_default())
            }
        });
        pieces.buffered(AHEAD).boxed()
    }

    fn verify(&self, mut each: impl FnMut(u64) -> Result<(), EngineError>) -> Result<(), EngineError> {
        if self.layout.blob.place != Place::File {
            return each(self.packed_raw()?.len() as u64);
        }
        let chunks = self.layout.chunks();
        for first in (0..chunks).step_by(CHUNKS_AT_ONCE) {
            let read = self.checked(&(first..(first + CHUNKS_AT_ONCE as u64).min(chunks)), true)?;
            each(read.map_or(0, |bytes| bytes.as_ref().len() as u64))?;
        }
        // What was read once for this is not read again soon.
        let _ = rustix::fs::fadvise(&*self.file, 0, None, Advice::DontNeed);
        Ok(())
    }

    /// Whole chunks as they are stored; `None` if that means to `wait` for the disk and it may not.
    fn checked(&self, chunks: &Range<u64>, wait: bool) -> Result<Option<Lease>, EngineError> {
        let (place, crcs) = (self.layout.place(chunks), self.layout.crcs(chunks));
        let size =
            |place: &Range<u64>| usize::try_from(place.end - place.start).expect("some chunks are small");
        let mut bytes = self.buffers.lease(size(&place));
        let mut sums = [0; 4 * CHUNKS_AT_ONCE];
        let sums = &mut sums[..size(&crcs)];
        if wait {
            let _ = rustix::fs::fadvise(&*self.file, place.start, Some(DISK_AHEAD), Advice::WillNeed);
        }
        if !self.fill(bytes.as_mut(), place.start, wait)? || !self.fill(sums, crcs.start, wait)? {
            return Ok(None);
        }
        self.layout.check(chunks.start, bytes.as_ref(), sums)?;
        Ok(Some(bytes))
    }

    /// Reads and checks whole chunks; answers what of them lies in `range`.
    fn span(
        &self,
        chunks: &Range<u64>,
        range: &Range<u64>,
        wait: bool,
    ) -> Result<Option<Bytes>, EngineError> {
        let Some(stored) = self.checked(chunks, wait)? else { return Ok(None) };
        self.layout.content(chunks, range, Bytes::from_owner(stored)).map(Some)
    }

    /// Fills `room` from the file. Without `wait` that works only if all of it is in memory.
    fn fill(&self, room: &mut [u8], offset: u64, wait: bool) -> Result<bool, EngineError> {
        if wait {
            self.file.read_exact_at(room, offset).map_err(|error| self.failed(error))?;
            return Ok(true);
        }
        let length = room.len();
        let read =
            rustix::io::preadv2(&*self.file, &mut [IoSliceMut::new(room)], offset, ReadWriteFlags::NOWAIT);
        Ok(read.is_ok_and(|count| count == length))
    }
}
