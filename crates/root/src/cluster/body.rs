//! A task as it is given out, in Coopr's shape: macros expanded, secrets opened. It is never kept and never logged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Error, Result};
use serde_json::{Map, Value, json};
use template::entity::ActionKind;
use template::expand::{self, NodeRecord as ExpandNode, Nodes, Scope};

use super::live::Live;
use super::record::{NodeRecord, PlanTask, Verb, shown_id};

/// Nodes that a task tells of, all properties of each; more are left out and only macros know them.
const NODES_SHOWN_MAX: usize = 500;
/// Bytes after which no further node is told of.
const NODES_BYTES_MAX: usize = 2 << 20;
/// Where sealed parts of a node's results stand.
pub const SEALED: &str = "sealed";
/// Results that let us in; sealed where they are kept.
pub const SECRET_RESULTS: [&str; 1] = ["ssh-auth"];

/// What tasks of a job are told of its nodes, the same for all of them.
#[derive(Debug, Clone)]
pub struct Shown {
    /// As macros see them.
    pub known: Arc<Nodes>,
    /// Their properties.
    pub nodes: Arc<Value>,
    /// Bytes of those, as they are sent.
    pub bytes: usize,
}

/// What only the owner can open.
pub struct Opened {
    /// The private key of the cluster.
    pub key: String,
    /// The provider as the task shows it, with all its fields.
    pub provider: Value,
    /// Results of the node that are sealed where they are kept.
    pub results: Map<String, Value>,
}

/// How long a task may take, in milliseconds.
pub fn limit_ms(verb: Verb, force: bool) -> i64 {
    match verb {
        // Of a provider that does not answer, machines are given up.
        _ if force => 60_000,
        Verb::Create | Verb::Delete => 10 * 60_000,
        Verb::Confirm => 15 * 60_000,
        _ => 30 * 60_000,
    }
}

/// The nodes of a cluster as macros see them.
pub fn nodes<'a>(all: impl Iterator<Item = (&'a NodeRecord, &'a [String])>) -> Nodes {
    let node = |(node, services): (&NodeRecord, &[String])| ExpandNode {
        id: node.num.to_string(),
        hostname: Some(node.hostname.clone()),
        nodenum: node.num.into(),
        services: services.to_vec(),
        addresses: node.addresses.clone(),
    };
    Nodes::new(all.map(node).collect())
}

impl Live {
    /// What a node carries as far as this job is concerned.
    fn services<'a>(&'a self, node: &'a NodeRecord) -> &'a [String] {
        self.rows.get(&node.num).map_or(&node.services, |row| &row.services)
    }

