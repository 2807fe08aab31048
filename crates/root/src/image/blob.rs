//! Blobs on disk: `blobs/sha256/<hex>`, written as a temporary file, synced, renamed, and the folder synced.
//!
//! A blob that has its name is whole. An import stages all its blobs first and commits them together, so that a
//! failed one leaves nothing.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use model::{Digest, Result};
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};

use super::disk;

/// How much is copied at a time.
pub const CHUNK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct Blobs {
    blobs: PathBuf,
    tmp: PathBuf,
    /// Held while blobs get their names or lose them, so that none is deleted as it is found again.
    naming: Mutex<()>,
}

/// A blob that is whole but has no name yet. Dropping it deletes the file.
#[derive(Debug)]
pub struct Staged {
    pub digest: Digest,
    pub size: u64,
    /// Nothing when the store already holds the blob.
    file: Option<TempPath>,
}

impl Staged {
    pub fn new(digest: Digest, size: u64, file: TempPath) -> Self {
        Self { digest, size, file: Some(file) }
    }
}

impl Blobs {
    pub fn open(dir: &Path) -> Result<Self> {
        let (blobs, tmp) = (dir.join("blobs/sha256"), dir.join("tmp"));
        fs::create_dir_all(&blobs).map_err(disk)?;
        fs::create_dir_all(&tmp).map_err(disk)?;
        for entry in fs::read_dir(&tmp).map_err(disk)? {
            fs::remove_file(entry.map_err(disk)?.path()).map_err(disk)?;
        }
        Ok(Self { blobs, tmp, naming: Mutex::new(()) })
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    pub fn get(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.path(digest)).filter(|path| path.is_file())
    }

    /// An empty file that is deleted unless it is staged and committed.
    pub fn temp(&self) -> Result<NamedTempFile> {
        NamedTempFile::new_in(&self.tmp).map_err(disk)
    }

    /// Finds a blob of this digest and size that is already here, and makes it young again.
    pub fn stage_present(&self, digest: &Digest, size: u64) -> Result<Option<Staged>> {
        let _naming = self.naming.lock().expect("no holder panics");
        let path = self.path(digest);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() == size => {
                touch(&path)?;
                Ok(Some(Staged { digest: digest.clone(), size, file: None }))
            }
            _ => Ok(None),
        }
    }

    /// Copies all of `from` into a staged blob. The caller has bounded `from`.
    pub fn stage(&self, from: &mut dyn Read) -> Result<Staged> {
        let mut temp = self.temp()?;
        let mut hasher = Sha256::new();
        let mut size = 0;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = from.read(&mut chunk).map_err(disk)?;
            if read == 0 {
                break;
            }
            hasher.update(&chunk[..read]);
            temp.write_all(&chunk[..read]).map_err(disk)?;
            size += read as u64;
        }
        temp.as_file().sync_all().map_err(disk)?;
        Ok(Staged::new(Digest::from_sha256(&hasher.finalize()), size, temp.into_temp_path()))
    }

    /// Where a staged blob can be read.
    pub fn staged_path(&self, staged: &Staged) -> PathBuf {
        staged.file.as_ref().map_or_else(|| self.path(&staged.digest), |file| file.to_path_buf())
    }

    /// Gives staged blobs their names. They are durable when this returns.
    pub fn commit(&self, staged: Vec<Staged>) -> Result<()> {
        let _naming = self.naming.lock().expect("no holder panics");
        for blob in staged {
            let path = self.path(&blob.digest);
            match blob.file {
                Some(file) => file.persist(&path).map_err(|error| disk(error.error))?,
                None => touch(&path)?,
            }
        }
        File::open(&self.blobs).and_then(|dir| dir.sync_all()).map_err(disk)
    }

    pub fn retain(&self, used: &HashSet<Digest>, older_than: Duration) -> Result<u64> {
        let now = SystemTime::now();
        let mut freed = 0;
        for entry in fs::read_dir(&self.blobs).map_err(disk)? {
            let entry = entry.map_err(disk)?;
            let name = entry.file_name();
            let digest = name.to_str().and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok());
            let Some(digest) = digest.filter(|digest| !used.contains(digest)) else { continue };
            freed += self.delete_if_old(&digest, now, older_than)?;
        }
        Ok(freed)
    }

    fn delete_if_old(&self, digest: &Digest, now: SystemTime, older_than: Duration) -> Result<u64> {
        let _naming = self.naming.lock().expect("no holder panics");
        let path = self.path(digest);
        let Ok(meta) = fs::metadata(&path) else { return Ok(0) };
        let age = now.duration_since(meta.modified().map_err(disk)?).unwrap_or_default();
        if age < older_than {
            return Ok(0);
        }
        fs::remove_file(&path).map_err(disk)?;
        Ok(meta.len())
    }
}

/// Says that the blob was wanted now.
fn touch(path: &Path) -> Result<()> {
    File::options().write(true).open(path).and_then(|file| file.set_modified(SystemTime::now())).map_err(disk)
}
