//! Children: their leases, their facts and what they report.

use model::exchange::Ack;
use model::{ChildId, Facts, InstanceId, Observed, ObservedInstance, Phase, PlaceMode, Run, Timestamp};
use placement::Candidate;

use super::{ChildState, Parent};
use crate::inbox::{Inbox, Refused};
use crate::outbox::Outbox;

/// What a report or a lapse changed.
#[derive(Debug, Default)]
pub struct Fold {
    /// Instances of which something new is known.
    pub changed: Vec<InstanceId>,
    pub children_changed: bool,
}

impl Parent {
    /// Makes a child known. It gets a whole lease to be heard in.
    pub fn child_add(&mut self, child: ChildId, facts: Option<Facts>, now: Timestamp) {
        if self.children.contains_key(&child) {
            return;
        }
        let state = ChildState {
            facts: None,
            alive: true,
            deadline: now.plus_ms(self.config.leases.lease_ms),
            last_seen: now,
            outbox: Outbox::new(self.config.epoch),
            inbox: Inbox::default(),
            mode: PlaceMode::Open,
        };
        self.children.insert(child.clone(), state);
        if let Some(facts) = facts {
            self.facts_set(&child, facts);
        }
        let placed: Vec<InstanceId> = self
            .wants
            .iter()
            .filter(|(_, held)| held.place.as_ref().is_some_and(|place| place.child == child))
            .map(|(id, _)| id.clone())
            .collect();
        placed.iter().for_each(|id| self.retell(id));
    }

    fn retell(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get(id) else { return };
        let Some(place) = held.place.clone() else { return };
        let want = super::want_of(&held.assignment, &held.avoid);
        self.occupy(&want, &place.child);
        self.tell_child(id);
    }

    /// Forgets a child and takes everything off it.
    pub fn child_remove(&mut self, child: &ChildId) -> Fold {
        let fold = self.take_all_off(child);
        self.children.remove(child);
        self.fleet.remove(child);
        fold
    }

    pub fn child_known(&self, child: &ChildId) -> bool {
        self.children.contains_key(child)
    }

    /// Takes no new instances while it is not open.
    pub fn mode_set(&mut self, child: &ChildId, mode: PlaceMode) -> bool {
        let Some(state) = self.children.get_mut(child) else { return false };
        if state.mode == mode {
            return true;
        }
        state.mode = mode;
        if let Some(facts) = state.facts.clone() {
            self.fleet_upsert(child, &facts);
        }
        self.unstick();
        true
    }

    fn facts_set(&mut self, child: &ChildId, facts: Facts) -> bool {
        let Some(state) = self.children.get_mut(child) else { return false };
        if state.facts.as_ref() == Some(&facts) {
            return false;
        }
        state.facts = Some(facts.clone());
        self.fleet_upsert(child, &facts);
        self.unstick();
        true
    }

    fn fleet_upsert(&mut self, child: &ChildId, facts: &Facts) {
        let mut candidate = Candidate::from((child.clone(), facts));
        let state = self.children.get(child);
        candidate.cordoned |= state.is_some_and(|state| state.mode != PlaceMode::Open);
        self.fleet.upsert(candidate);
        self.fleet.set_alive(child, state.is_some_and(|state| state.alive));
    }

    /// Any sign of life renews the lease.
    pub fn heard(&mut self, child: &ChildId, now: Timestamp) {
        let lease_ms = self.config.leases.lease_ms;
        let Some(state) = self.children.get_mut(child) else { return };
        state.last_seen = now;
        state.deadline = now.plus_ms(lease_ms);
        if !state.alive {
            state.alive = true;
            self.fleet.set_alive(child, true);
            self.unstick();
        }
    }

    /// Its connection ended; it has a short while to come back.
    pub fn link_lost(&mut self, child: &ChildId, now: Timestamp) {
        let grace_ms = self.config.leases.gone_grace_ms;
        if let Some(state) = self.children.get_mut(child) {
            state.deadline = state.deadline.min(now.plus_ms(grace_ms));
        }
    }

