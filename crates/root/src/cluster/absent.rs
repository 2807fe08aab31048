//! Machines that are gone, or not as they should be, behind their cluster's back. Of machines that are instances of
//! this cloud root sees that by itself; other providers are asked by the order `check`.

use std::collections::BTreeMap;

use api::ClusterStatus;
use model::{InstanceId, Phase, Result, Timestamp};
use serde_json::Value;
use store::Txn;

use super::live::BANYAN;
use super::owner::{Owner, node_put};
use super::record::{Absence, ClusterRecord, NodeRecord};
use crate::history::{Actor, Line, journal};
use crate::state::{Row, Snapshot};
use crate::tables::{encode, kind};
use crate::tree::core::phase_shown;

/// How long an instance may be down by itself, before that is told of: it is started again.
const DOWN_MS: i64 = 20_000;
/// Machines that one message names.
const SHOWN_MAX: usize = 5;

/// What is wrong with an instance.
enum Seen {
    Well,
    Gone,
    Away(String),
}

/// Looks at all clusters that have no job.
pub async fn look(owner: &Owner) -> Result<()> {
    let snapshot = owner.cloud.state.snapshot();
    let now = owner.cloud.now();
    for row in snapshot.clusters.values() {
        if matches!(row.status, ClusterStatus::Pending | ClusterStatus::Terminated) {
            continue;
        }
        let Some((cluster, changed)) = judge(&snapshot, row, now) else { continue };
        let txn = changed.iter().fold(Txn::new(), node_put);
        let what = if cluster.status == ClusterStatus::Degraded { "degraded" } else { "machines" };
        let message = cluster.message.clone().unwrap_or_else(|| "all its machines are there".to_owned());
        let line = Line {
            tenant: Some(&row.tenant),
            what: &format!("cluster.{what}"),
            kind: kind::CLUSTER,
            id: row.id.as_str(),
            name: row.name.as_str(),
            message,
        };
        let txn = journal(txn, now, &Actor::root(), line);
        let txn = txn.and(Txn::new().update(kind::CLUSTER, &row.id, row.version, encode(&cluster)));
        match owner.commit(txn).await {
            // A user comes first; it is looked at again.
            Err(error) if error.kind == model::ErrorKind::VersionMismatch => {}
            other => other?,
        }
    }
    Ok(())
}

/// The cluster and its nodes as they are now, if that is not what is known.
fn judge(
    snapshot: &Snapshot,
    row: &Row<ClusterRecord>,
    now: Timestamp,
) -> Option<(ClusterRecord, Vec<NodeRecord>)> {
    let nodes =
        || snapshot.cluster_nodes.get(&row.id).into_iter().flatten().map(|(_, node)| node.value.as_ref());
    let is_ours = |node: &&NodeRecord| node.local || row.provider == BANYAN;
    let mut changed: BTreeMap<u32, NodeRecord> = BTreeMap::new();
    for node in nodes().filter(|node| node.joined && !node.leaving).filter(is_ours) {
        let found = match seen(snapshot, node, now) {
            Seen::Well => None,
            Seen::Gone => Some((true, "its instance is gone".to_owned())),
            Seen::Away(why) => Some((false, why)),
        };
        let known = node.absence.as_ref().map(|absence| (absence.gone, absence.why.as_str()));
        if found.as_ref().map(|(gone, why)| (*gone, why.as_str())) != known {
            let absence = found.map(|(gone, why)| Absence { gone, why, since: now });
            changed.insert(node.num, NodeRecord { absence, ..node.clone() });
        }
    }
    // Nothing is copied of clusters of which nothing is new.
    let is_degraded = row.status == ClusterStatus::Degraded;
    let is_settled = changed.is_empty() && nodes().any(is_absent) == is_degraded;
    if is_settled || (changed.is_empty() && !is_degraded && row.status != ClusterStatus::Active) {
        return None;
    }
    let all: Vec<NodeRecord> = nodes().map(|node| changed.get(&node.num).unwrap_or(node).clone()).collect();
    let mut cluster = row.value.as_ref().clone();
    degrade(&mut cluster, &all);
    Some((cluster, changed.into_values().collect()))
}

fn is_absent(node: &NodeRecord) -> bool {
    node.joined && !node.leaving && (node.absence.is_some() || node.is_gone())
}

/// The instance of a node.
fn seen(snapshot: &Snapshot, node: &NodeRecord, now: Timestamp) -> Seen {
    let id = node.result.get("providerid").and_then(Value::as_str);
    let id = id.and_then(|id| id.parse::<InstanceId>().ok());
    let Some(record) = id.as_ref().and_then(|id| snapshot.instances.get(id)) else { return Seen::Gone };
    let status = id.as_ref().and_then(|id| snapshot.statuses.get(id)).map(AsRef::as_ref);
    let is_long = status.is_some_and(|status| status.changed_at.plus_ms(DOWN_MS) < now);
    match phase_shown(record, status) {
        // What is being deleted does not come back.
        Phase::Gone | Phase::Deleting => Seen::Gone,
        phase @ (Phase::Stopped | Phase::Lost) => Seen::Away(format!("its instance is {phase}")),
        phase @ (Phase::Exited | Phase::Failed) if is_long => Seen::Away(format!("its instance is {phase}")),
        // One that was just seen down may still be on its way up.
        Phase::Exited | Phase::Failed if node.absence.is_some() => {
            Seen::Away(node.absence.as_ref().map(|absence| absence.why.clone()).unwrap_or_default())
        }
        _ => Seen::Well,
    }
}

/// An active cluster is degraded while machines of it are not there, and the other way round.
pub fn degrade(cluster: &mut ClusterRecord, nodes: &[NodeRecord]) {
    let absent: Vec<&NodeRecord> = nodes.iter().filter(|node| is_absent(node)).collect();
    let is_whole = absent.is_empty();
    match cluster.status {
        ClusterStatus::Active if is_whole => {}
        ClusterStatus::Degraded if is_whole => {
            cluster.status = ClusterStatus::Active;
            cluster.message = None;
        }
        ClusterStatus::Active | ClusterStatus::Degraded => {
            cluster.status = ClusterStatus::Degraded;
            cluster.message = Some(said(&absent));
        }
        _ => {}
    }
}

fn said(absent: &[&NodeRecord]) -> String {
    let one = |node: &&NodeRecord| {
        let why = node.absence.as_ref().map_or("its machine is gone", |absence| absence.why.as_str());
        format!("node {}: {why}", node.num)
    };
    let named: Vec<String> = absent.iter().take(SHOWN_MAX).map(one).collect();
    let more = absent.len().saturating_sub(SHOWN_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let then = match absent.iter().any(|node| node.is_gone()) {
        true => "; 'repair' makes anew what is gone",
        false => "",
    };
    format!("{}{more}{then}", named.join("; "))
}
