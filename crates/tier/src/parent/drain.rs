//! Emptying a child: what it holds moves elsewhere under its policies.
//!
//! A living child is first told to drop an instance, and only when it says that it has is another place looked for,
//! so nothing runs twice. Of a workload only so many are unavailable at once as it allows, one at least; instances of
//! no workload move one by one. What is at rest stays with its output, and is not in the way.

use std::collections::HashMap;

use model::exchange::Health;
use model::{ChildId, InstanceId, Phase, Run, WorkloadId};

use super::{Held, Parent, want_of};

/// Instances that begin to move in one step.
const MOVES_MAX: usize = 32;
/// Instances named one by one in what is left.
const LEFT_NAMED_MAX: usize = 3;

impl Held {
    /// Whether it does its work as far as is known.
    fn available(&self) -> bool {
        let well = |health: Option<Health>| matches!(health, None | Some(Health::Healthy));
        let seen = self.seen.as_ref();
        self.place.is_some()
            && self.leaving.is_none()
            && seen.is_some_and(|seen| seen.phase == Phase::Running && well(seen.health))
    }
}

impl Parent {
    /// Begins to move what may move now off children that empty, and says of each what is left and why.
    pub(crate) fn drain(&mut self) {
        let emptying: Vec<ChildId> = self
            .children
            .iter()
            .filter(|(_, state)| state.mode.empties())
            .map(|(child, _)| child.clone())
            .collect();
        if emptying.is_empty() {
            self.movers.clear();
            return;
        }
        let wants = &self.wants;
        self.movers.retain(|id| {
            wants.get(id).is_some_and(|held| held.assignment.run == Run::Running && !held.available())
        });
        let mut unavailable: Option<HashMap<WorkloadId, u32>> = None;
        let mut moves = 0;
        for child in emptying {
            let mut left = Vec::new();
            for id in self.ids_on(&child) {
                if self.wants.get(&id).is_some_and(Held::asleep) {
                    continue;
                }
                let Some(why) = self.stays(&child, &id, &mut unavailable, moves) else {
                    moves += 1;
                    continue;
                };
                left.push((id, why));
            }
            let left = self.left_sentence(&left);
            if let Some(state) = self.children.get_mut(&child) {
                state.left = left;
            }
        }
    }

    /// Why an instance stays for now; nothing when it began to leave.
    fn stays(
        &mut self,
        child: &ChildId,
        id: &InstanceId,
        unavailable: &mut Option<HashMap<WorkloadId, u32>>,
        moves: usize,
    ) -> Option<String> {
        let (alive, force) = self.children.get(child).map(|state| (state.alive, state.force))?;
        let held = self.wants.get(id)?;
        let assignment = &held.assignment;
        if held.leaving.is_some() || assignment.run == Run::Gone {
            return Some("is being stopped".to_owned());
        }
        if assignment.spec.constraints.node.is_some() {
            return Some("is pinned to its node".to_owned());
        }
        if held.waits() && !force {
            return Some("waits for its place; with force it moves too".to_owned());
        }
        let name = self.child_name(child);
        if !alive {
            self.lose(id, &format!("its place {name} is emptied and does not answer"));
            self.news.insert(id.clone());
            return None;
        }
        if moves >= MOVES_MAX {
            return Some("moves soon".to_owned());
        }
        if assignment.run == Run::Running {
            let group = assignment.group.clone();
            let counts = unavailable.get_or_insert_with(|| self.unavailable_by_workload());
            if let Some(why) = self.waits_for_others(id, group.as_ref(), counts) {
                return Some(why);
            }
            let held = self.wants.get(id)?;
            let want = want_of(&held.assignment, &held.avoid);
            if self.fleet.place(&want).is_err() {
                return Some("finds no other place that fits".to_owned());
            }
            if let Some(group) = group.filter(|_| self.wants.get(id).is_some_and(Held::available)) {
                *counts.entry(group.workload).or_default() += 1;
            }
            self.movers.insert(id.clone());
        }
        self.leave(id, format!("moves off {name}"));
        None
    }

    fn waits_for_others(
        &self,
        id: &InstanceId,
        group: Option<&model::Group>,
        unavailable: &HashMap<WorkloadId, u32>,
    ) -> Option<String> {
        // What does not work anyway makes nothing worse by moving.
        if !self.wants.get(id)?.available() {
            return None;
        }
        let Some(group) = group else {
            let alone =
                |id: &&InstanceId| self.wants.get(*id).is_some_and(|held| held.assignment.group.is_none());
            return self.movers.iter().find(alone).map(|_| "moves after the one before it".to_owned());
        };
        let away = unavailable.get(&group.workload).copied().unwrap_or(0);
        let most = group.max_unavailable.max(1);
        (away >= most)
            .then(|| format!("waits, because {away} of its workload are unavailable, {most} at most"))
    }

    fn unavailable_by_workload(&self) -> HashMap<WorkloadId, u32> {
        let mut counts = HashMap::new();
        let wanted = |held: &&Held| held.assignment.run == Run::Running && !held.over();
        for held in self.wants.values().filter(wanted).filter(|held| !held.available()) {
            if let Some(group) = &held.assignment.group {
                *counts.entry(group.workload.clone()).or_default() += 1;
            }
        }
        counts
    }

    fn left_sentence(&self, left: &[(InstanceId, String)]) -> Option<String> {
        if left.is_empty() {
            return None;
        }
        let name = |id: &InstanceId| {
            self.wants.get(id).map_or_else(String::new, |held| held.assignment.name.to_string())
        };
        let mut parts: Vec<String> =
            left.iter().take(LEFT_NAMED_MAX).map(|(id, why)| format!("{} {why}", name(id))).collect();
        if left.len() > LEFT_NAMED_MAX {
            parts.push(format!("and {} more", left.len() - LEFT_NAMED_MAX));
        }
        Some(parts.join("; "))
    }
}
