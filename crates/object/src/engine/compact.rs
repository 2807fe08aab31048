//! Compaction: what is alive in a segment that is mostly dead moves to the journal's end.

use std::time::{Duration, Instant};

use super::api::{BlobId, EngineError};
use super::blob::{Alive, Blob, Place, blob_key, blob_of, segment_key};
use super::journal::SEGMENT_HEADER;
use super::keeper::Keeper;
use super::replay::{Group, group_at};

/// What a moved blob costs in the journal beside its bytes.
const RECORD_BYTES: u64 = 128;
/// Bytes that one change moves.
const MOVE_BYTES: usize = 1 << 20;
/// How long compaction may keep a checkpoint waiting.
const TURN: Duration = Duration::from_secs(1);

/// Whether rewriting a segment gives back at least half of it, or it is one of the short ones that restarts leave.
fn worthwhile(size: u64, alive: Alive, limit: u64) -> bool {
    let after = alive.bytes + alive.blobs * RECORD_BYTES;
    after <= size / 2 || (size < limit / 8 && after < size)
}

/// A blob to move: where it lies and its bytes.
type Move = (BlobId, Place, Vec<u8>);

impl Keeper {
    /// Rewrites segments for a while.
    pub fn compact(&mut self) -> Result<(), EngineError> {
        let (core, start) = (self.hand.core.clone(), Instant::now());
        for (number, size) in core.segments.ends() {
            if number >= self.covered || self.fixed.contains(&number) {
                continue;
            }
            let alive = Alive::decode(core.state().get(&segment_key(number))?.as_deref())?;
            if alive.blobs > 0 && worthwhile(size, alive, core.config.segment) {
                self.rewrite(number, size)?;
            }
            if start.elapsed() >= TURN || core.is_behind() {
                break;
            }
        }
        Ok(())
    }

    fn rewrite(&mut self, number: u64, size: u64) -> Result<(), EngineError> {
        let core = self.hand.core.clone();
        let file = core.segments.file(number)?;
        let salt = core.salt;
        let mut offset = SEGMENT_HEADER as u64;
        let (mut moves, mut bytes) = (Vec::new(), 0);
        while offset < size {
            let Some(group) = group_at(&file, offset, size, salt)? else {
                tracing::error!(segment = number, offset, "the segment is damaged; it stays as it is");
                self.fixed.insert(number);
                break;
            };
            for found in self.alive_in(number, offset, &group)? {
                bytes += found.2.len();
                moves.push(found);
                if bytes >= MOVE_BYTES {
                    bytes = 0;
                    self.relocate(std::mem::take(&mut moves))?;
                }
            }
            offset += group.head.length();
        }
        self.relocate(moves)
    }

    /// The blobs that a group packed and that still lie there.
    fn alive_in(&self, number: u64, offset: u64, group: &Group) -> Result<Vec<Move>, EngineError> {
        let state = self.hand.core.state();
        let mut found = Vec::new();
        for (key, value) in group.changes() {
            let (Some(id), Some(value)) = (blob_of(key), value) else { continue };
            let blob = Blob::decode(value)?;
            let Place::Packed { segment, offset: at, .. } = blob.place else { continue };
            let here = at.checked_sub(offset).filter(|_| segment == number);
            let Some(bytes) = here.and_then(|at| group.blob(at, blob.stored())) else { continue };
            let now = state.get(&blob_key(id))?.map(|bytes| Blob::decode(&bytes)).transpose()?;
            if now.is_some_and(|now| now.place == blob.place) {
                found.push((id, blob.place, bytes.to_vec()));
            }
        }
        Ok(found)
    }

    fn relocate(&self, moves: Vec<Move>) -> Result<(), EngineError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.hand.write(move |tx| moves.iter().try_for_each(|(id, from, bytes)| tx.repack(*id, *from, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_do_not_move_forever() {
        let limit = 64 << 20;
        // A segment as compaction leaves it: bytes and the records of its moves.
        let alive = Alive { blobs: 400_000, bytes: 400_000 * 50 };
        assert!(!worthwhile(alive.bytes + alive.blobs * 100, alive, limit));
        assert!(worthwhile(limit, Alive { blobs: 10, bytes: 100_000 }, limit));
        assert!(!worthwhile(limit, Alive { blobs: 12_000, bytes: 12_000 * 4096 }, limit));
        assert!(worthwhile(40_000, Alive { blobs: 1, bytes: 30_000 }, limit));
    }
}
