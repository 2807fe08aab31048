//! What is done about an instance whose child does not get on with it.

use model::{Assignment, InstanceId, Phase, Run, Timestamp};

use super::{Parent, Place};

impl Parent {
    /// What is between two settled phases, on children that are heard.
    pub fn under_way(&self) -> impl Iterator<Item = (&Assignment, &Place, Phase)> {
        self.wants.values().filter_map(|held| {
            let place = held.place.as_ref().filter(|place| self.child_alive(&place.child))?;
            let phase = held.seen.as_ref().map_or(Phase::Placed, |seen| seen.phase);
            (!phase.settled()).then_some((&held.assignment, place, phase))
        })
    }

    /// Says the assignment once more to the child that holds it, and takes in once more what the
    /// child last said of it. False when no child holds it.
    pub fn tell_again(&mut self, id: &InstanceId, now: Timestamp) -> bool {
        let Some(child) = self.child_of(id).cloned() else { return false };
        let Some(state) = self.children.get_mut(&child) else { return false };
        if !state.outbox.touch(id) {
            return false;
        }
        let seen = state.inbox.get(id).cloned();
        self.told.insert(child.clone());
        if let Some(seen) = seen {
            self.fold_one(&child, seen, now);
        }
        true
    }

    /// Takes it off its child, which drops it as no longer its own, and looks for another place. What
    /// should be gone counts as gone. False when no child holds it.
    pub fn take_off(&mut self, id: &InstanceId, why: &str, now: Timestamp) -> bool {
        let until = now.plus_ms(self.config.leases.avoid_ms);
        let Some(child) = self.child_of(id).cloned() else { return false };
        if let Some(held) = self.wants.get_mut(id)
            && held.assignment.run != Run::Gone
        {
            held.avoid.push(super::Avoided { child, until, why: why.to_owned() });
        }
        self.lose(id, why);
        true
    }
}
