//! Clusters: asked for, changed, listed. What becomes of them is their owner's work.

mod create;
pub mod look;
mod order;
mod possible;
pub mod view;

use std::collections::BTreeSet;
use std::time::Duration;

use api::{
    Cluster, ClusterConfigure, ClusterLease, ClusterRepair, ClusterResize, ClusterServiceOrder,
    ClusterServices, ClusterStatus, ClusterUpgrade, Page,
};
use model::{Error, Name, Result, TenantId, Timestamp, shown};
use store::Txn;

pub use self::create::create;
pub use self::order::order;
use self::order::{Asked, ask};
use super::instance::{busy, race_wait};
use super::page::{Query, cut, glob};
use super::{DECISIONS_MAX, raced, version_check};
use crate::cloud::{Caller, Cloud};
use crate::cluster::plan::Wish;
use crate::cluster::record::ClusterRecord;
use crate::history::{self, Actor, Line};
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{encode, kind};

/// The filters of [`list`].
pub const FILTERS: &[&str] = &["name", "status", "template"];
/// The longest time for the solver while somebody waits.
pub(crate) const SOLVE_MAX: Duration = Duration::from_secs(10);
/// Machines that are upgraded at a time unless said.
const BATCH_DEFAULT: u32 = 1;

/// The cluster of the caller's tenant; another tenant's is not found.
pub fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<ClusterRecord>> {
    snapshot
        .cluster(&caller.tenant, name)
        .ok_or_else(|| Error::not_found(format!("cluster '{}'", shown(name))))
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Cluster> {
    let snapshot = cloud.state.snapshot();
    Ok(view::cluster(&snapshot, find(&snapshot, caller, name)?))
}

/// By name, within the tenant; for operators who ask so, tenant by tenant.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Cluster>> {
    let snapshot = cloud.state.snapshot();
    let status: Option<ClusterStatus> = query.parsed("status")?;
    let tenants: Vec<&TenantId> =
        if caller.all_tenants { snapshot.tenants.keys().collect() } else { vec![&caller.tenant] };
    let cursor = |row: &ClusterRecord| match caller.all_tenants {
        true => format!("{}/{}", row.tenant, row.name),
        false => row.name.to_string(),
    };
    let after = query.after.as_deref().unwrap_or("");
    let fits_name = |name: &Name| query.get("name").is_none_or(|pattern| glob(pattern, name.as_str()));
    let rows = tenants
        .into_iter()
        .filter_map(|tenant| snapshot.cluster_names.get(tenant))
        .flat_map(|names| names.iter())
        .filter(|(name, _)| fits_name(name))
        .filter_map(|(_, id)| snapshot.clusters.get(id))
        .filter(|row| cursor(row).as_str() > after)
        .filter(|row| status.is_none_or(|status| row.status == status))
        .filter(|row| query.get("template").is_none_or(|template| row.template == template));
    let mut rows: Vec<&Row<ClusterRecord>> = rows.take(query.limit + 1).collect();
    let next = cut(&mut rows, query.limit, |row| cursor(row));
    let items = rows.into_iter().map(|row| view::cluster(&snapshot, row)).collect();
    Ok(Page { items, next, seq: snapshot.seq })
}

pub(super) fn journal(
    txn: Txn,
    now: Timestamp,
    actor: &Actor,
    record: &ClusterRecord,
    verb: &str,
    message: String,
) -> Txn {
    let line = Line {
        tenant: Some(&record.tenant),
        what: &format!("cluster.{verb}"),
        kind: kind::CLUSTER,
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    };
    history::journal(txn, now, actor, line)
}

/// Asks for the end of all machines; the cluster is there until they are gone.
/// With `force` it does not wait for machines that cannot be deleted, and forgets them.
pub async fn delete(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    force: bool,
    seen: Option<i64>,
) -> Result<Cluster> {
    let told = match force {
        true => "delete asked for; machines whose provider does not answer are given up",
        false => "delete asked for",
    };
    ask(cloud, caller, name, seen, "delete", |_, _| Ok(Asked { force, ..Asked::wish(Wish::Delete, told) }))
        .await
}

pub async fn resize(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterResize,
    is_more: bool,
    seen: Option<i64>,
) -> Result<Cluster> {
    let verb = if is_more { "expand" } else { "shrink" };
    ask(cloud, caller, name, seen, verb, |_, row| {
        let now = row.shape.layout.size();
        let is_wrong = if is_more { body.size < now } else { body.size > now };
        if is_wrong {
            let other = if is_more { "shrink" } else { "expand" };
            return Err(Error::invalid(format!(
                "the cluster has {now} machines; '{other}' is for {}",
                body.size
            ))
            .at("size"));
        }
        let services = row.shape.services.clone();
        let wish = Wish::Become { size: body.size, services, anew: body.anew };
        Ok(Asked::wish(wish, format!("from {now} to {} machines", body.size)))
    })
    .await
}

