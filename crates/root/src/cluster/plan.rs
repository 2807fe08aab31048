//! From an order to a plan: which machines the cluster has then, and what is done in which order. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use api::PlanStep;
use model::{Error, Fault, Result};
use serde_json::{Map, Value};
use template::plan::{self, Assignment, Cluster, Graph, Order, PlanNode};
use template::solve::{self, Answer, Request, Unsolvable};
use template::{Catalogue, Layout};

use super::record::{ClusterRecord, NodeRecord, Plan, PlanRow, PlanTask, Purpose, Shape, Verb};

/// Machines, and services on them, that one plan takes: each is several tasks, all of which are in memory while the
/// job goes on.
const PLACED_MAX: u64 = 150_000;

/// The action that only looks.
pub const CHECK: &str = "CLUSTER_CHECK";

/// What is asked of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Create {
        size: u32,
    },
    Delete,
    /// Another size, other services.
    Become {
        size: u32,
        services: Vec<String>,
        anew: bool,
    },
    Configure {
        config: Map<String, Value>,
        restart: bool,
    },
    Start(Vec<String>),
    Stop(Vec<String>),
    Restart(Vec<String>),
    Upgrade {
        services: Vec<String>,
        batch: usize,
    },
    Rollback,
    /// Makes machines anew that are gone, and these.
    Repair(BTreeSet<u32>),
    /// Asks the provider for each machine.
    Check,
}

/// A job that can be begun.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub action: &'static str,
    pub purpose: Purpose,
    pub plan: Plan,
    pub target: Shape,
    pub cost: Option<f64>,
    /// Machines there are at the most while it goes on.
    pub machines: u32,
    pub node_next: u32,
    pub levels: u32,
    /// Machines that stand cannot all be kept.
    pub anew: bool,
}

/// What a wish is planned from.
pub struct Ground<'a> {
    pub cluster: &'a ClusterRecord,
    /// The definitions that the cluster is made from.
    pub catalogue: &'a Catalogue,
    pub nodes: Vec<&'a NodeRecord>,
    /// Nodes whose machines are made anew although they may be there.
    pub given_up: BTreeSet<u32>,
}

/// What solving said when it found no layout.
pub fn refusal(unsolvable: &Unsolvable) -> Error {
    let fault = |text: &String| Fault { field: None, message: text.clone(), hint: None };
    let mut error = Error::invalid(unsolvable.reason.clone());
    error.more = unsolvable.conflicts.iter().map(|conflict| fault(&conflict.text)).collect();
    error
}

/// Asks the solver; what cannot be is an error.
fn layout(answer: Answer) -> Result<(Layout, Option<f64>, bool)> {
    match answer {
        Answer::Solved(solved) => Ok((solved.layout, solved.cost, solved.anew)),
        Answer::Unsolvable(unsolvable) => Err(refusal(&unsolvable)),
        Answer::Undecided(reason) => Err(Error::unavailable(format!("no layout was found: {reason}"))
            .hint("ask for more machines, or for fewer services")),
    }
}

fn plan_node(node: &NodeRecord) -> PlanNode {
    PlanNode {
        id: node.num.to_string(),
        nodenum: node.num,
        services: node.services.clone(),
        hardwaretype: node.hardwaretype.clone(),
        imagetype: node.imagetype.clone(),
        failed: node.message.is_some(),
    }
}

