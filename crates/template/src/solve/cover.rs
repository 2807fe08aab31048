//! Whether so many machines can carry so much: the colouring at the heart of the solver.
//!
//! Given how many machines each class needs, can `r` machines be filled so that each class gets
//! its number and nothing stands together that may not? Classes that exclude each other pairwise
//! (a clique) need machines of their own, which refutes most of what cannot be; a greedy filling that always serves
//! the cliques without slack proves most of what can. Only between the two is there a search.

use std::collections::{HashMap, HashSet};

use super::budget::{Budget, Stopped};
use super::problem::{Problem, Set, members};

/// Most cliques that are kept of one component.
const CLIQUES_MAX: usize = 256;
/// Deepest search; what is deeper counts as out of time.
const DEPTH_MAX: usize = 1_000;
/// Most services on machines that are placed one by one; more are placed in bulk first.
const PLACES_MAX: u64 = 256;
/// Most machines among which they are placed one by one.
const MACHINES_MAX: u32 = 128;
/// Steps that a guess at a filling may take to place what is left.
const PLACE_STEPS_MAX: u64 = 20_000;
/// Of what can be taken off in one go, one part in so many is.
const EVENNESS: [u64; 2] = [8, 64];

/// Classes that have to do with each other, directly or not.
struct Component {
    members: Set,
    cliques: Vec<Set>,
    /// Whether any two of its classes exclude each other.
    is_clique: bool,
}

pub struct Cover<'a> {
    problem: &'a Problem,
    /// The classes that may not share a machine with each class.
    pub excluded: Vec<Set>,
    /// Groups of three or more that may not be together, of which no two exclude each other.
    pub larger: Vec<Set>,
    components: Vec<Component>,
    /// Parts of the classes in each of which only one can be on a machine.
    pub parts: Vec<Set>,
    known: HashMap<(usize, u32, Vec<u32>), bool>,
    ranks: HashMap<Set, u32>,
}

