//! A service: always so many, and the new in place of the old within the update policy's room. Where none may be missing,
//! one whose place is emptied counts as old: another is made first.

use std::collections::HashMap;

use model::{Name, Run};

use super::rollout::{self, Counts};
use super::{Look, Plan, Seen, scale};
use crate::workload::record::before;

pub fn step(look: &Look<'_>, plan: &mut Plan, replicas: u32) {
    let mut here: Vec<&Seen> = look.instances.iter().filter(|seen| !seen.going()).collect();
    if !look.record.spec.paused {
        look.ended_out(plan, &mut here);
    }
    let available = here.iter().filter(|seen| look.available(seen)).count() as u32;
    let wanted = scale::step(look, plan, replicas, available);
    let updated = here.iter().filter(|seen| look.current(seen)).count() as u32;
    let (new, old): (Vec<&Seen>, Vec<&Seen>) =
        here.iter().partition(|seen| look.current(seen) && !look.displaced(seen, wanted));
    let new_available = new.iter().filter(|seen| look.available(seen)).count() as u32;
    let counts =
        Counts { wanted, old: &old, new: &new, old_available: available - new_available, new_available };
    // What is there already is not too much as long as it is wanted.
    let most_new = rollout::follow(look, plan, &counts).max(wanted.min(new.len() as u32));
    if !look.record.spec.paused && plan.roll_back.is_none() {
        grow(look, plan, &counts, most_new);
        shrink(look, plan, &counts, most_new);
    }
    look.look_when_available(plan, &here);
    rollout::phase(look, plan, &counts);
    let status = &mut plan.state.status;
    (status.wanted, status.available, status.updated) = (wanted, available, updated);
}

/// Makes what is missing, never more than the wanted number and the surge.
fn grow(look: &Look<'_>, plan: &mut Plan, counts: &Counts<'_>, most_new: u32) {
    let (_, surge) = look.record.spec.update.room(counts.wanted);
    let (old, new) = (counts.old.len() as u32, counts.new.len() as u32);
    let top = if old == 0 { counts.wanted } else { counts.wanted + surge };
    let room = top.saturating_sub(old + new);
    let more_new = most_new.saturating_sub(new).min(room);
    plan.create(look.record.revision, more_new);
    // While only canaries are new, what the old ones lose is made good from the old template.
    let few_old = (counts.wanted - most_new).saturating_sub(old).min(room - more_new);
    if let Some(template) = before(look.record, &plan.state.complete).filter(|_| few_old > 0) {
        plan.create(template.revision, few_old);
    }
}

/// Removes what is too much, and old ones as far as enough stay available.
fn shrink(look: &Look<'_>, plan: &mut Plan, counts: &Counts<'_>, most_new: u32) {
    let (missing, _) = look.record.spec.update.room(counts.wanted);
    let (old, new) = (counts.old.len() as u32, counts.new.len() as u32);
    let excess = new.saturating_sub(most_new);
    let mut available = counts.old_available + counts.new_available;
    // Mostly nothing leaves, and then nobody need be put in order.
    if excess > 0 {
        for seen in leaving(look, counts.new).into_iter().take(excess as usize) {
            available -= u32::from(look.available(seen));
            plan.deletes.push(seen.id.clone());
        }
    }
    let least = counts.wanted - missing;
    let removable = old.saturating_sub(counts.wanted - most_new);
    if removable == 0 {
        return;
    }
    let new_missing = (new - excess + plan.created()).saturating_sub(counts.new_available);
    // What is not available may go as long as what is left can still reach the least.
    let all = old + new - excess + plan.created();
    let idle_most = all.saturating_sub(least + new_missing);
    let busy_most = available.saturating_sub(least);
    let (mut idle, mut busy, mut left) = (idle_most, busy_most, removable);
    for seen in leaving(look, counts.old) {
        let room = if look.available(seen) { &mut busy } else { &mut idle };
        if left > 0 && *room > 0 {
            *room -= 1;
            left -= 1;
            plan.deletes.push(seen.id.clone());
        }
    }
}

/// In the order in which they are let go: those that do not run, the unhealthy, those whose place is emptied, those of an
/// older revision, those on the fullest node, the youngest.
pub fn leaving<'a>(look: &Look<'_>, of: &[&'a Seen]) -> Vec<&'a Seen> {
    let mut all: Vec<&Seen> = of.to_vec();
    all.sort_by_key(|seen| (seen.created_at, seen.id.clone()));
    // How many of the same node would stay longer: the most first, so that the fullest node gives first.
    let mut on_node: HashMap<Option<&Name>, u32> = HashMap::new();
    let mut ranked: Vec<(&Seen, u32)> = Vec::with_capacity(all.len());
    for seen in all {
        let count = on_node.entry(seen.node.as_ref()).or_default();
        *count += 1;
        ranked.push((seen, *count));
    }
    ranked.sort_by_key(|(seen, rank)| {
        let runs = seen.phase == model::Phase::Running && seen.asked == Run::Running;
        (
            runs,
            seen.well(),
            look.available(seen),
            !seen.leaves,
            look.current(seen),
            std::cmp::Reverse((*rank, seen.created_at)),
        )
    });
    ranked.into_iter().map(|(seen, _)| seen).collect()
}