    /// When the next lease lapses, if none is renewed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let leases = self.children.values().filter(|state| state.alive).map(|state| state.deadline).min();
        [leases, self.stuck_until].into_iter().flatten().min()
    }

    /// Declares children lost whose lease lapsed; what they held waits for a new place.
    pub fn expire(&mut self, now: Timestamp) -> Fold {
        let lost: Vec<ChildId> = self
            .children
            .iter()
            .filter(|(_, state)| state.alive && state.deadline <= now)
            .map(|(child, _)| child.clone())
            .collect();
        let mut fold = Fold::default();
        for child in lost {
            tracing::warn!(%child, by = %self.config.by, "lease lapsed; its instances are placed again");
            if let Some(state) = self.children.get_mut(&child) {
                state.alive = false;
            }
            self.fleet.set_alive(&child, false);
            fold.changed.extend(self.take_all_off(&child).changed);
            fold.children_changed = true;
        }
        fold
    }

    fn take_all_off(&mut self, child: &ChildId) -> Fold {
        let held: Vec<InstanceId> = match self.children.get(child) {
            Some(state) => state.outbox.iter().map(|assignment| assignment.id.clone()).collect(),
            None => Vec::new(),
        };
        for id in &held {
            self.lose(id, &format!("its place {} was lost", self.child_name(child)));
        }
        Fold { changed: held, children_changed: true }
    }

    /// The place is gone: wait for another, or be gone when that was wanted.
    pub(super) fn lose(&mut self, id: &InstanceId, why: &str) {
        self.unplace(id);
        let Some(held) = self.wants.get_mut(id) else { return };
        let phase = if held.assignment.run == Run::Stopped { Phase::Stopped } else { Phase::Pending };
        let mut seen = ObservedInstance::new(id.clone(), held.last, phase);
        seen.message = Some(why.to_owned());
        held.seen = Some(seen);
        self.settle(id);
    }

    /// Takes in what a child reports.
    pub fn observed(&mut self, child: &ChildId, observed: Observed, now: Timestamp) -> (Ack, Fold) {
        self.heard(child, now);
        let mut fold = Fold { children_changed: self.facts_set(child, observed.facts), ..Fold::default() };
        let Some(state) = self.children.get_mut(child) else { return (Ack { have: None }, fold) };
        let changed = match state.inbox.apply(observed.set) {
            Ok(changed) => changed,
            Err(Refused::Past) => return (Ack { have: state.inbox.have() }, fold),
            Err(Refused::NeedWhole) => {
                state.inbox.ask_whole();
                return (Ack { have: None }, fold);
            }
        };
        let have = state.inbox.have();
        for id in changed.upserted {
            let Some(seen) = self.children.get(child).and_then(|state| state.inbox.get(&id)).cloned() else {
                continue;
            };
            if self.fold_one(child, seen, now) {
                fold.changed.push(id);
            }
        }
        (Ack { have }, fold)
    }

    /// Only the holder under the current generation is believed.
    pub(super) fn fold_one(&mut self, child: &ChildId, seen: ObservedInstance, now: Timestamp) -> bool {
        let avoid_until = now.plus_ms(self.config.leases.avoid_ms);
        let Some(held) = self.wants.get_mut(&seen.id) else { return false };
        let holds = held
            .place
            .as_ref()
            .is_some_and(|place| place.child == *child && place.generation == seen.generation);
        if !holds {
            return false;
        }
        let id = seen.id.clone();
        let gone = seen.phase == Phase::Gone;
        let refused = seen.refused;
        let why = seen.message.clone().unwrap_or_else(|| "it has no room".to_owned());
        held.seen = Some(seen);
        if gone && held.assignment.run == Run::Gone {
            held.gone = true;
            self.unplace(&id);
        } else if refused {
            held.avoid.push((child.clone(), avoid_until));
            let name = self.child_name(child);
            self.lose(&id, &format!("{name} refused it: {why}"));
        }
        true
    }
}
