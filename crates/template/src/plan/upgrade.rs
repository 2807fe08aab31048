//! The same services anew, a few machines at a time.

use std::collections::BTreeSet;

use model::{Error, Result};

use super::Cluster;
use super::graph::{Graph, TaskName};
use super::order::{Builder, Reach};
use crate::entity::ActionKind::{Configure, Install, Start, Stop};

const UPGRADE: &[TaskName] = &[
    TaskName::Bootstrap,
    TaskName::Service(Stop),
    TaskName::Service(Install),
    TaskName::Service(Configure),
    TaskName::Service(Start),
];

/// Plans a rolling upgrade: services are stopped, installed, configured and started on `batch`
/// machines, and only then on the next. Without names all services are.
pub fn upgrade(cluster: &Cluster<'_>, services: Option<&[String]>, batch: usize) -> Result<Graph> {
    if batch == 0 {
        return Err(Error::invalid("at least one machine must be upgraded at a time").at("batch"));
    }
    let named = cluster.named(services)?;
    let carriers: BTreeSet<usize> =
        named.iter().flat_map(|name| cluster.carriers(name).iter().copied()).collect();
    let carriers: Vec<usize> = carriers.into_iter().collect();
    let mut graph = Graph::default();
    let mut before: Option<usize> = None;
    for nodes in carriers.chunks(batch) {
        let mut pairs = Vec::new();
        for node in nodes {
            let own = cluster.nodes[*node].services.iter().filter(|name| named.contains(name.as_str()));
            pairs.extend(own.map(|name| (*node, name.clone())));
        }
        let from = graph.len();
        let mut builder = Builder::new(cluster, graph, Reach::Planned(pairs.iter().cloned().collect()));
        let mut last = Vec::new();
        for (node, service) in &pairs {
            last.extend(builder.service(*node, service, UPGRADE, |name| named.contains(name)));
        }
        graph = builder.graph;
        let first: Vec<usize> = (from..graph.len()).filter(|task| graph.needs(*task).is_empty()).collect();
        if let Some(gate) = before {
            first.iter().for_each(|task| graph.wait(*task, gate));
        }
        last.sort_unstable();
        last.dedup();
        before = (!last.is_empty()).then(|| graph.gate(last)).or(before);
    }
    Ok(graph)
}
