//! Which instances do not get on, for how long, and what is to be done about it. No I/O.
//!
//! ```text
//!              told again        taken off
//!   placed ── 30 s ──────────── 3 min ─────▶ placed anew, elsewhere if there is another zone
//!   deleting ─ 1 min ─────────── 10 min ───▶ counts as gone; its zone drops it
//!   stopping ─ 2 min ──▶ (shown)
//!   pending, creating, lost: shown only; they wait for room, for an image, for their place
//! ```
//! Times are those of the steady clock, from when this process first saw it so: what a record says of its time may
//! have been written under another clock.

use std::collections::BTreeMap;

use model::{Generation, InstanceId, Name, Phase, Timestamp, ZoneId};

use crate::state::{Entry, Snapshot};

/// Instances looked at in one round; the next goes on from there.
const SCAN_MAX: usize = 50_000;
/// Instances whose time is kept; those beyond wait until others get on.
const MARKS_MAX: usize = 100_000;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;

/// How long an instance may be in a phase before it counts as stuck; nothing when it may be there for ever.
pub const fn limit_ms(phase: Phase) -> Option<i64> {
    match phase {
        Phase::Placed => Some(30 * SECOND_MS),
        Phase::Deleting => Some(MINUTE_MS),
        Phase::Pending | Phase::Stopping => Some(2 * MINUTE_MS),
        Phase::Lost => Some(5 * MINUTE_MS),
        // A large image over a slow line takes its time.
        Phase::Creating => Some(10 * MINUTE_MS),
        _ => None,
    }
}

/// After this an instance that was told again is taken off its zone.
const fn take_off_ms(phase: Phase) -> Option<i64> {
    match phase {
        Phase::Placed => Some(3 * MINUTE_MS),
        Phase::Deleting => Some(10 * MINUTE_MS),
        _ => None,
    }
}

const fn told_again(phase: Phase) -> bool {
    matches!(phase, Phase::Placed | Phase::Deleting | Phase::Stopping)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Say to its zone once more what should be.
    Tell,
    /// Take it off its zone.
    TakeOff,
}

/// Something to be done about one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heal {
    pub id: InstanceId,
    pub act: Act,
    pub phase: Phase,
    pub for_ms: i64,
}

/// An instance that does not settle.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    name: Name,
    zone: Option<ZoneId>,
    phase: Phase,
    generation: Generation,
    since: Timestamp,
    told: bool,
}

/// Instances of one zone, or of none, that are stuck in one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    pub zone: Option<ZoneId>,
    pub phase: Phase,
    pub count: usize,
    /// The one that is longest there.
    pub longest: Name,
    pub for_ms: i64,
}

/// Remembers since when each unsettled instance is in its phase.
#[derive(Debug, Default)]
pub struct Watcher {
    marks: BTreeMap<InstanceId, Mark>,
    /// The last instance looked at; the round goes on after it.
    after: Option<InstanceId>,
}

