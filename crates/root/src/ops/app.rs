//! Apps: groups of workloads that are made, changed and deleted as one, in one transaction.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use api::{App, AppCreate, AppUpdate, AppWorkload, Page};
use model::workload::{APP_WORKLOADS_MAX, DESCRIPTION_BYTES_MAX};
use model::{AppId, Error, Faults, Name, Result, TenantId, shown};
use store::Txn;

use super::once::{Once, once};
use super::page::{Query, cut, glob};
use super::{version_check, view, workload};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Snapshot, Versioned};
use crate::tables::{AppRecord, WorkloadRecord, encode, kind};
use crate::workload::record;

pub const FILTERS: &[&str] = &["name"];

pub(super) fn validate(description: &str, workloads: &[AppWorkload]) -> Result<()> {
    let mut faults = Faults::default();
    if description.len() > DESCRIPTION_BYTES_MAX {
        faults.add("description", format!("a description has at most {DESCRIPTION_BYTES_MAX} bytes"));
    }
    if workloads.len() > APP_WORKLOADS_MAX {
        faults.add("workloads", format!("an app has at most {APP_WORKLOADS_MAX} workloads"));
    }
    let mut names = BTreeSet::new();
    for (index, one) in workloads.iter().enumerate().take(APP_WORKLOADS_MAX) {
        let place = format!("workloads[{index}]");
        faults.inside(&place, one.spec.validate_as(&one.name));
        if !names.insert(&one.name) {
            faults.add(&place, format!("the workload '{}' is named twice", one.name));
        }
    }
    if let Some(circle) = model::circle(workloads.iter().map(|one| (&one.name, &one.spec))) {
        let names = circle.join(", ");
        let sentence = format!(
            "the constraints contradict each other: each of these must be near the next, and the last near the first, \
             so that none could ever be the first to start: {names}"
        );
        faults.add("workloads", sentence);
    }
    faults.done()
}

pub async fn create(cloud: &Cloud, caller: &Caller, body: AppCreate, key: Option<&Once>) -> Result<App> {
    validate(&body.description, &body.workloads)?;
    once(cloud, key, async || {
        let snapshot = cloud.state.snapshot();
        let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
        let record = AppRecord {
            id: AppId::from_random(rand::random()),
            tenant: caller.tenant.clone(),
            name: body.name.clone(),
            description: body.description.clone(),
            deleting: false,
            created_at: cloud.now(),
            created_by: caller.principal.user_name.to_string(),
        };
        let row = Versioned { version: 0, value: Arc::new(record) };
        let mut answer = view::app(&snapshot, &row);
        answer.workloads = body.workloads.iter().map(member_new).collect();
        let tenant_id = Some(caller.tenant.as_str());
        let mut txn =
            Txn::new().insert(kind::APP, &row.id, tenant_id, Some(row.name.as_str()), encode(row.as_ref()));
        if let Some(key) = key {
            txn = key.record(txn, cloud, caller, &answer);
        }
        txn = txn.check(kind::TENANT, &caller.tenant, Some(tenant.version));
        for one in &body.workloads {
            txn = workload_insert(txn, cloud, caller, &snapshot, &row.id, one)?;
        }
        txn = journal(txn, cloud, caller, &row, "create", format!("with {}", counted(body.workloads.len())));
        answer.version = cloud.state.commit(txn).await?.versions[0];
        Ok(answer)
    })
    .await
}

fn counted(workloads: usize) -> String {
    if workloads == 1 { "1 workload".to_owned() } else { format!("{workloads} workloads") }
}

fn member_new(one: &AppWorkload) -> api::AppMember {
    api::AppMember { name: one.name.clone(), phase: Default::default(), wanted: 0, available: 0 }
}

fn workload_insert(
    txn: Txn,
    cloud: &Cloud,
    caller: &Caller,
    snapshot: &Snapshot,
    app: &AppId,
    one: &AppWorkload,
) -> Result<Txn> {
    let place = format!("workloads.{}", one.name);
    let image = workload::image_of(snapshot, &caller.tenant, &one.spec).map_err(|error| error.at(&place))?;
    let by = workload::by(cloud, caller);
    let new = record::record_new(&caller.tenant, &one.name, Some(app.clone()), one.spec.clone(), image, &by);
    let txn = workload::insert(txn, &new);
    Ok(workload::journal(txn, cloud, caller, &new, "create", format!("a {}", new.spec.mode.word())))
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, record: &AppRecord, verb: &str, message: String) -> Txn {
    let line = Line {
        tenant: Some(&record.tenant),
        what: &format!("app.{verb}"),
        kind: kind::APP,
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

pub fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<AppRecord>> {
    snapshot.app(&caller.tenant, name).ok_or_else(|| Error::not_found(format!("app '{}'", shown(name))))
}

/// One that is not being deleted.
pub(super) fn find_alive<'a>(
    snapshot: &'a Snapshot,
    caller: &Caller,
    name: &str,
) -> Result<&'a Row<AppRecord>> {
    let found = find(snapshot, caller, name)?;
    match found.deleting {
        false => Ok(found),
        true => Err(Error::conflict(format!("the app '{}' is being deleted", found.name))),
    }
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<App> {
    let snapshot = cloud.state.snapshot();
    Ok(view::app(&snapshot, find(&snapshot, caller, name)?))
}

/// By name, within the tenant; for operators who ask so, of every tenant, by tenant and name.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<App>> {
    let snapshot = cloud.state.snapshot();
    let tenants: Vec<&TenantId> =
        if caller.all_tenants { snapshot.tenants.keys().collect() } else { vec![&caller.tenant] };
    let cursor = |row: &AppRecord| match caller.all_tenants {
        true => format!("{}/{}", row.tenant, row.name),
        false => row.name.to_string(),
    };
    let after = query.after.as_deref().unwrap_or("");
    let start = after.parse::<Name>().ok().filter(|_| !caller.all_tenants);
    let start = start.map_or(Bound::Unbounded, Bound::Excluded);
    let rows = tenants
        .into_iter()
        .filter_map(|tenant| snapshot.app_names.get(tenant))
        .flat_map(|names| names.range((start.clone(), Bound::Unbounded)))
        .filter(|(name, _)| query.get("name").is_none_or(|pattern| glob(pattern, name.as_str())))
        .filter_map(|(_, id)| snapshot.apps.get(id))
        .filter(|row| cursor(row).as_str() > after);
    let mut rows: Vec<&Row<AppRecord>> = rows.take(query.limit + 1).collect();
    let next = cut(&mut rows, query.limit, |row| cursor(row));
    let items = rows.into_iter().map(|row| view::app(&snapshot, row)).collect();
    Ok(Page { items, next, seq: snapshot.seq })
}

