//! The journal: segments of groups. Packed blobs stay where their group put them.
//!
//! ```text
//!   segment   header, group, group, …
//!   header    magic, number, salt, end of the segment before, checksum
//!   group     header (magic, checksum, salt, number, time, lengths), bytes of blobs, changes
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::api::EngineError;

pub(super) const SEGMENT_HEADER: usize = 40;
pub(super) const GROUP_HEADER: usize = 40;
const SEGMENT_MAGIC: [u8; 8] = *b"banyanj1";
pub(super) const GROUP_MAGIC: [u8; 4] = *b"grp1";
/// Segments kept open for reading.
const OPEN_MAX: usize = 64;
/// What the buffer of a group may keep between groups.
const BUFFER_KEPT: usize = 1 << 20;

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub number: u64,
    pub salt: u64,
    /// Where the segment before ends; bytes beyond that are of an append that failed.
    pub before: u64,
}

impl SegmentHead {
    fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut out = [0; SEGMENT_HEADER];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..24].copy_from_slice(&self.salt.to_le_bytes());
        out[24..32].copy_from_slice(&self.before.to_le_bytes());
        let crc = crc32c(&out[..32]);
        out[32..36].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_HEADER)?;
        let sound = bytes[..8] == SEGMENT_MAGIC && u32_at(bytes, 32) == crc32c(&bytes[..32]);
        sound.then(|| Self { number: u64_at(bytes, 8), salt: u64_at(bytes, 16), before: u64_at(bytes, 24) })
    }
}

/// The head of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupHead {
    pub crc: u32,
    pub salt: u64,
    pub number: u64,
    pub time: i64,
    pub blobs: u32,
    pub changes: u32,
}

impl GroupHead {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..GROUP_HEADER)?;
        (bytes[..4] == GROUP_MAGIC).then(|| Self {
            crc: u32_at(bytes, 4),
            salt: u64_at(bytes, 8),
            number: u64_at(bytes, 16),
            time: u64_at(bytes, 24).cast_signed(),
            blobs: u32_at(bytes, 32),
            changes: u32_at(bytes, 36),
        })
    }

    /// Bytes of the whole group.
    pub fn length(&self) -> u64 {
        GROUP_HEADER as u64 + u64::from(self.blobs) + u64::from(self.changes)
    }
}

/// Fills in the header of a group that is complete otherwise.
fn seal_group(buffer: &mut [u8], salt: u64, number: u64, time: i64, changes: usize) {
    let blobs = buffer.len() - GROUP_HEADER - changes;
    buffer[..4].copy_from_slice(&GROUP_MAGIC);
    buffer[8..16].copy_from_slice(&salt.to_le_bytes());
    buffer[16..24].copy_from_slice(&number.to_le_bytes());
    buffer[24..32].copy_from_slice(&time.to_le_bytes());
    buffer[32..36].copy_from_slice(&length(blobs));
    buffer[36..40].copy_from_slice(&length(changes));
    let crc = crc32c(&buffer[8..]);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("a group is far below 4 GiB").to_le_bytes()
}

/// Appends a change to the list of a group.
pub(super) fn change_encode(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    out.push(u8::from(value.is_some()));
    out.extend_from_slice(&length(key.len()));
    out.extend_from_slice(key);
    if let Some(value) = value {
        out.extend_from_slice(&length(value.len()));
        out.extend_from_slice(value);
    }
}

/// A key and its value; `None` deletes.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// The changes of a group in order.
pub(super) fn changes_decode(mut bytes: &[u8]) -> Option<Vec<Change<'_>>> {
    fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *bytes = rest;
        Some(word)
    }
    let mut changes = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        bytes = rest;
        let key = take(&mut bytes)?;
        let value = if *kind == 1 { Some(take(&mut bytes)?) } else { None };
        changes.push((key, value));
    }
    Some(changes)
}

/// The files of the segments, for reading.
pub(super) struct Segments {
    folder: PathBuf,
    open: Mutex<BTreeMap<u64, Arc<File>>>,
    /// Where segments end; not of the one that is appended to.
    ends: Mutex<BTreeMap<u64, u64>>,
}

