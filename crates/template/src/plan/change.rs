//! Which machines come, stay and go between two layouts, and the plan of it.

use std::collections::{BTreeMap, HashSet};

use model::Result;

use super::graph::{Graph, Task, TaskName};
use super::order::{Builder, Order, Reach};
use super::{Cluster, NODENUM_FIRST, PlanNode};
use crate::entity::Service;
use crate::solve::{Group, Layout};

/// The machines of the new layout and those that go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The machines of the new layout, in the order of their numbers.
    pub nodes: Vec<PlanNode>,
    /// What each of them carries now; nothing when it is new.
    pub before: Vec<Option<Vec<String>>>,
    pub gone: Vec<PlanNode>,
}

impl Assignment {
    /// What the change amounts to, in Coopr's words where it has one.
    pub fn action(&self) -> &'static str {
        let created = self.before.iter().any(Option::is_none);
        let kept = self.before.iter().any(Option::is_some);
        let differs = |more: fn(&[String], &[String]) -> bool| {
            let pairs = self.nodes.iter().zip(&self.before);
            pairs
                .filter_map(|(node, before)| Some((node, before.as_ref()?)))
                .any(|(node, before)| more(&node.services, before))
        };
        let added = differs(|now, before| now.iter().any(|name| !before.contains(name)));
        let removed = differs(|now, before| before.iter().any(|name| !now.contains(name)));
        match (created, !self.gone.is_empty(), added, removed) {
            (false, false, false, false) => "NONE",
            (true, false, false, false) if !kept => "CLUSTER_CREATE",
            (true, false, false, false) => "CLUSTER_EXPAND",
            (false, true, false, false) if !kept => "CLUSTER_DELETE",
            (false, true, false, false) => "CLUSTER_SHRINK",
            (false, false, true, false) => "ADD_SERVICES",
            (false, false, false, true) => "REMOVE_SERVICES",
            _ => "CLUSTER_CHANGE",
        }
    }
}

/// Gives machines that stand to the new layout such that the least changes: like machines stay, then
/// those that share most services, and only on the same hardware and image. New ones are numbered on.
pub fn assign(old: &[PlanNode], new: &Layout) -> Assignment {
    let mut free: Vec<(Group, Vec<&PlanNode>)> = Vec::new();
    for node in old {
        let group = Group {
            count: 0,
            services: node.services.clone(),
            hardwaretype: node.hardwaretype.clone(),
            imagetype: node.imagetype.clone(),
        };
        match free.iter_mut().find(|(other, _)| other.is_like(&group)) {
            Some((_, nodes)) => nodes.push(node),
            None => free.push((group, vec![node])),
        }
    }
    for (_, nodes) in &mut free {
        // Those that failed go first, then the highest numbers.
        nodes.sort_by_key(|node| (!node.failed, std::cmp::Reverse(node.nodenum)));
    }
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (at, (group, _)) in free.iter().enumerate() {
        let same = |(_, wanted): &(usize, &Group)| {
            wanted.hardwaretype == group.hardwaretype && wanted.imagetype == group.imagetype
        };
        pairs.extend(new.0.iter().enumerate().filter(same).map(|(to, _)| (at, to)));
    }
    pairs.sort_by_key(|(from, to)| difference(&free[*from].0.services, &new.0[*to].services));
    let mut left: Vec<u32> = new.0.iter().map(|group| group.count).collect();
    let mut kept: Vec<(PlanNode, Option<Vec<String>>)> = Vec::new();
    for (from, to) in pairs {
        while left[to] > 0
            && let Some(node) = free[from].1.pop()
        {
            left[to] -= 1;
            kept.push((
                PlanNode { services: new.0[to].services.clone(), ..node.clone() },
                Some(node.services.clone()),
            ));
        }
    }
    let gone: BTreeMap<u32, PlanNode> =
        free.iter().flat_map(|(_, nodes)| nodes.iter().map(|node| (node.nodenum, (*node).clone()))).collect();
    let mut nodenum = old.iter().map(|node| node.nodenum + 1).max().unwrap_or(NODENUM_FIRST);
    for (group, left) in new.0.iter().zip(left) {
        for _ in 0..left {
            let node = PlanNode {
                id: nodenum.to_string(),
                nodenum,
                services: group.services.clone(),
                hardwaretype: group.hardwaretype.clone(),
                imagetype: group.imagetype.clone(),
                failed: false,
            };
            kept.push((node, None));
            nodenum += 1;
        }
    }
    kept.sort_by_key(|(node, _)| node.nodenum);
    let (nodes, before) = kept.into_iter().unzip();
    Assignment { nodes, before, gone: gone.into_values().collect() }
}

