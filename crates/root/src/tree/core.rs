//! Root over its zones with no I/O. The owner feeds in records, messages and
//! the time, commits what comes out, and says whether that worked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::exchange::{Ack, Revision};
use model::{
    Assignment, ChildId, Desired, Facts, Generation, InstanceEvent, InstanceId, Observed, ObservedInstance,
    Phase, Run, Timestamp, WorkloadId, ZoneId,
};
use tier::{ChildStatus, Decision, Parent, ParentConfig, Place};

use crate::tables::{InstanceRecord, StatusRecord, ZoneRecord};

/// A clock that is set back by less than this is not worth a word.
const CLOCK_BACK_MAX_MS: i64 = 1_000;

/// What is newly known of one instance, to be committed.
#[derive(Debug, Clone)]
pub struct Folded {
    pub status: Arc<StatusRecord>,
    /// Events not seen before, oldest first.
    pub events: Vec<InstanceEvent>,
    /// Gone everywhere, as was asked: both records go.
    pub gone: bool,
}

pub struct Core {
    parent: Parent,
    statuses: BTreeMap<InstanceId, Arc<StatusRecord>>,
    dirty: BTreeSet<InstanceId>,
    /// The latest time of the wall clock that was written.
    wall: Option<Timestamp>,
}

impl Core {
    pub fn new(config: ParentConfig) -> Self {
        Self { parent: Parent::new(config), statuses: BTreeMap::new(), dirty: BTreeSet::new(), wall: None }
    }

    // ---- records ------------------------------------------------------

    /// Puts back an instance with its status, as the store has them.
    pub fn restore(&mut self, record: &InstanceRecord, status: Option<Arc<StatusRecord>>) {
        let Some(status) = status else { return self.take(record) };
        let place =
            status.zone.as_ref().map(|zone| Place { child: zone.into(), generation: status.generation });
        self.parent.restore(assignment(record, status.generation), place, status.generation);
        if let Some(seen) = status.observed.clone() {
            self.parent.restore_seen(seen);
        }
        self.dirty.insert(record.id.clone());
        self.statuses.insert(record.id.clone(), status);
    }

    /// An instance was asked for or changed.
    pub fn take(&mut self, record: &InstanceRecord) {
        let generation = self.statuses.get(&record.id).map_or(Generation::default(), |s| s.generation);
        self.parent.want(assignment(record, generation));
        self.dirty.insert(record.id.clone());
    }

    /// The record of an instance is gone from the store.
    pub fn forget(&mut self, id: &InstanceId) {
        self.parent.unwant(id);
        self.statuses.remove(id);
        self.dirty.remove(id);
    }

    /// So many instances of a workload may be unavailable when they are moved on purpose.
    pub fn workload_take(&mut self, workload: &WorkloadId, may_be_missing: u32) {
        self.parent.limit_set(workload, may_be_missing);
    }

    pub fn workload_forget(&mut self, workload: &WorkloadId) {
        self.parent.limit_forget(workload);
    }

    pub fn status(&self, id: &InstanceId) -> Option<&StatusRecord> {
        self.statuses.get(id).map(Arc::as_ref)
    }

    // ---- zones ----------------------------------------------------------

    pub fn zone_add(&mut self, zone: &ZoneId, facts: Option<Facts>, now: Timestamp) {
        self.parent.child_add(zone.into(), facts, now);
    }

    /// A zone as its record says it is.
    pub fn zone_take(&mut self, zone: &ZoneRecord, now: Timestamp) {
        self.zone_add(&zone.id, zone.facts.clone(), now);
        self.parent.mode_set(&(&zone.id).into(), zone.mode, zone.forced);
    }

    /// It was removed for good: what it held looks for another place.
    pub fn zone_remove(&mut self, zone: &ZoneId) {
        self.zone_forget(&zone.into());
    }

    pub fn zone_forget(&mut self, zone: &ChildId) {
        let fold = self.parent.child_remove(zone);
        self.dirty.extend(fold.changed);
    }

    pub fn zone_ids(&self) -> Vec<ChildId> {
        self.parent.child_ids().cloned().collect()
    }

    pub fn zone_known(&self, zone: &ChildId) -> bool {
        self.parent.child_known(zone)
    }