impl Segments {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, open: Mutex::default(), ends: Mutex::default() }
    }

    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:016x}"))
    }

    pub fn file(&self, number: u64) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().expect("no panic under this lock");
        if let Some(file) = open.get(&number) {
            return Ok(file.clone());
        }
        let file = Arc::new(File::open(self.path(number))?);
        if open.len() >= OPEN_MAX {
            open.pop_first();
        }
        open.insert(number, file.clone());
        Ok(file)
    }

    /// The numbers of all segments in order.
    pub fn list(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if let Some(number) = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The segments that are complete, with their ends.
    pub fn ends(&self) -> BTreeMap<u64, u64> {
        self.ends.lock().expect("no panic under this lock").clone()
    }

    pub fn end(&self, number: u64, offset: u64) {
        self.ends.lock().expect("no panic under this lock").insert(number, offset);
    }

    /// Learns where segments end: from the head of the next one, else from the file.
    pub fn measure(&self) -> io::Result<()> {
        for number in self.list()? {
            let mut head = [0; SEGMENT_HEADER];
            let file = self.file(number)?;
            if file.read_exact_at(&mut head, 0).is_ok()
                && let Some(head) = SegmentHead::decode(&head)
            {
                self.end(head.number.saturating_sub(1), head.before);
            }
            self.end(number, file.metadata()?.len());
        }
        // The head of the first tells of one that is gone.
        let mut ends = self.ends.lock().expect("no panic under this lock");
        ends.retain(|number, _| self.path(*number).exists());
        Ok(())
    }

    pub fn remove(&self, number: u64) -> io::Result<()> {
        self.open.lock().expect("no panic under this lock").remove(&number);
        self.ends.lock().expect("no panic under this lock").remove(&number);
        match fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The end of the journal, where groups are appended.
pub(super) struct Journal {
    folder: PathBuf,
    segments: Arc<Segments>,
    salt: u64,
    limit: u64,
    /// The number of the next group.
    pub group: u64,
    pub segment: u64,
    pub offset: u64,
    /// `None`: the next group begins a new segment.
    file: Option<Arc<File>>,
    /// The group in the making; blobs first, so that their places are known at once.
    pub buffer: Vec<u8>,
}

/// How an append failed.
pub(super) enum AppendError {
    /// Nothing of the group is there; the journal goes on.
    Undone(io::Error),
    /// Nobody knows what is on disk.
    Unknown(io::Error),
}

impl Journal {
    /// Goes on after `segment`, which ends at `offset`.
    pub fn new(
        folder: &Path,
        segments: Arc<Segments>,
        salt: u64,
        limit: u64,
        end: (u64, u64),
        group: u64,
    ) -> Self {
        let folder = folder.to_owned();
        let (segment, offset) = end;
        Self { folder, segments, salt, limit, group, segment, offset, file: None, buffer: Vec::new() }
    }

    /// Readies an empty group; afterwards the places of its blobs are known.
    pub fn begin(&mut self) -> Result<(), EngineError> {
        if self.file.is_none() || self.offset >= self.limit {
            self.file = None;
            self.roll()?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        self.buffer.resize(GROUP_HEADER, 0);
        Ok(())
    }

    fn roll(&mut self) -> io::Result<()> {
        let number = self.segment + 1;
        let path = self.segments.path(number);
        let head = SegmentHead { number, salt: self.salt, before: self.offset };
        let made = (|| {
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.write_all_at(&head.encode(), 0)?;
            file.sync_all()?;
            File::open(&self.folder)?.sync_all()?;
            Ok(file)
        })();
        let file = Arc::new(made.inspect_err(|_: &io::Error| drop(fs::remove_file(&path)))?);
        self.segments.open.lock().expect("no panic under this lock").insert(number, file.clone());
        if self.segment > 0 {
            self.segments.end(self.segment, self.offset);
        }
        (self.segment, self.offset, self.file) = (number, SEGMENT_HEADER as u64, Some(file));
        Ok(())
    }

    /// Where the next blob of this group goes.
    pub fn place(&self) -> (u64, u64) {
        (self.segment, self.offset + self.buffer.len() as u64)
    }

    /// Appends the group and makes it durable.
    pub fn append(&mut self, changes: &[u8], time: i64) -> Result<(), AppendError> {
        self.buffer.extend_from_slice(changes);
        seal_group(&mut self.buffer, self.salt, self.group, time, changes.len());
        let Some(file) = &self.file else {
            return Err(AppendError::Undone(io::Error::other("no segment is open")));
        };
        if let Err(error) = file.write_all_at(&self.buffer, self.offset) {
            // What is left beyond the end is cut off, or else the segment is left as it is: the next one says where it ends.
            if file.set_len(self.offset).is_err() {
                self.file = None;
            }
            return Err(AppendError::Undone(error));
        }
        file.sync_data().map_err(AppendError::Unknown)?;
        self.offset += self.buffer.len() as u64;
        self.group += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::replay::{End, replay};
    use super::*;

    const SALT: u64 = 77;

    fn journal(folder: &Path) -> Journal {
        let segments = Arc::new(Segments::new(folder.to_owned()));
        Journal::new(folder, segments, SALT, 1 << 20, (0, 0), 5)
    }

    fn append(journal: &mut Journal, key: &[u8]) -> Result<(), AppendError> {
        journal.begin().unwrap();
        let mut changes = Vec::new();
        change_encode(&mut changes, key, Some(b"value"));
        journal.append(&changes, 1)
    }

    fn device(path: &str) -> Option<Arc<File>> {
        Some(Arc::new(File::options().write(true).open(path).unwrap()))
    }

    fn keys(journal: &Journal) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let from = End { segment: 0, offset: 0, group: 5 };
        let end = replay(&journal.segments, SALT, from, |_, group| {
            keys.extend(group.changes().iter().map(|change| change.0.to_vec()));
            Ok(())
        });
        let end = end.unwrap();
        assert_eq!((end.segment, end.offset, end.group), (journal.segment, journal.offset, journal.group));
        keys
    }

    #[test]
    fn a_segment_that_cannot_be_cut_back_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path());
        append(&mut journal, b"one").unwrap_or_else(|_| panic!("there is room"));
        let first = journal.file.take().unwrap();
        // Takes no byte and cannot be shortened.
        journal.file = device("/dev/full");
        let Err(AppendError::Undone(error)) = append(&mut journal, b"two") else { panic!("no room") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        first.write_all_at(b"what the failed append left behind", journal.offset).unwrap();
        append(&mut journal, b"three").unwrap_or_else(|_| panic!("there is room again"));
        assert_eq!(journal.segment, 2);
        assert_eq!(keys(&journal), [b"one".to_vec(), b"three".to_vec()]);
        assert_eq!(
            journal.segments.ends().get(&1),
            Some(&first.metadata().unwrap().len().saturating_sub(34))
        );
    }

    #[test]
    fn a_failed_sync_is_not_believed_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path());
        append(&mut journal, b"one").unwrap_or_else(|_| panic!("there is room"));
        let end = journal.offset;
        // Takes every byte and cannot be synced.
        journal.file = device("/dev/null");
        assert!(matches!(append(&mut journal, b"two"), Err(AppendError::Unknown(_))));
        assert_eq!((journal.offset, journal.group), (end, 6));
    }

    #[test]
    fn content_that_looks_like_a_group_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path());
        append(&mut journal, b"one").unwrap_or_else(|_| panic!("there is room"));
        // A whole group of another store, as content of one that is torn.
        let mut foreign = vec![0; GROUP_HEADER];
        change_encode(&mut foreign, b"evil", Some(b"value"));
        let changes = foreign.len() - GROUP_HEADER;
        seal_group(&mut foreign, SALT + 1, 6, 1, changes);
        let file = journal.file.clone().unwrap();
        file.write_all_at(&[&GROUP_MAGIC[..], &[0; 60], &foreign].concat(), journal.offset).unwrap();
        assert_eq!(keys(&journal), [b"one".to_vec()]);
        // The same with our salt is acknowledged data behind damage.
        seal_group(&mut foreign, SALT, 6, 1, changes);
        file.write_all_at(&[&GROUP_MAGIC[..], &[0; 60], &foreign].concat(), journal.offset).unwrap();
        let from = End { segment: 0, offset: 0, group: 5 };
        let damaged = replay(&journal.segments, SALT, from, |_, _| Ok(()));
        assert!(matches!(damaged, Err(EngineError::Journal { segment: 1, .. })));
    }
}
