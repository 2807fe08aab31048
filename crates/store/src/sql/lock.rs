//! One process at a time: a locked file beside the SQLite database. The kernel
//! drops the lock with the process, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Records hold what only their owner may read.
const OWNER_ONLY: u32 = 0o600;

/// Held while the database is open.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(database: &Path) -> Result<Self, StoreError> {
        let mut path = database.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |error: std::io::Error| {
            StoreError::Unavailable(format!("cannot lock {}: {error}", path.display()))
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(OWNER_ONLY)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = database.display().to_string();
                return Err(StoreError::Locked { path, holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The pid is only for the other's message, so a full disk is no reason to refuse.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        database_make(database).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Makes the file before SQLite does, which would let everyone read it; an empty file is an empty database.
fn database_make(database: &Path) -> std::io::Result<()> {
    if database.exists() {
        return Ok(());
    }
    OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(database)?;
    // A power loss must not take the file's name away with what is committed into it.
    database.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
