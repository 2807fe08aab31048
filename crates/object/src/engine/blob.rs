//! What is known of a blob, and the keys of the engine's own records.

use serde::{Deserialize, Serialize};

use super::api::{BlobId, CHUNK, EngineError};
use crate::record::key::Space;

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
    Packed { segment: u64, offset: u64, crc: u32 },
    File,
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

pub(super) fn blobs() -> std::ops::Range<Vec<u8>> {
    crate::record::key::under(own(b'b', &[]))
}

/// Bytes alive in a segment.
pub(super) fn segment_key(segment: u64) -> Vec<u8> {
    own(b's', &[segment])
}

pub(super) fn segments() -> std::ops::Range<Vec<u8>> {
    crate::record::key::under(own(b's', &[]))
}

/// A blob that waits to be reclaimed, by the time the last one let go.
pub(super) fn dead_key(time: i64, id: BlobId) -> Vec<u8> {
    own(b'd', &[time.cast_unsigned(), id.0])
}

/// The dead up to a time.
pub(super) fn dead_until(time: i64) -> std::ops::Range<Vec<u8>> {
    own(b'd', &[])..own(b'd', &[time.max(0).cast_unsigned()])
}

/// The number at the end of one of the engine's keys.
pub(super) fn last_number(key: &[u8]) -> Option<u64> {
    let (_, tail) = key.split_last_chunk::<8>()?;
    Some(u64::from_be_bytes(*tail))
}
