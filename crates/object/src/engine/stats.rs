//! Numbers about the engine, for metrics.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::api::EngineError;
use super::blob::{Alive, damaged, files_key, remote_key, segments};
use super::core::Core;
use super::scrub::{self, ScrubState};

/// Numbers about the engine. Counts are since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub segments: u64,
    /// Bytes of all segments.
    pub journal_bytes: u64,
    /// Blobs in the journal.
    pub packed: Alive,
    /// Blobs in files.
    pub files: Alive,
    /// Blobs in the store behind this one.
    pub remote: Alive,
    pub groups: u64,
    /// Changes in those groups.
    pub changes: u64,
    /// Time spent on appending and syncing.
    pub sync: Duration,
    pub checkpoints: u64,
    /// Changed records that the index does not hold yet.
    pub unsaved: u64,
    pub damaged: u64,
    /// Free bytes of the disk, and how many of them are kept for deletes and the index.
    pub free: u64,
    pub reserve: u64,
    /// No change is taken any more.
    pub stopped: bool,
    pub scrub: ScrubState,
}

impl Stats {
    pub(super) fn of(core: &Core) -> Result<Self, EngineError> {
        let state = core.state();
        let counters = &core.counters;
        let ends = core.segments.ends();
        let current = counters.offset.load(Ordering::Relaxed);
        let mut stats = Self {
            segments: ends.len() as u64 + u64::from(current > 0),
            journal_bytes: ends.values().sum::<u64>() + current,
            files: Alive::decode(state.get(&files_key())?.as_deref())?,
            remote: Alive::decode(state.get(&remote_key())?.as_deref())?,
            groups: counters.groups.load(Ordering::Relaxed),
            changes: counters.changes.load(Ordering::Relaxed),
            sync: Duration::from_micros(counters.sync_micros.load(Ordering::Relaxed)),
            checkpoints: counters.checkpoints.load(Ordering::Relaxed),
            free: core.room.left().0,
            reserve: core.room.left().1,
            stopped: core.stopped.load(Ordering::Acquire),
            scrub: scrub::state(core)?,
            unsaved: (state.active.len() + state.frozen.len()) as u64,
            ..Self::default()
        };
        state.scan(&segments(), None, |_, value| {
            if let Ok(alive) = Alive::decode(Some(value)) {
                stats.packed.blobs += alive.blobs;
                stats.packed.bytes += alive.bytes;
            }
            true
        })?;
        state.scan(&damaged(), None, |_, _| {
            stats.damaged += 1;
            true
        })?;
        Ok(stats)
    }

    /// Bytes of the journal that hold no blob: changes, and blobs that are gone.
    pub fn dead_bytes(&self) -> u64 {
        self.journal_bytes.saturating_sub(self.packed.bytes)
    }

    /// Whether blobs are refused because the disk is full.
    pub fn is_full(&self) -> bool {
        self.free <= self.reserve
    }

    pub fn mean_group(&self) -> f64 {
        self.changes as f64 / self.groups.max(1) as f64
    }
}
