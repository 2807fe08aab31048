//! The form of large blobs: chunks, then their checksums. The same on disk and in a store behind this one.

use std::ops::Range;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use super::api::{BlobId, CHUNK, EngineError};
use super::blob::{Blob, TAG};
use super::journal::crc32c;
use super::seal::Cipher;

/// Bytes of a checksum.
const CRC: u64 = 4;

/// The checksum of a chunk belongs to its blob and its place there, so that sound bytes in a wrong place are damage too.
fn sum(id: BlobId, chunk: u64, crc: u32) -> [u8; CRC as usize] {
    let place = id.0.rotate_left(32).wrapping_add(chunk).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (crc ^ (place >> 32) as u32).to_le_bytes()
}

/// Bytes of the checksums of a blob of `size` bytes.
pub(super) fn crcs_length(size: u64) -> u64 {
    size.div_ceil(CHUNK as u64) * CRC
}

/// Brings bytes into the form, as they come.
pub(super) struct Chunker {
    id: BlobId,
    cipher: Option<Cipher>,
    /// A sealed blob's chunk that is not full, or may be the last.
    plain: Vec<u8>,
    chunk: u64,
    crcs: Vec<u8>,
    digest: Digest,
    digested: usize,
}

impl Chunker {
    pub fn new(id: BlobId, cipher: Option<Cipher>) -> Self {
        Self {
            id,
            cipher,
            plain: Vec::new(),
            chunk: 0,
            crcs: Vec::new(),
            digest: Digest::new(CrcAlgorithm::Crc32Iscsi),
            digested: 0,
        }
    }

    /// Takes bytes and answers what is to be written.
    pub fn take(&mut self, parts: Vec<Bytes>) -> Vec<Bytes> {
        if self.cipher.is_some() {
            let mut sealed = Vec::new();
            parts.iter().for_each(|part| self.seal(part, &mut sealed));
            return sealed;
        }
        parts.iter().for_each(|part| self.digest(part));
        parts
    }

    /// What is to be written at the end.
    pub fn end(mut self) -> Vec<Bytes> {
        let mut last = Vec::new();
        if self.cipher.is_some() {
            last.push(self.seal_chunk(true));
        } else if self.digested > 0 {
            self.end_chunk();
        }
        last.push(self.crcs.into());
        last
    }

    /// Adds to the checksum of the chunk, and ends those that are full.
    fn digest(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(CHUNK - self.digested);
            if self.digested == 0 && take == CHUNK {
                self.note(crc32c(&bytes[..take]));
            } else {
                self.digest.update(&bytes[..take]);
                self.digested += take;
                if self.digested == CHUNK {
                    self.end_chunk();
                }
            }
            bytes = &bytes[take..];
        }
    }

    fn end_chunk(&mut self) {
        let crc = self.digest.finalize_reset() as u32;
        self.note(crc);
        self.digested = 0;
    }

    fn note(&mut self, crc: u32) {
        self.crcs.extend_from_slice(&sum(self.id, self.chunk, crc));
        self.chunk += 1;
    }

    /// Seals the chunks that are full and not the last.
    fn seal(&mut self, mut bytes: &[u8], sealed: &mut Vec<Bytes>) {
        while !bytes.is_empty() {
            if self.plain.len() == CHUNK {
                sealed.push(self.seal_chunk(false));
            }
            let take = bytes.len().min(CHUNK - self.plain.len());
            self.plain.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
        }
    }

    fn seal_chunk(&mut self, last: bool) -> Bytes {
        let sealed = match &self.cipher {
            Some(cipher) => cipher.seal(self.chunk, last, &self.plain),
            None => Vec::new(),
        };
        self.note(crc32c(&sealed));
        self.plain.clear();
        sealed.into()
    }
}

/// Where things are in a large blob, and whether they are as they were written.
#[derive(Clone)]
pub(super) struct Layout {
    pub id: BlobId,
    pub blob: Blob,
    pub cipher: Option<Cipher>,
}

impl Layout {
    /// How many chunks there are.
    pub fn chunks(&self) -> u64 {
        self.blob.size.div_ceil(CHUNK as u64)
    }

    /// The chunks that a range of the content touches.
    pub fn touched(range: &Range<u64>) -> Range<u64> {
        range.start / CHUNK as u64..range.end.div_ceil(CHUNK as u64)
    }

    /// All bytes as they are stored.
    pub fn length(&self) -> u64 {
        self.blob.stored() + crcs_length(self.blob.size)
    }

    fn step(&self) -> u64 {
        CHUNK as u64 + if self.blob.salt.is_some() { TAG } else { 0 }
    }

    /// Where chunks are.
    pub fn place(&self, chunks: &Range<u64>) -> Range<u64> {
        chunks.start * self.step()..(chunks.end * self.step()).min(self.blob.stored())
    }

    /// Where the checksums of chunks are.
    pub fn crcs(&self, chunks: &Range<u64>) -> Range<u64> {
        let start = self.blob.stored();
        start + chunks.start * CRC..start + chunks.end * CRC
    }

    /// Compares whole chunks, from the `first` on, with their checksums.
    pub fn check(&self, first: u64, bytes: &[u8], crcs: &[u8]) -> Result<(), EngineError> {
        let step = usize::try_from(self.step()).expect("a chunk is small");
        let sound = bytes.len().div_ceil(step) * CRC as usize == crcs.len()
            && (first..)
                .zip(bytes.chunks(step).zip(crcs.chunks_exact(4)))
                .all(|(chunk, (piece, crc))| sum(self.id, chunk, crc32c(piece)) == *crc);
        if sound { Ok(()) } else { Err(EngineError::Damaged(self.id)) }
    }

    /// What of sound chunks lies in `range` of the content.
    pub fn content(
        &self,
        chunks: &Range<u64>,
        range: &Range<u64>,
        bytes: Bytes,
    ) -> Result<Bytes, EngineError> {
        let chunk = CHUNK as u64;
        let bytes = match &self.cipher {
            Some(cipher) => self.unseal(cipher, chunks.start, &bytes)?.into(),
            None => bytes,
        };
        let from = range.start.saturating_sub(chunks.start * chunk);
        let to = (range.end - chunks.start * chunk).min(bytes.len() as u64);
        Ok(bytes.slice(usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0)))
    }

    fn unseal(&self, cipher: &Cipher, first: u64, bytes: &[u8]) -> Result<Vec<u8>, EngineError> {
        let last = self.chunks().max(1) - 1;
        let step = usize::try_from(self.step()).expect("a chunk is small");
        let mut plain = Vec::with_capacity(bytes.len());
        for (number, piece) in (first..).zip(bytes.chunks(step)) {
            let piece = cipher.open(number, number == last, piece).ok_or(EngineError::Damaged(self.id))?;
            plain.extend_from_slice(&piece);
        }
        Ok(plain)
    }
}
