//! From a layout that stands to another one, with the least change.
//!
//! Machines that stay keep their hardware, their image and the services they still have. Services
//! are removed first, then added as Coopr adds them, then machines are added or taken away. Only when
//! that leads nowhere is the cluster laid out anew.

use model::{Error, Result};

use super::budget::{Budget, Stopped};
use super::problem::{Problem, Set, members};
use super::request::Prepared;
use super::search::Search;
use super::verify::{verify, verify_machine};
use super::{Answer, Group, Layout, Question, Request, Solved, Unsolvable, clash, prepare, to_layout};
use crate::catalogue::Catalogue;

type Found<T> = Result<std::result::Result<std::result::Result<T, Unsolvable>, Stopped>>;

/// Solves a request for a cluster that stands. `go_on` is asked now and then whether there is still time.
pub fn adapt(
    catalogue: &Catalogue,
    request: &Request,
    from: &Layout,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Answer> {
    let prepared = match prepare(catalogue, request)? {
        Ok(prepared) => prepared,
        Err(unsolvable) => return Ok(Answer::Unsolvable(unsolvable)),
    };
    let mut budget = Budget::new(go_on);
    let changed = match least_change(&prepared, from, &mut budget)? {
        Err(Stopped) => return Ok(Answer::out_of_time()),
        Ok(changed) => changed,
    };
    let first = match changed {
        Ok(layout) => return Ok(Answer::Solved(prepared.solved(catalogue, layout))),
        Err(first) => first,
    };
    match super::fresh(&prepared.question(), &mut budget)? {
        Err(Stopped) => Ok(Answer::out_of_time()),
        Ok(Ok(layout)) => Ok(Answer::Solved(Solved { anew: true, ..prepared.solved(catalogue, layout) })),
        // What stands in the way of the live cluster says less than what no cluster can meet.
        Ok(Err(unsolvable)) if unsolvable.conflicts.is_empty() => Ok(Answer::Unsolvable(first)),
        Ok(Err(unsolvable)) => Ok(Answer::Unsolvable(unsolvable)),
    }
}

fn least_change(prepared: &Prepared, from: &Layout, budget: &mut Budget<'_>) -> Found<Layout> {
    let kept = match remove(from, &prepared.services) {
        Ok(kept) => kept,
        Err(unsolvable) => return Ok(Ok(Err(unsolvable))),
    };
    let grown = match add(prepared, kept, budget) {
        Err(stopped) => return Ok(Err(stopped)),
        Ok(Err(unsolvable)) => return Ok(Ok(Err(unsolvable))),
        Ok(Ok(grown)) => grown,
    };
    let question = prepared.question();
    if let Some(group) = grown.0.iter().find(|group| !verify_machine(&question, group)) {
        let reason = format!("machines with {} do not keep to the template", group.services.join(", "));
        return Ok(Ok(Err(Unsolvable { reason, conflicts: verify(&question, &grown) })));
    }
    match prepared.size.cmp(&grown.size()) {
        std::cmp::Ordering::Less => shrink(&question, &grown, budget),
        _ => expand(&question, &grown, budget),
    }
}

/// Takes away services that are no longer wanted. No machine may be left without any.
fn remove(from: &Layout, wanted: &[String]) -> Result<Layout, Unsolvable> {
    let strip = |group: &Group| Group {
        services: group.services.iter().filter(|name| wanted.contains(name)).cloned().collect(),
        ..group.clone()
    };
    let kept = Layout(from.0.iter().map(strip).collect()).normal();
    let idle: u32 = kept.0.iter().filter(|group| group.services.is_empty()).map(|group| group.count).sum();
    if idle > 0 {
        let reason = format!("without the services that are removed {idle} machines would carry nothing");
        return Err(Unsolvable { reason, conflicts: Vec::new() });
    }
    Ok(kept)
}

/// Puts new services on machines that stand: those with the smallest maximum first, each on as many
/// machines as it may be, the preferred kinds first.
fn add(
    prepared: &Prepared,
    layout: Layout,
    budget: &mut Budget<'_>,
) -> std::result::Result<Result<Layout, Unsolvable>, Stopped> {
    let present: Vec<String> = layout.counts().keys().map(|name| (*name).to_owned()).collect();
    let mut missing: Vec<String> =
        prepared.services.iter().filter(|name| !present.contains(name)).cloned().collect();
    if missing.is_empty() || layout.0.is_empty() {
        return Ok(Ok(layout));
    }
    let rank = |name: &String| {
        let rule = prepared.template.constraints.services.get(name);
        let quantities = rule.map(|rule| rule.quantities.clone());
        let max = quantities.as_ref().map_or(u64::MAX, |own| own.max.unwrap_or(u64::MAX - 1));
        let min = quantities.and_then(|own| own.min).unwrap_or(0);
        (rule.is_none(), max, std::cmp::Reverse(min), name.clone())
    };
    missing.sort_by_key(rank);
    let mut question = prepared.question();
    question.services = present;
    match add_next(&mut question, &layout, &missing, prepared, budget)? {
        Some(grown) => Ok(Ok(grown)),
        None => {
            let names = missing.join(", ");
            let reason = format!("the machines that stand cannot take {names} as well");
            Ok(Err(Unsolvable { reason, conflicts: Vec::new() }))
        }
    }
}

fn add_next(
    question: &mut Question<'_>,
    layout: &Layout,
    missing: &[String],
    prepared: &Prepared,
    budget: &mut Budget<'_>,
) -> std::result::Result<Option<Layout>, Stopped> {
    let Some((service, rest)) = missing.split_first() else {
        let whole = Question { size: layout.size(), ..prepared.question() };
        // Counts may still change with the number of machines.
        let fits = prepared.size != layout.size() || verify(&whole, layout).is_empty();
        return Ok(fits.then(|| layout.clone()));
    };
    question.services.push(service.clone());
    let mut most = Vec::new();
    let mut least = Vec::new();
    for group in &layout.0 {
        let takes = verify_machine(question, &with(group, service));
        let needs = !verify_machine(question, group);
        most.push(if takes { group.count } else { 0 });
        least.push(if needs { group.count } else { 0 });
    }
    let quantities = question.template.constraints.services.get(service).map(|rule| &rule.quantities);
    let max =
        quantities.and_then(|own| own.max).map_or(u32::MAX, |max| u32::try_from(max).unwrap_or(u32::MAX));
    let min =
        quantities.and_then(|own| own.min).map_or(1, |min| u32::try_from(min).unwrap_or(u32::MAX)).max(1);
    let mut found = None;
    if most.iter().zip(&least).all(|(most, least)| most >= least) {
        let top = most.iter().sum::<u32>().min(max);
        for count in (min..=top).rev() {
            found = add_count(question, layout, (service, rest), (&least, &most), count, prepared, budget)?;
            if found.is_some() {
                break;
            }
        }
    }
    question.services.pop();
    Ok(found)
}

/// Tries every way to put a service on so many machines, the preferred kinds first.
fn add_count(
    question: &mut Question<'_>,
    layout: &Layout,
    (service, rest): (&String, &[String]),
    (least, most): (&[u32], &[u32]),
    count: u32,
    prepared: &Prepared,
    budget: &mut Budget<'_>,
) -> std::result::Result<Option<Layout>, Stopped> {
    let mut shares = Some(greatest_shares(least, most, 0, count, Vec::new()));
    while let Some(Some(current)) = shares {
        budget.tick()?;
        let mut groups = Vec::new();
        for (group, share) in layout.0.iter().zip(&current) {
            groups.push(Group { count: *share, ..with(group, service) });
            groups.push(Group { count: group.count - share, ..group.clone() });
        }
        let grown = Layout(groups).normal();
        if let Some(found) = add_next(question, &grown, rest, prepared, budget)? {
            return Ok(Some(found));
        }
        shares = next_shares(least, most, &current).map(Some);
    }
    Ok(None)
}

/// The lexicographically greatest shares that begin with `head` and sum up to `head`'s sum and `count` more.
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

fn with(group: &Group, service: &str) -> Group {
    let mut services = group.services.clone();
    services.push(service.to_owned());
    services.sort();
    Group { services, ..group.clone() }
}

/// How often each class stands already.
pub fn used(problem: &Problem, standing: &[Group]) -> Vec<u32> {
    let count = |class: &super::problem::Class| {
        let carries = |group: &&Group| group.services.contains(&class.services[0]);
        standing.iter().filter(carries).map(|group| group.count).sum()
    };
    problem.classes.iter().map(count).collect()
}

/// Adds machines to those that stand.
fn expand(question: &Question<'_>, layout: &Layout, budget: &mut Budget<'_>) -> Found<Layout> {
    let problem = Problem::new(question, &[])?;
    let used = used(&problem, &layout.0);
    let machines = question.size - layout.size();
    match Search::new(&problem).solve(&used, machines, budget) {
        Err(stopped) => Ok(Err(stopped)),
        Ok(None) => Ok(Ok(Err(clash::explain(question, &layout.0, machines, budget)?))),
        Ok(Some(picks)) => {
            let mut groups = layout.0.clone();
            groups.extend(to_layout(&problem, &picks).0);
            Ok(Ok(Ok(Layout(groups).normal())))
        }
    }
}

/// Takes machines away, the least preferred kinds first.
fn shrink(question: &Question<'_>, layout: &Layout, budget: &mut Budget<'_>) -> Found<Layout> {
    let problem = Problem::new(question, &[])?;
    let class_set = |group: &Group| -> Set {
        let on = |at: &usize| group.services.contains(&problem.classes[*at].services[0]);
        (0..problem.classes.len()).filter(on).fold(0, |set, at| set | 1 << at)
    };
    let kinds: Vec<(Set, u32)> = layout.0.iter().map(|group| (class_set(group), group.count)).collect();
    let mut kept = Vec::new();
    let mut counts = vec![0; problem.classes.len()];
    match keep(&problem, &kinds, question.size, &mut counts, &mut kept, budget) {
        Err(stopped) => Ok(Err(stopped)),
        Ok(false) => {
            let size = question.size;
            let reason = format!("no choice of {size} of the machines that stand keeps to the template");
            Ok(Ok(Err(Unsolvable { reason, conflicts: Vec::new() })))
        }
        Ok(true) => {
            let group = |(group, count): (&Group, &u32)| Group { count: *count, ..group.clone() };
            Ok(Ok(Ok(Layout(layout.0.iter().zip(&kept).map(group).collect()).normal())))
        }
    }
}

/// Decides kind after kind how many machines stay, as many as possible of the preferred ones.
fn keep(
    problem: &Problem,
    kinds: &[(Set, u32)],
    left: u32,
    counts: &mut Vec<u32>,
    kept: &mut Vec<u32>,
    budget: &mut Budget<'_>,
) -> std::result::Result<bool, Stopped> {
    budget.tick()?;
    let at = kept.len();
    let lattice = &problem.lattice;
    if at == kinds.len() {
        return Ok(left == 0 && lattice.holds(counts));
    }
    // What the kinds to come can add at most.
    let reach = |class: usize| {
        let carried = kinds[at..].iter().filter(|(set, _)| set >> class & 1 == 1).map(|(_, count)| *count);
        counts[class] + carried.sum::<u32>().min(left)
    };
    if (0..counts.len()).any(|class| counts[class] > lattice.max[class] || reach(class) < lattice.min[class])
    {
        return Ok(false);
    }
    let later: u32 = kinds[at + 1..].iter().map(|(_, count)| count).sum();
    let (set, most) = kinds[at];
    for count in (left.saturating_sub(later)..=most.min(left)).rev() {
        members(set).for_each(|class| counts[class] += count);
        kept.push(count);
        if keep(problem, kinds, left - count, counts, kept, budget)? {
            return Ok(true);
        }
        kept.pop();
        members(set).for_each(|class| counts[class] -= count);
    }
    Ok(false)
}

/// Refuses a layout that names what the catalogue does not have.
pub fn known(catalogue: &Catalogue, layout: &Layout) -> Result<()> {
    for group in &layout.0 {
        for service in &group.services {
            if !catalogue.services.contains_key(service) {
                return Err(Error::invalid(format!(
                    "the layout has service '{service}', which does not exist"
                )));
            }
        }
    }
    Ok(())
}
