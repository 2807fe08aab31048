//! Quotas: held however many creates run at once.
//!
//! In one process, creates on their way are counted beside what the snapshot
//! shows, so they need not wait for each other. Where several root servers
//! share a store, creates of a tenant that has a quota also pass a gate: a
//! record whose version must be the one the decision was taken on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{ClusterStatus, QuotaReport, Usage};
use model::{Bytes, Cpu, Error, ErrorKind, InstanceId, InstanceSpec, Quota, Result, TenantId};
use store::Txn;

use crate::cloud::{Caller, Cloud};
use crate::cluster::record::ClusterRecord;
use crate::state::{Entry, Row, Snapshot};
use crate::tables::{GateRecord, encode, kind};

/// What is on its way of each tenant that has a quota.
pub(crate) struct Gates {
    shared_store: bool,
    tenants: Mutex<HashMap<TenantId, Arc<Gate>>>,
}

#[derive(Default)]
struct Gate {
    flying: Mutex<HashMap<InstanceId, Usage>>,
    /// Held through the commit when other servers write too.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The right to create; dropping it takes the instance off the count of those on their way.
pub(crate) struct Reservation {
    gate: Option<(Arc<Gate>, Vec<InstanceId>)>,
    _turn: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((gate, ids)) = &self.gate {
            let mut flying = lock(&gate.flying);
            for id in ids {
                flying.remove(id);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn plus(a: Usage, b: Usage) -> Usage {
    Usage {
        instances: a.instances.saturating_add(b.instances),
        cpu: Cpu(a.cpu.0.saturating_add(b.cpu.0)),
        memory: Bytes(a.memory.0.saturating_add(b.memory.0)),
        ..Usage::default()
    }
}

/// Says which limit the sum would pass, if any.
pub(super) fn within(quota: &Quota, used: Usage, more: Usage) -> Result<()> {
    let sum = plus(used, more);
    let exceeded = |what: &str, limit: String, used: String, asked: String| {
        Error::new(
            ErrorKind::QuotaExceeded,
            format!("the tenant may have {limit} {what}; in use: {used}, asked for: {asked} more"),
        )
        .hint("delete something, or ask an operator for a larger quota")
    };
    if let Some(limit) = quota.instances.filter(|limit| sum.instances > *limit) {
        let what = if limit == 1 { "instance" } else { "instances" };
        return Err(exceeded(
            what,
            limit.to_string(),
            used.instances.to_string(),
            more.instances.to_string(),
        ));
    }
    if let Some(limit) = quota.cpu.filter(|limit| sum.cpu > *limit) {
        return Err(exceeded("CPU", limit.to_string(), used.cpu.to_string(), more.cpu.to_string()).at("cpu"));
    }
    if let Some(limit) = quota.memory.filter(|limit| sum.memory > *limit) {
        return Err(exceeded("memory", limit.to_string(), used.memory.to_string(), more.memory.to_string())
            .at("memory"));
    }
    Ok(())
}

impl Gates {
    pub fn new(shared_store: bool) -> Self {
        Self { shared_store, tenants: Mutex::default() }
    }

    fn gate(&self, tenant: &TenantId) -> Arc<Gate> {
        lock(&self.tenants).entry(tenant.clone()).or_default().clone()
    }
}

/// Counts a create against the quota. Keep the reservation until the commit is in the snapshot.
/// The snapshot to decide on is returned, because it must be taken after earlier creates were counted.
pub(crate) async fn reserve(
    cloud: &Cloud,
    tenant: &TenantId,
    id: &InstanceId,
    spec: &InstanceSpec,
) -> Result<(Reservation, Arc<Snapshot>)> {
    let (reservation, snapshot, short) = reserve_some(cloud, tenant, std::slice::from_ref(id), spec).await?;
    match short {
        None => Ok((reservation, snapshot)),
        Some(error) => Err(error),
    }
}

/// The same for many alike. Where not all fit, as many of the first as do; the error says what they lack.
pub(crate) async fn reserve_some(
    cloud: &Cloud,
    tenant: &TenantId,
    ids: &[InstanceId],
    spec: &InstanceSpec,
) -> Result<(Reservation, Arc<Snapshot>, Option<Error>)> {
    let more = Usage { instances: 1, cpu: spec.cpu, memory: spec.memory, ..Usage::default() };
    reserve_each(cloud, tenant, ids, more).await
}

/// Counts an instance at rest that is to run again.
pub(crate) async fn reserve_start(cloud: &Cloud, entry: &Entry) -> Result<Reservation> {
    let (whole, now) = (entry.usage_awake(), entry.usage());
    let more = Usage { instances: whole.instances - now.instances, ..whole };
    let ids = std::slice::from_ref(&entry.instance.id);
    let (reservation, _, short) = reserve_each(cloud, &entry.instance.tenant, ids, more).await?;
    match short {
        None => Ok(reservation),
        Some(error) => Err(error),
    }
}

async fn reserve_each(
    cloud: &Cloud,
    tenant: &TenantId,
    ids: &[InstanceId],
    more: Usage,
) -> Result<(Reservation, Arc<Snapshot>, Option<Error>)> {
    let snapshot = cloud.state.snapshot();
    let quota = quota_of(&snapshot, tenant)?;
    if quota == Quota::default() {
        return Ok((Reservation { gate: None, _turn: None }, snapshot, None));
    }
    let gate = cloud.gates.gate(tenant);
    let turn = match cloud.gates.shared_store {
        true => Some(gate.turn.clone().lock_owned().await),
        false => None,
    };
    let mut flying = lock(&gate.flying);
    // Taken under the lock: whoever left the count before is in this snapshot.
    let snapshot = cloud.state.snapshot();
    let quota = quota_of(&snapshot, tenant)?;
    let used = snapshot.tenant_usage(tenant);
    let mut sum = flying.values().fold(used, |sum, one| plus(sum, *one));
    let (mut fitting, mut short) = (Vec::new(), None);
    for id in ids {
        if within(&quota, sum, more).is_err() && short.is_none() {
            // Close to the limit it matters that nothing is counted twice.
            let unseen = flying.iter().filter(|(id, _)| !snapshot.awake(id));
            sum = unseen.fold(used, |sum, (_, one)| plus(sum, *one));
        }
        if let Err(error) = within(&quota, sum, more) {
            short = Some(error);
            break;
        }
        flying.insert(id.clone(), more);
        sum = plus(sum, more);
        fitting.push(id.clone());
    }
    drop(flying);
    Ok((Reservation { gate: Some((gate, fitting)), _turn: turn }, snapshot, short))
}

impl Reservation {
    /// How many of `asked` it is for.
    pub fn count(&self, asked: usize) -> usize {
        self.gate.as_ref().map_or(asked, |(_, ids)| ids.len())
    }
}

/// Makes the transaction fail when another server created something since the snapshot.
pub(crate) fn gate_pass(cloud: &Cloud, snapshot: &Snapshot, tenant: &TenantId, txn: Txn) -> Txn {
    let limited = snapshot.tenants.get(tenant).is_some_and(|row| row.quota != Quota::default());
    if !cloud.gates.shared_store || !limited {
        return txn;
    }
    let body = encode(&GateRecord::default());
    match snapshot.gates.get(tenant) {
        Some(version) => txn.update(kind::GATE, tenant, *version, body),
        None => txn.insert(kind::GATE, tenant, Some(tenant.as_str()), None, body),
    }
}

pub(super) fn quota_of(snapshot: &Snapshot, tenant: &TenantId) -> Result<Quota> {
    snapshot.tenants.get(tenant).map(|row| row.quota).ok_or_else(|| Error::not_found("such tenant"))
}

/// What a tenant has, what is in its buckets included where this server knows it.
pub fn usage(cloud: &Cloud, snapshot: &Snapshot, tenant: &TenantId) -> Result<Usage> {
    let mut usage = snapshot.tenant_usage(tenant);
    let clusters = clusters(snapshot, tenant);
    usage.clusters = clusters.len() as u64;
    usage.cluster_machines = clusters.iter().map(|cluster| u64::from(cluster.machines)).sum();
    if let Some(objects) = cloud.objects.get() {
        let held = object::inventory::account_usage(&objects.service, tenant.as_str())?;
        usage.objects = Some(held.objects);
        usage.object_bytes = Some(Bytes(held.bytes + held.upload_bytes));
    }
    Ok(usage)
}

/// The clusters of a tenant that count.
pub(super) fn clusters<'a>(snapshot: &'a Snapshot, tenant: &TenantId) -> Vec<&'a Row<ClusterRecord>> {
    let names = snapshot.cluster_names.get(tenant).into_iter().flatten();
    let all = names.filter_map(|(_, id)| snapshot.clusters.get(id));
    all.filter(|cluster| cluster.status != ClusterStatus::Terminated).collect()
}

pub fn report(cloud: &Cloud, caller: &Caller) -> Result<QuotaReport> {
    let snapshot = cloud.state.snapshot();
    Ok(QuotaReport {
        tenant: caller.tenant_name.clone(),
        quota: quota_of(&snapshot, &caller.tenant)?,
        usage: usage(cloud, &snapshot, &caller.tenant)?,
    })
}
