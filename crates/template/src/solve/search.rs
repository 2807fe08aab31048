//! The search for the preferred layout.
//!
//! The preferred layout is the one with the most machines of the most preferred kind, then the most
//! of the second, and so on through all kinds. It is built in that order: find the first kind that any
//! layout can go on with, take as many machines of it as any layout can, repeat. Nothing is taken
//! back, because each step asks [`Search::possible`] whether the rest can be filled at all.
//!
//! That question is easier than it looks. What may share a machine may also stand apart, so only
//! three things count: the least that every class still needs fits on the remaining machines
//! ([`Cover`]); the counts can be met at all ([`super::lattice`]); and there is enough left that no machine
//! stays empty.

use std::collections::HashSet;

use super::budget::{Budget, Stopped};
use super::cover::Cover;
use super::problem::{Problem, Set, members};

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    pub set: Set,
    pub palette: usize,
    pub count: u32,
}

pub struct Search<'a> {
    problem: &'a Problem,
    cover: Cover<'a>,
    plain: Vec<bool>,
}

/// A dive for one kind.
struct Dive<'d> {
    order: &'d [usize],
    used: &'d [u32],
    machines: u32,
    /// Most classes that the kind may have so that enough is left for the other machines.
    classes_max: usize,
    /// The weight to reach; in the first pass the weight to beat.
    goal: Option<u32>,
    exact: bool,
    found: Option<Set>,
}

