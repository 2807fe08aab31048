//! Clusters, their jobs and their nodes in the snapshot.

use model::{ClusterId, Error, Result};
use store::Body;

use super::apply::{Told, row};
use super::feed::NoticeBody;
use super::snapshot::{Row, Snapshot};
use crate::cluster::record::{ClusterRecord, JobRecord, NodeRecord};

pub fn record(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: ClusterId = id.parse()?;
    let Some(body) = body else {
        let Some(old) = snapshot.clusters.remove(&id) else { return Ok(None) };
        if let Some(names) = snapshot.cluster_names.get_mut(&old.tenant) {
            names.remove(&old.name);
        }
        return Ok(Some(NoticeBody::ClusterGone(old)));
    };
    let new: Row<ClusterRecord> = row(version, body)?;
    snapshot.cluster_names.entry(new.tenant.clone()).or_default().insert(new.name.clone(), id.clone());
    snapshot.clusters.insert(id, new.clone());
    Ok(Some(NoticeBody::Cluster(new)))
}

/// The id is `CLUSTER-NUMBER`.
pub fn job(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let wrong = || Error::internal(format!("'{id}' is no id of a job"));
    let (cluster, number) = id.rsplit_once('-').ok_or_else(wrong)?;
    let cluster: ClusterId = cluster.parse()?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match body {
        Some(body) => {
            let new: Row<JobRecord> = row(version, body)?;
            match new.status.is_over() {
                true => drop(snapshot.cluster_open.remove(id)),
                false => drop(snapshot.cluster_open.insert(id.to_owned(), (cluster.clone(), number))),
            }
            snapshot.cluster_jobs.entry(cluster.clone()).or_default().insert(number, new);
        }
        None => {
            snapshot.cluster_open.remove(id);
            if let Some(jobs) = snapshot.cluster_jobs.get_mut(&cluster) {
                jobs.remove(&number);
                if jobs.is_empty() {
                    snapshot.cluster_jobs.remove(&cluster);
                }
            }
        }
    }
    Ok(snapshot.clusters.get(&cluster).cloned().map(NoticeBody::Cluster))
}

/// The id is `CLUSTER/NUM`.
pub fn node(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let (cluster, num) = node_parse(id)?;
    match body {
        Some(body) => {
            let new: Row<NodeRecord> = row(version, body)?;
            snapshot.cluster_nodes.entry(cluster).or_default().insert(num, new);
        }
        None => {
            if let Some(nodes) = snapshot.cluster_nodes.get_mut(&cluster) {
                nodes.remove(&num);
                if nodes.is_empty() {
                    snapshot.cluster_nodes.remove(&cluster);
                }
            }
        }
    }
    Ok(None)
}

fn node_parse(id: &str) -> Result<(ClusterId, u32)> {
    let wrong = || Error::internal(format!("'{id}' is no id of a node of a cluster"));
    let (cluster, num) = id.split_once('/').ok_or_else(wrong)?;
    Ok((cluster.parse()?, num.parse().map_err(|_| wrong())?))
}
