//! Children: their leases, their facts and what they report.

use model::constraint::Labels;
use model::exchange::Ack;
use model::{ChildId, Facts, InstanceId, Name, Observed, ObservedInstance, Phase, PlaceMode, Run, Timestamp};
use placement::Candidate;

use super::{Avoided, ChildState, Leases, Parent, STOP_GRACE_MS};
use crate::inbox::{Inbox, Refused};
use crate::outbox::Outbox;

/// A clock that is set back by less than this only makes leases a little longer.
const CLOCK_BACK_MAX_MS: i64 = 1_000;

/// Children beat more than twice within a lease. Where of several nobody did for more than this part of one, the
/// parent is the one cut off.
const SILENCE_OF_LEASE: (i64, i64) = (7, 12);

/// A report raises the count of decisions by so many at most: no child can end the numbers.
const MINOR_LIFT_MAX: u64 = 1 << 20;

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
            joined_as: None,
            alive: true,
            heard: false,
            spared: false,
            leaving: false,
            deadline: now.plus_ms(self.config.leases.lease_ms),
            last_seen: now,
            outbox: Outbox::new(self.config.epoch),
            inbox: Inbox::default(),
            mode: PlaceMode::Open,
            force: false,
            left: Vec::new(),
            labels: Labels::new(),
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

    /// The name under which a child joined, for as long as it has not said itself who it is.
    pub fn child_name_note(&mut self, child: &ChildId, name: &Name) {
        if let Some(state) = self.children.get_mut(child) {
            state.joined_as = Some(name.clone());
        }
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
        self.resting.remove(child);
        self.fleet.remove(child);
        self.members += 1;
        fold
    }

    pub fn child_known(&self, child: &ChildId) -> bool {
        self.children.contains_key(child)
    }

    /// Takes no new instances while it is not open; what it has moves away when the mode empties it, with
    /// `force` also what would rather wait for it.
    pub fn mode_set(&mut self, child: &ChildId, mode: PlaceMode, force: bool) -> bool {
        let Some(state) = self.children.get_mut(child) else { return false };
        if (state.mode, state.force) == (mode, force) {
            return true;
        }
        (state.mode, state.force) = (mode, force);
        state.left.clear();
        if !mode.empties() {
            self.hand_back(child);
        }
        self.child_changed(child);
        true
    }

    /// Labels that operators gave to a child; they stand before those it says itself.
    pub fn labels_set(&mut self, child: &ChildId, labels: Labels) -> bool {
        let Some(state) = self.children.get_mut(child) else { return false };
        if state.labels != labels {
            state.labels = labels;
            self.child_changed(child);
        }
        true
    }

    pub fn labels(&self, child: &ChildId) -> Option<&Labels> {
        Some(&self.children.get(child)?.labels)
    }

    fn facts_set(&mut self, child: &ChildId, facts: Facts) -> bool {
        let Some(state) = self.children.get_mut(child) else { return false };
        if state.facts.as_ref() == Some(&facts) {
            return false;
        }
        let settled = |facts: &Facts| Facts { legs: Default::default(), gpus: Vec::new(), ..facts.clone() };
        let members = state.facts.as_ref().map(settled) != Some(settled(&facts));
        let others = |facts: &Facts| Facts { free: None, largest: None, ..settled(facts) };
        let anew = state.facts.as_ref().is_some_and(|known| others(known) != others(&facts));
        state.facts = Some(facts);
        if anew && self.config.children_are_zones {
            self.avoid_end(child);
        }
        self.members += u64::from(members);
        self.fleet_upsert(child);
        true
    }

    /// A child has other members than when it refused what waits: it may be asked again.
    fn avoid_end(&mut self, child: &ChildId) {
        let waiting = self.waiting.iter().map(|(_, id)| id);
        let ids: Vec<InstanceId> = self.stuck.iter().chain(waiting).cloned().collect();
        for id in ids {
            if let Some(held) = self.wants.get_mut(&id) {
                held.avoid.retain(|avoided| avoided.child != *child);
            }
        }
    }

    /// A child is not what it was: placing counts with that from now on.
    fn child_changed(&mut self, child: &ChildId) {
        self.members += 1;
        self.fleet_upsert(child);
    }

    fn fleet_upsert(&mut self, child: &ChildId) {
        let Some(state) = self.children.get(child) else { return };
        if let Some(facts) = self.facts_of(state) {
            let mut candidate = Candidate::from((child.clone(), &facts));
            candidate.cordoned |= state.mode != PlaceMode::Open;
            let alive = state.alive && !state.leaving;
            self.fleet.upsert(candidate);
            self.fleet.set_alive(child, alive);
        }
        self.unstick();
    }

    /// What a child says of itself, with what operators and the parent add to it.
    pub(crate) fn facts_of(&self, state: &ChildState) -> Option<Facts> {
        let mut facts = state.facts.clone()?;
        for (key, value) in &state.labels {
            facts.labels.insert(key.clone(), vec![value.clone()]);
        }
        facts.area = facts.area.or(self.config.area);
        Some(facts)
    }

    /// Any sign of life renews the lease.
    pub fn heard(&mut self, child: &ChildId, now: Timestamp) {
        let lease_ms = self.config.leases.lease_ms;
        let Some(state) = self.children.get_mut(child) else { return };
        state.last_seen = now;
        (state.heard, state.spared) = (true, false);
        state.deadline = now.plus_ms(lease_ms);
        if !state.alive || state.leaving {
            (state.alive, state.leaving) = (true, false);
            // What waited for it goes on.
            self.news.extend(state.outbox.iter().map(|assignment| assignment.id.clone()));
            self.fleet.set_alive(child, true);
            self.members += 1;
            self.unstick();
        }
        if std::mem::take(&mut self.deaf) {
            // The others are about to be heard too.
            self.leases_anew(now);
        }
    }

    /// It stops in an orderly way: what it holds goes on there and stays its own for the time of a restart. It gets
    /// nothing new meanwhile.
    pub fn leaving(&mut self, child: &ChildId, now: Timestamp) {
        let Some(state) = self.children.get_mut(child).filter(|state| state.alive) else { return };
        (state.last_seen, state.leaving) = (now, true);
        state.deadline = now.plus_ms(STOP_GRACE_MS);
        self.fleet.set_alive(child, false);
        self.members += 1;
    }

    /// Its connection ended; it has a short while to come back, unless it said that it will.
    pub fn link_lost(&mut self, child: &ChildId, now: Timestamp) {
        let grace_ms = self.config.leases.gone_grace_ms;
        if let Some(state) = self.children.get_mut(child).filter(|state| !state.leaving) {
            state.deadline = state.deadline.min(now.plus_ms(grace_ms));
        }
    }

    /// The way to these children, and to all that were not heard in this life, is cut at the parent's own side: their
    /// silence says nothing.
    pub fn spare(&mut self, children: &[ChildId], now: Timestamp) {
        let deadline = now.plus_ms(self.config.leases.lease_ms);
        for (child, state) in &mut self.children {
            if state.alive && (!state.heard || children.contains(child)) {
                state.deadline = state.deadline.max(deadline);
            }
        }
    }

    /// When the next lease lapses, if none is renewed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let leases = self.children.values().filter(|state| state.alive).map(|state| state.deadline).min();
        [leases, self.stuck_until].into_iter().flatten().min()
    }

    /// Declares children lost whose lease lapsed; what they held waits for a new place.
    pub fn expire(&mut self, now: Timestamp) -> Fold {
        self.clock_check(now);
        self.silence_check(now);
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
                (state.alive, state.leaving) = (false, false);
            }
            self.fleet.set_alive(&child, false);
            self.members += 1;
            fold.changed.extend(self.lapse(&child).changed);
            fold.children_changed = true;
        }
        fold
    }

    /// A clock that jumped, or a parent that stood still, says nothing about the children: each gets a fresh lease.
    fn clock_check(&mut self, now: Timestamp) {
        let Leases { lease_ms, avoid_ms, .. } = self.config.leases;
        let Some(looked) = self.looked.replace(now) else { return };
        let passed_ms = now.ms_since(looked);
        if (-CLOCK_BACK_MAX_MS..=lease_ms / 2).contains(&passed_ms) {
            return;
        }
        tracing::warn!(passed_ms, by = %self.config.by, "the clock jumped or this process stood still; fresh leases");
        self.leases_anew(now);
        let latest = now.plus_ms(avoid_ms);
        for Avoided { until, .. } in self.wants.values_mut().flat_map(|held| &mut held.avoid) {
            *until = latest.min(*until);
        }
        self.stuck_until = self.stuck_until.map(|until| latest.min(until));
    }

    fn leases_anew(&mut self, now: Timestamp) {
        let lease_ms = self.config.leases.lease_ms;
        for state in self.children.values_mut().filter(|state| state.alive) {
            state.deadline = now.plus_ms(if state.leaving { STOP_GRACE_MS } else { lease_ms });
        }
    }

    /// When nobody is heard any more, of several children at once, a cut of the parent's own link is likelier than the
    /// death of all of them, and nobody is there to take what they hold: they get another lease, each once until it is
    /// heard again.
    fn silence_check(&mut self, now: Timestamp) {
        let due = |state: &ChildState| state.alive && !state.spared && state.deadline <= now;
        if self.deaf || !self.children.values().any(due) {
            return;
        }
        let (part, whole) = SILENCE_OF_LEASE;
        let silence_ms = self.config.leases.lease_ms * part / whole;
        let here = || self.children.values().filter(|state| state.alive && state.heard && !state.leaving);
        if here().count() < 2 || here().any(|state| now.ms_since(state.last_seen) <= silence_ms) {
            return;
        }
        tracing::warn!(by = %self.config.by, "no child is heard any more; all get another lease");
        self.deaf = true;
        let lease_ms = self.config.leases.lease_ms;
        for state in self.children.values_mut().filter(|state| state.alive && !state.spared) {
            state.deadline = state.deadline.max(now.plus_ms(lease_ms));
            state.spared = true;
        }
    }

    /// Everything that does not wait for the child looks for another place.
    fn lapse(&mut self, child: &ChildId) -> Fold {
        let held = self.ids_on(child);
        let why = format!("its place {} was lost", self.child_name(child));
        for id in &held {
            if self.wants.get(id).is_some_and(|held| !held.waits()) {
                self.lose(id, &why);
            }
        }
        Fold { changed: held, children_changed: true }
    }

    fn take_all_off(&mut self, child: &ChildId) -> Fold {
        let held = self.ids_on(child);
        let why = format!("its place {} was removed", self.child_name(child));
        held.iter().for_each(|id| self.lose(id, &why));
        Fold { changed: held, children_changed: true }
    }

    /// The instances that are placed on a child.
    pub fn ids_on(&self, child: &ChildId) -> Vec<InstanceId> {
        let ids = |state: &ChildState| state.outbox.iter().map(|assignment| assignment.id.clone()).collect();
        self.children.get(child).map(ids).unwrap_or_default()
    }

    /// The place is gone: wait for another, or be gone when that was wanted.
    pub(super) fn lose(&mut self, id: &InstanceId, why: &str) {
        self.unplace(id);
        if self.rest_lose(id, why) {
            return self.settle(id);
        }
        let Some(held) = self.wants.get_mut(id) else { return };
        let phase = if held.assignment.run == Run::Stopped { Phase::Stopped } else { Phase::Pending };
        let mut seen = ObservedInstance::new(id.clone(), held.last, phase);
        seen.message = Some(why.to_owned());
        held.seen = Some(seen);
        self.settle(id);
    }

    /// Takes in what a child reports.
    pub fn observed(&mut self, child: &ChildId, mut observed: Observed, now: Timestamp) -> (Ack, Fold) {
        self.heard(child, now);
        crate::bound::observed(&mut observed, self.config.children_are_zones);
        let mut fold = Fold { children_changed: self.facts_set(child, observed.facts), ..Fold::default() };
        let Some(state) = self.children.get_mut(child) else { return (Ack { have: None }, fold) };
        let changed = match state.inbox.apply(observed.set) {
            Ok(changed) => changed,
            Err(Refused::Past) => return (Ack { have: state.inbox.have_newest() }, fold),
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
        let avoid_ms = self.config.leases.avoid_ms;
        let avoid_until = now.plus_ms(avoid_ms);
        let Some(held) = self.wants.get_mut(&seen.id) else { return false };
        let holds = held
            .place
            .as_ref()
            .is_some_and(|place| place.child == *child && place.generation == seen.generation);
        if !holds {
            // It was once placed under a decision that is forgotten here: the next one must be above it.
            let known = held.last.minor.max(self.minor_floor);
            let plausible = seen.generation.minor <= known.saturating_add(MINOR_LIFT_MAX);
            if seen.generation.major == held.last.major && plausible {
                held.last = held.last.max(seen.generation);
            }
            return false;
        }
        let id = seen.id.clone();
        let gone = seen.phase == Phase::Gone;
        // What it keeps there is given up only for a place that there is.
        let kept = seen.node.is_some();
        let (refused, handed_up) = (seen.refused, seen.handed_up);
        let why = seen.message.clone().unwrap_or_else(|| "it has no room".to_owned());
        let foreign = held.foreign(seen.explanation.as_deref());
        if seen.phase == Phase::Running {
            held.refusals = 0;
        }
        held.seen = Some(seen);
        if gone && held.assignment.run == Run::Gone {
            held.gone = true;
            self.unplace(&id);
        } else if gone {
            let why = held.leaving.take().unwrap_or_else(|| "its place gave it up".to_owned());
            if self.handed.contains(&id) {
                held.avoid.push(Avoided { child: child.clone(), until: avoid_until, why: why.clone() });
            }
            self.lose(&id, &why);
        } else if refused && kept {
            self.refused_there(&id, avoid_until);
        } else if refused {
            let until = now.plus_ms(held.avoid_ms(avoid_ms, foreign));
            held.avoid.push(Avoided { child: child.clone(), until, why: why.clone() });
            let name = self.child_name(child);
            self.lose(&id, &format!("{name} refused it: {why}"));
        } else if handed_up {
            self.handed.insert(id.clone());
        } else if held.leaving.is_none() {
            self.handed.remove(&id);
        }
        self.moving_follow(&id);
        self.rest_follow(&id);
        true
    }
}
