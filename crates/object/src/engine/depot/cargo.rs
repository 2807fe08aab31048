//! What was put into the depot and no durable record names yet.

use std::sync::Arc;

use object_store::multipart::MultipartStore;
use object_store::path::Path;

use super::super::api::{BlobId, EngineError};
use super::super::blob::Place;
use super::{Depot, Failure, away, blob_name, failure};

/// What is to be removed from the depot.
pub(super) enum Litter {
    Blob(Path),
    /// An upload in parts that is not completed, and its name in our folder.
    Upload {
        path: Path,
        id: String,
        name: String,
    },
}

/// A blob in the depot. Dropped before it is kept, it goes.
pub(in crate::engine) struct Cargo {
    depot: Arc<Depot>,
    id: BlobId,
    /// Whether something may be there.
    sent: bool,
}

impl Cargo {
    pub(super) fn new(depot: &Arc<Depot>, id: BlobId) -> Self {
        Self { depot: depot.clone(), id, sent: false }
    }

    pub fn blob(&self) -> (BlobId, Place) {
        (self.id, Place::Remote { run: self.depot.run })
    }

    pub(super) fn path(&self) -> Path {
        self.depot.blob_path(self.id, self.depot.run)
    }

    pub(super) fn name(&self) -> String {
        blob_name(self.id, self.depot.run)
    }

    pub(super) fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    pub(super) fn sending(&mut self) {
        self.sent = true;
    }

    pub fn keep(mut self) {
        self.sent = false;
    }
}

impl Drop for Cargo {
    fn drop(&mut self) {
        if self.sent {
            self.depot.throw(Litter::Blob(self.path()));
        }
    }
}

/// An upload in parts. Dropped before its end, it is aborted.
pub(super) struct Upload {
    pub path: Path,
    pub id: String,
    name: String,
    depot: Arc<Depot>,
    done: bool,
}

impl Upload {
    /// Begins one, and remembers it on disk before anything is sent: a store is not asked for forgotten ones.
    pub fn begin(cargo: &Cargo) -> Result<Self, EngineError> {
        let (depot, path) = (cargo.depot().clone(), cargo.path());
        let (store, begun) = (depot.store.clone(), path.clone());
        let id =
            depot.wait(async move { store.create_multipart(&begun).await.map_err(|error| away(&error)) })?;
        let upload = Self { path, id, name: cargo.name(), depot, done: false };
        upload.note()?;
        Ok(upload)
    }

    fn note(&self) -> std::io::Result<()> {
        let folder = &self.depot.uploads;
        let path = folder.join(&self.name);
        std::fs::write(&path, &self.id)?;
        std::fs::File::open(&path)?.sync_all()?;
        std::fs::File::open(folder)?.sync_all()
    }

    /// The store has made an object of it.
    pub fn completed(mut self) {
        self.done = true;
        self.depot.upload_forget(&self.name);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.done {
            let (path, id, name) = (self.path.clone(), self.id.clone(), self.name.clone());
            self.depot.throw(Litter::Upload { path, id, name });
        }
    }
}

impl Depot {
    fn upload_forget(&self, name: &str) {
        // One that is left is aborted once more, to no effect.
        let _ = std::fs::remove_file(self.uploads.join(name));
    }

    /// The uploads that were under way when an earlier process ended.
    pub(super) fn uploads_left(&self) -> std::io::Result<()> {
        for entry in std::fs::read_dir(&self.uploads)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = std::fs::read_to_string(entry.path())?;
            if id.is_empty() {
                self.upload_forget(&name);
            } else {
                self.throw(Litter::Upload { path: self.path(&format!("blobs/{name}")), id, name });
            }
        }
        Ok(())
    }

    /// Removes what is not wanted. What cannot be removed now is tried again.
    pub(super) fn tidy(&self) -> Result<(), EngineError> {
        let mut litter = std::mem::take(&mut *self.litter.lock().expect("no panic under this lock"));
        let result = self.tidy_some(&mut litter);
        self.litter.lock().expect("no panic under this lock").append(&mut litter);
        result
    }

    fn tidy_some(&self, litter: &mut Vec<Litter>) -> Result<(), EngineError> {
        let blobs = litter.iter().filter_map(|litter| match litter {
            Litter::Blob(path) => Some(path.clone()),
            Litter::Upload { .. } => None,
        });
        self.delete(blobs.collect())?;
        litter.retain(|litter| matches!(litter, Litter::Upload { .. }));
        while let Some(Litter::Upload { path, id, name }) = litter.last() {
            let (store, path, id) = (self.store.clone(), path.clone(), id.clone());
            self.wait(async move {
                match store.abort_multipart(&path, &id).await.map_err(|error| (failure(&error), error)) {
                    Ok(()) | Err((Failure::Absent, _)) => Ok(()),
                    Err((_, error)) => Err(away(&error)),
                }
            })?;
            self.upload_forget(name);
            litter.pop();
        }
        Ok(())
    }
}
