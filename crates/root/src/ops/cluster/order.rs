//! An order becomes a job: planned on the spot, committed with its plan, begun by the owner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Cluster, ClusterStatus, JobStatus};
use model::{Error, ErrorKind, Quota, Result, TenantId};
use store::Txn;
use template::{compose, solve};

use super::possible::possible;
use super::{SOLVE_MAX, find, journal, view};
use crate::cloud::{Caller, Cloud};
use crate::cluster::definition::{Definition, service_links};
use crate::cluster::load;
use crate::cluster::pages::Packed;
use crate::cluster::plan::{Ground, Planned, Wish};
use crate::cluster::record::{ClusterRecord, JobRecord, NodeRecord, Shape, definition_part, job_id};
use crate::history::Actor;
use crate::ops::instance::{busy, race_wait};
use crate::ops::{DECISIONS_MAX, catalogue, quota, raced, turn, version_check};
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{GateRecord, encode, kind};

/// Bytes that the record of a cluster may have once a job is complete. What the end of a job adds to it must still find
/// room: nobody could be told then that it is too much.
const RECORD_MAX: usize = store::BODY_BYTES_MAX - (64 << 10);

/// What is asked, and how the history says it.
pub struct Asked {
    pub wish: Wish,
    pub told: String,
    /// The template and the services as the catalogue has them now.
    pub sync: bool,
    /// Machines that cannot be deleted are given up.
    pub force: bool,
}

impl Asked {
    pub fn wish(wish: Wish, told: impl Into<String>) -> Self {
        Self { wish, told: told.into(), sync: false, force: false }
    }
}

/// Takes an order of a user.
pub async fn ask(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    seen: Option<i64>,
    verb: &str,
    read: impl Fn(&Snapshot, &ClusterRecord) -> Result<Asked>,
) -> Result<Cluster> {
    for _ in 0..DECISIONS_MAX {
        let snapshot = cloud.state.snapshot();
        let row = find(&snapshot, caller, name)?;
        version_check(seen, row.version, "cluster")?;
        allowed(&snapshot, row, verb)?;
        let asked = read(&snapshot, row)?;
        let by = caller.actor();
        match place(cloud, &snapshot, row, asked, &by, verb, SOLVE_MAX).await {
            Err(error) if error.kind == ErrorKind::VersionMismatch && seen.is_none() => {
                race_wait(cloud).await
            }
            Err(error) => return Err(error),
            Ok(row) => return Ok(view::cluster(&cloud.state.snapshot(), &row)),
        }
    }
    Err(busy())
}

/// Places an order that no user made.
pub async fn order(
    cloud: &Cloud,
    snapshot: &Snapshot,
    row: &Row<ClusterRecord>,
    wish: Wish,
    by: &Actor,
    time: Duration,
) -> Result<()> {
    let asked = Asked::wish(wish, format!("by {}", by.who));
    place(cloud, snapshot, row, asked, by, "delete", time).await.map(drop)
}

/// Which orders a cluster takes in its status.
fn allowed(snapshot: &Snapshot, row: &ClusterRecord, verb: &str) -> Result<()> {
    let (name, status) = (&row.name, row.status);
    if status == ClusterStatus::Pending {
        return Err(Error::conflict(format!("a job of the cluster '{name}' is under way"))
            .hint("wait for its end, or abort it"));
    }
    if verb == "delete" {
        return Ok(());
    }
    let nodes = snapshot.cluster_nodes.get(&row.id).into_iter().flatten();
    if nodes.into_iter().all(|(_, node)| !node.joined) {
        return Err(Error::conflict(format!("the cluster '{name}' was never made whole"))
            .hint("delete it, and make it anew"));
    }
    Ok(())
}

/// Plans in a thread of its own, for so long.
pub async fn planned(
    cluster: Arc<ClusterRecord>,
    definition: Definition,
    nodes: Vec<Arc<NodeRecord>>,
    wish: Wish,
    time: Duration,
) -> Result<Planned> {
    let tenant = cluster.tenant.clone();
    let work = move || {
        let catalogue = definition.catalogue()?;
        let nodes = nodes.iter().map(AsRef::as_ref).collect();
        let ground = Ground { cluster: &cluster, catalogue: &catalogue, nodes, given_up: BTreeSet::new() };
        let until = Instant::now() + time;
        ground.plan(&wish, &mut || Instant::now() < until)
    };
    turn::take(&tenant, work).await
}