impl<'a> Cover<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        let count = problem.classes.len();
        let mut excluded: Vec<Set> = vec![0; count];
        for one in 0..count {
            for other in one + 1..count {
                let pair: Set = 1 << one | 1 << other;
                if !problem.palettes.iter().any(|palette| palette.allowed & pair == pair) {
                    excluded[one] |= 1 << other;
                    excluded[other] |= 1 << one;
                }
            }
        }
        for pair in problem.cants.iter().filter(|cant| cant.count_ones() == 2) {
            members(*pair).for_each(|at| excluded[at] |= pair & !(1 << at));
        }
        let apart = |set: Set| members(set).any(|at| excluded[at] & set != 0);
        let larger =
            problem.cants.iter().copied().filter(|cant| cant.count_ones() > 2 && !apart(*cant)).collect();
        let mut cover = Self {
            problem,
            excluded,
            larger,
            components: Vec::new(),
            parts: Vec::new(),
            known: HashMap::new(),
            ranks: HashMap::new(),
        };
        cover.components = cover.split();
        cover.parts = cover.partition();
        cover
    }

    /// Parts the classes so that no rule ties two parts.
    fn split(&self) -> Vec<Component> {
        let count = self.problem.classes.len();
        let mut ties: Vec<Set> = (0..count).map(|at| self.excluded[at] | 1 << at).collect();
        ties.extend(&self.larger);
        // With three kinds of machines or more, classes can exclude each other only as a group.
        if self.problem.palettes.len() > 2 {
            let common = self.problem.palettes.iter().fold(Set::MAX, |set, palette| set & palette.allowed);
            ties.push(self.problem.placeable() & !common);
        }
        let mut parts: Vec<Set> = Vec::new();
        for tie in ties.into_iter().filter(|tie| *tie != 0) {
            let (joined, apart): (Vec<Set>, Vec<Set>) = parts.iter().partition(|part| *part & tie != 0);
            parts = apart;
            parts.push(joined.into_iter().fold(tie, |all, part| all | part));
        }
        parts.into_iter().map(|members| self.component(members)).collect()
    }

    fn component(&self, set: Set) -> Component {
        let mut cliques = Vec::new();
        self.cliques_search(0, set, 0, &mut cliques);
        let is_clique = cliques.first() == Some(&set);
        Component { members: set, cliques, is_clique }
    }

    /// Sets of classes that exclude each other.
    pub fn cliques(&self) -> impl Iterator<Item = Set> {
        self.components.iter().flat_map(|component| component.cliques.iter().copied())
    }

    /// Collects the maximal sets of classes that exclude each other.
    fn cliques_search(&self, clique: Set, open: Set, done: Set, found: &mut Vec<Set>) {
        if open == 0 {
            if done == 0 && found.len() < CLIQUES_MAX {
                found.push(clique);
            }
            return;
        }
        let pivot =
            members(open | done).max_by_key(|at| (self.excluded[*at] & open).count_ones()).unwrap_or(0);
        let (mut open, mut done) = (open, done);
        for at in members(open & !self.excluded[pivot]) {
            if found.len() >= CLIQUES_MAX {
                return;
            }
            self.cliques_search(clique | 1 << at, open & self.excluded[at], done & self.excluded[at], found);
            open &= !(1 << at);
            done |= 1 << at;
        }
    }

    fn partition(&self) -> Vec<Set> {
        let mut rest: Set = (0..self.problem.classes.len()).fold(0, |set, at| set | 1 << at);
        let mut parts = Vec::new();
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let mut part: Set = 1 << first;
            for at in members(rest & self.excluded[first]) {
                if self.excluded[at] & part == part {
                    part |= 1 << at;
                }
            }
            rest &= !part;
            parts.push(part);
        }
        parts
    }

    /// Whether `machines` can give each class as many of them as `needs` says.
    pub fn possible(
        &mut self,
        needs: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        for at in 0..self.components.len() {
            if !self.component_possible(at, needs, machines, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn component_possible(
        &mut self,
        at: usize,
        needs: &[u32],
        machines: u32,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        budget.tick()?;
        let component = &self.components[at];
        let needed = |set: Set| members(set).map(|at| u64::from(needs[at])).sum::<u64>();
        if component.is_clique {
            return Ok(needed(component.members) <= u64::from(machines));
        }
        if component.cliques.iter().any(|clique| needed(*clique) > u64::from(machines)) {
            return Ok(false);
        }
        let own: Vec<u32> = members(component.members).map(|at| needs[at]).collect();
        let key = (at, machines, own);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let mut part = vec![0; needs.len()];
        members(component.members).for_each(|at| part[at] = needs[at]);
        let mut refuted = HashSet::new();
        let answer = self.fill(at, part, machines, 0, &mut refuted, budget)?;
        self.known.insert(key, answer);
        Ok(answer)
    }

    /// Fills machines with search: greedily first, then every choice of what shares with the neediest class.
    fn fill(
        &mut self,
        at: usize,
        needs: Vec<u32>,
        machines: u32,
        depth: usize,
        refuted: &mut HashSet<(u32, Vec<u32>)>,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        budget.tick()?;
        let support = support(&needs);
        if support == 0 {
            return Ok(true);
        }
        let needed = |set: Set| members(set).map(|at| u64::from(needs[at])).sum::<u64>();
        if self.components[at].cliques.iter().any(|clique| needed(*clique) > u64::from(machines)) {
            return Ok(false);
        }
        if self.greedy(at, needs.clone(), machines) {
            return Ok(true);
        }
        if refuted.contains(&(machines, needs.clone())) {
            return Ok(false);
        }
        if needed(support) > u64::from(machines) * u64::from(self.rank(support, budget)?) {
            return Ok(false);
        }
        if needed(support) <= PLACES_MAX && machines <= MACHINES_MAX {
            let answer = self.place(needs.clone(), machines, u64::MAX, budget)?;
            if !answer {
                refuted.insert((machines, needs));
            }
            return Ok(answer);
        }
        if depth == 0 {
            for evenness in EVENNESS {
                if self.balanced(at, needs.clone(), machines, evenness, budget)? {
                    return Ok(true);
                }
            }
        }
        if depth >= DEPTH_MAX {
            return Err(Stopped);
        }
        let neediest =
            members(support).max_by_key(|at| (needs[*at], self.excluded[*at].count_ones())).unwrap_or(0);
        let mut choices = Vec::new();
        self.extensions(1 << neediest, support & !(1 << neediest), 0, &mut choices, budget)?;
        choices.sort_by_key(|set| std::cmp::Reverse(needed(*set)));
        for set in choices {
            // One machine at a time is complete; the larger bites come first because they mostly do.
            let mut bite = members(set).map(|at| needs[at]).min().unwrap_or(1).min(machines);
            while bite > 0 {
                let mut rest = needs.clone();
                members(set).for_each(|at| rest[at] -= bite);
                if self.fill(at, rest, machines - bite, depth + 1, refuted, budget)? {
                    return Ok(true);
                }
                bite /= 2;
            }
        }
        refuted.insert((machines, needs));
        Ok(false)
    }

    fn joins(&self, class: usize, set: Set) -> bool {
        self.excluded[class] & set == 0 && self.problem.fits(set | 1 << class)
    }

    /// Takes the neediest classes off in bulk, evenly, until few enough are left to place one by one. What it
    /// finds is a filling; what it does not find may still be.
    fn balanced(
        &self,
        at: usize,
        mut needs: Vec<u32>,
        mut machines: u32,
        evenness: u64,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        let cliques = &self.components[at].cliques;
        loop {
            let open = support(&needs);
            let needed = |set: Set| members(set).map(|at| u64::from(needs[at])).sum::<u64>();
            if cliques.iter().any(|clique| needed(*clique) > u64::from(machines)) {
                return Ok(false);
            }
            if needed(open) <= PLACES_MAX && machines <= MACHINES_MAX {
                return self.place(needs, machines, PLACE_STEPS_MAX, budget);
            }
            let all = needed(open);
            let tight = cliques
                .iter()
                .filter(|clique| needed(**clique) == u64::from(machines))
                .fold(0, |set, c| set | c);
            let weigh = |at: usize| u64::from(needs[at]) + if tight >> at & 1 == 1 { all } else { 0 };
            let mut best = (0, 0);
            self.heaviest(&weigh, 0, 0, open, &mut best, budget)?;
            let chosen = best.1;
            let least = members(chosen).map(|at| u64::from(needs[at])).min().unwrap_or(0);
            let unmet = cliques.iter().filter(|clique| *clique & chosen == 0);
            let slack = unmet.map(|clique| u64::from(machines) - needed(*clique)).min().unwrap_or(u64::MAX);
            let room = least.min(slack);
            if room == 0 {
                return Ok(false);
            }
            let bite = u32::try_from((room / evenness).max(1)).unwrap_or(1);
            members(chosen).for_each(|at| needs[at] -= bite);
            machines -= bite;
        }
    }

    /// The heaviest set that fits on one machine.
    fn heaviest(
        &self,
        weigh: &dyn Fn(usize) -> u64,
        weight: u64,
        chosen: Set,
        open: Set,
        best: &mut (u64, Set),
        budget: &mut Budget<'_>,
    ) -> Result<(), Stopped> {
        budget.tick()?;
        if weight > best.0 {
            *best = (weight, chosen);
        }
        let heaviest = |part: &Set| members(part & open).map(weigh).max().unwrap_or(0);
        let reach: u64 = self.parts.iter().map(heaviest).sum();
        let Some(at) = members(open).max_by_key(|at| weigh(*at)).filter(|_| weight + reach > best.0) else {
            return Ok(());
        };
        let rest = open & !(1 << at);
        if self.problem.fits(chosen | 1 << at) {
            let apart = rest & !self.excluded[at];
            self.heaviest(weigh, weight + weigh(at), chosen | 1 << at, apart, best, budget)?;
        }
        self.heaviest(weigh, weight, chosen, rest, best, budget)
    }

    /// Places everything one by one, always the class with the fewest places to spare.
    fn place(
        &self,
        needs: Vec<u32>,
        machines: u32,
        steps: u64,
        budget: &mut Budget<'_>,
    ) -> Result<bool, Stopped> {
        let banned = vec![0; needs.len()];
        let mut places = Places { machines: Vec::new(), total: machines as usize, needs, banned, steps };
        self.place_next(&mut places, budget)
    }

    fn place_next(&self, places: &mut Places, budget: &mut Budget<'_>) -> Result<bool, Stopped> {
        budget.tick()?;
        places.steps = places.steps.saturating_sub(1);
        if places.steps == 0 {
            return Ok(false);
        }
        let mut tightest: Option<(usize, u32, usize)> = None;
        for class in members(support(&places.needs)) {
            let open = (0..places.machines.len()).filter(|at| self.takes(places, class, *at)).count();
            let fresh = places.total - places.machines.len();
            let Some(spare) = (open + fresh).checked_sub(places.needs[class] as usize) else {
                return Ok(false);
            };
            let key = (spare, u32::MAX - self.excluded[class].count_ones(), class);
            tightest = Some(tightest.map_or(key, |other| other.min(key)));
        }
        let Some((_, _, class)) = tightest else { return Ok(true) };
        let before = places.banned[class];
        places.needs[class] -= 1;
        let mut found = false;
        for at in 0..places.machines.len() {
            if !self.takes(places, class, at) {
                continue;
            }
            places.machines[at] |= 1 << class;
            found = self.place_next(places, budget)?;
            places.machines[at] &= !(1 << class);
            if found {
                break;
            }
            places.ban(class, at);
        }
        if !found && places.machines.len() < places.total {
            places.machines.push(1 << class);
            found = self.place_next(places, budget)?;
            places.machines.pop();
        }
        places.needs[class] += 1;
        places.banned[class] = before;
        Ok(found)
    }

    fn takes(&self, places: &Places, class: usize, at: usize) -> bool {
        let set = places.machines[at];
        places.banned[class] >> at & 1 == 0 && set >> class & 1 == 0 && self.joins(class, set)
    }

    /// The maximal sets that fit on one machine with `chosen`, out of `open`.
    fn extensions(
        &self,
        chosen: Set,
        open: Set,
        passed: Set,
        found: &mut Vec<Set>,
        budget: &mut Budget<'_>,
    ) -> Result<(), Stopped> {
        budget.tick()?;
        let joins = |at: usize, set: Set| self.excluded[at] & set == 0 && self.problem.fits(set | 1 << at);
        let open = members(open).filter(|at| joins(*at, chosen)).fold(0, |set: Set, at| set | 1 << at);
        let passed = members(passed).filter(|at| joins(*at, chosen)).fold(0, |set: Set, at| set | 1 << at);
        if open == 0 {
            if passed == 0 {
                found.push(chosen);
            }
            return Ok(());
        }
        let next: Set = 1 << open.trailing_zeros();
        self.extensions(chosen | next, open & !next, passed, found, budget)?;
        self.extensions(chosen, open & !next, passed | next, found, budget)
    }

    /// Most of these classes that fit on one machine.
    fn rank(&mut self, set: Set, budget: &mut Budget<'_>) -> Result<u32, Stopped> {
        if let Some(known) = self.ranks.get(&set) {
            return Ok(*known);
        }
        let mut best = 0;
        self.rank_search(0, set, &mut best, budget)?;
        self.ranks.insert(set, best);
        Ok(best)
    }

    fn rank_search(
        &self,
        chosen: Set,
        open: Set,
        best: &mut u32,
        budget: &mut Budget<'_>,
    ) -> Result<(), Stopped> {
        budget.tick()?;
        let have = chosen.count_ones();
        *best = have.max(*best);
        if open == 0 || have + open.count_ones() <= *best {
            return Ok(());
        }
        // The class that excludes the most is decided first; one that excludes nothing is simply taken.
        let at = members(open).max_by_key(|at| (self.excluded[*at] & open).count_ones()).unwrap_or(0);
        let rest = open & !(1 << at);
        if self.problem.fits(chosen | 1 << at) {
            self.rank_search(chosen | 1 << at, rest & !self.excluded[at], best, budget)?;
            let harmless =
                self.excluded[at] & open == 0 && self.larger.is_empty() && self.problem.palettes.len() < 3;
            if harmless {
                return Ok(());
            }
        }
        self.rank_search(chosen, rest, best, budget)
    }

    /// Fills machines without looking back. Every clique without slack must be on every machine.
    fn greedy(&self, at: usize, mut needs: Vec<u32>, mut machines: u32) -> bool {
        let cliques = &self.components[at].cliques;
        loop {
            let open = support(&needs);
            if open == 0 {
                return true;
            }
            if machines == 0 {
                return false;
            }
            let needed = |set: Set| members(set).map(|at| needs[at]).sum::<u32>();
            let mut chosen: Set = 0;
            let joins =
                |at: usize, set: Set| self.excluded[at] & set == 0 && self.problem.fits(set | 1 << at);
            let tight: Vec<Set> =
                cliques.iter().copied().filter(|clique| needed(*clique) == machines).collect();
            for clique in &tight {
                if clique & chosen != 0 {
                    continue;
                }
                let in_tight = |at: &usize| tight.iter().filter(|clique| *clique >> at & 1 == 1).count();
                let best = members(clique & open)
                    .filter(|at| joins(*at, chosen))
                    .max_by_key(|at| (in_tight(at), needs[*at]));
                let Some(best) = best else { return false };
                chosen |= 1 << best;
            }
            let mut by_need: Vec<usize> = members(open & !chosen).collect();
            by_need.sort_by_key(|at| std::cmp::Reverse(needs[*at]));
            for at in by_need {
                if joins(at, chosen) {
                    chosen |= 1 << at;
                }
            }
            let least = members(chosen).map(|at| needs[at]).min().unwrap_or(0);
            let slack = cliques
                .iter()
                .filter(|clique| *clique & chosen == 0)
                .map(|clique| machines - needed(*clique))
                .min();
            let bite = least.min(machines).min(slack.unwrap_or(u32::MAX));
            if bite == 0 {
                return false;
            }
            members(chosen).for_each(|at| needs[at] -= bite);
            machines -= bite;
        }
    }
}

/// Machines that are being filled.
struct Places {
    machines: Vec<Set>,
    total: usize,
    needs: Vec<u32>,
    /// The machines on which each class has been tried in vain.
    banned: Vec<u128>,
    /// Steps after which the search gives up.
    steps: u64,
}

impl Places {
    /// Rules a machine out for a class, and with it all that are like it.
    fn ban(&mut self, class: usize, at: usize) {
        let bans = |at: usize| self.banned.iter().map(move |banned| banned >> at & 1);
        let like = |other: &usize| self.machines[*other] == self.machines[at] && bans(*other).eq(bans(at));
        let alike = (0..self.machines.len()).filter(like).fold(0, |set: u128, at| set | 1 << at);
        self.banned[class] |= alike;
    }
}

fn support(needs: &[u32]) -> Set {
    needs.iter().enumerate().filter(|(_, need)| **need > 0).fold(0, |set, (at, _)| set | 1 << at)
}
