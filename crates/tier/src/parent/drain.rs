//! Emptying a child: what it holds moves elsewhere under its policies.
//!
//! A living child is first told to drop an instance, and only when it says that it has is another place looked for,
//! so nothing runs twice. Of a workload only so many are unavailable at once as it allows: root, which alone sees all of
//! them, lets each go when it may. Of a workload that allows none, root's controller makes another first and deletes
//! this one when that runs. Instances of no workload move one by one. What is at rest stays with its output, and is not
//! in the way.
//!
//! What finds no other child is handed up: it runs on, and the parent above, which sees that with the next report, empties
//! this place of it in the same way when another of its children has room.

use std::collections::HashMap;

use model::exchange::{Health, Remaining};
use model::{ChildId, InstanceId, Moving, Phase, Run, Timestamp, WorkloadId};
use placement::Want;

use super::{Held, Parent};

/// Instances that begin to move in one step.
const MOVES_MAX: usize = 32;
/// Instances named one by one in what is left.
const LEFT_NAMED_MAX: usize = 3;
/// Why an instance stays that may be nowhere else.
const PINNED: &str = "is pinned to its node";
/// Why one stays that may not leave yet.
const ASKS: &str = "waits until root lets it go, because enough of its workload must be available";
/// Instances of a workload that root does not know move one by one.
const LIMIT_UNKNOWN: u32 = 1;
/// Instances that are left and listed one by one.
pub(super) const LEFT_LISTED_MAX: usize = 1_000;

impl Held {
    /// What it needs of another child; who refused it long ago may be asked again.
    fn want(&self, now: Timestamp) -> Want {
        let mut want = Want::from(&self.assignment);
        let still = self.avoid.iter().filter(|avoided| now < avoided.until);
        want.avoid = still.map(|avoided| (avoided.child.clone(), avoided.why.clone())).collect();
        want
    }

    /// Whether it does its work as far as is known.
    fn available(&self) -> bool {
        let well = |health: Option<Health>| matches!(health, None | Some(Health::Healthy));
        let seen = self.seen.as_ref();
        self.place.is_some()
            && self.leaving.is_none()
            && seen.is_some_and(|seen| {
                seen.phase == Phase::Running && well(seen.health) && seen.moving != Some(Moving::Leaves)
            })
    }

    /// What is said upwards of its leaving its child.
    pub(super) fn moving(&self) -> Option<Moving> {
        match self.place {
            Some(_) if self.leaving.is_some() => Some(Moving::Leaves),
            Some(_) if self.asks => Some(Moving::Asks),
            _ => None,
        }
    }
}

impl Parent {
    /// So many instances of a workload may be unavailable when they are moved on purpose; with none, they are not
    /// moved but replaced.
    pub fn limit_set(&mut self, workload: &WorkloadId, most: u32) {
        self.limits.insert(workload.clone(), most);
    }

    pub fn limit_forget(&mut self, workload: &WorkloadId) {
        self.limits.remove(workload);
    }

