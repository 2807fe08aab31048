//! The scrubber: reads every blob and says which do not match their checksums.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::api::{BlobId, EngineError};
use super::blob::{blob_of, blobs_from, damaged_key, scrub_key};
use super::core::wall;
use super::get;
use super::hand::Hand;

/// Blobs looked up at once.
const BATCH: usize = 256;
/// Damaged blobs that a report names.
const NAMED_MAX: usize = 10_000;
/// How long the scrubber rests before it looks whether a pass is due.
const REST: Duration = Duration::from_secs(60);

/// What a pass has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrub {
    pub blobs: u64,
    pub bytes: u64,
    /// The first of those that do not match their checksums.
    pub damaged: Vec<BlobId>,
}

/// How far the background's pass is.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Progress {
    next: u64,
    /// When the last pass ended, in milliseconds.
    ended: i64,
}

/// Passes in the background until the engine ends.
pub(super) fn run(hand: &Hand) {
    let core = hand.core.clone();
    loop {
        if core.signal.rest(REST) || core.stopped.load(Ordering::Acquire) {
            return;
        }
        match background(hand) {
            Ok(()) => {}
            Err(EngineError::Stopped) => return,
            Err(error) => tracing::warn!(%error, "the scrubber failed; it is tried again"),
        }
    }
}

fn background(hand: &Hand) -> Result<(), EngineError> {
    let config = &hand.core.config;
    let bytes = hand.core.state().get(&scrub_key())?;
    let mut progress: Progress =
        bytes.and_then(|bytes| postcard::from_bytes(&bytes).ok()).unwrap_or_default();
    let every = i64::try_from(config.scrub_every.as_millis()).unwrap_or(i64::MAX);
    if progress.next == 0 && wall().saturating_sub(progress.ended) < every {
        return Ok(());
    }
    let mut pass = Pass::new(hand.clone(), Some(config.scrub_rate));
    let mut saved = Instant::now();
    pass.next = progress.next;
    while pass.step()? {
        if saved.elapsed() >= REST {
            saved = Instant::now();
            progress.next = pass.next;
            save(hand, progress)?;
        }
    }
    save(hand, Progress { next: 0, ended: wall() })
}

fn save(hand: &Hand, progress: Progress) -> Result<(), EngineError> {
    let bytes = postcard::to_stdvec(&progress).expect("progress encodes");
    hand.write(move |tx| {
        tx.put(scrub_key(), bytes);
        Ok(())
    })
}

/// One pass over all blobs. Blocking.
pub(super) struct Pass {
    hand: Hand,
    /// Bytes per second.
    rate: Option<u64>,
    start: Instant,
    next: u64,
    pub seen: Scrub,
}

impl Pass {
    pub fn new(hand: Hand, rate: Option<u64>) -> Self {
        Self { hand, rate, start: Instant::now(), next: 0, seen: Scrub::default() }
    }

    /// Checks some more; whether there may be others.
    pub fn step(&mut self) -> Result<bool, EngineError> {
        let mut found = Vec::new();
        self.hand.core.state().scan(&blobs_from(BlobId(self.next)), None, |key, _| {
            found.extend(blob_of(key));
            found.len() < BATCH
        })?;
        for id in &found {
            let hand = self.hand.clone();
            let sound = check(&hand, *id, |bytes| self.count(bytes))?;
            if !sound && self.seen.damaged.len() < NAMED_MAX {
                self.seen.damaged.push(*id);
            }
            self.seen.blobs += 1;
            self.next = id.0 + 1;
        }
        Ok(found.len() == BATCH)
    }

    /// Counts what was read, and waits if that was too fast.
    fn count(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.seen.bytes += bytes;
        let ahead = self.rate.filter(|rate| *rate > 0).map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(self.seen.bytes as f64 / rate as f64).saturating_sub(self.start.elapsed())
        });
        if self.hand.core.signal.rest(ahead) { Err(EngineError::Stopped) } else { Ok(()) }
    }
}

/// Whether a blob is sound; records what changed in that. One that is gone is no damage.
fn check(
    hand: &Hand,
    id: BlobId,
    each: impl FnMut(u64) -> Result<(), EngineError>,
) -> Result<bool, EngineError> {
    let core = &hand.core;
    let sound = match get::open(core, id, None).and_then(|source| source.verify(each)) {
        Ok(()) => true,
        Err(EngineError::Damaged(_)) => false,
        // Its record is there but not its file; a dead one is about to go.
        Err(EngineError::Missing(_)) => get::find(core, id).map_or(true, |blob| blob.refs == 0),
        Err(EngineError::Io(error)) => {
            tracing::error!(%error, blob = id.0, "a blob cannot be read");
            false
        }
        Err(error) => return Err(error),
    };
    let known = core.state().get(&damaged_key(id))?.is_some();
    if sound == known {
        hand.write(move |tx| {
            if sound {
                tx.delete(damaged_key(id));
            } else {
                tx.put(damaged_key(id), tx.now().to_be_bytes().to_vec());
            }
            Ok(())
        })?;
    }
    if !sound && !known {
        tracing::error!(blob = id.0, "a blob is damaged");
    }
    Ok(sound)
}

/// Looks at the blobs that readers found damaged.
pub(super) fn check_suspects(hand: &Hand) -> Result<(), EngineError> {
    let suspects = std::mem::take(&mut *hand.core.suspects.lock().expect("no panic under this lock"));
    suspects.into_iter().try_for_each(|id| check(hand, id, |_| Ok(())).map(drop))
}