pub async fn services(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterServices,
    seen: Option<i64>,
) -> Result<Cluster> {
    if body.add.is_empty() && body.remove.is_empty() {
        return Err(Error::invalid("no service is named").at("add"));
    }
    ask(cloud, caller, name, seen, "services", |_, row| {
        let mut services = row.shape.services.clone();
        for gone in &body.remove {
            if !services.contains(gone) {
                return Err(
                    Error::invalid(format!("the cluster has no service '{}'", shown(gone))).at("remove")
                );
            }
        }
        services.retain(|service| !body.remove.contains(service));
        services.extend(body.add.iter().filter(|new| !row.shape.services.contains(new)).cloned());
        let now = row.shape.layout.size();
        let size = body.size.unwrap_or(now);
        let told = [("added", &body.add), ("removed", &body.remove)];
        let told = told.iter().filter(|(_, all)| !all.is_empty());
        let mut told: Vec<String> = told.map(|(word, all)| format!("{word}: {}", all.join(", "))).collect();
        if size != now {
            told.push(format!("from {now} to {size} machines"));
        }
        Ok(Asked::wish(Wish::Become { size, services, anew: body.anew }, told.join("; ")))
    })
    .await
}

pub async fn configure(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterConfigure,
    seen: Option<i64>,
) -> Result<Cluster> {
    create::config_check(&body.config)?;
    ask(cloud, caller, name, seen, "configure", |_, _| {
        let restart = body.restart.unwrap_or(true);
        Ok(Asked::wish(Wish::Configure { config: body.config.clone(), restart }, "another configuration"))
    })
    .await
}

#[derive(Debug, Clone, Copy)]
pub enum Switch {
    Start,
    Stop,
    Restart,
}

pub async fn switch(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    switch: Switch,
    body: ClusterServiceOrder,
    seen: Option<i64>,
) -> Result<Cluster> {
    let services = body.services;
    let told = if services.is_empty() { "all services".to_owned() } else { services.join(", ") };
    let (verb, wish) = match switch {
        Switch::Start => ("start", Wish::Start(services)),
        Switch::Stop => ("stop", Wish::Stop(services)),
        Switch::Restart => ("restart", Wish::Restart(services)),
    };
    ask(cloud, caller, name, seen, verb, |_, _| Ok(Asked::wish(wish.clone(), told.clone()))).await
}

pub async fn upgrade(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterUpgrade,
    seen: Option<i64>,
) -> Result<Cluster> {
    let batch = body.batch.unwrap_or(BATCH_DEFAULT) as usize;
    ask(cloud, caller, name, seen, "upgrade", |_, _| {
        let told =
            if body.services.is_empty() { "all services".to_owned() } else { body.services.join(", ") };
        let asked = Asked::wish(Wish::Upgrade { services: body.services.clone(), batch }, told);
        Ok(Asked { sync: body.sync, ..asked })
    })
    .await
}