impl Ground<'_> {
    /// The request that the cluster was made with, for another size and other services.
    pub fn request(&self, size: u32, services: &[String]) -> Request {
        Request {
            template: self.cluster.template.clone(),
            size,
            provider: Some(self.cluster.provider.clone()),
            services: services.to_vec(),
            hardwaretype: self.cluster.hardwaretype.clone(),
            imagetype: self.cluster.imagetype.clone(),
        }
    }

    /// The nodes that belong to it and have a machine.
    fn standing(&self) -> Vec<PlanNode> {
        let stands = |node: &&&NodeRecord| node.joined && !node.leaving && !self.is_given_up(node);
        self.nodes.iter().filter(stands).map(|node| plan_node(node)).collect()
    }

    fn is_given_up(&self, node: &NodeRecord) -> bool {
        node.is_gone() || self.given_up.contains(&node.num)
    }

    /// Machines of a pool outlive the cluster, so services leave one that is given up as far as they can.
    fn is_cleaned(&self, node: &NodeRecord) -> bool {
        let is_pool = self.catalogue.is_pool(&self.cluster.provider);
        is_pool && self.given_up.contains(&node.num) && node.confirmed && !node.is_gone()
    }

    /// The nodes that should be gone and may have a machine.
    fn stray(&self) -> impl Iterator<Item = &NodeRecord> {
        let is_stray = |node: &&NodeRecord| !node.joined || node.leaving || self.is_given_up(node);
        self.nodes.iter().copied().filter(is_stray)
    }

    pub fn plan(&self, wish: &Wish, go_on: &mut dyn FnMut() -> bool) -> Result<Planned> {
        let shape = &self.cluster.shape;
        match wish {
            Wish::Create { size } => {
                let request = self.request(*size, &shape.services);
                let (layout, cost, _) = layout(solve::solve(self.catalogue, &request, go_on)?)?;
                placeable(&layout)?;
                let assignment = plan::assign(&[], &layout);
                self.change(Purpose::Create, assignment, Shape { layout, ..shape.clone() }, cost, false)
            }
            Wish::Become { size, services, anew } => {
                let request = self.request(*size, services);
                let answer = solve::adapt(self.catalogue, &request, &shape.layout, go_on)?;
                let (layout, cost, is_anew) = layout(answer)?;
                placeable(&layout)?;
                if is_anew && !anew {
                    return Err(self.replaced(&request, go_on));
                }
                let assignment = plan::assign(&self.standing(), &layout);
                let target = Shape { layout, services: services.clone(), ..shape.clone() };
                self.change(Purpose::Change, assignment, target, cost, is_anew)
            }
            Wish::Rollback => {
                let back = self.cluster.back().cloned();
                let back = back.ok_or_else(|| self.nowhere_back())?;
                let assignment = plan::assign(&self.standing(), &back.layout);
                let cost = back.layout.cost(self.catalogue, &self.cluster.provider);
                let planned = match assignment.action() {
                    // The same machines and services: what differs is how they are installed and configured.
                    "NONE" => Planned { target: back, ..self.upgrade(&[], 1)? },
                    _ => self.change(Purpose::Change, assignment, back, cost, false)?,
                };
                Ok(Planned { action: "CLUSTER_ROLLBACK", ..planned })
            }
            Wish::Repair(given_up) => {
                let (nodes, given_up) = (self.nodes.clone(), given_up.clone());
                let ground = Ground { given_up, nodes, ..*self };
                let assignment = plan::assign(&ground.standing(), &shape.layout);
                let planned =
                    ground.change(Purpose::Change, assignment, shape.clone(), self.cluster.cost, false)?;
                Ok(Planned { action: "CLUSTER_REPAIR", ..planned })
            }
            Wish::Check => self.check(),
            Wish::Delete => self.delete(),
            Wish::Configure { config, restart } => {
                let order =
                    if *restart { Order::ClusterConfigureWithRestart } else { Order::ClusterConfigure };
                let mut planned = self.operate(order, &[])?;
                planned.target.config = config.clone();
                Ok(planned)
            }
            Wish::Start(services) => self.operate(Order::StartServices, services),
            Wish::Stop(services) => self.operate(Order::StopServices, services),
            Wish::Restart(services) => self.operate(Order::RestartServices, services),
            Wish::Upgrade { services, batch } => self.upgrade(services, *batch),
        }
    }

    /// That machines would have to give way, and what else there is.
    fn replaced(&self, request: &Request, go_on: &mut dyn FnMut() -> bool) -> Error {
        let error = Error::conflict("no layout keeps all machines that stand; some would be replaced");
        let stands = &self.cluster.shape.layout;
        let allow = "allow that with --anew ('anew' in REST)";
        match solve::size_that_keeps(self.catalogue, request, stands, go_on) {
            Some(size) if size < stands.size() => {
                let idle = stands.size() - size;
                error.hint(format!("{allow}, or give up {idle} of them with the size {size}"))
            }
            Some(size) => error.hint(format!("{allow}, or ask for {size} machines, which keep all of them")),
            None => error.hint(format!("{allow}, or ask for another size")),
        }
    }

    fn nowhere_back(&self) -> Error {
        match self.cluster.before {
            None => Error::conflict("there is no earlier layout to go back to"),
            Some(_) => Error::conflict(
                "there is nothing to go back to: the last change left machines, services and configuration as they were",
            )
            .hint("expand, shrink, services and configure lead to where it was before"),
        }
    }

    fn operate(&self, order: Order, services: &[String]) -> Result<Planned> {
        let nodes = self.standing();
        bounded(&nodes)?;
        let cluster = Cluster::new(&self.catalogue.services, &nodes)?;
        let graph = plan::order(&cluster, order, named(services), None)?;
        let action = match order {
            Order::ClusterConfigure => "CLUSTER_CONFIGURE",
            Order::ClusterConfigureWithRestart => "CLUSTER_CONFIGURE_WITH_RESTART",
            Order::StartServices => "START_SERVICES",
            Order::StopServices => "STOP_SERVICES",
            _ => "RESTART_SERVICES",
        };
        self.same(action, &nodes, &graph)
    }

    /// A look at each machine that is not known to be gone.
    fn check(&self) -> Result<Planned> {
        let nodes = self.standing();
        bounded(&nodes)?;
        let look = |node: &PlanNode| {
            let (verb, service) = (Some(Verb::Confirm), String::new());
            PlanTask { verb, node: node.nodenum, service, needs: Vec::new() }
        };
        let tasks = nodes.iter().map(look).collect();
        Ok(self.still(CHECK, &nodes, tasks, 1))
    }

    fn upgrade(&self, services: &[String], batch: usize) -> Result<Planned> {
        let nodes = self.standing();
        bounded(&nodes)?;
        let cluster = Cluster::new(&self.catalogue.services, &nodes)?;
        self.same("CLUSTER_UPGRADE", &nodes, &plan::upgrade(&cluster, named(services), batch)?)
    }

    /// A plan that leaves machines and services as they are.
    fn same(&self, action: &'static str, nodes: &[PlanNode], graph: &Graph) -> Result<Planned> {
        Ok(self.still(action, nodes, tasks(graph, nodes), graph.levels()?.len() as u32))
    }

    fn still(&self, action: &'static str, nodes: &[PlanNode], tasks: Vec<PlanTask>, levels: u32) -> Planned {
        let row = |node: &PlanNode| row(node, Some(node.services.clone()), false);
        Planned {
            action,
            purpose: Purpose::Operate,
            levels,
            plan: Plan { nodes: nodes.iter().map(row).collect(), tasks },
            target: self.cluster.shape.clone(),
            cost: self.cluster.cost,
            machines: self.cluster.machines,
            node_next: self.cluster.node_next,
            anew: false,
        }
    }

    /// The end of all machines. Those of a pool outlive the cluster, so services leave them first as far as they can.
    fn delete(&self) -> Result<Planned> {
        let there = |node: &&&NodeRecord| node.joined || node.machine != super::record::Machine::None;
        let nodes: Vec<&NodeRecord> = self.nodes.iter().filter(there).copied().collect();
        let is_pool = self.catalogue.is_pool(&self.cluster.provider);
        let leaving = |is_cleaned: bool| {
            let services = |node: &NodeRecord| match is_cleaned && node.confirmed && !node.is_gone() {
                true => node.services.clone(),
                false => Vec::new(),
            };
            let gone =
                nodes.iter().map(|node| PlanNode { services: services(node), ..plan_node(node) }).collect();
            let assignment = Assignment { nodes: Vec::new(), before: Vec::new(), gone };
            plan::change(&self.catalogue.services, &assignment)
        };
        // What cannot be planned of the services does not keep the machines.
        let (gone, graph) = leaving(is_pool).or_else(|_| leaving(false))?;
        let tasks = tasks(&graph, &gone);
        let row = |node: &&NodeRecord| row(&plan_node(node), Some(node.services.clone()), true);
        Ok(Planned {
            action: "CLUSTER_DELETE",
            purpose: Purpose::Delete,
            levels: graph.levels()?.len() as u32,
            plan: Plan { nodes: nodes.iter().map(row).collect(), tasks },
            target: self.cluster.shape.clone(),
            cost: None,
            machines: self.cluster.machines,
            node_next: self.cluster.node_next,
            anew: false,
        })
    }

    /// The way to other machines or services. Machines are deleted when all else is done, so that until then
    /// everything can be taken back.
    fn change(
        &self,
        purpose: Purpose,
        mut assignment: Assignment,
        target: Shape,
        cost: Option<f64>,
        anew: bool,
    ) -> Result<Planned> {
        let mut node_next = self.cluster.node_next;
        // Numbers are not used twice.
        for (node, before) in assignment.nodes.iter_mut().zip(&assignment.before) {
            if before.is_none() {
                node.nodenum = node_next;
                node.id = node_next.to_string();
                node_next += 1;
            }
        }
        let action = match purpose {
            Purpose::Create => "CLUSTER_CREATE",
            _ => assignment.action(),
        };
        bounded(&assignment.nodes)?;
        let cleaned = self.nodes.iter().filter(|node| self.is_cleaned(node)).map(|node| plan_node(node));
        assignment.gone.extend(cleaned);
        let (nodes, graph) = plan::change(&self.catalogue.services, &assignment)?;
        let kept = assignment.nodes.len();
        let mut rows: Vec<PlanRow> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            rows.push(match at < kept {
                true => row(&assignment.nodes[at], assignment.before[at].clone(), false),
                false => {
                    let given_up = self.given_up.contains(&node.nodenum);
                    PlanRow { given_up, ..row(node, Some(node.services.clone()), true) }
                }
            });
        }
        let mut tasks = tasks(&graph, &nodes);
        for node in self.stray().filter(|node| !self.is_cleaned(node)) {
            let given_up = self.is_given_up(node);
            rows.push(PlanRow { given_up, ..row(&plan_node(node), Some(node.services.clone()), true) });
            let verb = Some(Verb::Delete);
            tasks.push(PlanTask { verb, node: node.num, service: String::new(), needs: Vec::new() });
        }
        let given_up: BTreeSet<u32> = rows.iter().filter(|row| row.given_up).map(|row| row.num).collect();
        let mut levels = graph.levels()?.len() as u32;
        if !given_up.is_empty() {
            self.step_in(&mut tasks, &given_up, &assignment)?;
            levels = depths(&tasks).iter().max().map_or(0, |most| most + 1);
        }
        let gone: BTreeSet<u32> = rows.iter().filter(|row| row.gone).map(|row| row.num).collect();
        deletes_last(&mut tasks, &gone, &given_up);
        if target.config.values().any(names_addresses) {
            addresses_first(&mut tasks);
        }
        let fresh = assignment.before.iter().filter(|before| before.is_none()).count() as u32;
        let there = self.nodes.iter().filter(|node| !node.is_gone()).count() as u32;
        let machines = self.cluster.machines.max(there + fresh);
        Ok(Planned {
            action,
            purpose,
            plan: Plan { nodes: rows, tasks },
            target,
            cost,
            machines,
            node_next,
            levels,
            anew,
        })
    }
}

