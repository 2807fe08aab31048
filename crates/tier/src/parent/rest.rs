//! Instances at rest: stopped, or ended for good. They keep their place and their disk and give the rest of
//! their room back.
//!
//! ```text
//!            its child says that it is stopped, or ended for good
//!   Awake ────────────────────────────────────────────────────────▶ Asleep
//!     ▲                                                               │ it is to run again
//!     │ there is room                                                 ▼
//!     └───────────────────────────────────────────────────────────  Waking ──▶ begins on another place
//! ```
//! What an instance keeps is on its place. Where there is no room it begins anew on another place, unless its
//! policy is to wait for its own or there is no other; then it waits. Zones see to that for their nodes; root, which
//! knows only sums, passes a start on at once. What ended is not begun again elsewhere where its place is lost or
//! removed.

use std::collections::BTreeSet;

use model::{ChildId, InstanceId, LossPolicy, ObservedInstance, Phase, Resources, Run, Timestamp};
use placement::Want;
use serde::{Deserialize, Serialize};

use super::{Held, Parent, want_of};

/// Whether an instance takes room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Rest {
    #[default]
    Awake,
    /// What was asked of it when it came to rest: whether to run, and how many restarts.
    Asleep(Run, u64),
    /// It is to run again and finds no room on its place: why.
    Waking(String),
}

/// An instance at rest as its parent keeps it over a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resting {
    pub run: Run,
    pub restart_count: u64,
    pub seen: ObservedInstance,
}

impl Held {
    pub(super) const fn asleep(&self) -> bool {
        matches!(self.rest, Rest::Asleep(..))
    }

    /// It ended for good and nobody asked for it again.
    pub(super) fn over(&self) -> bool {
        self.rest == Rest::Asleep(Run::Running, self.assignment.restart_count)
            && self.assignment.run == Run::Running
    }

    /// It is at rest and should run.
    fn awaited(&self) -> bool {
        match &self.rest {
            Rest::Awake => false,
            Rest::Asleep(..) => self.assignment.run == Run::Running && !self.over(),
            Rest::Waking(_) => self.assignment.run == Run::Running,
        }
    }

    /// It is to run again, and not only where it was.
    pub(super) fn starts_elsewhere(&self) -> bool {
        let spec = &self.assignment.spec;
        self.awaited() && spec.lost == LossPolicy::Replace && spec.constraints.node.is_none()
    }

    const fn asked(&self) -> (Run, u64) {
        (self.assignment.run, self.assignment.restart_count)
    }

    /// What it takes at rest: its disk, and nobody counts with it.
    fn want_at_rest(&self) -> Want {
        let whole = want_of(&self.assignment, &[]);
        Want {
            resources: Resources { disk: whole.resources.disk, ..Resources::ZERO },
            gpu: None,
            labels: Default::default(),
            constraints: Default::default(),
            ..whole
        }
    }
}

impl Parent {
    /// Follows what its child says of an instance: room is given back, or taken again.
    pub(super) fn rest_follow(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get(id).filter(|held| held.leaving.is_none()) else { return };
        let (Some(place), Some(seen)) = (&held.place, &held.seen) else { return };
        let lives = matches!(seen.phase, Phase::Creating | Phase::Running | Phase::Stopping);
        if seen.rests(held.assignment.run) && held.rest == Rest::Awake {
            let (run, restarts) = held.asked();
            let (want, child) = (held.want_at_rest(), place.child.clone());
            self.fleet.hold(&want, &child, &[]);
            self.rest_set(id, Rest::Asleep(run, restarts));
            self.unstick();
        } else if lives && held.rest != Rest::Awake {
            let (want, child) = (want_of(&held.assignment, &held.avoid), place.child.clone());
            self.queue_out(id);
            self.occupy(&want, &child);
            self.rest_set(id, Rest::Awake);
        }
    }

    /// What is asked of an instance at rest changed: it sleeps on, or looks for room on its place.
    pub(super) fn rouse(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get(id).filter(|held| held.rest != Rest::Awake) else { return };
        if held.awaited() {
            return self.wake(id);
        }
        let (run, restarts) = held.asked();
        self.queue_out(id);
        if run != Run::Gone {
            self.rest_set(id, Rest::Asleep(run, restarts));
        }
    }

