//! What takes a failed job back: machines that are new are deleted, and what was begun on those that stay, or go back
//! to their pool, is done the other way round, the last first. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use template::entity::ActionKind;

use super::live::Live;
use super::plan::depths;
use super::record::{Machine, Mark, PlanTask, Verb};

/// The tasks that take the job back; their numbers go on from those of the plan.
pub fn tasks(live: &Live) -> Vec<PlanTask> {
    let mut out = Vec::new();
    let fresh: BTreeSet<u32> =
        live.rows.values().filter(|row| row.before.is_none()).map(|row| row.num).collect();
    // Machines of a pool outlive the cluster; with others goes what is on them.
    let is_pool = live.catalogue.is_pool(&live.cluster.provider);
    let is_cleaned = |num: &u32| is_pool && live.nodes.get(num).is_some_and(|node| node.confirmed);
    let is_left = |num: &u32| fresh.contains(num) && !is_cleaned(num);
    let first = live.plan.len() as u32;
    let begun = begun(live);
    let depth = depths(&live.plan);
    let mut by_depth: Vec<u32> = (0..live.plan.len() as u32)
        .filter(|at| begun.contains(at) && !is_left(&live.plan[*at as usize].node))
        .collect();
    by_depth.sort_by_key(|at| (std::cmp::Reverse(depth[*at as usize]), *at));
    let mut gate: Option<u32> = None;
    let mut level: Vec<u32> = Vec::new();
    let mut level_depth = None;
    let mut by_node: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for at in by_depth {
        if level_depth != Some(depth[at as usize]) {
            gate = close(&mut out, first, &mut level).or(gate);
            level_depth = Some(depth[at as usize]);
        }
        let done = &live.plan[at as usize];
        let mut needs: Vec<u32> = gate.into_iter().collect();
        for verb in inverse(live, done) {
            let number = first + out.len() as u32;
            out.push(task(verb, done.node, &done.service, std::mem::replace(&mut needs, vec![number])));
            level.push(number);
            by_node.entry(done.node).or_default().push(number);
        }
    }
    for num in &fresh {
        if live.nodes.get(num).is_some_and(|node| node.machine != Machine::None) {
            out.push(task(Verb::Delete, *num, "", by_node.remove(num).unwrap_or_default()));
        }
    }
    out
}

/// Whether a machine may have been deleted that was part of the cluster, and was not given up before.
pub fn deletes(live: &Live) -> bool {
    let begun = begun(live);
    let given_up = |num: u32| live.rows.get(&num).is_some_and(|row| row.given_up);
    begun
        .iter()
        .map(|at| &live.plan[*at as usize])
        .any(|task| task.verb == Some(Verb::Delete) && !given_up(task.node))
}

/// A gate behind all of one level.
fn close(out: &mut Vec<PlanTask>, first: u32, level: &mut Vec<u32>) -> Option<u32> {
    if level.is_empty() {
        return None;
    }
    let number = first + out.len() as u32;
    out.push(PlanTask { verb: None, node: 0, service: String::new(), needs: std::mem::take(level) });
    Some(number)
}

fn task(verb: Verb, node: u32, service: &str, needs: Vec<u32>) -> PlanTask {
    PlanTask { verb: Some(verb), node, service: service.to_owned(), needs }
}

/// What was done, and what may have been: all that it needed was done.
fn begun(live: &Live) -> BTreeSet<u32> {
    let is_done =
        |at: u32| live.tasks.get(&at).is_some_and(|row| matches!(row.mark, Mark::Done | Mark::Passed));
    let mut open: Vec<Option<bool>> = vec![None; live.plan.len()];
    let mut begun = BTreeSet::new();
    for at in 0..live.plan.len() as u32 {
        let seen = live.tasks.contains_key(&at);
        let ready = live.plan[at as usize].needs.iter().all(|need| passed(live, *need, &is_done, &mut open));
        if live.plan[at as usize].verb.is_some() && (seen || ready) {
            begun.insert(at);
        }
    }
    begun
}

/// Whether a task is done; a gate is when all that it needs is.
fn passed(live: &Live, at: u32, is_done: &impl Fn(u32) -> bool, open: &mut Vec<Option<bool>>) -> bool {
    if let Some(known) = open[at as usize] {
        return known;
    }
    let task = &live.plan[at as usize];
    let answer = match task.verb {
        Some(_) => is_done(at),
        // Gates need tasks, never gates that need each other: the plan has no circles.
        None => task.needs.iter().all(|need| passed(live, *need, is_done, open)),
    };
    open[at as usize] = Some(answer);
    answer
}

/// What undoes a task, one after the other. What a service cannot do is left out.
fn inverse(live: &Live, task: &PlanTask) -> Vec<Verb> {
    let row = live.rows.get(&task.node);
    let carried = row.and_then(|row| row.before.as_ref()).is_some_and(|all| all.contains(&task.service));
    let verbs: &[(Verb, ActionKind)] = match task.verb {
        // A service that was there before is only started again, never stopped or removed.
        Some(Verb::Install) if !carried => &[(Verb::Remove, ActionKind::Remove)],
        Some(Verb::Start) if !carried => &[(Verb::Stop, ActionKind::Stop)],
        Some(Verb::Stop) if carried => &[(Verb::Start, ActionKind::Start)],
        Some(Verb::Remove) if carried => {
            &[(Verb::Install, ActionKind::Install), (Verb::Configure, ActionKind::Configure)]
        }
        _ => &[],
    };
    verbs
        .iter()
        .filter(|(_, action)| live.has_action(&task.service, *action))
        .map(|(verb, _)| *verb)
        .collect()
}
