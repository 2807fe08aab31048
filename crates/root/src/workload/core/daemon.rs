//! A daemon: one instance on every node that matches, replaced in place.
//!
//! There is no surge: the old one goes before the new one comes. A node that takes nothing new keeps
//! the one it has; a node that is silent keeps it too. One that is gone, or matches no longer, loses it.

use std::collections::{BTreeMap, BTreeSet};

use model::{InstanceId, WorkloadPhase};

use super::rollout::{self, Counts};
use super::service::leaving;
use super::{Create, Look, Node, Plan, Seen};
use crate::workload::record::{Pin, before};

/// How soon it is looked for the nodes again while they are not known.
const NODES_RETRY_MS: i64 = 1_000;

pub fn step(look: &Look<'_>, plan: &mut Plan) {
    let Some(nodes) = look.nodes else {
        plan.look_at(look.now.plus_ms(NODES_RETRY_MS));
        if plan.state.rollout.is_none() {
            plan.say(WorkloadPhase::Progressing, Some("the nodes are not known yet".to_owned()));
        }
        return;
    };
    let nodes: BTreeMap<&Pin, &Node> = nodes.iter().map(|node| (&node.pin, node)).collect();
    let mut here: Vec<&Seen> = look.instances.iter().filter(|seen| !seen.going()).collect();
    if !look.record.spec.paused {
        look.ended_out(plan, &mut here);
        misplaced_out(look, plan, &mut here, &nodes);
    }
    let held: BTreeSet<&Pin> = here.iter().filter_map(|seen| seen.pin.as_ref()).collect();
    let wanted =
        nodes.values().filter(|node| node.alive && (node.open || held.contains(&node.pin))).count() as u32;
    // Those on silent nodes are neither counted nor replaced.
    here.retain(|seen| seen.pin.as_ref().and_then(|pin| nodes.get(pin)).is_some_and(|node| node.alive));
    let (new, old): (Vec<&Seen>, Vec<&Seen>) = here.iter().partition(|seen| look.current(seen));
    let count = |of: &[&Seen]| of.iter().filter(|seen| look.available(seen)).count() as u32;
    let (old_available, new_available) = (count(&old), count(&new));
    let counts = Counts { wanted, old: &old, new: &new, old_available, new_available };
    let most_new = rollout::follow(look, plan, &counts);
    if !look.record.spec.paused && plan.roll_back.is_none() {
        let empty = fill(look, plan, &nodes, &held, most_new.saturating_sub(new.len() as u32));
        shrink(look, plan, &counts, most_new.saturating_sub(new.len() as u32 + empty));
    }
    look.look_when_available(plan, &here);
    rollout::phase(look, plan, &counts);
    let status = &mut plan.state.status;
    if wanted == 0 && status.message.is_none() {
        status.message = Some(match nodes.len() {
            0 => "no node matches what it asks of one; it comes to those that will".to_owned(),
            count => format!("of the {count} nodes that match none takes instances: cordoned or silent"),
        });
    }
    (status.wanted, status.available, status.updated) =
        (wanted, old_available + new_available, new.len() as u32);
}

/// Removes what stands on no node that matches, and the second one on a node.
fn misplaced_out(look: &Look<'_>, plan: &mut Plan, here: &mut Vec<&Seen>, nodes: &BTreeMap<&Pin, &Node>) {
    let mut taken: BTreeSet<&Pin> = BTreeSet::new();
    let mut stay: BTreeSet<InstanceId> = BTreeSet::new();
    for seen in leaving(look, here).into_iter().rev() {
        if let Some(pin) = seen.pin.as_ref().filter(|pin| nodes.contains_key(pin))
            && taken.insert(pin)
        {
            stay.insert(seen.id.clone());
        }
    }
    here.retain(|seen| {
        stay.contains(&seen.id) || {
            plan.deletes.push(seen.id.clone());
            false
        }
    });
}

/// Makes one where a node has none. Says how many of the new revision are on their way so.
fn fill(
    look: &Look<'_>,
    plan: &mut Plan,
    nodes: &BTreeMap<&Pin, &Node>,
    held: &BTreeSet<&Pin>,
    most_new: u32,
) -> u32 {
    let leaving: BTreeSet<&Pin> =
        look.instances.iter().filter(|seen| seen.going()).filter_map(|seen| seen.pin.as_ref()).collect();
    let old = before(look.record, &plan.state.complete).map(|template| template.revision);
    let mut new = 0;
    for node in nodes.values().filter(|node| node.open && node.alive && !held.contains(&node.pin)) {
        let revision = match old {
            Some(old) if new >= most_new => old,
            _ => {
                new += 1;
                look.record.revision
            }
        };
        if !leaving.contains(&node.pin) {
            plan.creates.push(Create { revision, run: None, pin: Some(node.pin.clone()), count: 1 });
        }
    }
    new
}

/// Lets old ones go, so many that enough stay available.
fn shrink(look: &Look<'_>, plan: &mut Plan, counts: &Counts<'_>, most: u32) {
    let missing = look.record.spec.update.room(counts.wanted).0.max(1);
    let least = counts.wanted.saturating_sub(missing);
    let mut busy = (counts.old_available + counts.new_available).saturating_sub(least);
    let mut left = most;
    for seen in leaving(look, counts.old) {
        let available = look.available(seen);
        if left == 0 || (available && busy == 0) {
            continue;
        }
        busy -= u32::from(available);
        left -= 1;
        plan.deletes.push(seen.id.clone());
    }
}
