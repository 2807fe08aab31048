//! The scrubber: reads every blob and says which do not match their checksums.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::api::{BlobId, EngineError};
use super::blob::{blob_of, blobs_from, damaged_key, scrub_key};
use super::core::{Core, wall};
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

/// The pass that runs in the background, or the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubState {
    pub running: bool,
    /// What it has read.
    pub blobs: u64,
    pub bytes: u64,
    /// Blobs that did not match.
    pub damaged: u64,
    /// Milliseconds since 1970; 0 is not since the engine was opened.
    pub started: i64,
    /// When the last one ended, also before the engine was opened; 0 is never.
    pub ended: i64,
}

/// What the scrubber is asked for, and what it says.
#[derive(Default)]
pub(super) struct Scrubber {
    asked: AtomicBool,
    /// Bytes per second of the pass that was asked for.
    rate: AtomicU64,
    state: Mutex<ScrubState>,
}

impl Scrubber {
    /// Asks for a pass; one that runs goes on at this rate.
    pub fn ask(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
        self.asked.store(true, Ordering::Release);
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// The rate of an order that nobody has followed yet.
    fn order(&self) -> Option<u64> {
        self.asked.swap(false, Ordering::AcqRel).then(|| self.rate.load(Ordering::Relaxed))
    }

    pub fn state(&self) -> ScrubState {
        *self.state.lock().expect("no panic under this lock")
    }

    fn note(&self, change: impl FnOnce(&mut ScrubState)) {
        change(&mut self.state.lock().expect("no panic under this lock"));
    }
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
        let ends = core.signal.rest_unless(REST, || core.scrubber.is_asked());
        if ends || core.stopped.load(Ordering::Acquire) {
            return;
        }
        let done = background(hand);
        core.scrubber.note(|state| state.running = false);
        match done {
            Ok(()) => {}
            Err(EngineError::Stopped) => return,
            Err(error) => tracing::warn!(%error, "the scrubber failed; it is tried again"),
        }
    }
}

fn progress(core: &Core) -> Result<Progress, EngineError> {
    let bytes = core.state().get(&scrub_key())?;
    Ok(bytes.and_then(|bytes| postcard::from_bytes(&bytes).ok()).unwrap_or_default())
}

/// The pass in the background, with when the last one ended.
pub(super) fn state(core: &Core) -> Result<ScrubState, EngineError> {
    Ok(ScrubState { ended: progress(core)?.ended, ..core.scrubber.state() })
}

fn background(hand: &Hand) -> Result<(), EngineError> {
    let (config, scrubber) = (&hand.core.config, &hand.core.scrubber);
    let mut progress = progress(&hand.core)?;
    let every = i64::try_from(config.scrub_every.as_millis()).unwrap_or(i64::MAX);
    let due = progress.next > 0 || wall().saturating_sub(progress.ended) >= every;
    let order = scrubber.order();
    if order.is_some() {
        progress.next = 0;
    } else if !due || config.scrub_rate == 0 {
        return Ok(());
    }
    let mut pass = Pass::new(hand.clone(), Some(order.unwrap_or(config.scrub_rate)));
    let mut saved = Instant::now();
    pass.next = progress.next;
    scrubber.note(|state| *state = ScrubState { running: true, started: wall(), ..ScrubState::default() });
    loop {
        let more = pass.step()?;
        scrubber.note(|state| {
            (state.blobs, state.bytes) = (pass.seen.blobs, pass.seen.bytes);
            state.damaged = pass.seen.damaged.len() as u64;
        });
        if !more {
            break;
        }
        if let Some(rate) = scrubber.order() {
            pass.rate = Some(rate);
        }
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
    let sound = match get::verify(core, id, each) {
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
    let suspects = &hand.core.suspects;
    let next = || suspects.lock().expect("no panic under this lock").first().copied();
    while let Some(id) = next() {
        let checked = check(hand, id, |_| Ok(()));
        if !matches!(checked, Err(EngineError::Away(_))) {
            suspects.lock().expect("no panic under this lock").remove(&id);
        }
        checked?;
    }
    Ok(())
}
