//! Workloads: asked for, changed, listed. What becomes of them is their controller's work.

use std::ops::Bound;
use std::sync::Arc;

use api::{
    Page, Workload, WorkloadCreate, WorkloadRevision, WorkloadRollback, WorkloadScale, WorkloadUpdate,
    WorkloadWhy,
};
use model::exchange::Health;
use model::workload::{Overlap, REPLICAS_MAX, WorkloadPhase};
use model::{AppId, Error, ImageManifest, Mode, Name, Phase, Result, TenantId, WorkloadSpec, shown};
use store::Txn;

use super::instance::{busy, race_wait};
use super::once::{Once, once};
use super::page::{Query, cut, glob};
use super::{DECISIONS_MAX, raced, version_check, view};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Entry, Row, Snapshot, Versioned, commit_error};
use crate::tables::{WorkloadRecord, encode, kind};
use crate::workload::record::{self, By};

/// The filters of [`list`].
pub const FILTERS: &[&str] = &["name", "app", "phase"];

/// Instances whose decisions are shown with the reasons of a workload.
const EXPLAINED_MAX: usize = 10;

/// The image that a template names, as it is now.
pub(super) fn image_of(snapshot: &Snapshot, tenant: &TenantId, spec: &WorkloadSpec) -> Result<ImageManifest> {
    let name = &spec.instance.image;
    let found = snapshot.image_usable(tenant, name).map(|image| image.manifest.clone());
    found.ok_or_else(|| {
        Error::invalid(format!("there is no image '{}'", shown(name)))
            .at("spec.instance.image")
            .hint("'banyan image list' shows those there are")
    })
}

pub async fn create(
    cloud: &Cloud,
    caller: &Caller,
    body: WorkloadCreate,
    key: Option<&Once>,
) -> Result<Workload> {
    body.spec.validate_as(&body.name)?;
    once(cloud, key, async || create_now(cloud, caller, &body, key).await).await
}

async fn create_now(
    cloud: &Cloud,
    caller: &Caller,
    body: &WorkloadCreate,
    key: Option<&Once>,
) -> Result<Workload> {
    let snapshot = cloud.state.snapshot();
    let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
    let app = match &body.app {
        None => None,
        Some(name) => {
            Some(super::app::find_alive(&snapshot, caller, name.as_str()).map_err(|e| e.at("app"))?)
        }
    };
    let image = image_of(&snapshot, &caller.tenant, &body.spec)?;
    let app_id = app.map(|app| app.id.clone());
    let record =
        record::record_new(&caller.tenant, &body.name, app_id, body.spec.clone(), image, &by(cloud, caller));
    let row = Versioned { version: 0, value: Arc::new(record) };
    let mut answer = view::workload(&snapshot, &row);
    let mut txn = insert(Txn::new(), &row);
    if let Some(key) = key {
        txn = key.record(txn, cloud, caller, &answer);
    }
    txn = txn.check(kind::TENANT, &caller.tenant, Some(tenant.version));
    if let Some(app) = app {
        txn = txn.check(kind::APP, &app.id, Some(app.version));
    }
    txn = journal(txn, cloud, caller, &row, "create", format!("of kind {}", row.spec.mode.word()));
    answer.version = cloud.state.commit(txn).await?.versions[0];
    Ok(answer)
}

pub(super) fn by<'a>(cloud: &Cloud, caller: &'a Caller) -> By<'a> {
    By { who: caller.principal.user_name.as_str(), at: cloud.now() }
}

pub(super) fn insert(txn: Txn, record: &WorkloadRecord) -> Txn {
    let (tenant, name) = (Some(record.tenant.as_str()), Some(record.name.as_str()));
    txn.insert(kind::WORKLOAD, &record.id, tenant, name, encode(record))
}

