//! Leases that end, machines that are gone, and what is left of clusters and jobs that are over.

use std::collections::BTreeSet;
use std::time::Duration;

use api::ClusterStatus;
use model::{ClusterId, Error, Result, Timestamp};
use store::{Record, Txn};

use super::absent;
use super::owner::Owner;
use super::plan::Wish;
use super::record::{ClusterRecord, TaskRecord};
use crate::cloud::Cloud;
use crate::history::{Actor, Line, journal};
use crate::ops::cluster as ops;
use crate::state::{Row, Snapshot};
use crate::tables::{decode, encode, kind};

/// How often leases are looked at.
const LOOK_MS: i64 = 5_000;
/// A lease is warned of so long before its end, or at half of its time where that is less.
const WARNING_MS: i64 = 24 * 3_600_000;
/// Jobs of a cluster that are kept, with their tasks.
const JOBS_KEPT: u64 = 10;
/// Deletes of one transaction.
const BATCH: usize = 500;
/// The longest time for the solver when nobody waits.
const PLAN_MAX: Duration = Duration::from_secs(10);

pub struct Janitor {
    next: Timestamp,
    /// Clusters of which something may be left.
    untidy: BTreeSet<ClusterId>,
    /// Whether parts were looked for whose cluster is gone.
    swept: bool,
}

impl Janitor {
    pub fn new(cloud: &Cloud) -> Self {
        Self { next: cloud.steady(), untidy: BTreeSet::new(), swept: false }
    }

    pub fn tidy(&mut self, cluster: ClusterId) {
        self.untidy.insert(cluster);
    }

    pub async fn look(&mut self, owner: &Owner) -> Result<()> {
        if let Some(cluster) = self.untidy.pop_first() {
            trim(owner, &cluster).await?;
        }
        let now = owner.cloud.steady();
        if now < self.next {
            return Ok(());
        }
        self.next = now.plus_ms(LOOK_MS);
        if !self.swept {
            self.swept = true;
            self.untidy.extend(orphans(owner).await?);
        }
        leases(owner).await?;
        absent::look(owner).await
    }
}

/// Clusters that are gone and have left something. Looks at one record of each cluster.
async fn orphans(owner: &Owner) -> Result<BTreeSet<ClusterId>> {
    let mut found = BTreeSet::new();
    let snapshot = owner.cloud.state.snapshot();
    for kind in [kind::CLUSTER_PART, kind::CLUSTER_TASK, kind::CLUSTER_NODE] {
        let mut after = String::new();
        while let Some(row) = owner.cloud.state.store().page_under(kind, "", &after, 1).await?.pop() {
            let cluster = row.id.split('/').next().unwrap_or_default();
            let id = cluster.parse::<ClusterId>().ok();
            found.extend(id.filter(|id| !snapshot.clusters.contains_key(id)));
            // The next character after the one that ends the cluster's own.
            after = format!("{cluster}0");
        }
    }
    Ok(found)
}

/// Deletes what nobody can ask for any more.
async fn trim(owner: &Owner, cluster: &ClusterId) -> Result<()> {
    let snapshot = owner.cloud.state.snapshot();
    let store = owner.cloud.state.store();
    let row = snapshot.clusters.get(cluster);
    let first = row.map_or(u64::MAX, |row| (row.job + 1).saturating_sub(JOBS_KEPT));
    let mut gone: Vec<(&str, String)> = Vec::new();
    let jobs = snapshot.cluster_jobs.get(cluster).into_iter().flatten();
    gone.extend(jobs.filter(|(number, _)| **number < first).map(|(_, job)| (kind::CLUSTER_JOB, job.id())));
    let under = format!("{cluster}/");
    let outdated = |task: Record| {
        if row.is_none() || decode::<TaskRecord>(&task.body)?.job < first {
            gone.push((kind::CLUSTER_TASK, task.id));
        }
        Ok::<(), Error>(())
    };
    store.each_under(kind::CLUSTER_TASK, &under, outdated).await?;
    for part in store.list_under(kind::CLUSTER_PART, &under).await? {
        if row.is_none_or(|row| !is_needed(row, &part.id, first)) {
            gone.push((kind::CLUSTER_PART, part.id));
        }
    }
    if row.is_none() {
        let nodes = store.list_under(kind::CLUSTER_NODE, &under).await?;
        gone.extend(nodes.into_iter().map(|node| (kind::CLUSTER_NODE, node.id)));
    }
    for batch in gone.chunks(BATCH) {
        let txn = batch.iter().fold(Txn::new(), |txn, (kind, id)| txn.delete(*kind, id, None));
        owner.commit(txn).await?;
    }
    Ok(())
}

