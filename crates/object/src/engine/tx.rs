//! A change in the making.

use std::ops::Range;
use std::sync::Arc;

use super::api::{BlobId, EngineError};
use super::blob::{Alive, Blob, Place, Tally, blob_key, damaged_key, dead_key};
use super::core::Core;
use super::journal::{Journal, change_encode};
use super::layers::{Over, State, Word};
use super::put::{Bulk, Guard, Written};
use crate::record::key;

/// The changes that become durable together.
pub(super) struct Group<'a> {
    pub core: &'a Arc<Core>,
    pub journal: &'a mut Journal,
    /// As it will be once the group is durable.
    pub state: State,
    /// The changes as the journal takes them.
    pub changes: Vec<u8>,
    /// What comes alive or dies.
    pub tally: Tally,
    /// Large blobs that the group names.
    pub files: Vec<Guard>,
    /// The time of the change that runs.
    pub now: i64,
}

/// A change in the making; sees its own writes.
pub struct Tx<'a> {
    group: &'a mut dyn GroupLike,
    over: Over,
    tally: Tally,
    files: Vec<Guard>,
}

/// Hides the lifetime of a group from [`Tx`].
trait GroupLike {
    fn state(&self) -> &State;
    fn core(&self) -> &Arc<Core>;
    fn now(&self) -> i64;
    fn journal(&mut self) -> &mut Journal;
}

impl GroupLike for Group<'_> {
    fn state(&self) -> &State {
        &self.state
    }

    fn core(&self) -> &Arc<Core> {
        self.core
    }

    fn now(&self) -> i64 {
        self.now
    }

    fn journal(&mut self) -> &mut Journal {
        self.journal
    }
}

/// What a change leaves behind.
pub(super) struct Outcome {
    over: Over,
    tally: Tally,
    files: Vec<Guard>,
}

