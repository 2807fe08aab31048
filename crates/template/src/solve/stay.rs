//! Machines that stay, and what comes beside them.
//!
//! ```text
//!   keep: how many of each kind stay, the preferred ones first
//!     └─ add: on which of them new services come, the one with the smallest maximum first, on as many as it may be
//!          └─ fill: new machines for the rest of the size (search.rs)
//! ```
//! All of it is tried until something fits, so that nothing is missed; what cannot lead anywhere is seen before, by counts.

use model::Result;

use super::budget::{Budget, Stopped};
use super::cover::Cover;
use super::problem::{Class, Problem, Set, members};
use super::rule::Rule;
use super::search::Search;
use super::verify::{keeps_to, verify, verify_machine};
use super::{Group, Layout, Question, to_layout};

/// What stands, and what it is to become.
pub struct Stay<'q> {
    question: &'q Question<'q>,
    problem: Problem,
    /// Without the services that are removed.
    stands: Vec<Group>,
    /// How many of each can stay.
    most: Vec<u32>,
    /// Services that the cluster has.
    old: Vec<String>,
    /// Those that are new to it, in the order in which they are added.
    new: Vec<String>,
}

/// One search.
struct Walk<'s> {
    stay: &'s Stay<'s>,
    search: Search<'s>,
    cover: Cover<'s>,
    /// Machines that come.
    fresh: u32,
}

impl<'q> Stay<'q> {
    /// What comes is somewhere then. `all` services are, where nothing that is there may be lost.
    pub fn new(question: &'q Question<'q>, stands: &Layout, all: bool) -> Result<Self> {
        let counts = stands.counts();
        let (old, mut new): (Vec<String>, Vec<String>) =
            question.services.iter().cloned().partition(|name| counts.contains_key(name.as_str()));
        new.sort_by_cached_key(|name| rank(question, name));
        let mut problem = Problem::new(question, &[])?;
        for (at, class) in problem.classes.iter().enumerate() {
            if all || class.services.iter().any(|name| new.contains(name)) {
                problem.lattice.min[at] = problem.lattice.min[at].max(1);
            }
        }
        let before = Question { services: old.clone(), ..question.clone() };
        let can_stay = |group: &Group| {
            let is_idle = group.services.is_empty() && new.is_empty();
            !is_idle && keeps_to(&before, group, &|rule| *rule != Rule::Carry)
        };
        let most = stands.0.iter().map(|group| if can_stay(group) { group.count } else { 0 }).collect();
        Ok(Self { question, problem, stands: stands.0.clone(), most, old, new })
    }

    /// The layout that keeps all machines but so many; none when there is no such.
    pub fn all_but(&self, gone: u32, budget: &mut Budget<'_>) -> Result<Option<Layout>, Stopped> {
        let all: u32 = self.stands.iter().map(|group| group.count).sum();
        let kept = all.saturating_sub(gone);
        let Some(fresh) = self.question.size.checked_sub(kept) else { return Ok(None) };
        if self.most.iter().sum::<u32>() < kept {
            return Ok(None);
        }
        let (search, cover) = (Search::new(&self.problem), Cover::new(&self.problem));
        let mut walk = Walk { stay: self, search, cover, fresh };
        let mut counts = vec![0; self.problem.classes.len()];
        walk.keep(kept, &mut counts, &mut Vec::new(), budget)
    }

    /// The classes that a machine has some of.
    fn begun(&self, group: &Group) -> Set {
        let has = |class: &Class| class.services.iter().any(|name| group.services.contains(name));
        let classes = self.problem.classes.iter().enumerate();
        classes.filter(|(_, class)| has(class)).fold(0, |set, (at, _)| set | 1 << at)
    }

    /// Whether a class is all new.
    fn is_new(&self, class: &Class) -> bool {
        class.services.iter().all(|name| self.new.contains(name))
    }
}

/// Those with the smallest maximum first, then those with the largest minimum; those without any rule come last.
fn rank(question: &Question<'_>, name: &str) -> (bool, u64, std::cmp::Reverse<u64>, String) {
    let rule = question.template.constraints.services.get(name);
    let max = rule.map_or(u64::MAX, |rule| rule.quantities.max.unwrap_or(u64::MAX - 1));
    let min = rule.and_then(|rule| rule.quantities.min).unwrap_or(0);
    (rule.is_none(), max, std::cmp::Reverse(min), name.to_owned())
}

