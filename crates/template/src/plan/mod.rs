//! From an order, or from an old layout to a new one, to a graph of tasks.
//!
//! ```text
//!  depend.rs   what must come first: A after B, seen through B where B lacks the action
//!  order.rs    the actions of an order, and Coopr's plan of it
//!  change.rs   which machines come, stay and go between two layouts, and the plan of that
//!  upgrade.rs  the same services anew, a few machines at a time
//!  graph.rs    tasks and what each waits for; levels, and stages as Coopr shows them
//! ```
//!
//! A task may start as soon as what it waits for is done. Stages are a view of the same graph for
//! people: they show an order that would do, and nothing waits for a stage.

mod change;
mod depend;
mod graph;
mod order;
mod upgrade;

pub use change::{Assignment, assign, change};
pub(crate) use depend::circle;
pub use graph::{Graph, Task, TaskName};
pub use order::{Order, order};
pub use upgrade::upgrade;

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, Result};
use serde::Serialize;

use crate::entity::Service;
use crate::solve::Layout;
use depend::Depend;

/// The number of a cluster's first node.
pub const NODENUM_FIRST: u32 = 1000;

/// A machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanNode {
    pub id: String,
    pub nodenum: u32,
    pub services: Vec<String>,
    pub hardwaretype: String,
    pub imagetype: String,
    /// Something failed on it; of like machines it is the first to go.
    #[serde(skip)]
    pub failed: bool,
}

/// The machines of a new cluster, numbered in the order of the layout.
pub fn nodes(layout: &Layout) -> Vec<PlanNode> {
    let mut nodenum = NODENUM_FIRST;
    let mut nodes = Vec::new();
    for group in &layout.0 {
        for _ in 0..group.count {
            nodes.push(PlanNode {
                id: nodenum.to_string(),
                nodenum,
                services: group.services.clone(),
                hardwaretype: group.hardwaretype.clone(),
                imagetype: group.imagetype.clone(),
                failed: false,
            });
            nodenum += 1;
        }
    }
    nodes
}

/// The services of a cluster, and which nodes carry each.
pub struct Cluster<'a> {
    nodes: &'a [PlanNode],
    services: BTreeMap<&'a str, &'a Service>,
    carriers: BTreeMap<&'a str, Vec<usize>>,
    depend: Depend<'a>,
}

impl<'a> Cluster<'a> {
    /// Refuses services that do not exist, and such as need each other.
    pub fn new(known: &'a BTreeMap<String, Service>, nodes: &'a [PlanNode]) -> Result<Self> {
        let mut services = BTreeMap::new();
        let mut carriers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            for name in &node.services {
                let service = known.get(name).ok_or_else(|| {
                    Error::invalid(format!("node {} carries service '{name}', which does not exist", node.id))
                })?;
                services.insert(name.as_str(), service);
                carriers.entry(name).or_default().push(at);
            }
        }
        let depend = Depend::new(&services)?;
        Ok(Self { nodes, services, carriers, depend })
    }

    fn carriers(&self, service: &str) -> &[usize] {
        self.carriers.get(service).map_or(&[], Vec::as_slice)
    }

    /// The named services, all of which the cluster must have; without names all of them.
    fn named(&self, names: Option<&[String]>) -> Result<BTreeSet<&'a str>> {
        let Some(names) = names else { return Ok(self.services.keys().copied().collect()) };
        let find = |name: &String| {
            let found = self.services.get_key_value(name.as_str()).map(|(name, _)| *name);
            found.ok_or_else(|| Error::not_found(format!("service '{}' on the cluster", model::shown(name))))
        };
        names.iter().map(find).collect()
    }
}

#[cfg(test)]
mod tests;
