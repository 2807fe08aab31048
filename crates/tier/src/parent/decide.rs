//! Placing what waits. Deciding does no I/O: decisions are data that the owner
//! commits, and then confirms or rejects.

use std::sync::Arc;

use model::{
    ChildId, Explanation, Generation, InstanceId, ObservedInstance, Outcome, Phase, Run, Timestamp, Verdict,
};
use placement::{Choice, Want};

use super::{Parent, Place, want_of};

/// Fleets up to this size are explained candidate by candidate with every decision.
const EXPLAIN_FLEET_MAX: usize = 256;
/// When more than this wait at once, those that find a place are explained briefly.
const EXPLAIN_WAITING_MAX: usize = 64;

/// Places that were tried in vain and are told one by one.
const REFUSALS_TOLD_MAX: u32 = 4;

#[derive(Debug, Clone)]
pub struct Decision {
    pub id: InstanceId,
    /// Where to; nothing when no child fits.
    pub place: Option<Place>,
    pub explanation: Arc<Explanation>,
    /// It was refused so often since it last ran that one more try is no news.
    pub again: bool,
}

impl Parent {
    /// Whether anything waits for a decision.
    pub fn undecided(&self, now: Timestamp) -> bool {
        !self.waiting.is_empty() || self.stuck_until.is_some_and(|until| now >= until)
    }

    /// Decides about at most `most` waiting instances. Room is reserved at
    /// once, so that one decision sees those before it.
    pub fn decide(&mut self, now: Timestamp, most: usize) -> Vec<Decision> {
        if self.stuck_until.is_some_and(|until| now >= until) {
            self.unstick();
        }
        self.drain(now);
        let mut decisions = Vec::new();
        while decisions.len() < most {
            let Some((_, id)) = self.waiting.pop_first() else { break };
            if let Some(decision) = self.decide_one(&id, now) {
                decisions.push(decision);
            }
        }
        decisions
    }

    fn decide_one(&mut self, id: &InstanceId, now: Timestamp) -> Option<Decision> {
        let held = self.wants.get_mut(id)?;
        if held.place.is_some() {
            self.wait_again(id, now.plus_ms(self.config.leases.avoid_ms));
            return None;
        }
        held.avoid.retain(|avoided| now < avoided.until);
        let want = want_of(&held.assignment, &held.avoid);
        let chosen = self.fleet.place(&want);
        let explanation = match &chosen {
            Ok(choice)
                if self.fleet.len() > EXPLAIN_FLEET_MAX || self.waiting.len() > EXPLAIN_WAITING_MAX =>
            {
                self.explain_briefly(&choice.child, choice.score, now)
            }
            _ => self.fleet.explain(&want, &self.config.by, now),
        };
        let chosen = chosen.ok().or_else(|| self.preempt(id, &want));
        if self.preempting.contains_key(id) {
            return None;
        }
        let place = match chosen {
            Some(choice) => {
                self.fleet.hold(&want, &choice.child, &choice.gpus);
                let held = self.wants.get_mut(id)?;
                held.deciding = true;
                Some(Place {
                    child: choice.child,
                    generation: held.generation_next(self.config.children_are_zones),
                })
            }
            None => {
                let until = self.wants.get(id)?.avoid.iter().map(|avoided| avoided.until).min();
                self.stuck_until = [self.stuck_until, until].into_iter().flatten().min();
                self.stuck.insert(id.clone());
                None
            }
        };
        let explanation = match &place {
            Some(place) if explanation.chosen.is_none() => self.explain_briefly(&place.child, 0, now),
            _ => explanation,
        };
        let held = self.wants.get_mut(id)?;
        let same =
            |old: &Explanation| old.chosen == explanation.chosen && old.verdicts == explanation.verdicts;
        if place.is_none() && held.explanation.as_deref().is_some_and(same) {
            return None;
        }
        let explanation = Arc::new(explanation);
        held.explanation = Some(explanation.clone());
        let again = held.refusals >= REFUSALS_TOLD_MAX;
        Some(Decision { id: id.clone(), place, explanation, again })
    }

    /// Where nothing fits, instances of a lower priority give way: here they are told to go, and the room is kept for
    /// the one that waits. Where the children are zones, the zone sees to it, so it is chosen at once.
    fn preempt(&mut self, id: &InstanceId, want: &Want) -> Option<Choice> {
        let wants = &self.wants;
        let way = self.fleet.give_way(want, |other| {
            // What is at rest has nothing to give that is worth its output.
            let held = wants.get(other).filter(|held| held.place.is_some() && !held.asleep())?;
            Some(held.leaving.is_some() || held.assignment.run == Run::Gone)
        })?;
        if self.config.children_are_zones {
            return Some(Choice { child: way.child, score: 0, gpus: Vec::new() });
        }
        let (name, priority) = (wants.get(id)?.assignment.name.clone(), want.priority);
        for other in &way.others {
            let Some(held) = self.wants.get(other) else { continue };
            if held.leaving.is_none() && held.assignment.run != Run::Gone {
                let theirs = held.assignment.spec.priority;
                self.leave(other, format!("gave way to {name} (priority {priority} over {theirs})"));
            }
        }
        self.fleet.hold(want, &way.child, &[]);
        self.preempting.insert(id.clone(), way.others.into_iter().collect());
        None
    }

    fn explain_briefly(&self, child: &ChildId, score: i64, now: Timestamp) -> Explanation {
        let name = self.child_name(child);
        let others = model::explain::OthersByReason {
            reason: "not better than the chosen one".to_owned(),
            count: (self.fleet.len() as u64).saturating_sub(1),
        };
        Explanation {
            at: now,
            by: self.config.by.clone(),
            chosen: Some(name.clone()),
            verdicts: vec![Verdict { candidate: name, outcome: Outcome::Chosen { score } }],
            others: vec![others],
        }
    }

    /// The decision is kept on disk: tell the child.
    pub fn confirm(&mut self, decision: &Decision) {
        let Some(place) = &decision.place else { return };
        let Some(held) = self.wants.get_mut(&decision.id) else {
            self.fleet.release(&decision.id);
            return;
        };
        let reserved = std::mem::replace(&mut held.deciding, false);
        let id = decision.id.clone();
        // A child that was lost in the meantime does not get it; nobody was told of this generation.
        if held.assignment.run == Run::Gone
            || !self.children.get(&place.child).is_some_and(|child| child.alive)
        {
            held.last = held.last.max(place.generation);
            self.fleet.release(&id);
            self.settle(&id);
            return;
        }
        held.seen = Some(ObservedInstance::new(id.clone(), place.generation, Phase::Placed));
        self.put(&id, place.clone(), reserved);
    }

    /// The decision could not be kept: decide again.
    pub fn reject(&mut self, decision: &Decision) {
        self.fleet.release(&decision.id);
        if let Some(held) = self.wants.get_mut(&decision.id) {
            held.deciding = false;
            self.settle(&decision.id.clone());
        }
    }
}

impl super::Held {
    /// Root counts the major number, a zone the minor one under root's.
    fn generation_next(&self, major: bool) -> Generation {
        if major {
            return Generation { major: self.last.major + 1, minor: 0 };
        }
        let above = self.assignment.generation.major;
        match self.last.major == above {
            true => Generation { major: above, minor: self.last.minor + 1 },
            false => Generation { major: above, minor: 1 },
        }
    }
}