impl<'a> Search<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        let cover = Cover::new(problem);
        let plain = (0..problem.classes.len()).map(|at| problem.lattice.is_plain(at)).collect();
        Self { problem, cover, plain }
    }

    /// Most that each class can come to when `machines` more are filled.
    fn cap(&self, used: &[u32], machines: u32) -> Vec<u32> {
        let placeable = self.problem.placeable();
        let cap = |(at, used): (usize, &u32)| match placeable >> at & 1 {
            1 => self.problem.lattice.max[at].min(used.saturating_add(machines)),
            _ => *used,
        };
        used.iter().enumerate().map(cap).collect()
    }

    /// Whether `machines` more can be filled after `used`.
    pub fn possible(
        &mut self,
        used: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        budget.tick()?;
        if machines > 0 && self.problem.palettes.is_empty() {
            return Ok(false);
        }
        let cap = self.cap(used, machines);
        let lattice = &self.problem.lattice;
        let Some(least) = lattice.least(used, &cap) else { return Ok(false) };
        let needs = minus(&least, used);
        if !self.cover.possible(&needs, machines, budget)? {
            return Ok(false);
        }
        if !self.problem.carry || sum(&needs) >= u64::from(machines) {
            return Ok(true);
        }
        let Some(greatest) = lattice.greatest(&cap) else { return Ok(false) };
        if sum(&minus(&greatest, used)) < u64::from(machines) {
            return Ok(false);
        }
        if self.filled(&least, used, &cap, machines) {
            return Ok(true);
        }
        self.climb(used, &cap, least, machines, budget)
    }

    /// Whether classes that are tied to nothing can fill the machines that `counts` leave empty.
    fn filled(&self, counts: &[u32], used: &[u32], cap: &[u32], machines: u32) -> bool {
        let spare = (0..counts.len()).filter(|at| self.plain[*at]).map(|at| u64::from(cap[at] - counts[at]));
        sum(&minus(counts, used)) + spare.sum::<u64>() >= u64::from(machines)
    }

    /// Raises tied counts until no machine stays empty: in long strides first, then step by step.
    fn climb(
        &mut self,
        used: &[u32],
        cap: &[u32],
        least: Vec<u32>,
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        let tied: Vec<usize> = (0..least.len()).filter(|at| !self.plain[*at]).collect();
        let mut counts = least.clone();
        for at in &tied {
            counts = self.stride(*at, counts, used, cap, machines, budget)?;
            if self.filled(&counts, used, cap, machines) {
                return Ok(true);
            }
        }
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        let mut open = vec![least];
        while let Some(counts) = open.pop() {
            budget.tick()?;
            if !self.cover.possible(&minus(&counts, used), machines, budget)? {
                continue;
            }
            if self.filled(&counts, used, cap, machines) {
                return Ok(true);
            }
            for at in &tied {
                let mut from = counts.clone();
                from[*at] += 1;
                if let Some(next) = self.problem.lattice.least(&from, cap)
                    && seen.insert(next.clone())
                {
                    open.push(next);
                }
            }
        }
        Ok(false)
    }

    /// Raises one count as far as the machines can carry it.
    fn stride(
        &mut self,
        at: usize,
        counts: Vec<u32>,
        used: &[u32],
        cap: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<u32>, Stopped> {
        let mut best = counts;
        let (mut good, mut bad) = (best[at], cap[at].saturating_add(1));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            let mut from = best.clone();
            from[at] = middle;
            let raised = self.problem.lattice.least(&from, cap);
            let fits = match &raised {
                Some(raised) => self.cover.possible(&minus(raised, used), machines, budget)?,
                None => false,
            };
            match raised {
                Some(raised) if fits => (good, best) = (raised[at].max(middle), raised),
                _ => bad = middle,
            }
        }
        Ok(best)
    }

    /// The preferred way to fill `machines` after `used`; none when there is no way.
    pub fn solve(
        &mut self,
        used: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Vec<Pick>>, Stopped> {
        if !self.possible(used, machines, budget)? {
            return Ok(None);
        }
        let mut used = used.to_vec();
        let mut left = machines;
        let mut picks = Vec::new();
        while left > 0 {
            let Some((set, palette)) = self.kind(&used, left, budget)? else { return Ok(None) };
            let count = self.most(&used, left, set, budget)?;
            members(set).for_each(|at| used[at] += count);
            left -= count;
            picks.push(Pick { set, palette, count });
        }
        Ok(Some(picks))
    }

    /// Most machines of one kind that a layout can go on with. At least one can.
    fn most(
        &mut self,
        used: &[u32],
        machines: u32,
        set: Set,
        budget: &mut Budget<'_>,
    ) -> Result<u32, Stopped> {
        let room = members(set).map(|at| self.problem.lattice.max[at] - used[at]).min();
        let (mut good, mut bad) = (1, room.unwrap_or(u32::MAX).min(machines) + 1);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            let mut with = used.to_vec();
            members(set).for_each(|at| with[at] += middle);
            if self.possible(&with, machines - middle, budget)? { good = middle } else { bad = middle }
        }
        Ok(good)
    }

    /// The most preferred kind that a layout can go on with.
    fn kind(
        &mut self,
        used: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<Option<(Set, usize)>, Stopped> {
        let max = &self.problem.lattice.max;
        let room = (0..used.len()).filter(|at| used[*at] < max[*at]).fold(0, |set: Set, at| set | 1 << at);
        let mut by_weight: Vec<usize> = (0..used.len()).collect();
        by_weight.sort_by_key(|at| std::cmp::Reverse(self.problem.classes[*at].weight));
        let classes_max = self.classes_max(used, machines);
        // First how many services it has and on which machine, then which they are.
        let mut best: Option<(u32, usize)> = None;
        for palette in 0..self.problem.palettes.len() {
            let allowed = self.problem.palettes[palette].allowed & room;
            let goal = best.map(|(weight, _)| weight);
            let mut dive =
                Dive { order: &by_weight, used, machines, classes_max, goal, exact: false, found: None };
            self.dive(&mut dive, 0, 0, allowed, budget)?;
            if let Some(found) = dive.found {
                best = Some((self.problem.weight(found), palette));
            }
        }
        let Some((weight, palette)) = best else { return Ok(None) };
        let by_name: Vec<usize> = (0..used.len()).collect();
        let mut dive = Dive {
            order: &by_name,
            used,
            machines,
            classes_max,
            goal: Some(weight),
            exact: true,
            found: None,
        };
        self.dive(&mut dive, 0, 0, self.problem.palettes[palette].allowed & room, budget)?;
        Ok(dive.found.map(|set| (set, palette)))
    }

    /// Most classes on one machine such that enough is left to put one on each of the others.
    fn classes_max(&self, used: &[u32], machines: u32) -> usize {
        let cap = self.cap(used, machines);
        let greatest = self.problem.lattice.greatest(&cap).unwrap_or(cap);
        let room = minus(&greatest, used);
        if !self.problem.carry || room.iter().any(|room| *room >= machines) {
            return usize::MAX;
        }
        usize::try_from((sum(&room) + 1).saturating_sub(u64::from(machines))).unwrap_or(usize::MAX)
    }

    /// Decides class after class whether the kind has it. Returns whether the dive is over.
    fn dive(
        &mut self,
        dive: &mut Dive<'_>,
        from: usize,
        chosen: Set,
        open: Set,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        budget.tick()?;
        let more = dive.classes_max.saturating_sub(chosen.count_ones() as usize);
        let weight = self.problem.weight(chosen);
        let reach = weight + self.reach(open, more);
        let hopeless = match dive.goal {
            Some(goal) if dive.exact => reach < goal,
            Some(goal) => reach <= goal,
            None => false,
        };
        if hopeless || !self.coverable(dive, chosen, chosen | open, budget)? {
            return Ok(false);
        }
        let next = (from..dive.order.len()).find(|at| open >> dive.order[*at] & 1 == 1);
        let Some(at) = next else { return self.land(dive, chosen, weight, budget) };
        let class = dive.order[at];
        if more > 0 {
            let with = chosen | 1 << class;
            let rest = open & !(1 << class) & !self.cover.excluded[class];
            let blocked =
                |other: &usize| self.cover.larger.iter().any(|cant| cant & (with | 1 << other) == *cant);
            let rest = members(rest).filter(|other| !blocked(other)).fold(0, |set: Set, at| set | 1 << at);
            if self.dive(dive, at + 1, with, rest, budget)? {
                return Ok(true);
            }
        }
        self.dive(dive, at + 1, chosen, open & !(1 << class), budget)
    }

    /// Everything is decided: can a layout go on with it?
    fn land(
        &mut self,
        dive: &mut Dive<'_>,
        chosen: Set,
        weight: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        let empty = chosen == 0 && self.problem.carry;
        if empty || (dive.exact && dive.goal != Some(weight)) {
            return Ok(false);
        }
        let mut used = dive.used.to_vec();
        members(chosen).for_each(|at| used[at] += 1);
        if !self.possible(&used, dive.machines - 1, budget)? {
            return Ok(false);
        }
        dive.found = Some(chosen);
        dive.goal = Some(weight);
        Ok(dive.exact)
    }

    /// Most weight that `more` of the open classes can add.
    fn reach(&self, open: Set, more: usize) -> u32 {
        let heaviest = |part: &Set| members(part & open).map(|at| self.problem.classes[at].weight).max();
        let mut weights: Vec<u32> = self.cover.parts.iter().filter_map(heaviest).collect();
        if weights.len() > more {
            weights.sort_unstable_by(|a, b| b.cmp(a));
            weights.truncate(more);
        }
        weights.iter().sum()
    }

    /// Whether the other machines could carry what this one cannot, if it carried all of `at_most`.
    fn coverable(
        &mut self,
        dive: &Dive<'_>,
        at_least: Set,
        at_most: Set,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        let mut used = dive.used.to_vec();
        members(at_least).for_each(|at| used[at] += 1);
        let cap = self.cap(dive.used, dive.machines);
        let Some(least) = self.problem.lattice.least(&used, &cap) else { return Ok(false) };
        let mut needs = minus(&least, dive.used);
        members(at_most).for_each(|at| needs[at] = needs[at].saturating_sub(1));
        self.cover.possible(&needs, dive.machines - 1, budget)
    }
}

fn minus(counts: &[u32], less: &[u32]) -> Vec<u32> {
    counts.iter().zip(less).map(|(count, less)| count.saturating_sub(*less)).collect()
}

fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}
