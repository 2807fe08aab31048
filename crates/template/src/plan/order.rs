//! Coopr's plan of an order.

use std::collections::{HashMap, HashSet};

use model::Result;
use serde::Serialize;

use super::Cluster;
use super::depend::By;
use super::graph::{Graph, Task, TaskName};
use crate::entity::ActionKind::{Configure, Initialize, Install, Remove, Start, Stop};
use crate::entity::{ActionKind, Service};

/// What is ordered of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Order {
    ClusterCreate,
    ClusterDelete,
    AddServices,
    RemoveServices,
    ClusterConfigure,
    ClusterConfigureWithRestart,
    StartServices,
    StopServices,
    RestartServices,
}

const CREATE: &[TaskName] = &[
    TaskName::Create,
    TaskName::Confirm,
    TaskName::Bootstrap,
    TaskName::Service(Install),
    TaskName::Service(Configure),
    TaskName::Service(Initialize),
    TaskName::Service(Start),
];

impl Order {
    /// The actions of it, in their order for one service on one node.
    pub(super) const fn actions(self) -> &'static [TaskName] {
        match self {
            Self::ClusterCreate => CREATE,
            Self::ClusterDelete => &[TaskName::Delete],
            Self::AddServices => CREATE.split_at(2).1,
            Self::RemoveServices => &[TaskName::Service(Stop), TaskName::Service(Remove)],
            Self::ClusterConfigure => &[TaskName::Bootstrap, TaskName::Service(Configure)],
            Self::ClusterConfigureWithRestart => &[
                TaskName::Bootstrap,
                TaskName::Service(Stop),
                TaskName::Service(Configure),
                TaskName::Service(Start),
            ],
            Self::StartServices => &[TaskName::Service(Start)],
            Self::StopServices => &[TaskName::Service(Stop)],
            Self::RestartServices => &[TaskName::Service(Stop), TaskName::Service(Start)],
        }
    }
}

/// What the actions of other services must come before an action of one.
pub(super) const fn before(action: ActionKind) -> Option<(ActionKind, By)> {
    match action {
        Start | Initialize => Some((Start, By::Runtime)),
        Stop => Some((Stop, By::RuntimeReversed)),
        Install => Some((Install, By::Install)),
        Remove => Some((Remove, By::InstallReversed)),
        Configure => None,
    }
}

/// Plans an order. Without names it is for all services, without ids for all nodes. To start a service is
/// to start what it needs first; to stop or restart one is to stop or restart what needs it.
pub fn order(
    cluster: &Cluster<'_>,
    order: Order,
    services: Option<&[String]>,
    nodes: Option<&[String]>,
) -> Result<Graph> {
    let named = cluster.named(services)?;
    let planned = match order {
        Order::StartServices => cluster.depend.closure(&named, By::Runtime),
        Order::StopServices | Order::RestartServices => cluster.depend.closure(&named, By::RuntimeReversed),
        _ => named,
    };
    let mut builder = Builder::new(cluster, Graph::default(), Reach::All);
    for (at, node) in cluster.nodes.iter().enumerate() {
        if nodes.is_some_and(|nodes| !nodes.contains(&node.id)) {
            continue;
        }
        builder.machine(at, order.actions());
        for name in node.services.iter().filter(|name| planned.contains(name.as_str())) {
            builder.service(at, name, order.actions(), |other| planned.contains(other));
        }
    }
    Ok(builder.graph)
}

/// Which services on which nodes an action of another service waits for.
pub(super) enum Reach {
    /// On every node that carries them.
    All,
    /// Only on these nodes: what is not planned is as it should be.
    Planned(HashSet<(usize, String)>),
    /// The same, but what must run is started on every node again. A start does no harm, and nobody knows
    /// whether it runs.
    PlannedButStart(HashSet<(usize, String)>),
}

/// Puts a graph together.
pub(super) struct Builder<'c, 'a> {
    cluster: &'c Cluster<'a>,
    pub graph: Graph,
    reach: Reach,
    gates: HashMap<(ActionKind, String), Option<usize>>,
}

impl<'c, 'a> Builder<'c, 'a> {
    /// Goes on with a graph.
    pub fn new(cluster: &'c Cluster<'a>, graph: Graph, reach: Reach) -> Self {
        Self { cluster, graph, reach, gates: HashMap::new() }
    }

    /// What is done to the machine, one after the other. Returns the last of it.
    pub fn machine(&mut self, node: usize, actions: &[TaskName]) -> Option<usize> {
        let mut last = None;
        for name in actions.iter().filter(|name| !matches!(name, TaskName::Service(_))) {
            let task = self.graph.add(Task { name: *name, node, service: String::new() });
            if let Some(before) = last {
                self.graph.need(task, before);
            }
            last = Some(task);
        }
        last
    }

    /// What is done to one service on one node, after what is done to the machine. Returns the last of it.
    pub fn service(
        &mut self,
        node: usize,
        name: &str,
        actions: &[TaskName],
        planned: impl Fn(&str) -> bool,
    ) -> Option<usize> {
        let service: &Service = self.cluster.services.get(name)?;
        let mut last = self.machine(node, actions);
        for action in actions {
            let TaskName::Service(kind) = *action else { continue };
            if !service.has(kind) {
                continue;
            }
            let task = self.graph.add(Task { name: *action, node, service: name.to_owned() });
            if let Some(before) = last {
                self.graph.need(task, before);
            }
            last = Some(task);
            let Some((other, by)) = before(kind) else { continue };
            for dependency in self.cluster.depend.first(name, other, by) {
                // What is installed already need not be installed again.
                if matches!(kind, Install | Remove) && !planned(dependency) {
                    continue;
                }
                if let Some(gate) = self.gate(other, dependency) {
                    self.graph.wait(task, gate);
                }
            }
        }
        last
    }

    /// All tasks of an action and a service that another may wait for.
    fn gate(&mut self, action: ActionKind, service: &str) -> Option<usize> {
        let key = (action, service.to_owned());
        if let Some(gate) = self.gates.get(&key) {
            return *gate;
        }
        let reached = |node: &&usize| match &self.reach {
            Reach::All => true,
            Reach::PlannedButStart(_) if action == Start => true,
            Reach::Planned(pairs) | Reach::PlannedButStart(pairs) => {
                pairs.contains(&(**node, service.to_owned()))
            }
        };
        let nodes: Vec<usize> = self.cluster.carriers(service).iter().filter(reached).copied().collect();
        let task = |node| Task { name: TaskName::Service(action), node, service: service.to_owned() };
        let tasks: Vec<usize> = nodes.into_iter().map(|node| self.graph.add(task(node))).collect();
        let gate = (!tasks.is_empty()).then(|| self.graph.gate(tasks));
        self.gates.insert(key, gate);
        gate
    }
}
