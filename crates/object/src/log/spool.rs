//! Lines on their way, in files: what is noted outlives the process.
//!
//! A file takes records, one to a line and without a sync, until it is ended; then it waits to be delivered and
//! removed. Files are numbered, and no number comes twice. A crash of the process leaves at most one record half
//! written, the last of its file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::target::Target;

/// Bytes after which a file is full.
pub const FILE_MAX: u64 = 1 << 20;
/// Bytes of all files after which no more are taken.
const ALL_MAX: u64 = 64 << 20;

/// The lines about one request, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub to: Target,
    pub text: String,
}

impl Record {
    pub fn lines(&self) -> u64 {
        self.text.lines().count() as u64
    }

    /// As a line of a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("plain data");
        line.push(b'\n');
        line
    }
}

/// A file that takes no more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch {
    pub number: u64,
    pub begun: Timestamp,
    pub path: PathBuf,
}

/// What became of lines that were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// They began a file.
    First,
    More,
    /// They filled their file.
    Full,
    /// There is too much already.
    Refused,
}

/// A folder of files with records.
pub struct Spool {
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// The number of the next file.
    next: u64,
    taking: Option<Taking>,
    /// Bytes of the files that take no more.
    ended: u64,
}

/// The file that takes records.
struct Taking {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Spool {
    /// New files get numbers after `last`, and after those that are there.
    pub fn open(folder: PathBuf, last: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let spool = Self { folder, state: Mutex::new(State { next: last + 1, taking: None, ended: 0 }) };
        let found = spool.ended()?;
        let mut state = spool.state();
        state.ended = found.iter().map(|file| size(&file.path)).sum();
        state.next = state.next.max(found.last().map_or(0, |file| file.number + 1));
        drop(state);
        Ok(spool)
    }

    /// Adds whole lines by one write.
    pub fn add(&self, lines: &[u8]) -> io::Result<Added> {
        let length = lines.len() as u64;
        let mut state = self.state();
        if state.bytes() + length > ALL_MAX {
            return Ok(Added::Refused);
        }
        let begun = match state.taking.take() {
            Some(taking) => (taking, false),
            None => (self.begin(&mut state)?, true),
        };
        let (mut taking, first) = begun;
        if let Err(error) = taking.file.write_all(lines) {
            // Without what was half written the file can take more; one with nothing in it goes.
            if taking.bytes == 0 {
                let _ = fs::remove_file(&taking.path);
            } else if taking.file.set_len(taking.bytes).is_ok() {
                state.taking = Some(taking);
            } else {
                state.ended += size(&taking.path);
            }
            return Err(error);
        }
        taking.bytes += length;
        let full = taking.bytes >= FILE_MAX;
        state.taking = Some(taking);
        if full {
            state.end();
        }
        Ok(match (full, first) {
            (true, _) => Added::Full,
            (_, true) => Added::First,
            _ => Added::More,
        })
    }

    fn begin(&self, state: &mut State) -> io::Result<Taking> {
        let name = format!("{:016x}-{:013}", state.next, Timestamp::now().as_millisecond().max(0));
        let path = self.folder.join(name);
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        state.next += 1;
        Ok(Taking { file, path, bytes: 0 })
    }

    /// Lets the file that takes records take no more.
    pub fn end(&self) {
        self.state().end();
    }

    /// The files that take no more, in order.
    pub fn ended(&self) -> io::Result<Vec<Batch>> {
        let taking = self.state().taking.as_ref().map(|taking| taking.path.clone());
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if taking.as_ref() != Some(&path) {
                files.extend(batch(path));
            }
        }
        files.sort();
        Ok(files)
    }

    pub fn remove(&self, file: &Batch) -> io::Result<()> {
        let bytes = size(&file.path);
        fs::remove_file(&file.path)?;
        let mut state = self.state();
        state.ended = state.ended.saturating_sub(bytes);
        Ok(())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state().bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.ended + self.taking.as_ref().map_or(0, |taking| taking.bytes)
    }