impl Watcher {
    /// Looks at the next instances. Only those on a zone that is `live` can be helped.
    pub fn look(&mut self, snapshot: &Snapshot, now: Timestamp, live: impl Fn(&ZoneId) -> bool) -> Vec<Heal> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = self.after.take().map_or(Unbounded, Excluded);
        let mut heals = Vec::new();
        let mut last: Option<&InstanceId> = None;
        for (count, (id, instance)) in snapshot.instances.range((from, Unbounded)).enumerate() {
            if count == SCAN_MAX {
                self.after = last.cloned();
                break;
            }
            last = Some(id);
            let entry = Entry { instance: instance.clone(), status: snapshot.statuses.get(id).cloned() };
            heals.extend(self.mark(id, &entry, now, &live));
        }
        if self.after.is_none() {
            self.marks.retain(|id, _| snapshot.instances.contains_key(id));
        }
        heals
    }

    fn mark(
        &mut self,
        id: &InstanceId,
        entry: &Entry,
        now: Timestamp,
        live: &impl Fn(&ZoneId) -> bool,
    ) -> Option<Heal> {
        let phase = entry.phase();
        let Some(limit) = limit_ms(phase) else {
            self.marks.remove(id);
            return None;
        };
        let status = entry.status.as_deref();
        let generation = status.map_or(Generation::default(), |status| status.generation);
        let zone = status.and_then(|status| status.zone.clone());
        let same = |mark: &Mark| mark.phase == phase && mark.generation == generation && mark.zone == zone;
        if !self.marks.get(id).is_some_and(same) {
            if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(id) {
                return None;
            }
            let name = entry.instance.name.clone();
            self.marks.insert(id.clone(), Mark { name, zone, phase, generation, since: now, told: false });
        }
        let mark = self.marks.get_mut(id)?;
        let for_ms = now.ms_since(mark.since);
        if for_ms < limit || !mark.zone.as_ref().is_some_and(live) {
            return None;
        }
        let heal = |act| Some(Heal { id: id.clone(), act, phase, for_ms });
        if take_off_ms(phase).is_some_and(|late| for_ms >= late) {
            // Once; whatever comes of it is a new mark.
            self.marks.remove(id);
            return heal(Act::TakeOff);
        }
        if told_again(phase) && !mark.told {
            mark.told = true;
            return heal(Act::Tell);
        }
        None
    }

    /// What is stuck now, by zone and phase.
    pub fn stuck(&self, now: Timestamp) -> Vec<Stuck> {
        let mut found: BTreeMap<(Option<ZoneId>, String), Stuck> = BTreeMap::new();
        for mark in self.marks.values() {
            let for_ms = now.ms_since(mark.since);
            if limit_ms(mark.phase).is_none_or(|limit| for_ms < limit) {
                continue;
            }
            let group = found.entry((mark.zone.clone(), mark.phase.to_string())).or_insert_with(|| Stuck {
                zone: mark.zone.clone(),
                phase: mark.phase,
                count: 0,
                longest: mark.name.clone(),
                for_ms,
            });
            group.count += 1;
            if for_ms > group.for_ms {
                (group.for_ms, group.longest) = (for_ms, mark.name.clone());
            }
        }
        found.into_values().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use model::{InstanceSpec, Run, TenantId};

    use super::*;
    use crate::state::Versioned;
    use crate::tables::{InstanceRecord, StatusRecord};

    fn zone() -> ZoneId {
        ZoneId::from_random(7)
    }

    /// One instance in this phase since the beginning of time.
    pub fn snapshot(phase: Phase, run: Run, major: u64) -> Snapshot {
        let id = InstanceId::from_random(1);
        let image = serde_json::from_value(serde_json::json!({
            "id": "img-00000000000000001", "platform": {"arch": "amd64"}, "layers": []
        }))
        .expect("a manifest");
        let record = InstanceRecord {
            id: id.clone(),
            tenant: TenantId::from_random(1),
            name: "web".parse().expect("a name"),
            spec: Arc::new(InstanceSpec::new("busybox")),
            image: Arc::new(image),
            owner: None,
            run,
            restart_count: 0,
            created_at: Timestamp(0),
            created_by: "admin".to_owned(),
        };
        let status = StatusRecord {
            id: id.clone(),
            zone: (phase != Phase::Pending).then(zone),
            generation: Generation { major, minor: 0 },
            phase,
            observed: None,
            explanation: None,
            events_seen: 0,
            changed_at: Timestamp(0),
        };
        let mut snapshot = Snapshot::default();
        snapshot.instances.insert(id.clone(), Versioned { version: 1, value: Arc::new(record) });
        snapshot.statuses.insert(id, Arc::new(status));
        snapshot
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(0).plus_ms(seconds * SECOND_MS)
    }

    fn acts(watcher: &mut Watcher, snapshot: &Snapshot, seconds: i64, live: bool) -> Vec<Act> {
        watcher.look(snapshot, at(seconds), |_| live).into_iter().map(|heal| heal.act).collect()
    }

    #[test]
    fn what_stays_placed_is_told_again_once_and_then_taken_off() {
        let (mut watcher, placed) = (Watcher::default(), snapshot(Phase::Placed, Run::Running, 1));
        assert_eq!(acts(&mut watcher, &placed, 0, true), []);
        assert_eq!(acts(&mut watcher, &placed, 10, true), []);
        assert!(watcher.stuck(at(10)).is_empty());
        assert_eq!(acts(&mut watcher, &placed, 31, true), [Act::Tell]);
        assert_eq!(acts(&mut watcher, &placed, 60, true), [], "once");
        let stuck = watcher.stuck(at(60));
        assert_eq!((stuck.len(), stuck[0].count, stuck[0].longest.as_str()), (1, 1, "web"));
        assert_eq!(acts(&mut watcher, &placed, 181, true), [Act::TakeOff]);
        // A new place has its own time.
        let anew = snapshot(Phase::Placed, Run::Running, 2);
        assert_eq!(acts(&mut watcher, &anew, 182, true), []);
        assert_eq!(acts(&mut watcher, &anew, 190, true), []);
    }

    #[test]
    fn a_zone_that_is_away_is_not_blamed() {
        let (mut watcher, placed) = (Watcher::default(), snapshot(Phase::Placed, Run::Running, 1));
        assert_eq!(acts(&mut watcher, &placed, 0, false), []);
        assert_eq!(acts(&mut watcher, &placed, 500, false), []);
        assert_eq!(watcher.stuck(at(500)).len(), 1, "it is shown");
    }

    #[test]
    fn what_a_record_says_of_its_time_is_not_believed() {
        let (mut watcher, placed) = (Watcher::default(), snapshot(Phase::Placed, Run::Running, 1));
        assert_eq!(acts(&mut watcher, &placed, 100_000, true), [], "it is seen for the first time");
        assert_eq!(acts(&mut watcher, &placed, 100_031, true), [Act::Tell]);
    }

    #[test]
    fn a_removal_counts_from_when_it_was_first_seen() {
        let (mut watcher, deleting) = (Watcher::default(), snapshot(Phase::Running, Run::Gone, 1));
        assert_eq!(acts(&mut watcher, &deleting, 1_000, true), []);
        assert_eq!(acts(&mut watcher, &deleting, 1_061, true), [Act::Tell]);
        assert_eq!(acts(&mut watcher, &deleting, 1_601, true), [Act::TakeOff]);
    }

    #[test]
    fn what_waits_for_room_is_shown_and_what_runs_is_not() {
        let (mut watcher, pending) = (Watcher::default(), snapshot(Phase::Pending, Run::Running, 0));
        assert_eq!(acts(&mut watcher, &pending, 0, true), []);
        assert_eq!(acts(&mut watcher, &pending, 1_000, true), []);
        assert_eq!(watcher.stuck(at(1_000))[0].phase, Phase::Pending);
        let running = snapshot(Phase::Running, Run::Running, 1);
        assert_eq!(acts(&mut watcher, &running, 1_001, true), []);
        assert!(watcher.stuck(at(1_001)).is_empty());
    }
}
