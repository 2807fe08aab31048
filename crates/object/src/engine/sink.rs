//! The end of a large blob: a file that stays, or one that is carried on to the store behind this one.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::api::EngineError;
use super::blob::stored;
use super::chunk::{Chunker, crcs_length};
use super::core::Core;
use super::depot::{Carrier, SPOOL_MAX};
use super::file::FileGuard;
use super::put::Guard;
use super::seal::Cipher;

/// Bytes after which the disk begins, while more comes.
const SYNC_EVERY: u64 = 8 << 20;
/// Slices of one write.
pub(super) const SLICES_MAX: usize = 256;

pub(super) struct Sink {
    /// Goes with the file, so that a write under way ends before the file does.
    guard: FileGuard,
    file: Arc<File>,
    chunker: Chunker,
    offset: u64,
    /// Bytes that the file has on the disk from the start.
    reserved: u64,
    way: Way,
}

/// What becomes of the file.
enum Way {
    Stay {
        /// The disk's work on what was written so far, while more comes.
        sync: Option<JoinHandle<io::Result<()>>>,
        synced: u64,
    },
    Leave(Carrier),
}

impl Sink {
    /// `size` has come so far, `hint` is what will, if known.
    pub fn new(
        core: &Arc<Core>,
        size: u64,
        hint: Option<u64>,
        cipher: Option<Cipher>,
    ) -> Result<Self, EngineError> {
        let depot = core.depot.as_ref().filter(|depot| depot.takes());
        let room = hint.unwrap_or(size);
        core.room.look();
        core.room.check(if depot.is_some() { room.min(SPOOL_MAX) } else { room })?;
        let guard = core.files.guard();
        let file = Arc::new(core.files.create(guard.id())?);
        let mut reserved = 0;
        let way = match depot {
            Some(depot) => Way::Leave(Carrier::new(depot, guard.id(), file.clone())?),
            None => {
                if let Some(size) = hint {
                    reserved = stored(size, cipher.is_some()) + crcs_length(size);
                    reserve(&file, reserved)?;
                }
                Way::Stay { sync: None, synced: 0 }
            }
        };
        let chunker = Chunker::new(guard.id(), cipher);
        Ok(Self { guard, file, chunker, offset: 0, reserved, way })
    }

    pub fn write(&mut self, parts: Vec<Bytes>) -> Result<(), EngineError> {
        let parts = self.chunker.take(parts);
        self.put(&parts)?;
        match &mut self.way {
            Way::Leave(carrier) => carrier.follow(self.offset),
            Way::Stay { sync, synced } => {
                if self.offset - *synced >= SYNC_EVERY && sync.as_ref().is_none_or(JoinHandle::is_finished) {
                    end_sync(sync)?;
                    let file = self.file.clone();
                    *sync = Some(tokio::task::spawn_blocking(move || file.sync_data()));
                    *synced = self.offset;
                }
                Ok(())
            }
        }
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

    /// Makes it durable where it is to stay.
    pub fn finish(mut self, core: &Core) -> Result<Guard, EngineError> {
        let chunker = std::mem::replace(&mut self.chunker, Chunker::new(self.guard.id(), None));
        self.put(&chunker.end())?;
        match self.way {
            Way::Leave(carrier) => Ok(Guard::Remote(carrier.finish(self.offset)?)),
            Way::Stay { mut sync, .. } => {
                if self.offset < self.reserved {
                    // Gives back what was not used.
                    self.file.set_len(self.offset)?;
                }
                end_sync(&mut sync)?;
                self.file.sync_data()?;
                core.files.sync_folder(self.guard.id())?;
                self.guard.written();
                Ok(Guard::File(self.guard))
            }
        }
    }
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A failure is told only once, so it must not be missed.
fn end_sync(sync: &mut Option<JoinHandle<io::Result<()>>>) -> Result<(), EngineError> {
    if let Some(sync) = sync.take() {
        tokio::runtime::Handle::current().block_on(sync).map_err(io::Error::other)??;
    }
    Ok(())
}