impl Ground<'_> {
    /// Machines that are given up end before anything is done to services, so that none of them goes on beside the one
    /// that takes its place. Then those that stay are told who is left, and only then the new ones are made ready: by
    /// then somebody may have taken over what the others did.
    fn step_in(
        &self,
        tasks: &mut Vec<PlanTask>,
        given_up: &BTreeSet<u32>,
        assignment: &Assignment,
    ) -> Result<()> {
        let gate = |needs| PlanTask { verb: None, node: 0, service: String::new(), needs };
        let is_end = |task: &PlanTask| task.verb == Some(Verb::Delete) && given_up.contains(&task.node);
        let ends: Vec<u32> =
            (0..).zip(tasks.iter()).filter(|(_, task)| is_end(task)).map(|(at, _)| at).collect();
        let is_later = |task: &PlanTask| !task.service.is_empty() && !given_up.contains(&task.node);
        let later: Vec<usize> = (0..tasks.len()).filter(|at| is_later(&tasks[*at])).collect();
        let mut last = tasks.len() as u32;
        tasks.push(gate(ends.clone()));
        let stays = |(node, before): (&PlanNode, &Option<Vec<String>>)| {
            let before = before.as_ref()?;
            let services = node.services.iter().filter(|name| before.contains(name)).cloned().collect();
            Some(PlanNode { services, ..node.clone() })
        };
        let stay: Vec<PlanNode> = assignment.nodes.iter().zip(&assignment.before).filter_map(stays).collect();
        if !stay.is_empty() {
            let cluster = Cluster::new(&self.catalogue.services, &stay)?;
            let graph = plan::order(&cluster, Order::ClusterConfigure, None, None)?;
            let first = tasks.len() as u32;
            for mut task in self::tasks(&graph, &stay) {
                task.needs.iter_mut().for_each(|need| *need += first);
                if !task.service.is_empty() {
                    task.needs.push(last);
                }
                tasks.push(task);
            }
            let told = (first..).zip(&tasks[first as usize..]).filter(|(_, task)| task.verb.is_some());
            // Also where they have nothing to configure.
            let told = told.map(|(at, _)| at).chain(ends).collect();
            last = tasks.len() as u32;
            tasks.push(gate(told));
        }
        later.into_iter().for_each(|at| tasks[at].needs.push(last));
        Ok(())
    }
}