    pub fn zone_heard(&mut self, zone: &ChildId, now: Timestamp) {
        self.parent.heard(zone, now);
    }

    pub fn zone_lost(&mut self, zone: &ChildId, now: Timestamp) {
        self.parent.link_lost(zone, now);
    }

    pub fn zone_alive(&self, zone: &ChildId) -> bool {
        self.parent.child_alive(zone)
    }

    /// Whether it spoke to this root and its lease has not lapsed.
    pub fn zone_connected(&self, zone: &ChildId) -> bool {
        self.parent.child_connected(zone)
    }

    pub fn zone_last_seen(&self, zone: &ChildId) -> Option<Timestamp> {
        self.parent.child_last_seen(zone)
    }

    pub fn zones(&self) -> Vec<ChildStatus> {
        self.parent.reports()
    }

    /// Takes in a zone's report; says whether its facts are new.
    pub fn zone_observed(&mut self, zone: &ChildId, observed: Observed, now: Timestamp) -> (Ack, bool) {
        let (ack, fold) = self.parent.observed(zone, observed, now);
        self.dirty.extend(fold.changed);
        (ack, fold.children_changed)
    }

    pub fn zone_desired(&mut self, zone: &ChildId, have: Option<Revision>) -> Option<Desired> {
        self.parent.desired(zone, have)
    }

    pub fn zone_desired_page(
        &mut self,
        zone: &ChildId,
        have: Option<Revision>,
        bytes: usize,
    ) -> Option<Desired> {
        self.parent.desired_within(zone, have, bytes)
    }

    pub fn told_take(&mut self) -> BTreeSet<ChildId> {
        self.parent.told_take()
    }