    fn end(&mut self) {
        if let Some(taking) = self.taking.take() {
            self.ended += taking.bytes;
        }
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// None if it is no file of a spool.
fn batch(path: PathBuf) -> Option<Batch> {
    let (number, begun) = path.file_name()?.to_str()?.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok().filter(|_| number.len() == 16)?;
    let begun = Timestamp::from_millisecond(begun.parse().ok()?).ok()?;
    Some(Batch { number, begun, path })
}

/// The records of a file's bytes, and how many lines are none.
pub fn records(bytes: &[u8]) -> (Vec<Record>, u64) {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (mut records, mut torn) = (Vec::new(), 0);
    for line in lines {
        match serde_json::from_slice(line) {
            Ok(record) => records.push(record),
            Err(_) => torn += 1,
        }
    }
    (records, torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Vec<u8> {
        let (bucket, prefix) = ("logs".into(), "of/".into());
        let to = Target { bucket, id: 1, prefix, day: None, parted: false };
        Record { to, text: text.into() }.encode()
    }

    fn texts(file: &Batch) -> Vec<String> {
        records(&fs::read(&file.path).unwrap()).0.into_iter().map(|record| record.text).collect()
    }

    #[test]
    fn what_was_noted_is_there_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let spool = Spool::open(path.clone(), 0).unwrap();
        assert_eq!(spool.add(&record("a b\n")).unwrap(), Added::First);
        assert_eq!(spool.add(&record("c\n")).unwrap(), Added::More);
        assert!(spool.ended().unwrap().is_empty());
        drop(spool);
        // As a crash in the middle of a write leaves it.
        let file = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"to\":{\"buck").unwrap();
        fs::write(path.join("of others"), "x").unwrap();

        let spool = Spool::open(path.clone(), 0).unwrap();
        spool.add(&record("d\n")).unwrap();
        let left = spool.ended().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(texts(&left[0]), ["a b\n", "c\n"]);
        assert_eq!(records(&fs::read(&file).unwrap()).1, 1);
        spool.end();
        let ended = spool.ended().unwrap();
        assert_eq!(ended.iter().map(|file| file.number).collect::<Vec<_>>(), [1, 2]);
        for file in &ended {
            spool.remove(file).unwrap();
        }
        assert_eq!(spool.bytes(), 0);
        assert!(spool.ended().unwrap().is_empty());
    }

    #[test]
    fn numbers_do_not_come_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let number = |last| {
            let spool = Spool::open(path.clone(), last).unwrap();
            spool.add(&record("a\n")).unwrap();
            spool.end();
            spool.ended().unwrap().last().unwrap().number
        };
        assert_eq!([number(0), number(0), number(7), number(7)], [1, 2, 8, 9]);
    }

    #[test]
    fn full_files_end_and_a_full_spool_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().join("log"), 0).unwrap();
        let large = record(&"x".repeat(FILE_MAX as usize / 2));
        assert_eq!(spool.add(&large).unwrap(), Added::First);
        assert_eq!(spool.add(&large).unwrap(), Added::Full);
        assert_eq!(spool.ended().unwrap().len(), 1);
        while spool.add(&large).unwrap() != Added::Refused {}
        assert!(spool.bytes() <= ALL_MAX);
        let first = spool.ended().unwrap().remove(0);
        spool.remove(&first).unwrap();
        assert_ne!(spool.add(&large).unwrap(), Added::Refused);
    }

    #[test]
    fn a_disk_without_room_leaves_whole_records_and_no_empty_files() {
        let disk = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new("size=64k").unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", disk.path(), "tmpfs", flags, options.as_c_str())
            .expect("mounting needs root");
        let ended = std::panic::catch_unwind(|| {
            let spool = Spool::open(disk.path().join("log"), 0).unwrap();
            let line = record(&"x".repeat(10_000));
            let mut kept = 0;
            while spool.add(&line).is_ok() {
                kept += 1;
                assert!(kept < 100, "the disk does not fill");
            }
            for _ in 0..3 {
                spool.add(&line).unwrap_err();
                spool.end();
            }
            let files = spool.ended().unwrap();
            assert_eq!(files.len(), 1, "{files:?}");
            assert_eq!(spool.bytes(), size(&files[0].path));
            let (whole, torn) = records(&fs::read(&files[0].path).unwrap());
            assert_eq!((whole.len(), torn), (kept, 0));
            spool.remove(&files[0]).unwrap();
            assert_eq!(spool.add(&line).unwrap(), Added::First);
        });
        rustix::mount::unmount(disk.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        ended.unwrap();
    }
}