/// Refuses a plan that is larger than one job may be, before it is made.
fn bounded(nodes: &[PlanNode]) -> Result<()> {
    few(nodes.iter().map(|node| node.services.len() as u64).sum(), nodes.len() as u64)
}

/// The same of a layout, before its machines are told apart.
fn placeable(layout: &Layout) -> Result<()> {
    let count = |group: &template::Group| (u64::from(group.count), group.services.len() as u64);
    let counts = || layout.0.iter().map(count);
    few(counts().map(|(count, services)| count * services).sum(), counts().map(|(count, _)| count).sum())
}

fn few(placed: u64, machines: u64) -> Result<()> {
    if placed + machines <= PLACED_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the layout has {placed} services on {machines} machines; a job takes up to {PLACED_MAX} of both together"
    ))
    .hint("make several smaller clusters of it"))
}

fn named(services: &[String]) -> Option<&[String]> {
    (!services.is_empty()).then_some(services)
}

fn row(node: &PlanNode, before: Option<Vec<String>>, gone: bool) -> PlanRow {
    PlanRow {
        num: node.nodenum,
        services: node.services.clone(),
        before,
        gone,
        given_up: false,
        hardwaretype: node.hardwaretype.clone(),
        imagetype: node.imagetype.clone(),
    }
}