    /// Takes room for an instance that is to run again, or says why it waits.
    pub(super) fn wake(&mut self, id: &InstanceId) {
        let awaited = |held: &&Held| held.awaited() && held.leaving.is_none();
        let Some(held) = self.wants.get(id).filter(awaited) else { return };
        let Some(child) = held.place.as_ref().map(|place| place.child.clone()) else { return };
        let (want, elsewhere) = (want_of(&held.assignment, &held.avoid), held.starts_elsewhere());
        self.queue_out(id);
        if self.config.children_are_zones {
            self.occupy(&want, &child);
            self.rest_set(id, Rest::Awake);
        } else if let Err(reason) = self.fleet.reserve(&want, &child) {
            let name = self.child_name(&child);
            // One that was not heard yet in this life is likelier about to come than full.
            let heard = self.children.get(&child).is_none_or(|state| state.heard || !state.alive);
            if elsewhere && heard && self.fleet.place(&want).is_ok() {
                return self.leave(id, format!("begins elsewhere, because {name} has no room: {reason}"));
            }
            self.rest_set(id, Rest::Waking(format!("waits for room on {name}, where it was: {reason}")));
            self.stuck.insert(id.clone());
        } else {
            self.rest_set(id, Rest::Awake);
        }
        self.news.insert(id.clone());
        self.tell_child(id);
    }

    /// Looks again at an instance that has a place and waits for room.
    pub(super) fn wait_again(&mut self, id: &InstanceId, until: Timestamp) {
        match self.wants.get(id) {
            Some(held) if held.awaited() => self.wake(id),
            Some(_) => self.refused_there(id, until),
            None => {}
        }
    }

    /// A child has no room for an instance that it keeps. It goes elsewhere only if there is an elsewhere.
    pub(super) fn refused_there(&mut self, id: &InstanceId, until: Timestamp) {
        let Some(held) = self.wants.get_mut(id) else { return };
        let (Some(place), Some(seen)) = (&held.place, &held.seen) else { return };
        if !seen.refused || held.leaving.is_some() {
            return;
        }
        let child = place.child.clone();
        let why = seen.message.clone().unwrap_or_else(|| "it has no room".to_owned());
        held.avoid.push(super::Avoided { child: child.clone(), until, why: why.clone() });
        let want = want_of(&held.assignment, &held.avoid);
        if self.fleet.place(&want).is_ok() {
            self.lose(id, &format!("{} refused it: {why}", self.child_name(&child)));
            self.news.insert(id.clone());
        } else if let Some(held) = self.wants.get_mut(id) {
            held.avoid.pop();
            self.stuck.insert(id.clone());
        }
    }

    /// Its place is gone: what ended stays ended, everything else begins anew.
    pub(super) fn rest_lose(&mut self, id: &InstanceId, why: &str) -> bool {
        let Some(held) = self.wants.get_mut(id) else { return false };
        if !held.over() {
            self.rest_set(id, Rest::Awake);
            return false;
        }
        let seen =
            held.seen.get_or_insert_with(|| ObservedInstance::new(id.clone(), held.last, Phase::Exited));
        (seen.phase, seen.finished) = (Phase::Exited, true);
        (seen.node, seen.address) = (None, None);
        seen.message = Some(format!("{why}; it had ended, and what it wrote is gone"));
        self.rested.insert(id.clone());
        true
    }

    pub(super) fn rest_set(&mut self, id: &InstanceId, rest: Rest) {
        let Some(held) = self.wants.get_mut(id) else { return };
        let (was, is) = (held.asleep(), matches!(rest, Rest::Asleep(..)));
        if held.rest == rest {
            return;
        }
        held.rest = rest;
        let child = held.place.as_ref().map(|place| place.child.clone());
        self.rested.insert(id.clone());
        if let Some(child) = child.filter(|_| was != is) {
            self.rest_count(&child, is);
        }
    }

    pub(super) fn rest_count(&mut self, child: &ChildId, more: bool) {
        let count = self.resting.entry(child.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
    }

    /// How many of the instances on a child are at rest.
    pub fn child_rests(&self, child: &ChildId) -> u64 {
        self.resting.get(child).copied().unwrap_or(0)
    }

    /// Instances that came to rest, or no longer are, since the last call.
    pub fn rested_take(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.rested)
    }

    /// What to keep of an instance that is at rest, also while it waits to run again.
    pub fn resting(&self, id: &InstanceId) -> Option<Resting> {
        let held = self.wants.get(id)?;
        let mut seen = held.seen.clone()?;
        seen.events = Vec::new();
        match held.rest {
            Rest::Awake => None,
            Rest::Asleep(run, restart_count) => Some(Resting { run, restart_count, seen }),
            // So that it is awaited again after a restart.
            Rest::Waking(_) => Some(Resting { run: Run::Stopped, restart_count: 0, seen }),
        }
    }

    /// Puts back that an instance is at rest, as it was kept. Its place, if it has one, was put back before.
    pub fn restore_rest(&mut self, id: &InstanceId, kept: Resting) {
        let Some(held) = self.wants.get_mut(id).filter(|held| held.assignment.run != Run::Gone) else {
            return;
        };
        held.seen = Some(kept.seen);
        if held.place.is_none() && kept.run != Run::Running {
            return;
        }
        let (want, place) = (held.want_at_rest(), held.place.clone());
        if let Some(place) = place {
            self.fleet.hold(&want, &place.child, &[]);
        }
        self.rest_set(id, Rest::Asleep(kept.run, kept.restart_count));
        self.settle(id);
    }
}