pub(super) fn journal(
    txn: Txn,
    cloud: &Cloud,
    caller: &Caller,
    record: &WorkloadRecord,
    verb: &str,
    message: String,
) -> Txn {
    let line = Line {
        tenant: Some(&record.tenant),
        what: &format!("workload.{verb}"),
        kind: kind::WORKLOAD,
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

/// The workload of the caller's tenant; another tenant's is not found.
pub fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<WorkloadRecord>> {
    snapshot
        .workload(&caller.tenant, name)
        .ok_or_else(|| Error::not_found(format!("workload '{}'", shown(name))))
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Workload> {
    let snapshot = cloud.state.snapshot();
    Ok(view::workload(&snapshot, find(&snapshot, caller, name)?))
}

/// By name, within the tenant; for operators who ask so, tenant by tenant.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Workload>> {
    let snapshot = cloud.state.snapshot();
    let phase: Option<WorkloadPhase> = query.parsed("phase")?;
    let app: Option<Option<AppId>> =
        query.get("app").map(|name| snapshot.app(&caller.tenant, name).map(|app| app.id.clone()));
    let tenants: Vec<&TenantId> =
        if caller.all_tenants { snapshot.tenants.keys().collect() } else { vec![&caller.tenant] };
    let cursor = |row: &WorkloadRecord| match caller.all_tenants {
        true => format!("{}/{}", row.tenant, row.name),
        false => row.name.to_string(),
    };
    let after = query.after.as_deref().unwrap_or("");
    let start = after.parse::<Name>().ok().filter(|_| !caller.all_tenants);
    let start = start.map_or(Bound::Unbounded, Bound::Excluded);
    let rows = tenants
        .into_iter()
        .filter_map(|tenant| snapshot.workload_names.get(tenant))
        .flat_map(|names| names.range((start.clone(), Bound::Unbounded)))
        .filter(|(name, _)| query.get("name").is_none_or(|pattern| glob(pattern, name.as_str())))
        .filter_map(|(_, id)| snapshot.workloads.get(id))
        .filter(|row| cursor(row).as_str() > after)
        .filter(|row| app.as_ref().is_none_or(|app| app.is_some() && row.app == *app))
        .filter(|row| phase.is_none_or(|phase| view::workload_status(&snapshot, row).phase == phase));
    let mut rows: Vec<&Row<WorkloadRecord>> = rows.take(query.limit + 1).collect();
    let next = cut(&mut rows, query.limit, |row| cursor(row));
    let items = rows.into_iter().map(|row| view::workload(&snapshot, row)).collect();
    Ok(Page { items, next, seq: snapshot.seq })
}

pub async fn update(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: WorkloadUpdate,
    seen: Option<i64>,
) -> Result<Workload> {
    body.spec.validate().map_err(|error| error.at("spec"))?;
    change(cloud, caller, name, seen, "update", |snapshot, record| {
        body.spec.validate_as(&record.name)?;
        spec_take(snapshot, record, body.spec.clone(), &by(cloud, caller))?;
        Ok(format!("revision {}", record.revision))
    })
    .await
}

/// A template that did not change keeps the image it has.
pub(super) fn spec_take(
    snapshot: &Snapshot,
    record: &mut WorkloadRecord,
    spec: WorkloadSpec,
    by: &By<'_>,
) -> Result<()> {
    let image = match spec.instance == record.spec.instance {
        true => record.image.clone(),
        false => image_of(snapshot, &record.tenant, &spec)?.into(),
    };
    record::spec_set(record, spec, image, by)
}

pub async fn scale(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: WorkloadScale,
    seen: Option<i64>,
) -> Result<Workload> {
    if body.replicas > REPLICAS_MAX {
        return Err(Error::invalid(format!("at most {REPLICAS_MAX} replicas are possible")).at("replicas"));
    }
    change(cloud, caller, name, seen, "scaled", |_, record| {
        let mut spec = WorkloadSpec::clone(&record.spec);
        let Mode::Service { replicas } = &mut spec.mode else {
            return Err(Error::conflict(format!(
                "'{}' is of kind {}; only a service has a number of replicas",
                record.name,
                record.spec.mode.word()
            )));
        };
        if spec.autoscale.is_some() {
            return Err(Error::conflict(format!("'{}' scales by itself", record.name))
                .hint("change its autoscale.min and autoscale.max, or take autoscale away"));
        }
        let from = std::mem::replace(replicas, body.replicas);
        record.spec = spec.into();
        Ok(format!("from {from} to {} instances", body.replicas))
    })
    .await
}

/// Replaces every instance under the update policy.
pub async fn restart(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Workload> {
    change(cloud, caller, name, seen, "restart", |_, record| {
        if record.spec.mode.run().is_some() {
            return Err(Error::conflict(format!("'{}' has runs; there is nothing to restart", record.name))
                .hint("'run' begins a new one"));
        }
        record.restart_count += 1;
        Ok("every instance is replaced".to_owned())
    })
    .await
}

pub async fn pause(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    paused: bool,
    seen: Option<i64>,
) -> Result<Workload> {
    let verb = if paused { "pause" } else { "resume" };
    change(cloud, caller, name, seen, verb, |_, record| {
        let spec = WorkloadSpec { paused, ..WorkloadSpec::clone(&record.spec) };
        record::spec_set(record, spec, record.image.clone(), &by(cloud, caller))?;
        Ok(format!("{verb} asked for"))
    })
    .await
}

pub async fn rollback(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: WorkloadRollback,
    seen: Option<i64>,
) -> Result<Workload> {
    change(cloud, caller, name, seen, "rollback", |snapshot, record| {
        let from = record.revision;
        let state = snapshot.workload_states.get(&record.id);
        let complete = state.map_or(&[][..], |state| &state.complete);
        let to = record::roll_back(record, complete, body.revision, None, &by(cloud, caller))?;
        Ok(format!("from revision {from} to the template of revision {to}, as revision {}", record.revision))
    })
    .await
}

pub async fn promote(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Workload> {
    change(cloud, caller, name, seen, "promote", |snapshot, record| {
        let rollout = snapshot.workload_states.get(&record.id).and_then(|state| state.rollout.clone());
        let waits = record.spec.update.canary.is_some()
            && rollout.is_none_or(|rollout| rollout.revision != record.revision || !rollout.whole);
        if !waits {
            return Err(Error::conflict(format!("'{}' has no canary that waits", record.name)));
        }
        record.promoted = record.revision;
        Ok(format!("revision {}", record.revision))
    })
    .await
}

pub async fn run(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Workload> {
    change(cloud, caller, name, seen, "run-asked", |snapshot, record| {
        let overlap = match &record.spec.mode {
            Mode::Once { .. } => Overlap::Skip,
            Mode::Cron { overlap, .. } => *overlap,
            other => {
                return Err(Error::conflict(format!(
                    "'{}' is of kind {}, which has no runs",
                    record.name,
                    other.word()
                )));
            }
        };
        let state = snapshot.workload_states.get(&record.id);
        let begun = state.map_or(0, |state| state.runs_begun);
        let active = state.is_some_and(|state| state.runs.iter().any(|run| run.ended_at.is_none()));
        if overlap == Overlap::Skip && (active || begun < record.runs_asked) {
            return Err(
                Error::conflict(format!("a run of '{}' is under way", record.name)).hint("wait for its end")
            );
        }
        record.runs_asked += 1;
        Ok("a run was asked for".to_owned())
    })
    .await
}

/// Asks for the end; the record goes once its instances are gone everywhere.
pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Workload> {
    change(cloud, caller, name, seen, "delete", |_, record| {
        record.deleting = true;
        Ok("delete asked for, with its instances".to_owned())
    })
    .await
}

/// One change of what is asked for. A change that changes nothing commits nothing.
async fn change(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    seen: Option<i64>,
    verb: &str,
    edit: impl Fn(&Snapshot, &mut WorkloadRecord) -> Result<String>,
) -> Result<Workload> {
    for _ in 0..DECISIONS_MAX {
        let snapshot = cloud.state.snapshot();
        let old = find(&snapshot, caller, name)?;
        version_check(seen, old.version, "workload")?;
        let mut new = WorkloadRecord::clone(old);
        if old.deleting && verb != "delete" {
            return Err(deleting(old));
        }
        let message = edit(&snapshot, &mut new)?;
        if new == ***old {
            return Ok(view::workload(&snapshot, old));
        }
        let txn = Txn::new().update(kind::WORKLOAD, &old.id, old.version, encode(&new));
        let txn = journal(txn, cloud, caller, &new, verb, message);
        match cloud.state.try_commit(txn).await {
            Ok(committed) => {
                let row = Versioned { version: committed.versions[0], value: Arc::new(new) };
                return Ok(view::workload(&snapshot, &row));
            }
            Err(error) if raced(&error) && seen.is_none() => race_wait(cloud).await,
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(busy())
}

pub(super) fn deleting(record: &WorkloadRecord) -> Error {
    Error::conflict(format!("the workload '{}' is being deleted", record.name))
}

/// Newest first, the current one among them.
pub fn revisions(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Vec<WorkloadRevision>> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let members = snapshot.members.get(&row.id);
    let count = |revision: u64| {
        let owners =
            members.into_iter().flat_map(|all| all.values()).filter_map(|e| e.instance.owner.as_ref());
        owners.filter(|owner| owner.revision == revision).count() as u32
    };
    let state = snapshot.workload_states.get(&row.id);
    let complete = |base: u64| state.is_some_and(|state| state.complete.contains(&base));
    let current = WorkloadRevision {
        revision: row.revision,
        created_at: row.revised_at,
        created_by: row.revised_by.clone(),
        instance: row.spec.instance.clone(),
        instances: count(row.revision),
        complete: complete(row.base),
        changes: Vec::new(),
        failed: None,
    };
    let earlier = row.earlier.iter().rev().map(|template| WorkloadRevision {
        revision: template.revision,
        created_at: template.created_at,
        created_by: template.created_by.clone(),
        instance: template.instance.as_ref().clone(),
        instances: count(template.revision),
        complete: complete(template.base),
        changes: Vec::new(),
        failed: template.failed.clone(),
    });
    let mut all: Vec<WorkloadRevision> = std::iter::once(current).chain(earlier).collect();
    let images: Vec<_> =
        std::iter::once(&row.image).chain(row.earlier.iter().rev().map(|template| &template.image)).collect();
    for at in 1..all.len() {
        all[at - 1].changes = changes(&all[at].instance, &all[at - 1].instance);
        if all[at - 1].changes.is_empty() && images[at].id != images[at - 1].id {
            all[at - 1].changes = vec!["~ the image has other contents under the same name".to_owned()];
        }
    }
    Ok(all)
}

/// What differs between two templates, field by field.
fn changes(old: &model::InstanceSpec, new: &model::InstanceSpec) -> Vec<String> {
    let json = |spec: &model::InstanceSpec| serde_json::to_value(spec).unwrap_or_default();
    api::diff::diff(&json(old), &json(new)).iter().map(ToString::to_string).collect()
}

/// Its phase, the revisions that were given up, and the first instances that are not well, with the decisions about them.
pub fn why(cloud: &Cloud, caller: &Caller, name: &str) -> Result<WorkloadWhy> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let members = snapshot.members.get(&row.id).into_iter().flat_map(|all| all.values());
    let unwell: Vec<_> = members.filter(|entry| !well(entry)).collect();
    let revisions = revisions(cloud, caller, name)?;
    Ok(WorkloadWhy {
        workload: view::workload(&snapshot, row),
        given_up: revisions.into_iter().filter(|revision| revision.failed.is_some()).collect(),
        unwell: unwell.len() as u32,
        instances: unwell.into_iter().take(EXPLAINED_MAX).map(super::instance::why_of).collect(),
    })
}

/// Whether nothing about an instance needs explaining.
fn well(entry: &Entry) -> bool {
    let seen = entry.status.as_ref().and_then(|status| status.observed.as_ref());
    match entry.phase() {
        Phase::Running => seen.is_none_or(|seen| {
            let waits = seen.health == Some(Health::Starting) && seen.message.is_some();
            seen.health != Some(Health::Unhealthy) && !waits && seen.restarts == 0
        }),
        Phase::Exited => seen.is_some_and(|seen| seen.exit_code == Some(0)),
        Phase::Stopped => view::run_ended(entry).is_none_or(|code| code == 0),
        Phase::Deleting | Phase::Gone | Phase::Stopping => true,
        Phase::Pending | Phase::Placed | Phase::Creating | Phase::Failed | Phase::Lost => false,
    }
}