    // ---- time -------------------------------------------------------------

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.parent.next_deadline()
    }

    pub fn undecided(&self, now: Timestamp) -> bool {
        self.parent.undecided(now)
    }

    /// Lets leases lapse, then places what waits: each decision with the status to commit for it. Leases run by
    /// `now`; `wall` is what people read.
    pub fn decide(
        &mut self,
        now: Timestamp,
        wall: Timestamp,
        most: usize,
    ) -> Vec<(Decision, Arc<StatusRecord>)> {
        let fold = self.parent.expire(now);
        self.dirty.extend(fold.changed);
        let decisions = self.parent.decide(now, most);
        self.dirty.extend(self.parent.news_take());
        decisions.into_iter().map(|decision| self.with_status(decision, wall)).collect()
    }

    /// The decision writes the status record, so nothing else may until it is committed or rejected.
    fn with_status(&mut self, mut decision: Decision, wall: Timestamp) -> (Decision, Arc<StatusRecord>) {
        self.dirty.remove(&decision.id);
        Arc::make_mut(&mut decision.explanation).at = wall;
        let old = self.statuses.get(&decision.id);
        let mut status = old.map_or_else(|| fresh(&decision.id, wall), |old| StatusRecord::clone(old));
        status.explanation = Some(decision.explanation.clone());
        status.changed_at = wall;
        status.phase = Phase::Pending;
        status.zone = None;
        if let Some(place) = &decision.place {
            status.zone = place.child.as_str().parse().ok();
            status.generation = place.generation;
            status.phase = Phase::Placed;
            status.observed = None;
            status.events_seen = 0;
        }
        // As it is seen once it is confirmed, so that this need not be written again.
        let (id, generation, phase) = (&decision.id, status.generation, status.phase);
        status.observed.get_or_insert_with(|| ObservedInstance::new(id.clone(), generation, phase));
        (decision, Arc::new(status))
    }

    /// The decision is in the store: the zone may hear of it.
    pub fn committed(&mut self, decision: &Decision, status: Arc<StatusRecord>) {
        self.statuses.insert(decision.id.clone(), status);
        self.parent.confirm(decision);
        self.dirty.insert(decision.id.clone());
    }

    /// The decision could not be committed: it is made again.
    pub fn rejected(&mut self, decision: &Decision) {
        self.parent.reject(decision);
        self.dirty.insert(decision.id.clone());
    }

    // ---- healing --------------------------------------------------------------

    /// Tells the zone that holds it once more.
    pub fn tell_again(&mut self, id: &InstanceId, now: Timestamp) -> bool {
        let told = self.parent.tell_again(id, now);
        self.dirty.insert(id.clone());
        told
    }

    /// Takes it off the zone that does not get on with it; it is placed again, or gone if that was asked for.
    pub fn take_off(&mut self, id: &InstanceId, why: &str, now: Timestamp) -> bool {
        let taken = self.parent.take_off(id, why, now);
        self.dirty.insert(id.clone());
        taken
    }

    // ---- folding ------------------------------------------------------------

    /// At most `most` instances of which the store does not know the latest.
    pub fn fold(&mut self, wall: Timestamp, most: usize) -> Vec<Folded> {
        self.wall_check(wall);
        let mut folded = Vec::new();
        while folded.len() < most {
            let Some(id) = self.dirty.pop_first() else { break };
            folded.extend(self.fold_one(&id, wall));
        }
        folded
    }

    /// What changed in the future was written under a wrong clock, and counts as changed now that it is put right.
    fn wall_check(&mut self, wall: Timestamp) {
        if self.wall.replace(wall).is_some_and(|before| wall.ms_since(before) < -CLOCK_BACK_MAX_MS) {
            let ahead = self.statuses.values().filter(|status| status.changed_at > wall);
            self.dirty.extend(ahead.map(|status| status.id.clone()));
        }
    }

    fn fold_one(&self, id: &InstanceId, wall: Timestamp) -> Option<Folded> {
        let mut view = self.parent.view(id)?;
        let old = self.statuses.get(id);
        let gone = self.parent.gone(id);
        let place = self.parent.place_of(id);
        let known = old.map_or_else(Generation::default, |old| old.generation);
        view.generation = place.map_or(known, |place| place.generation);
        let events_seen = old.map_or(0, |old| old.events_seen);
        let events: Vec<InstanceEvent> =
            std::mem::take(&mut view.events).into_iter().filter(|event| event.seq > events_seen).collect();
        let status = StatusRecord {
            id: id.clone(),
            zone: place.and_then(|place| place.child.as_str().parse().ok()),
            generation: view.generation,
            phase: view.phase,
            explanation: old.and_then(|old| old.explanation.clone()),
            events_seen: events.last().map_or(events_seen, |event| event.seq),
            changed_at: wall,
            observed: Some(view),
        };
        let as_known = |old: &Arc<StatusRecord>| same(old, &status) && old.changed_at <= wall;
        if !gone && old.is_some_and(as_known) && events.is_empty() {
            return None;
        }
        Some(Folded { status: Arc::new(status), events, gone })
    }

    /// It is in the store.
    pub fn folded(&mut self, folded: &Folded) {
        if folded.gone {
            self.forget(&folded.status.id);
        } else {
            self.statuses.insert(folded.status.id.clone(), folded.status.clone());
        }
    }

    /// It did not get into the store: once more.
    pub fn fold_again(&mut self, folded: &Folded) {
        self.dirty.insert(folded.status.id.clone());
    }

    pub fn unfolded(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub fn ids(&self) -> Vec<InstanceId> {
        self.parent.ids().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.parent.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }
}

fn fresh(id: &InstanceId, now: Timestamp) -> StatusRecord {
    StatusRecord {
        id: id.clone(),
        zone: None,
        generation: Generation::default(),
        phase: Phase::Pending,
        observed: None,
        explanation: None,
        events_seen: 0,
        changed_at: now,
    }
}

fn same(old: &StatusRecord, new: &StatusRecord) -> bool {
    old.zone == new.zone
        && old.generation == new.generation
        && old.phase == new.phase
        && old.observed == new.observed
}

fn assignment(record: &InstanceRecord, generation: Generation) -> Assignment {
    Assignment {
        id: record.id.clone(),
        tenant: record.tenant.clone(),
        name: record.name.clone(),
        generation,
        run: record.run,
        restart_count: record.restart_count,
        spec: record.spec.clone(),
        image: record.image.clone(),
        group: record
            .owner
            .as_ref()
            .map(|owner| model::Group { workload: owner.workload.clone(), may_move: false }),
    }
}

/// What users see: the phase, unless deletion was asked for.
pub fn phase_shown(record: &InstanceRecord, status: Option<&StatusRecord>) -> Phase {
    match (record.run, status) {
        (Run::Gone, _) => Phase::Deleting,
        (_, Some(status)) => status.phase,
        (_, None) => Phase::Pending,
    }
}
