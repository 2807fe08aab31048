//! Carries a file to the depot while it grows. The disk is only a buffer: what has arrived is given back.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::{ObjectStoreExt, PutPayload};
use rustix::fs::FallocateFlags;
use tokio_util::task::AbortOnDropHandle;

use super::super::api::{BlobId, EngineError};
use super::cargo::{Cargo, Upload};
use super::{Depot, away};

/// Bytes of a part; a blob that is not larger goes as a whole.
const PART: u64 = 8 << 20;
/// Parts of one blob on their way at once.
const PARTS_AHEAD: usize = 2;
/// Bytes of the disk that one blob takes on its way.
pub(in crate::engine) const SPOOL_MAX: u64 = PART * (PARTS_AHEAD as u64 + 2);

type Part = AbortOnDropHandle<Result<PartId, EngineError>>;

/// One blob on its way. All of it blocks.
pub(in crate::engine) struct Carrier {
    /// Ends before the upload is thrown away, so that no part comes after that.
    going: VecDeque<(Part, Range<u64>)>,
    upload: Option<Upload>,
    cargo: Cargo,
    file: Arc<File>,
    arrived: Vec<PartId>,
    sent: u64,
}

impl Carrier {
    pub fn new(depot: &Arc<Depot>, id: BlobId, file: Arc<File>) -> Result<Self, EngineError> {
        depot.check_entered()?;
        let cargo = Cargo::new(depot, id);
        Ok(Self { going: VecDeque::new(), upload: None, cargo, file, arrived: Vec::new(), sent: 0 })
    }

    /// The file has grown to `end`. Waits while the depot is behind.
    pub fn follow(&mut self, end: u64) -> Result<(), EngineError> {
        // More than a part, so that the last one is never empty.
        while end - self.sent > PART {
            self.send(self.sent + PART)?;
        }
        Ok(())
    }

    /// Sends what is left of the file and waits until the depot has it all.
    pub fn finish(mut self, end: u64) -> Result<Cargo, EngineError> {
        if self.upload.is_none() {
            return self.whole(end);
        }
        self.send(end)?;
        while !self.going.is_empty() {
            self.arrive()?;
        }
        let Some(upload) = self.upload.take() else { return Err(EngineError::Stopped) };
        let (store, path, id) = (self.cargo.depot().store.clone(), upload.path.clone(), upload.id.clone());
        let parts = std::mem::take(&mut self.arrived);
        self.cargo.sending();
        self.cargo.depot().wait(async move {
            store.complete_multipart(&path, &id, parts).await.map_err(|error| away(&error))
        })?;
        upload.completed();
        Ok(self.cargo)
    }

    fn whole(mut self, end: u64) -> Result<Cargo, EngineError> {
        self.cargo.sending();
        let depot = self.cargo.depot().clone();
        let (store, path, slots) = (depot.store.clone(), self.cargo.path(), depot.parts.clone());
        let file = self.file.clone();
        depot.wait(async move {
            let _slot = slots.acquire_owned().await.map_err(|_| EngineError::Stopped)?;
            let bytes = slice(file, 0..end).await?;
            store.put(&path, PutPayload::from(bytes)).await.map_err(|error| away(&error))
        })?;
        Ok(self.cargo)
    }

    /// Sends the next part, which ends at `end`.
    fn send(&mut self, end: u64) -> Result<(), EngineError> {
        if self.upload.is_none() {
            self.upload = Some(Upload::begin(&self.cargo)?);
        }
        if self.going.len() >= PARTS_AHEAD {
            self.arrive()?;
        }
        let Some(upload) = &self.upload else { return Err(EngineError::Stopped) };
        let depot = self.cargo.depot();
        let (store, slots, file) = (depot.store.clone(), depot.parts.clone(), self.file.clone());
        let (path, id) = (upload.path.clone(), upload.id.clone());
        let (number, range) = (self.arrived.len() + self.going.len(), self.sent..end);
        let place = range.clone();
        let task = depot.runtime().spawn(async move {
            let _slot = slots.acquire_owned().await.map_err(|_| EngineError::Stopped)?;
            let bytes = slice(file, place).await?;
            store.put_part(&path, &id, number, bytes.into()).await.map_err(|error| away(&error))
        });
        self.going.push_back((AbortOnDropHandle::new(task), range));
        self.sent = end;
        Ok(())
    }

    /// Waits for the first part on its way.
    fn arrive(&mut self) -> Result<(), EngineError> {
        let Some((part, range)) = self.going.pop_front() else { return Ok(()) };
        let part = self
            .cargo
            .depot()
            .wait(async move { part.await.map_err(|error| EngineError::Away(error.to_string()))? })?;
        self.arrived.push(part);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where the file system cannot, the room comes back with the file's end.
        let _ = rustix::fs::fallocate(&*self.file, hole, range.start, range.end - range.start);
        Ok(())
    }
}

async fn slice(file: Arc<File>, range: Range<u64>) -> Result<Bytes, EngineError> {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(Bytes::from(bytes))
    });
    read.await.map_err(|error| EngineError::Io(io::Error::other(error)))?
}