    /// Begins to move what may move now off children that empty, and says of each what is left and why.
    pub(crate) fn drain(&mut self, now: Timestamp) {
        let emptying: Vec<ChildId> = self
            .children
            .iter()
            .filter(|(_, state)| state.mode.empties())
            .map(|(child, _)| child.clone())
            .collect();
        if emptying.is_empty() && self.handed.is_empty() && self.asking.is_empty() {
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
                let Some(why) = self.stays(&child, &id, &mut unavailable, moves, now) else {
                    moves += 1;
                    continue;
                };
                let Some(held) = self.wants.get(&id) else { continue };
                left.push(Remaining { name: held.assignment.name.clone(), id, why, pinned: held.pinned() });
            }
            if let Some(state) = self.children.get_mut(&child) {
                state.left = left;
            }
        }
        for id in self.handed.clone() {
            if moves < MOVES_MAX && self.hand_on(&id, &mut unavailable, now) {
                moves += 1;
            }
        }
        for id in self.asking.clone() {
            self.let_move(&id, &mut unavailable);
        }
    }

    /// Lets a child move an instance to another place of its own, if enough of the workload stay available.
    fn let_move(&mut self, id: &InstanceId, unavailable: &mut Option<HashMap<WorkloadId, u32>>) {
        let free = |held: &&Held| held.leaving.is_none() && !held.may_move;
        let Some(held) = self.wants.get(id).filter(free) else { return };
        let Some(group) = held.assignment.group.clone() else { return };
        let available = held.available();
        let counts = unavailable.get_or_insert_with(|| self.unavailable_by_workload());
        if self.waits_for_others(id, Some(&group), counts).is_some() {
            return;
        }
        *counts.entry(group.workload).or_default() += u32::from(available);
        if let Some(held) = self.wants.get_mut(id) {
            held.may_move = true;
        }
        self.tell_child(id);
    }

    /// Follows what a child says of moving an instance. One that may move counts as unavailable until it runs again, or
    /// is no longer to move.
    pub(super) fn moving_follow(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get(id) else { return };
        let Some(seen) = held.seen.as_ref().filter(|_| held.place.is_some()) else { return };
        let over = held.may_move && seen.moving.is_none() && (seen.handed_up || held.available());
        if seen.moving == Some(Moving::Asks) {
            self.asking.insert(id.clone());
        } else {
            self.asking.remove(id);
        }
        if over && let Some(held) = self.wants.get_mut(id) {
            held.may_move = false;
            self.tell_child(id);
        }
    }

    /// Asks whoever is above whether an instance may move. Where there is no room for it here, it is handed up.
    fn ask_to_move(&mut self, id: &InstanceId, now: Timestamp) -> String {
        let Some(held) = self.wants.get(id) else { return ASKS.to_owned() };
        if !held.asks {
            let want = held.want(now);
            if self.fleet.place(&want).is_err() {
                return self.hand_up(id);
            }
            if let Some(held) = self.wants.get_mut(id) {
                (held.asks, held.handed_up) = (true, false);
            }
            self.news.insert(id.clone());
        }
        ASKS.to_owned()
    }

    /// Begins to move what its child would hand to another, if another has room. Until then it runs where it is.
    fn hand_on(
        &mut self,
        id: &InstanceId,
        unavailable: &mut Option<HashMap<WorkloadId, u32>>,
        now: Timestamp,
    ) -> bool {
        let free = |held: &&Held| held.leaving.is_none() && !held.asleep();
        let Some(held) = self.wants.get(id).filter(free) else { return false };
        let Some(child) = held.place.as_ref().map(|place| place.child.clone()) else { return false };
        if held.assignment.run != Run::Running || !self.child_alive(&child) {
            return false;
        }
        let mut want = held.want(now);
        want.avoid.push((child.clone(), String::new()));
        if self.fleet.place(&want).is_err() {
            return false;
        }
        let group = held.assignment.group.clone();
        let counts = unavailable.get_or_insert_with(|| self.unavailable_by_workload());
        if self.waits_for_others(id, group.as_ref(), counts).is_some() {
            return false;
        }
        if let Some(group) = group.filter(|_| self.wants.get(id).is_some_and(Held::available)) {
            *counts.entry(group.workload).or_default() += 1;
        }
        self.movers.insert(id.clone());
        let name = self.child_name(&child);
        self.leave(id, format!("moves off {name}, where a node is emptied and no other has room"));
        true
    }

    /// It finds no other child; says so upwards, where there is somebody above.
    fn hand_up(&mut self, id: &InstanceId) -> String {
        if self.config.children_are_zones {
            return "finds no other place that fits".to_owned();
        }
        if let Some(held) = self.wants.get_mut(id)
            && !std::mem::replace(&mut held.handed_up, true)
        {
            held.asks = false;
            self.news.insert(id.clone());
        }
        "has no other place in its zone; it moves when root finds one in another".to_owned()
    }

    /// The child is no longer emptied: what was handed up stays.
    pub(super) fn hand_back(&mut self, child: &ChildId) {
        for id in self.ids_on(child) {
            if let Some(held) = self.wants.get_mut(&id)
                && (std::mem::take(&mut held.handed_up) | std::mem::take(&mut held.asks))
            {
                self.news.insert(id);
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
        now: Timestamp,
    ) -> Option<String> {
        let (alive, force) = self.children.get(child).map(|state| (state.alive, state.force))?;
        let held = self.wants.get(id)?;
        let assignment = &held.assignment;
        if held.leaving.is_some() || assignment.run == Run::Gone {
            return Some("is being stopped".to_owned());
        }
        if held.pinned() {
            return Some(PINNED.to_owned());
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
                let asks = group.is_some() && !self.config.children_are_zones;
                return Some(if asks { self.ask_to_move(id, now) } else { why });
            }
            let held = self.wants.get(id)?;
            let want = held.want(now);
            if self.fleet.place(&want).is_err() {
                return Some(self.hand_up(id));
            }
            if let Some(group) = group.filter(|_| self.wants.get(id).is_some_and(Held::available)) {
                *counts.entry(group.workload).or_default() += 1;
            }
            self.movers.insert(id.clone());
        }
        if let Some(held) = self.wants.get_mut(id) {
            held.handed_up = false;
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
        let held = self.wants.get(id).filter(|held| held.available())?;
        let Some(group) = group else {
            let alone =
                |id: &&InstanceId| self.wants.get(id).is_some_and(|held| held.assignment.group.is_none());
            return self.movers.iter().find(alone).map(|_| "moves after the one before it".to_owned());
        };
        if !self.config.children_are_zones {
            return (!group.may_move).then(|| ASKS.to_owned());
        }
        let counted = unavailable.get(&group.workload).copied().unwrap_or(0);
        let away = counted.saturating_sub(u32::from(held.may_move));
        let most = self.limits.get(&group.workload).copied().unwrap_or(LIMIT_UNKNOWN);
        if most == 0 {
            return Some("waits until another of its workload runs in its place".to_owned());
        }
        (away >= most)
            .then(|| format!("waits, because {away} of its workload are unavailable, {most} at most"))
    }

    fn unavailable_by_workload(&self) -> HashMap<WorkloadId, u32> {
        let mut counts = HashMap::new();
        let wanted = |held: &&Held| held.assignment.run == Run::Running && !held.over();
        let away = |held: &&Held| !held.available() || held.may_move;
        for held in self.wants.values().filter(wanted).filter(away) {
            if let Some(group) = &held.assignment.group {
                *counts.entry(group.workload.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// Whether a child empties, and nothing is left on it but what may be nowhere else or is at rest.
    pub fn child_drained(&self, child: &ChildId) -> bool {
        let stays = |id: &InstanceId| self.wants.get(id).is_none_or(|held| held.pinned() || held.asleep());
        self.children.get(child).is_some_and(|state| state.mode.empties())
            && self.ids_on(child).iter().all(stays)
    }

    pub(super) fn left_sentence(&self, left: &[Remaining]) -> Option<String> {
        if left.is_empty() {
            return None;
        }
        let named = left.iter().take(LEFT_NAMED_MAX);
        let mut parts: Vec<String> = named.map(|left| format!("{} {}", left.name, left.why)).collect();
        if left.len() > LEFT_NAMED_MAX {
            parts.push(format!("and {} more", left.len() - LEFT_NAMED_MAX));
        }
        Some(parts.join("; "))
    }
}