/// The tasks of a graph, its gates behind them.
fn tasks(graph: &Graph, nodes: &[PlanNode]) -> Vec<PlanTask> {
    let count = graph.len();
    let gate = |gate: &usize| (count + gate) as u32;
    let number = |at: &usize| *at as u32;
    let task = |at: usize| {
        let task = graph.task(at);
        let needs = graph.needs(at).iter().map(number).chain(graph.waits(at).iter().map(gate)).collect();
        let (node, service) = (nodes[task.node].nodenum, task.service.clone());
        PlanTask { verb: Some(Verb::from(task.name)), node, service, needs }
    };
    let gates = graph.gates().iter().map(|members| PlanTask {
        verb: None,
        node: 0,
        service: String::new(),
        needs: members.iter().map(number).collect(),
    });
    (0..count).map(task).chain(gates).collect()
}

/// Lets machines be deleted only when nothing else is left to be done that could fail.
fn deletes_last(tasks: &mut Vec<PlanTask>, gone: &BTreeSet<u32>, given_up: &BTreeSet<u32>) {
    let is_delete = |task: &PlanTask| task.verb == Some(Verb::Delete) && !given_up.contains(&task.node);
    // A stop on a machine that goes is passed over when it fails.
    let leaves = |task: &PlanTask| task.verb.is_none() || gone.contains(&task.node);
    if !tasks.iter().any(is_delete) || tasks.iter().all(leaves) {
        return;
    }
    let others = |(at, task): (usize, &PlanTask)| (!is_delete(task)).then_some(at as u32);
    let needs = tasks.iter().enumerate().filter_map(others).collect();
    let gate = tasks.len() as u32;
    tasks.iter_mut().filter(|task| is_delete(task)).for_each(|task| task.needs.push(gate));
    tasks.push(PlanTask { verb: None, node: 0, service: String::new(), needs });
}

