//! What a child says with each sign of life, and how long the way to its parent is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Pulse;
use work::{Clock, SystemClock};

use crate::limits::ROUND_TRIPS_MAX;

/// Gives the pulse of this moment. It is called for every beat and must not block.
pub type PulseSource = Arc<dyn Fn() -> Pulse + Send + Sync>;

#[derive(Default)]
pub(crate) struct Vitals {
    source: Mutex<Option<PulseSource>>,
    trips: Mutex<VecDeque<Duration>>,
    leaving: AtomicBool,
}

impl Vitals {
    pub(crate) fn source_set(&self, source: PulseSource) {
        *locked(&self.source) = Some(source);
    }

    /// Without a source a pulse says what time it is, and nothing more.
    pub(crate) fn pulse(&self) -> Pulse {
        let source = locked(&self.source).clone();
        let pulse =
            source.map_or_else(|| Pulse { at: SystemClock.now(), ..Pulse::default() }, |source| source());
        Pulse { leaving: self.leaving.load(Ordering::Relaxed), ..pulse }
    }

    /// From now on every pulse says that the sender stops.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Notes one round trip. The first request of a connection is not one: it waits for handshakes.
    pub(crate) fn trip(&self, took: Duration) {
        let mut trips = locked(&self.trips);
        if trips.len() >= ROUND_TRIPS_MAX {
            trips.pop_front();
        }
        trips.push_back(took);
    }

    /// The shortest of the latest round trips: what is longer waited for something else than the way.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        locked(&self.trips).iter().min().copied()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_beat_does_not_lengthen_the_way_and_an_old_one_is_forgotten() {
        let vitals = Vitals::default();
        assert_eq!(vitals.rtt(), None);
        for ms in [5, 900, 7] {
            vitals.trip(Duration::from_millis(ms));
        }
        assert_eq!(vitals.rtt(), Some(Duration::from_millis(5)));
        for _ in 0..ROUND_TRIPS_MAX {
            vitals.trip(Duration::from_millis(20));
        }
        assert_eq!(vitals.rtt(), Some(Duration::from_millis(20)), "the way became longer");
    }

    #[test]
    fn a_pulse_comes_from_its_source() {
        let vitals = Vitals::default();
        assert!(vitals.pulse().at > model::Timestamp(0));
        vitals.source_set(Arc::new(|| Pulse { orphans_removed: 7, ..Pulse::default() }));
        assert_eq!(vitals.pulse().orphans_removed, 7);
        assert!(!vitals.pulse().leaving);
        vitals.leave();
        assert!(vitals.pulse().leaving);
    }
}
