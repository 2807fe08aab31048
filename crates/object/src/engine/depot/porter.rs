//! The porter: removes from the depot what is dead, thrown away, or left behind by a crash.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use object_store::path::Path;

use super::super::api::{BlobId, EngineError};
use super::super::blob::{Blob, Place, Queue, blob_key};
use super::super::core::wall;
use super::super::hand::Hand;
use super::super::keeper::reclaim;
use super::super::scrub;
use super::{Depot, blob_named};

/// How long it rests after a failure.
const REST: Duration = Duration::from_secs(5);
/// How often it is seen whether the depot is there, if nothing else asks.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// What a crash left is looked for again after so many times the age at which it is seen as such.
const SWEEP_AGES: u32 = 24;

/// Works until the engine ends.
pub(in crate::engine) fn run(hand: &Hand, depot: &Arc<Depot>, settle: Duration) {
    let core = &hand.core;
    let mut porter =
        Porter { hand, depot, settle, sweep_at: Instant::now() + settle, look_at: Instant::now() };
    let mut away = false;
    while !core.signal.rest(if away { core.config.checkpoint.max(REST) } else { core.config.checkpoint }) {
        if core.stopped.load(Ordering::Acquire) {
            return;
        }
        match porter.work() {
            Ok(()) if away => {
                away = false;
                tracing::info!(depot = depot.name, "the store behind this one answers again");
            }
            Ok(()) | Err(EngineError::Stopped) => {}
            Err(EngineError::Gateway(reason)) => {
                tracing::error!(reason, "the engine stops");
                core.stopped.store(true, Ordering::Release);
            }
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    tracing::warn!(%error, depot = depot.name, "it does not answer; it is tried again");
                }
            }
        }
    }
}

struct Porter<'a> {
    hand: &'a Hand,
    depot: &'a Arc<Depot>,
    settle: Duration,
    sweep_at: Instant,
    look_at: Instant,
}

impl Porter<'_> {
    fn work(&mut self) -> Result<(), EngineError> {
        self.depot.enter()?;
        if Instant::now() >= self.look_at {
            self.look_at = Instant::now() + LOOK_EVERY;
            self.depot.owned()?;
        }
        self.depot.tidy()?;
        let depot = self.depot;
        reclaim(self.hand, Queue::Remote, |dead| {
            depot.owned()?;
            depot.delete(dead.iter().filter_map(|(id, place)| remote(depot, *id, *place)).collect())
        })?;
        scrub::check_suspects(self.hand)?;
        if Instant::now() >= self.sweep_at {
            self.sweep()?;
            self.sweep_at = Instant::now() + self.settle * SWEEP_AGES;
        }
        Ok(())
    }

    /// Removes old blobs of earlier openings that no record names.
    fn sweep(&self) -> Result<(), EngineError> {
        let mut after = None;
        loop {
            let page = self.depot.list("blobs", after.take())?;
            let mut left = Vec::new();
            for meta in &page {
                let age = wall().saturating_sub(meta.last_modified.timestamp_millis());
                let old = age >= i64::try_from(self.settle.as_millis()).unwrap_or(i64::MAX);
                if old && self.left_behind(&meta.location)? {
                    left.push(meta.location.clone());
                }
            }
            if !left.is_empty() {
                tracing::info!(blobs = left.len(), depot = self.depot.name, "removing what no record names");
                self.depot.owned()?;
                self.depot.delete(left)?;
            }
            match page.last() {
                Some(last) => after = Some(last.location.clone()),
                None => return Ok(()),
            }
        }
    }

    fn left_behind(&self, path: &Path) -> Result<bool, EngineError> {
        let Some((id, run)) = path.filename().and_then(blob_named) else { return Ok(false) };
        if run == self.depot.run {
            return Ok(false);
        }
        let record = self.hand.core.state().get(&blob_key(id))?;
        let blob = record.map(|bytes| Blob::decode(&bytes)).transpose()?;
        Ok(blob.is_none_or(|blob| blob.place != Place::Remote { run }))
    }
}

fn remote(depot: &Depot, id: BlobId, place: Place) -> Option<Path> {
    match place {
        Place::Remote { run } => Some(depot.blob_path(id, run)),
        Place::Packed { .. } | Place::File => None,
    }
}