/// Whether a configuration tells services where others are.
fn names_addresses(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('%') && text.contains("ip.") && text.contains("service."),
        Value::Array(all) => all.iter().any(names_addresses),
        Value::Object(all) => all.values().any(names_addresses),
        _ => false,
    }
}

/// Lets services wait until the address of every machine is known.
fn addresses_first(tasks: &mut Vec<PlanTask>) {
    let confirms = |(at, task): (usize, &PlanTask)| (task.verb == Some(Verb::Confirm)).then_some(at as u32);
    let needs: Vec<u32> = tasks.iter().enumerate().filter_map(confirms).collect();
    if needs.is_empty() {
        return;
    }
    let gate = tasks.len() as u32;
    tasks.iter_mut().filter(|task| !task.service.is_empty()).for_each(|task| task.needs.push(gate));
    tasks.push(PlanTask { verb: None, node: 0, service: String::new(), needs });
}

/// How many tasks of each name a plan has.
pub fn counts(plan: &Plan) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for verb in plan.tasks.iter().filter_map(|task| task.verb) {
        *counts.entry(verb.word().to_owned()).or_default() += 1;
    }
    counts
}

/// The nodes that a plan makes, and those whose machines it deletes.
pub fn moves(plan: &Plan) -> (Vec<u32>, Vec<u32>) {
    let numbers =
        |is: fn(&PlanRow) -> bool| plan.nodes.iter().filter(|row| is(row)).map(|row| row.num).collect();
    (numbers(|row| row.before.is_none()), numbers(|row| row.gone))
}

/// The stages of a plan, alike tasks of each counted together.
pub fn outline(plan: &Plan) -> Vec<Vec<PlanStep>> {
    let step = |at: u32| {
        let task = &plan.tasks[at as usize];
        let name = task.verb.map_or("", Verb::word).to_owned();
        (name, task.service.clone())
    };
    let count = |stage: &Vec<u32>| {
        let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
        stage.iter().for_each(|at| *counts.entry(step(*at)).or_default() += 1);
        counts.into_iter().map(|((name, service), count)| PlanStep { name, service, count }).collect()
    };
    stages(&plan.tasks).iter().map(count).collect()
}