fn with(group: &Group, services: &[String]) -> Group {
    let mut services: Vec<String> = group.services.iter().chain(services).cloned().collect();
    services.sort();
    services.dedup();
    Group { services, ..group.clone() }
}

impl Walk<'_> {
    /// Decides kind after kind how many machines stay, as many as possible of the preferred ones.
    fn keep(
        &mut self,
        left: u32,
        counts: &mut [u32],
        kept: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Layout>, Stopped> {
        budget.tick()?;
        let stay = self.stay;
        let at = kept.len();
        if at == stay.stands.len() {
            let group = |(group, count): (&Group, &u32)| Group { count: *count, ..group.clone() };
            let layout = Layout(stay.stands.iter().zip(kept.iter()).map(group).collect());
            return self.add(&layout.normal(), 0, budget);
        }
        // What the kinds to come and new machines can add at most.
        let reach = |class: usize| {
            let on = |at: &usize| stay.begun(&stay.stands[*at]) >> class & 1 == 1;
            let carried: u32 = (at..stay.stands.len()).filter(on).map(|at| stay.most[at]).sum();
            counts[class].saturating_add(carried.min(left)).saturating_add(self.fresh)
        };
        let lattice = &stay.problem.lattice;
        let is_lost = |(class, own): (usize, &Class)| {
            let is_short = !stay.is_new(own) && reach(class) < lattice.min[class];
            counts[class] > lattice.max[class] || is_short
        };
        if stay.problem.classes.iter().enumerate().any(is_lost) {
            return Ok(None);
        }
        let later: u32 = stay.most[at + 1..].iter().sum();
        let set = stay.begun(&stay.stands[at]);
        for count in (left.saturating_sub(later)..=stay.most[at].min(left)).rev() {
            members(set).for_each(|class| counts[class] += count);
            kept.push(count);
            let found = self.keep(left - count, counts, kept, budget)?;
            kept.pop();
            members(set).for_each(|class| counts[class] -= count);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Puts the new services from `at` on onto machines that stay, each on as many as it may be.
    fn add(
        &mut self,
        layout: &Layout,
        at: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Layout>, Stopped> {
        budget.tick()?;
        if !self.is_hopeful(layout, at, budget)? {
            return Ok(None);
        }
        let stay = self.stay;
        let Some(service) = stay.new.get(at) else { return self.fill(layout, budget) };
        let known = [&stay.old[..], &stay.new[..=at]].concat();
        let question = Question { services: known, ..stay.question.clone() };
        // Another service may come to a machine that has none yet.
        let fits = |group: &Group| keeps_to(&question, group, &|rule| *rule != Rule::Carry);
        let is_everywhere = stay.problem.everywhere.contains(service);
        let mut limits = Vec::new();
        for group in &layout.0 {
            let takes = fits(&with(group, std::slice::from_ref(service)));
            let needs = is_everywhere || !fits(group);
            if needs && !takes {
                return Ok(None);
            }
            let count = |is: bool| if is { group.count } else { 0 };
            limits.push((count(needs), count(takes)));
        }
        let (least, most): (Vec<u32>, Vec<u32>) = limits.into_iter().unzip();
        let rule = stay.question.template.constraints.services.get(service);
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let max = rule.and_then(|rule| rule.quantities.max).map_or(u32::MAX, small);
        let top = most.iter().sum::<u32>().min(max);
        for count in (least.iter().sum()..=top).rev() {
            let mut shares = greatest_shares(&least, &most, 0, count, Vec::new());
            while let Some(current) = shares {
                budget.tick()?;
                let mut groups = Vec::new();
                for (group, share) in layout.0.iter().zip(&current) {
                    groups.push(Group { count: *share, ..with(group, std::slice::from_ref(service)) });
                    groups.push(Group { count: group.count - share, ..group.clone() });
                }
                let found = self.add(&Layout(groups).normal(), at + 1, budget)?;
                if found.is_some() {
                    return Ok(found);
                }
                shares = next_shares(&least, &most, &current);
            }
        }
        Ok(None)
    }

    /// Whether counts leave room for the new services from `at` on, with machines for them counted as if they had to
    /// share them with none of the others.
    fn is_hopeful(&mut self, layout: &Layout, at: usize, budget: &mut Budget<'_>) -> Result<bool, Stopped> {
        let stay = self.stay;
        let problem = &stay.problem;
        let is_open = |class: &Class| class.services.iter().all(|name| stay.new[at..].contains(name));
        let takes = |group: &Group, class: &Class| {
            let grown = with(group, &class.services);
            keeps_to(stay.question, &grown, &|rule| !matches!(rule, Rule::Carry | Rule::Must(_)))
        };
        let mut used = vec![0; problem.classes.len()];
        let mut room = used.clone();
        for group in &layout.0 {
            let begun = stay.begun(group);
            for (at, class) in problem.classes.iter().enumerate() {
                match begun >> at & 1 {
                    1 => used[at] += group.count,
                    _ if is_open(class) && takes(group, class) => room[at] += group.count,
                    _ => {}
                }
            }
        }
        let placeable = problem.placeable();
        let cap = |at: usize| {
            let fresh = if placeable >> at & 1 == 1 { self.fresh } else { 0 };
            problem.lattice.max[at].min(used[at] + room[at] + fresh)
        };
        let cap: Vec<u32> = (0..used.len()).map(cap).collect();
        let Some(least) = problem.lattice.least(&used, &cap) else { return Ok(false) };
        let short = |at: usize| least[at].saturating_sub(used[at] + room[at]);
        let needs: Vec<u32> = (0..used.len()).map(short).collect();
        if !self.cover.possible(&needs, self.fresh, budget)? {
            return Ok(false);
        }
        if !problem.carry || self.fresh == 0 {
            return Ok(true);
        }
        let greatest = problem.lattice.greatest(&cap);
        let over = |greatest: Vec<u32>| -> u64 {
            greatest.iter().zip(&used).map(|(most, used)| u64::from(most.saturating_sub(*used))).sum()
        };
        Ok(greatest.is_some_and(|greatest| over(greatest) >= u64::from(self.fresh)))
    }

    /// Adds the machines that come.
    fn fill(&mut self, layout: &Layout, budget: &mut Budget<'_>) -> Result<Option<Layout>, Stopped> {
        let stay = self.stay;
        if !layout.0.iter().all(|group| verify_machine(stay.question, group)) {
            return Ok(None);
        }
        let mut used = vec![0; stay.problem.classes.len()];
        for group in &layout.0 {
            members(stay.begun(group)).for_each(|class| used[class] += group.count);
        }
        let picks = self.search.solve(&used, self.fresh, budget)?;
        let grown = picks.map(|picks| {
            let mut groups = layout.0.clone();
            groups.extend(to_layout(&stay.problem, &picks).0);
            Layout(groups).normal()
        });
        // A machine that stands may lack what is everywhere by now, which counts do not see.
        Ok(grown.filter(|grown| verify(stay.question, grown).is_empty()))
    }
}

/// The lexicographically greatest shares that begin with `head` and have `count` in the rest.
fn greatest_shares(least: &[u32], most: &[u32], from: usize, count: u32, head: Vec<u32>) -> Option<Vec<u32>> {
    let mut shares = head;
    let mut left = count.checked_sub(least[from..].iter().sum())?;
    for at in from..most.len() {
        let more = left.min(most[at] - least[at]);
        shares.push(least[at] + more);
        left -= more;
    }
    (left == 0).then_some(shares)
}

/// The next smaller shares with the same sum.
fn next_shares(least: &[u32], most: &[u32], shares: &[u32]) -> Option<Vec<u32>> {
    (0..shares.len()).rev().find_map(|at| {
        let less = shares[at].checked_sub(1).filter(|less| *less >= least[at])?;
        let mut head = shares[..at].to_vec();
        head.push(less);
        let count = shares[at..].iter().sum::<u32>() - less;
        greatest_shares(least, most, at + 1, count, head)
    })
}