/// The workloads of an app that are there.
fn members<'a>(snapshot: &'a Snapshot, app: &AppId) -> impl Iterator<Item = &'a Row<WorkloadRecord>> {
    let names = snapshot.app_members.get(app);
    names.into_iter().flatten().filter_map(|(_, id)| snapshot.workloads.get(id))
}

/// Makes its workloads what the body says; those it does not name are deleted.
pub async fn update(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: AppUpdate,
    seen: Option<i64>,
) -> Result<App> {
    validate(&body.description, &body.workloads)?;
    let snapshot = cloud.state.snapshot();
    let old = find_alive(&snapshot, caller, name)?;
    version_check(seen, old.version, "app")?;
    let new = AppRecord { description: body.description.clone(), ..AppRecord::clone(old) };
    // Also when only workloads change, so that two updates at once are told apart.
    let mut txn = Txn::new().update(kind::APP, &old.id, old.version, encode(&new));
    let mut changes = 0;
    for one in &body.workloads {
        let Some(had) = snapshot.workload(&caller.tenant, one.name.as_str()).filter(|w| w.name == one.name)
        else {
            txn = workload_insert(txn, cloud, caller, &snapshot, &old.id, one)?;
            changes += 1;
            continue;
        };
        let changed = member_update(cloud, caller, &snapshot, &old.id, had, one)?;
        if let Some(changed) = changed {
            txn = txn.update(kind::WORKLOAD, &had.id, had.version, encode(&changed));
            let message = format!("revision {}", changed.revision);
            txn = workload::journal(txn, cloud, caller, &changed, "update", message);
            changes += 1;
        }
    }
    let named: BTreeSet<&Name> = body.workloads.iter().map(|one| &one.name).collect();
    for had in members(&snapshot, &old.id).filter(|had| !named.contains(&had.name) && !had.deleting) {
        txn = member_delete(txn, cloud, caller, had);
        changes += 1;
    }
    if changes == 0 && new == ***old {
        return Ok(view::app(&snapshot, old));
    }
    txn = journal(txn, cloud, caller, &new, "update", format!("{} changed", counted(changes)));
    let seq = cloud.state.commit(txn).await?.seq;
    cloud.state.wait_for(seq).await;
    get(cloud, caller, new.id.as_str())
}

fn member_update(
    cloud: &Cloud,
    caller: &Caller,
    snapshot: &Snapshot,
    app: &AppId,
    had: &Row<WorkloadRecord>,
    one: &AppWorkload,
) -> Result<Option<WorkloadRecord>> {
    let place = format!("workloads.{}", one.name);
    if had.app.as_ref() != Some(app) {
        return Err(
            Error::conflict(format!("there is a workload '{}' outside of this app", one.name)).at(&place)
        );
    }
    if had.deleting {
        return Err(workload::deleting(had).at(&place));
    }
    let mut changed = WorkloadRecord::clone(had);
    workload::spec_take(snapshot, &mut changed, one.spec.clone(), &workload::by(cloud, caller))
        .map_err(|error| error.at(&place))?;
    Ok((changed != ***had).then_some(changed))
}

fn member_delete(txn: Txn, cloud: &Cloud, caller: &Caller, had: &Row<WorkloadRecord>) -> Txn {
    let gone = WorkloadRecord { deleting: true, ..WorkloadRecord::clone(had) };
    let txn = txn.update(kind::WORKLOAD, &had.id, had.version, encode(&gone));
    workload::journal(txn, cloud, caller, &gone, "delete", "with its app".to_owned())
}

/// Asks for the end of all of it; the record goes with the last workload.
pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<App> {
    let snapshot = cloud.state.snapshot();
    let old = find(&snapshot, caller, name)?;
    version_check(seen, old.version, "app")?;
    if old.deleting {
        return Ok(view::app(&snapshot, old));
    }
    let new = AppRecord { deleting: true, ..AppRecord::clone(old) };
    let mut txn = match members(&snapshot, &old.id).next() {
        Some(_) => Txn::new().update(kind::APP, &old.id, old.version, encode(&new)),
        None => Txn::new().delete(kind::APP, &old.id, Some(old.version)),
    };
    for had in members(&snapshot, &old.id).filter(|had| !had.deleting) {
        txn = member_delete(txn, cloud, caller, had);
    }
    txn = journal(txn, cloud, caller, &new, "delete", "delete asked for, with its workloads".to_owned());
    let version = cloud.state.commit(txn).await?.versions[0];
    Ok(view::app(&snapshot, &Versioned { version, value: Arc::new(new) }))
}