/// The name of a machine: the cluster's name as a label, its number, the node's, and a domain.
pub fn hostname(cluster: &ClusterRecord, num: u32) -> String {
    let tail = format!("{}-{num}", cluster.number);
    let plain = |letter: char| match letter {
        '_' | '.' => '-',
        letter => letter.to_ascii_lowercase(),
    };
    let name: String = cluster
        .name
        .as_str()
        .trim_start_matches(|letter: char| letter.is_ascii_digit())
        .chars()
        .map(plain)
        .collect();
    let name = name.trim_start_matches('-');
    let room = LABEL_MAX - tail.len().min(LABEL_MAX);
    let name: String = name.chars().take(room).collect();
    let suffix = cluster.dns_suffix.as_deref().unwrap_or("local");
    format!("{name}{tail}.{}", suffix.trim_start_matches('.'))
}

/// Letters of one part of a host name.
const LABEL_MAX: usize = 63;

/// What a stage view shows: the tasks by the longest way to them, a node at most once in each stage.
pub fn stages(tasks: &[PlanTask]) -> Vec<Vec<u32>> {
    let depth = depths(tasks);
    let deepest = depth.iter().max().map_or(0, |most| most + 1);
    let mut levels: Vec<Vec<u32>> = vec![Vec::new(); deepest as usize];
    for at in (0..tasks.len()).filter(|at| tasks[*at].verb.is_some()) {
        levels[depth[at] as usize].push(at as u32);
    }
    let mut stages: Vec<Vec<u32>> = Vec::new();
    for mut level in levels {
        level.sort_by_key(|at| {
            let task = &tasks[*at as usize];
            (task.node, task.service.clone(), task.verb)
        });
        let mut parts: Vec<Vec<u32>> = Vec::new();
        let mut next: BTreeMap<u32, usize> = BTreeMap::new();
        for at in level {
            let part = next.entry(tasks[at as usize].node).or_default();
            if parts.len() <= *part {
                parts.push(Vec::new());
            }
            parts[*part].push(at);
            *part += 1;
        }
        stages.extend(parts);
    }
    stages
}

/// The longest way to each task; gates have no length.
pub fn depths(tasks: &[PlanTask]) -> Vec<u32> {
    let mut missing: Vec<usize> = tasks.iter().map(|task| task.needs.len()).collect();
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
    for (at, task) in tasks.iter().enumerate() {
        task.needs.iter().for_each(|need| after[*need as usize].push(at as u32));
    }
    let mut depth = vec![0; tasks.len()];
    let mut open: Vec<usize> = (0..tasks.len()).filter(|at| missing[*at] == 0).collect();
    while let Some(at) = open.pop() {
        let length = u32::from(tasks[at].verb.is_some());
        for next in &after[at] {
            let next = *next as usize;
            depth[next] = depth[next].max(depth[at] + length);
            missing[next] -= 1;
            if missing[next] == 0 {
                open.push(next);
            }
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_too_large_is_refused_before_it_is_made() {
        let node = PlanNode {
            id: "1000".into(),
            nodenum: 1000,
            services: vec!["web".into(); 14],
            hardwaretype: "small".into(),
            imagetype: "debian".into(),
            failed: false,
        };
        assert!(bounded(&vec![node.clone(); 10_000]).is_ok());
        let error = bounded(&vec![node; 10_001]).expect_err("10,001 machines are too many");
        assert!(error.message.contains("140014 services on 10001 machines"), "{error}");
        let group = template::Group {
            count: 10_000,
            services: (0..3_600).map(|at| format!("s{at}")).collect(),
            hardwaretype: "small".into(),
            imagetype: "debian".into(),
        };
        let error = placeable(&Layout(vec![group])).expect_err("36,000,000 services are too many");
        assert!(error.message.contains("36000000 services on 10000 machines"), "{error}");
    }
}
