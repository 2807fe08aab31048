//! Blobs that are files of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::api::{BlobId, EngineError};
use super::core::Signal;

/// Blobs per folder.
const PER_FOLDER: u64 = 4096;
/// Bytes that uploads may gather before they are written, all together and each.
const GATHER_ALL: usize = 24 << 20;
const GATHER_MAX: usize = 1 << 20;
const GATHER_MIN: usize = 128 << 10;

/// The folder of files and the numbers of blobs.
pub(super) struct Files {
    folder: PathBuf,
    next: AtomicU64,
    /// Files that no durable record names.
    open: Mutex<BTreeSet<u64>>,
    /// Files to remove.
    trash: Mutex<Vec<BlobId>>,
    writers: AtomicUsize,
    signal: Arc<Signal>,
}

impl Files {
    pub fn new(folder: PathBuf, next: u64, signal: Arc<Signal>) -> Self {
        Self {
            folder,
            next: AtomicU64::new(next),
            open: Mutex::default(),
            trash: Mutex::default(),
            writers: AtomicUsize::new(0),
            signal,
        }
    }

    /// A new number.
    pub fn next(&self) -> BlobId {
        BlobId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The next number, and the least of a file that no record names.
    pub fn mark(&self) -> (u64, u64) {
        let open = self.open.lock().expect("no panic under this lock");
        let next = self.next.load(Ordering::Relaxed);
        (next, open.first().copied().unwrap_or(next))
    }

    pub fn path(&self, id: BlobId) -> PathBuf {
        self.folder.join(format!("{:x}", id.0 / PER_FOLDER)).join(format!("{:x}", id.0))
    }

    /// How much an upload gathers before it writes.
    pub fn gather(&self) -> usize {
        (GATHER_ALL / self.writers.load(Ordering::Relaxed).max(1)).clamp(GATHER_MIN, GATHER_MAX)
    }

    /// A number for a file that is removed unless it is kept.
    pub fn guard(self: &Arc<Self>) -> FileGuard {
        let mut open = self.open.lock().expect("no panic under this lock");
        let id = self.next();
        open.insert(id.0);
        self.writers.fetch_add(1, Ordering::Relaxed);
        FileGuard { files: self.clone(), id, writing: true, remove: true }
    }

    /// Makes the file and what leads to it.
    pub fn create(&self, id: BlobId) -> io::Result<File> {
        let path = self.path(id);
        let make = || File::options().read(true).write(true).create(true).truncate(true).open(&path);
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = parent(&path);
                fs::create_dir_all(folder)?;
                File::open(&self.folder)?.sync_all()?;
                make()
            }
            made => made,
        }
    }

    /// Makes the file's name durable.
    pub fn sync_folder(&self, id: BlobId) -> io::Result<()> {
        File::open(parent(&self.path(id)))?.sync_all()
    }

    /// Removes files, durably.
    pub fn remove_all(&self, ids: &[BlobId]) -> io::Result<()> {
        let mut folders = BTreeMap::new();
        for id in ids {
            self.remove(*id)?;
            folders.insert(id.0 / PER_FOLDER, *id);
        }
        folders.into_values().try_for_each(|id| self.sync_folder(id))
    }

    fn remove(&self, id: BlobId) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what was thrown away.
    pub fn sweep(&self) {
        let trash = std::mem::take(&mut *self.trash.lock().expect("no panic under this lock"));
        for id in trash {
            match self.remove(id) {
                Ok(()) => drop(self.open.lock().expect("no panic under this lock").remove(&id.0)),
                Err(error) => {
                    tracing::warn!(%error, blob = id.0, "a file cannot be removed; the next start does it")
                }
            }
        }
    }

    /// Removes the files from `mark` on that no record names; answers the greatest number seen.
    pub fn orphans(
        &self,
        mark: u64,
        named: impl Fn(BlobId) -> Result<bool, EngineError>,
    ) -> Result<u64, EngineError> {
        let mut greatest = 0;
        for (folder, path) in numbered(&self.folder)? {
            if folder < mark / PER_FOLDER {
                continue;
            }
            for (number, path) in numbered(&path)? {
                greatest = greatest.max(number);
                if number >= mark && !named(BlobId(number))? {
                    tracing::info!(blob = number, "removing a file that no record names");
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(greatest)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a blob's file lies in a folder")
}

fn numbered(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
        found.extend(number.map(|number| (number, entry.path())));
    }
    Ok(found)
}

/// A file that no durable record names. Dropped, the file goes.
pub(super) struct FileGuard {
    files: Arc<Files>,
    id: BlobId,
    writing: bool,
    remove: bool,
}

impl FileGuard {
    pub fn id(&self) -> BlobId {
        self.id
    }

    /// Ends the gathering of bytes.
    pub fn written(&mut self) {
        if std::mem::take(&mut self.writing) {
            self.files.writers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The file stays; `named` says whether a durable record is known to name it.
    pub fn keep(mut self, named: bool) {
        self.remove = false;
        if named {
            self.files.open.lock().expect("no panic under this lock").remove(&self.id.0);
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        self.written();
        if self.remove {
            self.files.trash.lock().expect("no panic under this lock").push(self.id);
            self.files.signal.wake();
        }
    }
}
