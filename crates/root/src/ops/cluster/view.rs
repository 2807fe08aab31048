//! Records of clusters as users see them.

use api::{Cluster, ClusterLink, ClusterNode, JobStatus, JobSummary, NodeStatus};
use model::TenantId;
use serde_json::Value;
use template::entity::Link;
use template::expand::{self, Nodes, Scope};

use crate::cluster::body;
use crate::cluster::record::{ClusterRecord, JobRecord, Machine, NodeRecord};
use crate::ops::instance;
use crate::ops::view::tenant_name;
use crate::state::{Row, Snapshot};

/// Links that are shown of one thing.
const LINKS_MAX: usize = 100;
/// Bytes of a link.
const URL_MAX: usize = 8 << 10;
const SSH_PORT: u16 = 22;

pub fn cluster(snapshot: &Snapshot, row: &Row<ClusterRecord>) -> Cluster {
    let nodes = snapshot.cluster_nodes.get(&row.id);
    let known = known(snapshot, row);
    let first = nodes.into_iter().flatten().find(|(_, node)| !node.is_gone());
    let first = first.map(|(_, node)| node.num.to_string());
    let links = first.map(|first| links(&row.links, &known, &first, &row.created_by)).unwrap_or_default();
    Cluster {
        id: row.id.clone(),
        name: row.name.clone(),
        tenant: tenant_name(snapshot, &row.tenant),
        version: row.version,
        description: row.description.clone(),
        template: row.template.clone(),
        provider: row.provider.clone(),
        size: row.shape.layout.size(),
        nodes: nodes.into_iter().flatten().filter(|(_, node)| node.machine != Machine::None).count() as u32,
        services: row.shape.services.clone(),
        status: row.status,
        message: row.message.clone(),
        job: snapshot.cluster_job(&row.id, row.job).map(|job| job_summary(row, job)),
        config: row.shape.config.clone(),
        links,
        cost: row.cost,
        expires_at: row.expires_at,
        public_key: row.public_key.clone(),
        can_rollback: row.back().is_some(),
        created_at: row.created_at,
        created_by: row.created_by.clone(),
    }
}

pub fn job_summary(cluster: &ClusterRecord, job: &JobRecord) -> JobSummary {
    // The pause is the cluster's, which has one job at a time.
    let is_paused = cluster.paused && job.number == cluster.job && !job.status.is_over();
    JobSummary {
        id: job.id(),
        action: job.action.clone(),
        status: if is_paused { JobStatus::Paused } else { job.status },
        steps_total: job.total,
        steps_completed: job.done,
        steps_failed: job.failed,
        rolling_back: job.undo.is_some() && !job.status.is_over(),
        message: job.message.clone().or_else(|| job.failing.clone()),
        created_at: job.created_at,
        created_by: job.created_by.clone(),
        ended_at: job.ended_at,
    }
}

/// The nodes of a cluster as macros in links see them.
pub fn known(snapshot: &Snapshot, row: &ClusterRecord) -> Nodes {
    let has_links = !row.links.is_empty() || !row.service_links.is_empty();
    let nodes = snapshot.cluster_nodes.get(&row.id).into_iter().flatten();
    let nodes = nodes.filter(|(_, node)| has_links && !node.is_gone());
    body::nodes(nodes.map(|(_, node)| (node.value.as_ref(), node.services.as_slice())))
}

/// Links with their macros expanded; those that cannot be yet are left out.
fn links(links: &[Link], nodes: &Nodes, this: &str, owner: &str) -> Vec<ClusterLink> {
    let Ok(this) = nodes.get(this) else { return Vec::new() };
    let scope = Scope { nodes, this, owner: Some(owner) };
    let shown = |link: &Link| {
        let url = expand::text(&link.url, scope, URL_MAX).ok()?;
        Some(ClusterLink { label: link.label.clone(), url })
    };
    links.iter().filter_map(shown).take(LINKS_MAX).collect()
}

/// Why the instance of a node that is being made has no place.
pub fn placeless(snapshot: &Snapshot, tenant: &TenantId, node: &NodeRecord) -> Option<String> {
    if !node.local || node.confirmed {
        return None;
    }
    let id = node.result.get("providerid").and_then(Value::as_str)?;
    instance::why_of(snapshot.entry(tenant, id)?).placeless()
}

pub fn node(
    snapshot: &Snapshot,
    row: &ClusterRecord,
    node: &NodeRecord,
    nodes: &Nodes,
    ssh_user: &str,
) -> ClusterNode {
    let id = node.num.to_string();
    let own = node.services.iter().filter_map(|service| row.service_links.get(service));
    let shown = own.flat_map(|all| links(all, nodes, &id, &row.created_by)).take(LINKS_MAX).collect();
    let absence = node.absence.as_ref().map(|absence| absence.why.clone());
    let is_missing = node.is_gone() || absence.is_some();
    let status = match (node.leaving, &node.message, node.confirmed) {
        (true, ..) => NodeStatus::Leaving,
        _ if is_missing => NodeStatus::Missing,
        (false, Some(_), _) => NodeStatus::Failed,
        (false, None, true) => NodeStatus::Confirmed,
        (false, None, false) => NodeStatus::Pending,
    };
    let keys = node.result.get("ssh_host_keys").and_then(Value::as_object);
    let port = node.result.get("ssh-port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    ClusterNode {
        id: format!("{}-{}", row.id, node.num),
        num: node.num,
        hostname: node.hostname.clone(),
        services: node.services.clone(),
        stopped: node.stopped.iter().filter(|name| node.services.contains(name)).cloned().collect(),
        hardwaretype: node.hardwaretype.clone(),
        imagetype: node.imagetype.clone(),
        status,
        addresses: node.addresses.clone(),
        provider_id: node.result.get("providerid").and_then(Value::as_str).map(str::to_owned),
        ssh_user: ssh_user.to_owned(),
        ssh_port: port.unwrap_or(SSH_PORT),
        host_keys: keys
            .into_iter()
            .flat_map(|keys| keys.values())
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        links: shown,
        message: absence.or_else(|| placeless(snapshot, &row.tenant, node)).or_else(|| node.message.clone()),
    }
}