impl Group<'_> {
    /// Bytes so far.
    pub fn size(&self) -> usize {
        self.journal.buffer.len() + self.changes.len()
    }

    /// Runs one change, which leaves nothing if it answers `false`.
    pub fn run(&mut self, change: impl FnOnce(&mut Tx<'_>) -> bool) {
        let before = self.journal.buffer.len();
        let mut tx = Tx { group: self, over: Over::new(), tally: Tally::default(), files: Vec::new() };
        let keep = change(&mut tx);
        let outcome = tx.end();
        if keep {
            self.keep(outcome);
        } else {
            self.journal.buffer.truncate(before);
        }
    }

    fn keep(&mut self, outcome: Outcome) {
        for (key, value) in outcome.over {
            self.put(key, value);
        }
        self.tally.join(outcome.tally);
        self.files.extend(outcome.files);
    }

    fn put(&mut self, key: Word, value: Option<Word>) {
        change_encode(&mut self.changes, &key, value.as_deref());
        self.state.active.insert(key, value);
    }

    /// Records what is alive after the group.
    pub fn account(&mut self) -> Result<(), EngineError> {
        for (key, (blobs, bytes)) in std::mem::take(&mut self.tally).0 {
            let alive = Alive::decode(self.state.get(&key)?.as_deref())?;
            let alive = Alive {
                blobs: alive.blobs.saturating_add_signed(blobs),
                bytes: alive.bytes.saturating_add_signed(bytes),
            };
            self.put(key.into(), Some(alive.encode().into()));
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn end(self) -> Outcome {
        Outcome { over: self.over, tally: self.tally, files: self.files }
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self.over.get(key) {
            Some(value) => Ok(value.as_ref().map(|value| value.to_vec())),
            None => self.group.state().get(key),
        }
    }

    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.over.insert(key.into(), Some(value.into()));
    }

    pub fn delete(&mut self, key: Vec<u8>) {
        self.over.insert(key.into(), None);
    }

    /// Calls `each` with keys and values of the range in order until it answers `false`.
    pub fn scan(
        &self,
        range: Range<Vec<u8>>,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        self.group.state().scan(&range, Some(&self.over), each)
    }

    /// The next number of a counter, from 1; numbers of undone changes may be lost.
    pub fn next(&mut self, counter: &str) -> Result<u64, EngineError> {
        let key = key::counter(counter);
        let last = match self.get(&key)? {
            Some(bytes) => u64::from_be_bytes(
                bytes.try_into().map_err(|_| EngineError::Index(format!("counter {counter} is damaged")))?,
            ),
            None => 0,
        };
        self.put(key, (last + 1).to_be_bytes().into());
        Ok(last + 1)
    }

    fn blob(&self, id: BlobId) -> Result<Blob, EngineError> {
        let bytes = self.get(&blob_key(id))?.ok_or(EngineError::Missing(id))?;
        Blob::decode(&bytes)
    }

    /// A blob that someone holds.
    fn held(&self, id: BlobId) -> Result<Blob, EngineError> {
        Some(self.blob(id)?).filter(|blob| blob.refs > 0).ok_or(EngineError::Missing(id))
    }

    /// Gives bytes a name, held once.
    pub fn store(&mut self, written: Written) -> Result<BlobId, EngineError> {
        let Written { size, salt, bulk } = written;
        let (id, place) = match bulk {
            Bulk::Packed { bytes, crc } => {
                self.group.core().room.check(bytes.len() as u64)?;
                let id = self.group.core().files.next();
                (id, self.pack(&bytes, crc))
            }
            Bulk::Apart(guard) => {
                let named = guard.blob();
                self.files.push(guard);
                named
            }
        };
        let blob = Blob { refs: 1, dead: 0, size, place, salt };
        self.tally.add(&blob);
        self.put(blob_key(id), blob.encode());
        Ok(id)
    }

    fn pack(&mut self, bytes: &[u8], crc: u32) -> Place {
        let journal = self.group.journal();
        let (segment, offset) = journal.place();
        journal.buffer.extend_from_slice(bytes);
        Place::Packed { segment, offset, crc }
    }

    /// Holds a blob once more (a copy without copying).
    pub fn hold(&mut self, id: BlobId) -> Result<(), EngineError> {
        let mut blob = self.held(id)?;
        blob.refs = blob.refs.checked_add(1).ok_or_else(|| EngineError::Index("too many holders".into()))?;
        self.put(blob_key(id), blob.encode());
        Ok(())
    }

    /// Lets go of a blob; the last one frees its bytes in the background.
    pub fn release(&mut self, id: BlobId) -> Result<(), EngineError> {
        let mut blob = self.held(id)?;
        blob.refs -= 1;
        if blob.refs == 0 {
            blob.dead = self.now();
            self.put(dead_key(blob.place.queue(), blob.dead, id), Vec::new());
        }
        self.put(blob_key(id), blob.encode());
        Ok(())
    }

    /// Wall clock, milliseconds since 1970, never behind an earlier change's.
    pub fn now(&self) -> i64 {
        self.group.now()
    }

    /// Forgets a dead blob whose file is gone; `key` is where it waited.
    pub(super) fn bury(&mut self, key: Vec<u8>, id: BlobId) -> Result<(), EngineError> {
        self.delete(key);
        match self.blob(id) {
            Ok(blob) if blob.refs == 0 => self.tally.take(&blob),
            Ok(_) | Err(EngineError::Missing(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.delete(blob_key(id));
        if self.get(&damaged_key(id))?.is_some() {
            self.delete(damaged_key(id));
        }
        Ok(())
    }

    /// Packs a blob anew if it still lies at `from`.
    pub(super) fn repack(&mut self, id: BlobId, from: Place, bytes: &[u8]) -> Result<(), EngineError> {
        let Some(mut blob) = self.get(&blob_key(id))?.map(|bytes| Blob::decode(&bytes)).transpose()? else {
            return Ok(());
        };
        if let (true, Place::Packed { crc, .. }) = (blob.place == from, from) {
            self.tally.take(&blob);
            blob.place = self.pack(bytes, crc);
            self.tally.add(&blob);
            self.put(blob_key(id), blob.encode());
        }
        Ok(())
    }
}
