//! A clock that is set while workloads wait for times: by how much, and who has not heard of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Timestamp, WorkloadId};

/// Less is drift, which nobody waits for.
const SET_MIN_MS: i64 = 1_000;

pub struct ClockSet(Mutex<Inner>);

struct Inner {
    /// How far the wall clock is before the steady one.
    ahead_ms: i64,
    /// Workloads whose state has times of before.
    set_ms: BTreeMap<WorkloadId, i64>,
}

impl ClockSet {
    pub fn new(wall: Timestamp, steady: Timestamp) -> Self {
        Self(Mutex::new(Inner { ahead_ms: wall.ms_since(steady), set_ms: BTreeMap::new() }))
    }

    /// Compares the clocks. When the wall clock was set, says which workloads are concerned: all that are `known`.
    pub fn look(
        &self,
        wall: Timestamp,
        steady: Timestamp,
        known: impl FnOnce() -> Vec<WorkloadId>,
    ) -> Vec<WorkloadId> {
        let mut inner = self.inner();
        let set_ms = wall.ms_since(steady) - inner.ahead_ms;
        if set_ms.abs() < SET_MIN_MS {
            return Vec::new();
        }
        tracing::warn!(set_ms, "the clock was set; what workloads wait for is counted anew");
        inner.ahead_ms += set_ms;
        let known = known();
        for id in &known {
            *inner.set_ms.entry(id.clone()).or_default() += set_ms;
        }
        known
    }

    /// By how much the clock was set since the state of a workload was written.
    pub fn set_ms(&self, id: &WorkloadId) -> i64 {
        self.inner().set_ms.get(id).copied().unwrap_or(0)
    }

    /// The state is written anew, with times of now.
    pub fn told(&self, id: &WorkloadId) {
        self.inner().set_ms.remove(id);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_concerns_each_workload_until_it_is_told() {
        let at = |ms| Timestamp(0).plus_ms(ms);
        let id = WorkloadId::from_random(1);
        let known = || vec![id.clone()];
        let clock = ClockSet::new(at(1_000), at(0));
        assert!(clock.look(at(61_200), at(60_000), known).is_empty(), "drift");
        assert_eq!(clock.look(at(600_000), at(61_000), known), known());
        assert!(clock.look(at(601_000), at(62_000), known).is_empty(), "once");
        assert_eq!(clock.set_ms(&id), 538_000);
        assert_eq!(clock.look(at(64_000), at(63_000), known), known(), "and back");
        assert_eq!(clock.set_ms(&id), 0);
        assert_eq!(clock.look(at(4_000), at(63_000), known), known());
        clock.told(&id);
        assert_eq!(clock.set_ms(&id), 0);
    }
}
