//! Room that is kept for the moment when a disk is full.
//!
//! What makes room, such as the end of an instance, must itself be written down first. A file of some size lies beside what
//! is written; it is deleted when there is no room left, and made again when there is plenty.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use crate::facts::disk_space;

const NAME: &str = "reserve";
const BYTES: u64 = 8 << 20;
/// The reserve is made only where this is left beside it.
const LEFT_MIN: u64 = 2 * BYTES;
/// With less than this a start would fail half way.
const START_MIN: u64 = BYTES / 2;
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    there: bool,
    looked: Option<Instant>,
}

impl Reserve {
    /// The reserve of a folder; made if there is room for it.
    pub fn of(folder: &Path) -> Self {
        let reserve = Self { path: folder.join(NAME), state: Mutex::default() };
        reserve.make();
        reserve
    }

    /// Gives the room away; says whether there was any.
    pub fn free(&self) -> bool {
        let mut state = self.state();
        state.there = false;
        state.looked = Some(Instant::now());
        std::fs::remove_file(&self.path).is_ok()
    }

    /// Makes it again where it is not there and the disk has plenty. Cheap enough to be called after every write.
    pub fn make(&self) {
        let mut state = self.state();
        if state.there || state.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        state.looked = Some(Instant::now());
        let plenty = disk_space(&self.path).is_ok_and(|(_, free)| free.0 >= BYTES + LEFT_MIN);
        let kept = std::fs::metadata(&self.path).is_ok_and(|file| file.len() == BYTES);
        state.there = kept || (plenty && self.file_make().is_ok());
        if !state.there {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn file_make(&self) -> std::io::Result<()> {
        let file: File =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the reserve of a folder away if its disk is full, so that what starts there now can; says whether it did.
pub fn way_make(folder: &Path) -> bool {
    let full = disk_space(folder).is_ok_and(|(_, free)| free.0 < START_MIN);
    full && std::fs::remove_file(folder.join(NAME)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_given_and_kept_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let reserve = Reserve::of(folder.path());
        let file = folder.path().join(NAME);
        assert_eq!(std::fs::metadata(&file).expect("there").len(), BYTES);
        assert!(!way_make(folder.path()) && file.exists(), "there is room without it");
        assert!(reserve.free() && !file.exists());
        assert!(!reserve.free(), "it is gone already");
        reserve.make();
        assert!(!file.exists(), "not at once: the disk was full a moment ago");
        assert!(Reserve::of(folder.path()).state().there && file.exists());
    }
}