/// Whether the cluster can be kept when it has become what is planned, with what it was before beside it.
pub fn fits(record: &ClusterRecord, target: &Shape, before: Option<&Shape>) -> Result<()> {
    let after = ClusterRecord { shape: target.clone(), before: before.cloned(), ..record.clone() };
    let size = encode(&after).text().len();
    match size > RECORD_MAX {
        true => Err(Error::new(
            ErrorKind::TooLarge,
            format!("the cluster's configuration and layout have {size} bytes, of up to {RECORD_MAX}"),
        )
        .at("config")
        .hint("what it was before the last change is kept as well")),
        false => Ok(()),
    }
}

pub fn nodes_of(snapshot: &Snapshot, cluster: &model::ClusterId) -> Vec<Arc<NodeRecord>> {
    let nodes = snapshot.cluster_nodes.get(cluster).into_iter().flatten();
    nodes.map(|(_, row)| row.value.clone()).collect()
}

async fn place(
    cloud: &Cloud,
    snapshot: &Snapshot,
    row: &Row<ClusterRecord>,
    asked: Asked,
    by: &Actor,
    verb: &str,
    time: Duration,
) -> Result<Row<ClusterRecord>> {
    let mut record = row.value.as_ref().clone();
    // What it is planned from: as it is, or as other definitions make it. That counts when the job is complete.
    let mut ground = record.clone();
    let mut part = None;
    let mut number = match &asked.wish {
        Wish::Rollback => row.back().map_or(row.shape.definition, |back| back.definition),
        _ => row.shape.definition,
    };
    let mut definition = load::definition(cloud, &row.id, number).await?;
    if asked.sync {
        definition = synced(snapshot, &mut ground, &definition)?;
        number = definition_next(snapshot, row);
        part = Some(Packed::of(&definition)?);
    }
    let nodes = nodes_of(snapshot, &row.id);
    let (is_delete, is_check) = (asked.wish == Wish::Delete, asked.wish == Wish::Check);
    let mut planned = planned(Arc::new(ground.clone()), definition.clone(), nodes, asked.wish, time).await?;
    let is_same = planned.target.layout == row.shape.layout && planned.target.services == row.shape.services;
    if planned.plan.tasks.is_empty() && is_same && !is_delete && !asked.sync {
        return Err(Error::conflict(format!(
            "there is nothing to do: the cluster '{}' is so already",
            row.name
        )));
    }
    planned.target.definition = number;
    if !is_delete {
        possible(snapshot, &row.tenant, &row.provider, &definition, &planned)?;
        fits(&ground, &planned.target, Some(&row.shape))?;
    }
    quota_check(snapshot, &row.tenant, Some(row), planned.machines)?;
    record.status = ClusterStatus::Pending;
    record.message = record.message.filter(|_| is_check);
    record.paused = false;
    record.aborted_by = None;
    record.job += 1;
    record.machines = planned.machines;
    record.node_next = planned.node_next;
    let txn = Txn::new().update(kind::CLUSTER, &row.id, row.version, encode(&record));
    let txn = match &part {
        Some(part) => part.put(txn, &definition_part(&row.id, number), row.tenant.as_str()),
        None => txn,
    };
    let is_more = planned.machines > row.machines;
    let txn = job_insert(txn, cloud, &record, (row.status, asked.force), planned, by)?;
    let txn = if is_more { gate_pass(snapshot, &row.tenant, txn) } else { txn };
    let txn = journal(txn, cloud.now(), by, &record, verb, asked.told);
    let committed = cloud.state.try_commit(txn).await.map_err(|error| match raced(&error) {
        true => Error::new(ErrorKind::VersionMismatch, "the cluster changed since it was read"),
        false => commit_error(error),
    })?;
    Ok(Row { version: committed.versions[0], value: record.into() })
}

/// The number of definitions that no shape of the cluster has, and no job had.
fn definition_next(snapshot: &Snapshot, row: &ClusterRecord) -> u32 {
    let jobs = snapshot.cluster_jobs.get(&row.id).into_iter().flatten();
    let known = jobs.map(|(_, job)| job.target.definition);
    let known = known.chain(row.before.as_ref().map(|before| before.definition));
    known.fold(row.shape.definition, u32::max) + 1
}