pub async fn rollback(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Cluster> {
    ask(cloud, caller, name, seen, "rollback", |_, row| {
        let told = match row.status {
            ClusterStatus::Inconsistent => "back to what it was before the change that failed",
            _ => "back to what it was before the last change",
        };
        Ok(Asked::wish(Wish::Rollback, told))
    })
    .await
}

/// Makes machines anew that are gone, and those that are named.
pub async fn repair(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterRepair,
    seen: Option<i64>,
) -> Result<Cluster> {
    ask(cloud, caller, name, seen, "repair", |snapshot, row| {
        let nodes = order::nodes_of(snapshot, &row.id);
        let standing = || nodes.iter().filter(|node| node.joined && !node.leaving);
        let numbers: BTreeSet<u32> = standing().map(|node| node.num).collect();
        let mut given_up: BTreeSet<u32> = body.nodes.iter().copied().collect();
        if let Some(num) = given_up.difference(&numbers).next() {
            let why = format!("the cluster '{}' has no node {num}", row.name);
            return Err(Error::invalid(why).at("nodes").hint("'banyan cluster get' shows their numbers"));
        }
        given_up.extend(standing().filter(|node| node.is_gone()).map(|node| node.num));
        if given_up.is_empty() {
            return Err(Error::conflict(format!("no machine of the cluster '{}' is known to be gone", row.name))
                .hint("'banyan cluster check' asks the provider; or name the nodes whose machines are to be made anew"));
        }
        let told = given_up.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Ok(Asked::wish(Wish::Repair(given_up), format!("instead of the machines of nodes {told}")))
    })
    .await
}

/// Asks the provider whether the machines are there.
pub async fn check(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Cluster> {
    ask(cloud, caller, name, seen, "check", |_, _| Ok(Asked::wish(Wish::Check, "its machines"))).await
}

/// Ends the job under way. What it made by half is taken back.
pub async fn abort(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Cluster> {
    let who = caller.principal.user_name.to_string();
    change(cloud, caller, name, seen, "abort", |record| {
        pending(record)?;
        record.aborted_by.get_or_insert_with(|| who.clone());
        record.paused = false;
        Ok("the job is aborted".to_owned())
    })
    .await
}

pub async fn pause(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    paused: bool,
    seen: Option<i64>,
) -> Result<Cluster> {
    let verb = if paused { "pause" } else { "resume" };
    change(cloud, caller, name, seen, verb, |record| {
        pending(record)?;
        record.paused = paused;
        Ok(format!("{verb} asked for"))
    })
    .await
}

fn pending(record: &ClusterRecord) -> Result<()> {
    match record.status == ClusterStatus::Pending {
        true => Ok(()),
        false => Err(Error::conflict(format!("no job of the cluster '{}' is under way", record.name))),
    }
}

pub async fn lease(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: ClusterLease,
    seen: Option<i64>,
) -> Result<Cluster> {
    change(cloud, caller, name, seen, "lease", |record| {
        record.expires_at = lease_new(record, body)?;
        Ok(match record.expires_at {
            Some(at) => format!("it ends at {at}"),
            None => "it never ends".to_owned(),
        })
    })
    .await
}

/// When a lease ends that is asked to be another, by the terms of the template.
fn lease_new(record: &ClusterRecord, body: ClusterLease) -> Result<Option<Timestamp>> {
    if matches!(record.status, ClusterStatus::Pending | ClusterStatus::Terminated) {
        let (name, status) = (&record.name, record.status.as_str());
        return Err(Error::conflict(format!(
            "the cluster '{name}' is {status}; its lease cannot be changed"
        )));
    }
    let terms = record.lease;
    let asked = match (body.expires_at, body.extend_ms) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("say expires_at or extend_ms, not both").at("extend_ms"));
        }
        (Some(at), None) => Some(at),
        (None, Some(more)) => {
            record.expires_at.map(|at| at.plus_ms(i64::try_from(more).unwrap_or(i64::MAX / 2_000)))
        }
        (None, None) => None,
    };
    if asked.is_some_and(|at| at < record.created_at) {
        return Err(Error::invalid("a lease cannot end before the cluster was made").at("expires_at"));
    }
    if terms.max.0 == 0 {
        return Ok(asked);
    }
    let most = record.created_at.plus_ms(i64::try_from(terms.max.0).unwrap_or(i64::MAX / 2_000));
    let (Some(at), Some(now)) = (asked, record.expires_at) else {
        return Err(Error::invalid(format!("the template allows a lease until {most}, not one without end"))
            .at("expires_at"));
    };
    if at > most {
        return Err(Error::invalid(format!("the template allows a lease until {most}")).at("expires_at"));
    }
    let step_us = i64::try_from(terms.step.0).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000);
    if terms.step.0 != 0 && at.0.saturating_sub(now.0) > step_us {
        let step = terms.step;
        return Err(Error::invalid(format!("the template allows {step} more at a time")).at("expires_at"));
    }
    Ok(Some(at))
}

/// One change of what is wanted of a cluster, without a job. A change that changes nothing commits nothing.
async fn change(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    seen: Option<i64>,
    verb: &str,
    edit: impl Fn(&mut ClusterRecord) -> Result<String>,
) -> Result<Cluster> {
    for _ in 0..DECISIONS_MAX {
        let snapshot = cloud.state.snapshot();
        let old = find(&snapshot, caller, name)?;
        version_check(seen, old.version, "cluster")?;
        let mut new = old.value.as_ref().clone();
        let message = edit(&mut new)?;
        if new == *old.value {
            return Ok(view::cluster(&snapshot, old));
        }
        let txn = Txn::new().update(kind::CLUSTER, &old.id, old.version, encode(&new));
        let txn = journal(txn, cloud.now(), &caller.actor(), &new, verb, message);
        match cloud.state.try_commit(txn).await {
            Ok(committed) => {
                let row = Row { version: committed.versions[0], value: new.into() };
                return Ok(view::cluster(&cloud.state.snapshot(), &row));
            }
            Err(error) if raced(&error) && seen.is_none() => race_wait(cloud).await,
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(busy())
}