/// In how many services two machines differ.
fn difference(one: &[String], other: &[String]) -> usize {
    let lacks = |from: &[String], of: &[String]| of.iter().filter(|name| !from.contains(name)).count();
    lacks(one, other) + lacks(other, one)
}

/// Plans the way to a new layout. The nodes of the tasks are the assignment's, those that go at the end.
pub fn change(known: &BTreeMap<String, Service>, assignment: &Assignment) -> Result<(Vec<PlanNode>, Graph)> {
    let carrying = |node: &PlanNode, services: Vec<String>| PlanNode { services, ..node.clone() };
    let now = |(node, before): (&PlanNode, &Option<Vec<String>>)| {
        carrying(node, before.clone().unwrap_or_default())
    };
    let mut old_view: Vec<PlanNode> = assignment.nodes.iter().zip(&assignment.before).map(now).collect();
    old_view.extend(assignment.gone.iter().cloned());
    let mut new_view = assignment.nodes.clone();
    new_view.extend(assignment.gone.iter().map(|node| carrying(node, Vec::new())));
    let removed = lacking(&old_view, &new_view);
    let added = lacking(&new_view, &old_view);

    let cluster = Cluster::new(known, &old_view)?;
    let mut builder =
        Builder::new(&cluster, Graph::default(), Reach::Planned(removed.iter().cloned().collect()));
    let kept = assignment.nodes.len();
    let mut last: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (node, service) in &removed {
        // Also on a machine that goes: others may have to be told that it leaves.
        let actions = Order::RemoveServices.actions();
        last.entry(*node).or_default().extend(builder.service(*node, service, actions, |_| true));
    }
    let mut graph = builder.graph;
    for node in kept..new_view.len() {
        let delete = graph.add(Task { name: TaskName::Delete, node, service: String::new() });
        last.remove(&node).into_iter().flatten().for_each(|stop| graph.need(delete, stop));
    }

    let cluster = Cluster::new(known, &new_view)?;
    let mut builder = Builder::new(&cluster, graph, Reach::PlannedButStart(added.iter().cloned().collect()));
    for (node, before) in assignment.before.iter().enumerate() {
        if before.is_none() {
            builder.machine(node, Order::ClusterCreate.actions());
        }
    }
    for (node, service) in &added {
        let order =
            if assignment.before[*node].is_none() { Order::ClusterCreate } else { Order::AddServices };
        builder.service(*node, service, order.actions(), |_| true);
        // A port or a folder may be free only when what leaves the machine has left.
        let bootstrap =
            builder.graph.find(&Task { name: TaskName::Bootstrap, node: *node, service: String::new() });
        if let (Some(bootstrap), Some(before)) = (bootstrap, last.get(node)) {
            before.iter().for_each(|task| builder.graph.need(bootstrap, *task));
        }
    }
    let graph = builder.graph;
    Ok((with_services(new_view, &old_view), graph))
}

/// The services that nodes carry in one view and not in the other.
fn lacking(view: &[PlanNode], other: &[PlanNode]) -> Vec<(usize, String)> {
    let mut pairs = Vec::new();
    for (at, (node, other)) in view.iter().zip(other).enumerate() {
        let has: HashSet<&String> = other.services.iter().collect();
        pairs.extend(node.services.iter().filter(|name| !has.contains(name)).map(|name| (at, name.clone())));
    }
    pairs
}

/// Nodes that go are shown with what they carried.
fn with_services(view: Vec<PlanNode>, old: &[PlanNode]) -> Vec<PlanNode> {
    let filled = |(node, old): (PlanNode, &PlanNode)| match node.services.is_empty() {
        true => old.clone(),
        false => node,
    };
    view.into_iter().zip(old).map(filled).collect()
}
