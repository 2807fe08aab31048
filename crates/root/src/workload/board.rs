//! Which workloads to look at, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Timestamp, WorkloadId};

use super::Next;
use crate::state::{NoticeBody, State};

/// Notices taken at once.
const NOTICES_MAX: usize = 1024;
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Its times are those of the steady clock.
#[derive(Default)]
pub struct Board {
    /// The change up to which the feed was read; absent before the first look at everything.
    since: Option<i64>,
    dirty: BTreeSet<WorkloadId>,
    timers: BTreeMap<WorkloadId, Timestamp>,
    /// Those that were just looked at and are let alone until then.
    resting: BTreeMap<WorkloadId, Timestamp>,
}

impl Board {
    /// Notes whose instances or wishes changed since the last call.
    pub fn take(&mut self, state: &State) {
        loop {
            let page = self.since.and_then(|since| state.notices_after(since, NOTICES_MAX));
            let Some((notices, next)) = page else {
                // The first look, or too much was missed.
                let snapshot = state.snapshot();
                self.dirty.extend(snapshot.workloads.keys().cloned());
                self.since = Some(snapshot.seq);
                return;
            };
            for notice in notices {
                match notice.body {
                    NoticeBody::Instance(entry) | NoticeBody::Status(entry) => {
                        self.mark(entry.instance.owner.as_ref().map(|o| o.workload.clone()))
                    }
                    NoticeBody::InstanceGone(row) => {
                        self.mark(row.owner.as_ref().map(|o| o.workload.clone()))
                    }
                    // What stands in a zone that empties may have to be replaced.
                    NoticeBody::Zone(zone) if zone.mode.empties() => {
                        self.dirty.extend(state.snapshot().workloads.keys().cloned());
                    }
                    NoticeBody::Workload(row) | NoticeBody::WorkloadGone(row) => self.mark([row.id.clone()]),
                    _ => {}
                }
            }
            if self.since.replace(next) == Some(next) {
                return;
            }
        }
    }

    pub fn mark(&mut self, ids: impl IntoIterator<Item = WorkloadId>) {
        self.dirty.extend(ids);
    }

    /// Takes up to `most` that are due.
    pub fn due(&mut self, now: Timestamp, most: usize) -> Vec<WorkloadId> {
        let ripe: Vec<WorkloadId> =
            self.timers.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in ripe {
            self.timers.remove(&id);
            self.dirty.insert(id);
        }
        self.resting.retain(|_, until| *until > now);
        let due: Vec<WorkloadId> =
            self.dirty.iter().filter(|id| !self.resting.contains_key(*id)).take(most).cloned().collect();
        for id in &due {
            self.dirty.remove(id);
        }
        due
    }

    pub fn done(&mut self, id: WorkloadId, next: Next, rest_until: Timestamp, now: Timestamp) {
        self.timers.remove(&id);
        match next {
            Next::Now => {
                self.dirty.insert(id);
                return;
            }
            Next::At(at) => drop(self.timers.insert(id.clone(), at)),
            Next::Changed => {}
        }
        if rest_until > now {
            self.resting.insert(id, rest_until);
        }
    }

    /// How long nothing is due if nothing changes.
    pub fn sleep(&self, now: Timestamp) -> Duration {
        let resting = self.resting.iter().filter(|(id, _)| self.dirty.contains(*id)).map(|(_, at)| *at);
        let next = self.timers.values().copied().chain(resting).min();
        next.map_or(SLEEP_MAX, |at| Duration::from_millis(at.ms_since(now).max(0) as u64 + 1))
    }
}