/// Whether pages of a plan or of definitions can still be asked for.
fn is_needed(row: &ClusterRecord, id: &str, first: u64) -> bool {
    let name = id.split('/').nth(1).unwrap_or_default();
    let number = |text: &str| text.split('-').next().and_then(|number| number.parse::<u64>().ok());
    if let Some(job) = name.strip_prefix("plan-").and_then(number) {
        return job >= first;
    }
    let Some(definition) = name.strip_prefix("definition-").and_then(number) else { return true };
    let before = row.before.as_ref().map_or(row.shape.definition, |before| before.definition);
    definition >= u64::from(before.min(row.shape.definition))
}

/// Warns of leases that end soon, and deletes clusters whose lease is over.
async fn leases(owner: &Owner) -> Result<()> {
    let snapshot = owner.cloud.state.snapshot();
    let now = owner.cloud.now();
    for row in snapshot.clusters.values() {
        let Some(until) = row.expires_at else { continue };
        let length = until.0.saturating_sub(row.created_at.0) / 1_000;
        let warning = until.plus_ms(-WARNING_MS.min(length / 2));
        if until <= now {
            expire(owner, &snapshot, row).await?;
        } else if warning <= now && row.warned_of != Some(until) {
            warn(owner, row, until).await?;
        }
    }
    Ok(())
}

async fn warn(owner: &Owner, row: &Row<ClusterRecord>, until: Timestamp) -> Result<()> {
    let record = ClusterRecord { warned_of: Some(until), ..row.value.as_ref().clone() };
    let txn = Txn::new().update(kind::CLUSTER, &row.id, row.version, encode(&record));
    let message = format!("its lease ends at {until}; then it is deleted");
    match owner.commit(said(txn, owner, row, "cluster.lease-warning", message)).await {
        // Somebody changed it; it is looked at again.
        Err(error) if error.kind == model::ErrorKind::VersionMismatch => Ok(()),
        other => other,
    }
}

fn said(txn: Txn, owner: &Owner, row: &ClusterRecord, what: &str, message: String) -> Txn {
    let (id, name) = (row.id.as_str(), row.name.as_str());
    let line = Line { tenant: Some(&row.tenant), what, kind: kind::CLUSTER, id, name, message };
    journal(txn, owner.cloud.now(), &Actor::root(), line)
}

async fn expire(owner: &Owner, snapshot: &Snapshot, row: &Row<ClusterRecord>) -> Result<()> {
    let by = Actor { who: "its lease".to_owned(), from: None };
    if row.status == ClusterStatus::Pending {
        // A job that goes on ends by itself; one that stands still would keep the cluster for ever.
        return if row.paused { unpause(owner, row, &by).await } else { Ok(()) };
    }
    let ordered = ops::order(&owner.cloud, snapshot, row, Wish::Delete, &by, PLAN_MAX).await;
    match ordered {
        Ok(_) => Ok(()),
        Err(error) if error.kind == model::ErrorKind::VersionMismatch => Ok(()),
        Err(error) if error.kind == model::ErrorKind::Unavailable => Err(error),
        // One cluster that cannot be deleted does not keep the others.
        Err(error) => {
            let error: Error = error;
            tracing::warn!(cluster = %row.name, %error, "a cluster whose lease is over cannot be deleted");
            Ok(())
        }
    }
}

/// Ends a job that stands still, so that the cluster can be deleted.
async fn unpause(owner: &Owner, row: &Row<ClusterRecord>, by: &Actor) -> Result<()> {
    let aborted_by = row.aborted_by.clone().or_else(|| Some(by.who.clone()));
    let record = ClusterRecord { aborted_by, paused: false, ..row.value.as_ref().clone() };
    let txn = Txn::new().update(kind::CLUSTER, &row.id, row.version, encode(&record));
    let message = "its lease is over, and its job stands still: the job is aborted".to_owned();
    match owner.commit(said(txn, owner, row, "cluster.abort", message)).await {
        Err(error) if error.kind == model::ErrorKind::VersionMismatch => Ok(()),
        other => other,
    }
}
