//! What is known of a blob, and the keys of the engine's own records.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::api::{BlobId, CHUNK, EngineError};
use crate::record::key::{Space, under};

/// Bytes that sealing adds to a chunk.
pub(super) const TAG: u64 = 16;

/// The record of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Blob {
    /// How often it is held. At zero it waits to be reclaimed.
    pub refs: u32,
    /// When the last one let go, in milliseconds.
    pub dead: i64,
    pub size: u64,
    pub place: Place,
    /// Of a sealed blob.
    pub salt: Option<[u8; 16]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    Packed {
        segment: u64,
        offset: u64,
        crc: u32,
    },
    File,
    /// In the store behind this one; `run` is the number of the opening that put it there.
    Remote {
        run: u64,
    },
}

/// Where the dead wait: those elsewhere may wait long, and hold up nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Local,
    Remote,
}

impl Place {
    pub fn queue(self) -> Queue {
        match self {
            Self::Remote { .. } => Queue::Remote,
            Self::Packed { .. } | Self::File => Queue::Local,
        }
    }
}

impl Queue {
    fn kind(self) -> u8 {
        match self {
            Self::Local => b'd',
            Self::Remote => b'e',
        }
    }
}

impl Blob {
    /// Bytes on disk without checksums.
    pub fn stored(&self) -> u64 {
        stored(self.size, self.salt.is_some())
    }

    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a blob's record encodes")
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, EngineError> {
        postcard::from_bytes(bytes).map_err(|error| EngineError::Index(format!("a blob's record: {error}")))
    }
}

/// Bytes on disk of `size` bytes. An empty sealed blob still has one chunk, so that its end is known.
pub(super) fn stored(size: u64, sealed: bool) -> u64 {
    if sealed { size + size.div_ceil(CHUNK as u64).max(1) * TAG } else { size }
}

fn own(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut key = vec![Space::Engine as u8, kind];
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

/// The record of a blob.
pub(super) fn blob_key(id: BlobId) -> Vec<u8> {
    own(b'b', &[id.0])
}

pub(super) fn blob_of(key: &[u8]) -> Option<BlobId> {
    let rest = key.strip_prefix(&[Space::Engine as u8, b'b'])?;
    Some(BlobId(u64::from_be_bytes(rest.try_into().ok()?)))
}

/// The records of all blobs from one on.
pub(super) fn blobs_from(id: BlobId) -> Range<Vec<u8>> {
    blob_key(id)..blobs().end
}

pub(super) fn blobs() -> Range<Vec<u8>> {
    under(own(b'b', &[]))
}

/// What is alive in a segment.
pub(super) fn segment_key(segment: u64) -> Vec<u8> {
    own(b's', &[segment])
}

pub(super) fn segments() -> Range<Vec<u8>> {
    under(own(b's', &[]))
}

/// What is alive in files.
pub(super) fn files_key() -> Vec<u8> {
    own(b'f', &[])
}

/// What is alive in the store behind this one.
pub(super) fn remote_key() -> Vec<u8> {
    own(b'r', &[])
}

/// A blob that waits to be reclaimed, by the time the last one let go.
pub(super) fn dead_key(queue: Queue, time: i64, id: BlobId) -> Vec<u8> {
    own(queue.kind(), &[time.max(0).cast_unsigned(), id.0])
}

/// The dead before a time.
pub(super) fn dead_before(queue: Queue, time: i64) -> Range<Vec<u8>> {
    own(queue.kind(), &[])..own(queue.kind(), &[time.max(0).cast_unsigned()])
}

/// A blob that did not match its checksum.
pub(super) fn damaged_key(id: BlobId) -> Vec<u8> {
    own(b'x', &[id.0])
}

pub(super) fn damaged() -> Range<Vec<u8>> {
    under(own(b'x', &[]))
}

/// How far the scrubber is.
pub(super) fn scrub_key() -> Vec<u8> {
    own(b'y', &[])
}

/// The number at the end of one of the engine's keys.
pub(super) fn last_number(key: &[u8]) -> Option<u64> {
    let (_, tail) = key.split_last_chunk::<8>()?;
    Some(u64::from_be_bytes(*tail))
}

/// How much is alive in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alive {
    pub blobs: u64,
    pub bytes: u64,
}

impl Alive {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.blobs.to_be_bytes(), self.bytes.to_be_bytes()].concat()
    }

    /// Nothing stands for nothing.
    pub(super) fn decode(bytes: Option<&[u8]>) -> Result<Self, EngineError> {
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        match (number(0), number(8)) {
            (Some(blobs), Some(bytes)) => Ok(Self { blobs, bytes }),
            _ => Err(EngineError::Index("a count of what is alive is damaged".into())),
        }
    }
}

/// What a change adds to and takes from what is alive.
#[derive(Debug, Default)]
pub(super) struct Tally(pub BTreeMap<Vec<u8>, (i64, i64)>);

impl Tally {
    pub fn add(&mut self, blob: &Blob) {
        self.count(blob, 1);
    }

    pub fn take(&mut self, blob: &Blob) {
        self.count(blob, -1);
    }

    fn count(&mut self, blob: &Blob, sign: i64) {
        let key = match blob.place {
            Place::Packed { segment, .. } => segment_key(segment),
            Place::File => files_key(),
            Place::Remote { .. } => remote_key(),
        };
        let entry = self.0.entry(key).or_default();
        entry.0 += sign;
        entry.1 += sign * i64::try_from(blob.stored()).unwrap_or(i64::MAX);
    }

    pub fn join(&mut self, other: Self) {
        for (key, (blobs, bytes)) in other.0 {
            let entry = self.0.entry(key).or_default();
            *entry = (entry.0 + blobs, entry.1 + bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_earlier_versions_are_read() {
        let file = Blob { refs: 1, dead: 0, size: 300, place: Place::File, salt: None };
        assert_eq!(Blob::decode(&[1, 0, 172, 2, 1, 0]).unwrap(), file);
        let place = Place::Packed { segment: 3, offset: 40, crc: 5 };
        let packed = Blob { refs: 2, dead: 0, size: 7, place, salt: None };
        assert_eq!(Blob::decode(&[2, 0, 7, 0, 3, 40, 5, 0]).unwrap(), packed);
        let remote = Blob { place: Place::Remote { run: 9 }, ..file };
        assert_eq!(Blob::decode(&remote.encode()).unwrap(), remote);
    }
}