/// The definitions as the catalogue has them now, and in the record what they make of the cluster. `old` are those it
/// is made from.
fn synced(snapshot: &Snapshot, record: &mut ClusterRecord, old: &Definition) -> Result<Definition> {
    let catalogue = catalogue::catalogue(snapshot, &record.tenant)?;
    let (mut fresh, template) = Definition::of(&catalogue, &record.template, &record.provider)?;
    fresh.secrets = catalogue::secrets_of(snapshot, &record.tenant, &record.provider);
    let known = fresh.catalogue()?;
    let missing: Vec<&String> =
        record.shape.services.iter().filter(|name| !known.services.contains_key(*name)).collect();
    if let Some(name) = missing.first() {
        let why = format!("the catalogue no longer has the service '{name}' for this template");
        return Err(Error::conflict(why).hint("remove the service from the cluster first"));
    }
    let ground = Ground { cluster: record, catalogue: &known, nodes: Vec::new(), given_up: BTreeSet::new() };
    let request = ground.request(record.shape.layout.size(), &record.shape.services);
    if let Some(clash) = solve::keeps(&known, &request, &record.shape.layout)? {
        let why = format!(
            "the cluster does not keep to template {} as the catalogue has it now: {}",
            record.template, clash.reason
        );
        return Err(Error::conflict(why)
            .hint("change the template, or bring the cluster to it first: expand, shrink or services"));
    }
    let old = old.catalogue()?;
    let before = old.template(&record.template)?;
    let config = &record.shape.config;
    record.shape.config = compose::config_renew(config, &before.defaults.config, &template.defaults.config);
    record.links = template.links;
    record.service_links = service_links(&known);
    Ok(fresh)
}

/// Adds a job with its plan to a transaction.
pub fn job_insert(
    txn: Txn,
    cloud: &Cloud,
    record: &ClusterRecord,
    (was, force): (ClusterStatus, bool),
    planned: Planned,
    by: &Actor,
) -> Result<Txn> {
    let pages = Packed::of(&planned.plan)?;
    let total = planned.plan.tasks.iter().filter(|task| task.verb.is_some()).count() as u32;
    let job = JobRecord {
        cluster: record.id.clone(),
        tenant: record.tenant.clone(),
        number: record.job,
        action: planned.action.to_owned(),
        purpose: planned.purpose,
        was,
        force,
        target: planned.target,
        cost: planned.cost,
        status: JobStatus::NotSubmitted,
        pages: vec![pages.count()],
        undo: None,
        total,
        done: 0,
        failed: 0,
        failing: None,
        message: None,
        created_at: cloud.now(),
        created_by: by.who.clone(),
        ended_at: None,
    };
    let tenant = record.tenant.as_str();
    let id = job_id(&record.id, record.job);
    let txn = txn.insert(kind::CLUSTER_JOB, id, Some(tenant), None, encode(&job));
    Ok(pages.put(txn, &job.part(0), tenant))
}

/// Whether the tenant may have one more cluster, or so many machines in this one. What is being made counts.
pub fn quota_check(
    snapshot: &Snapshot,
    tenant: &TenantId,
    row: Option<&ClusterRecord>,
    machines: u32,
) -> Result<()> {
    let Some(quota) = snapshot.tenants.get(tenant).map(|row| row.quota) else {
        return Err(Error::not_found("such tenant"));
    };
    if quota.clusters.is_none() && quota.cluster_machines.is_none() {
        return Ok(());
    }
    let mut others = quota::clusters(snapshot, tenant);
    others.retain(|other| row.is_none_or(|row| row.id != other.id));
    let exceeded = |what: &str, limit: u64, used: u64, asked: u64| {
        let why = format!("the tenant may have {limit} {what}; in use: {used}, asked for: {asked} more");
        Err(Error::new(ErrorKind::QuotaExceeded, why)
            .hint("delete something, or ask an operator for a larger quota"))
    };
    let count = others.len() as u64;
    if let Some(limit) = quota.clusters.filter(|limit| row.is_none() && count + 1 > *limit) {
        return exceeded("clusters", limit, count, 1);
    }
    let used: u64 = others.iter().map(|other| u64::from(other.machines)).sum();
    let (before, asked) = (row.map_or(0, |row| u64::from(row.machines)), u64::from(machines));
    match quota.cluster_machines.filter(|limit| asked > before && used + asked > *limit) {
        Some(limit) => exceeded("machines in clusters", limit, used + before, asked - before),
        None => Ok(()),
    }
}

/// Lets one order after the other pass where there is a quota.
pub fn gate_pass(snapshot: &Snapshot, tenant: &TenantId, txn: Txn) -> Txn {
    let limited = snapshot.tenants.get(tenant).is_some_and(|row| row.quota != Quota::default());
    if !limited {
        return txn;
    }
    let body = encode(&GateRecord::default());
    match snapshot.gates.get(tenant) {
        Some(version) => txn.update(kind::GATE, tenant, *version, body),
        None => txn.insert(kind::GATE, tenant, Some(tenant.as_str()), None, body),
    }
}