    fn automators(&self, services: &[String]) -> Vec<String> {
        let of = |name: &String| self.catalogue.services.get(name);
        let actions = services.iter().filter_map(of).flat_map(|service| service.provisioner.actions.values());
        actions.map(|action| action.automator.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The plugins that its tasks need, as provisioners name them.
    pub fn plugins_used(&self) -> BTreeSet<String> {
        let provider = self.catalogue.providers.get(&self.cluster.provider);
        let provider = provider.map(|provider| format!("provider {}", provider.providertype));
        let is_bootstrap = |task: &PlanTask| task.verb == Some(Verb::Bootstrap);
        let on_machines = self.rows.values().filter(|_| self.plan.iter().any(is_bootstrap));
        let mut services: Vec<String> = on_machines.flat_map(|row| row.services.clone()).collect();
        services.extend(
            self.plan.iter().filter(|task| !task.service.is_empty()).map(|task| task.service.clone()),
        );
        services.sort_unstable();
        services.dedup();
        let automators = self.automators(&services).into_iter().map(|name| format!("automator {name}"));
        provider.into_iter().chain(automators).collect()
    }

    fn properties(&self, node: &NodeRecord) -> Map<String, Value> {
        let provider = &self.cluster.provider;
        let hardware = self.catalogue.hardwaretypes.get(&node.hardwaretype);
        let image = self.catalogue.imagetypes.get(&node.imagetype);
        let services = self.services(node);
        let all = json!({
            "hostname": node.hostname,
            "nodenum": node.num,
            "services": services,
            "automators": self.automators(services),
            "hardwaretype": node.hardwaretype,
            "imagetype": node.imagetype,
            "flavor": hardware.and_then(|kind| kind.flavor(provider)),
            "image": image.and_then(|kind| kind.image(provider)),
            "sshuser": image.map_or_else(|| "root".to_owned(), |kind| kind.ssh_user(provider)),
            "ipaddresses": node.addresses,
        });
        match all {
            Value::Object(all) => all,
            _ => Map::new(),
        }
    }

    /// The nodes as macros see them. What takes a job back does not know machines that never came to be, and nobody
    /// those that are gone.
    pub fn known(&self) -> Nodes {
        let all = self.nodes.values().filter(|node| self.counts_on(node));
        let all = all.filter(|node| !self.is_undoing() || !node.addresses.is_empty());
        nodes(all.map(|node| (node, self.services(node))))
    }

    /// What tasks are told of the nodes. It is made once for as long as nothing changes of them.
    pub fn shown(&mut self) -> Shown {
        if let Some(shown) = &self.shown {
            return shown.clone();
        }
        let (nodes, bytes) = self.others();
        let shown = Shown { known: Arc::new(self.known()), nodes: Arc::new(nodes), bytes };
        self.shown.insert(shown).clone()
    }

    /// The body of a task. Where it is for a service, `config.nodes` is to be added.
    pub fn body(&self, at: u32, known: &Nodes, opened: Opened) -> Result<Value> {
        let (task, verb) = self
            .plan
            .get(at as usize)
            .zip(self.verb(at))
            .ok_or_else(|| Error::internal(format!("there is no task {at}")))?;
        let node = self
            .nodes
            .get(&task.node)
            .ok_or_else(|| Error::internal(format!("there is no node {}", task.node)))?;
        let mut config = self.properties(node);
        config.extend(
            node.result.iter().filter(|(name, _)| *name != SEALED).map(|(k, v)| (k.clone(), v.clone())),
        );
        config.extend(opened.results);
        config.insert("provider".to_owned(), opened.provider);
        config.insert("cluster-key".to_owned(), opened.key.into());
        config.insert("cluster-public-key".to_owned(), self.cluster.public_key.clone().into());
        if verb == Verb::Confirm && self.stood(task.node) {
            config.insert("standing".to_owned(), true.into());
        }
        if !task.service.is_empty() {
            let id = node.num.to_string();
            // One that is given up is told of itself while its services leave it.
            let beside = known.get(&id).is_err().then(|| {
                let all = self.nodes.values().filter(|other| self.counts_on(other) || other.num == node.num);
                nodes(all.map(|other| (other, self.services(other))))
            });
            let known = beside.as_ref().unwrap_or(known);
            let scope = Scope { nodes: known, this: known.get(&id)?, owner: Some(&self.cluster.created_by) };
            let settings = Value::Object(self.job.target.config.clone());
            config.insert("cluster".to_owned(), expand::value(&settings, scope).map_err(|e| e.at("config"))?);
            config.insert("service".to_owned(), self.service(task, verb)?);
            config.insert("leaving".to_owned(), self.leaves(task).into());
        }
        Ok(json!({
            "taskId": shown_id(&self.job.id(), at),
            "jobId": self.job.id(),
            "clusterId": self.cluster.id,
            "clusterName": self.cluster.name,
            "taskName": verb.word(),
            "nodeId": format!("{}-{}", self.cluster.id, task.node),
            "config": config,
        }))
    }

    /// Whether the service goes from the machine for good, and not only for a while.
    fn leaves(&self, task: &PlanTask) -> bool {
        let Some(row) = self.rows.get(&task.node) else { return false };
        match self.is_undoing() {
            true => row.before.as_ref().is_none_or(|services| !services.contains(&task.service)),
            false => row.gone || !row.services.contains(&task.service),
        }
    }

    /// What is told of the nodes, and how many bytes that are.
    fn others(&self) -> (Value, usize) {
        let mut shown: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        let mut bytes = 0;
        for node in self.nodes.values().filter(|node| self.counts_on(node)).take(NODES_SHOWN_MAX) {
            let properties = self.properties(node);
            bytes += serde_json::to_string(&properties).map_or(0, |text| text.len());
            shown.insert(format!("{}-{}", self.cluster.id, node.num), properties);
            if bytes > NODES_BYTES_MAX {
                break;
            }
        }
        (json!(shown), bytes)
    }

    fn service(&self, task: &PlanTask, verb: Verb) -> Result<Value> {
        let kind = match verb {
            Verb::Install => ActionKind::Install,
            Verb::Configure => ActionKind::Configure,
            Verb::Initialize => ActionKind::Initialize,
            Verb::Start => ActionKind::Start,
            Verb::Stop => ActionKind::Stop,
            Verb::Remove => ActionKind::Remove,
            _ => return Ok(Value::Null),
        };
        let service = self.catalogue.services.get(&task.service);
        let action = service.and_then(|service| service.provisioner.actions.get(&kind));
        let action = action.ok_or_else(|| {
            Error::invalid(format!("the service '{}' does not say how to {kind} it", task.service))
        })?;
        Ok(json!({"name": task.service, "action": {"type": action.automator, "fields": action.fields}}))
    }
}
