//! Records as users see them.

use model::{Mode, Name, Phase, Result, WorkloadPhase};

use super::quota;
use super::zone::Held;
use crate::cloud::Cloud;
use crate::state::{Entry, Row, Snapshot};
use crate::tables::{
    AppRecord, ImageRecord, KeyRecord, TenantRecord, TokenRecord, UserRecord, WorkloadRecord, ZoneRecord,
};

/// Shown for something whose owner was deleted in this very moment.
fn unknown_name() -> Name {
    "unknown".parse().expect("a legal name")
}

pub(super) fn tenant_name(snapshot: &Snapshot, id: &model::TenantId) -> Name {
    snapshot.tenants.get(id).map_or_else(unknown_name, |tenant| tenant.name.clone())
}

fn user_name(snapshot: &Snapshot, id: &model::UserId) -> Name {
    snapshot.users.get(id).map_or_else(unknown_name, |user| user.name.clone())
}

pub fn instance(snapshot: &Snapshot, entry: &Entry) -> api::Instance {
    let record = &entry.instance;
    let observed = entry.status.as_ref().and_then(|status| status.observed.as_ref());
    api::Instance {
        id: record.id.clone(),
        name: record.name.clone(),
        tenant: tenant_name(snapshot, &record.tenant),
        version: record.version,
        spec: record.spec.as_ref().clone(),
        workload: instance_workload(snapshot, entry),
        run: record.run,
        restart_count: record.restart_count,
        image_id: record.image.id.clone(),
        created_at: record.created_at,
        created_by: record.created_by.clone(),
        phase: entry.phase(),
        message: instance_message(entry),
        zone: entry.status.as_ref().and_then(|s| s.zone.as_ref()).and_then(|zone| snapshot.zone_name(zone)),
        node: observed.and_then(|o| o.node.clone()),
        address: observed.and_then(|o| o.address),
        exit_code: observed.and_then(|o| o.exit_code),
        started_at: observed.and_then(|o| o.started_at),
        health: observed.and_then(|o| o.health),
        restarts: observed.map_or(0, |o| o.restarts),
        generation: entry.status.as_ref().map_or_else(Default::default, |status| status.generation),
        changed_at: entry.status.as_ref().map(|status| status.changed_at),
    }
}

fn instance_workload(snapshot: &Snapshot, entry: &Entry) -> Option<Name> {
    let owner = entry.instance.owner.as_ref()?;
    Some(snapshot.workloads.get(&owner.workload).map_or_else(unknown_name, |workload| workload.name.clone()))
}

/// What the holder says, or for an instance that has no place why it has none.
pub fn instance_message(entry: &Entry) -> Option<String> {
    let status = entry.status.as_ref()?;
    if let Some(message) = status.observed.as_ref().and_then(|observed| observed.message.clone()) {
        return Some(message);
    }
    if let Some(code) = run_ended(entry) {
        return Some(format!("exited with code {code}"));
    }
    let nowhere =
        status.phase == Phase::Pending && status.explanation.as_ref().is_some_and(|e| e.chosen.is_none());
    nowhere.then(|| "no zone can hold it".to_owned())
}

/// The exit code of an instance that is kept of a run: it ended by itself, and is stopped so that nobody starts it again.
pub fn run_ended(entry: &Entry) -> Option<i32> {
    let kept = entry.instance.owner.as_ref().is_some_and(|owner| owner.counted);
    let status = entry.status.as_ref().filter(|status| kept && status.phase == Phase::Stopped)?;
    status.observed.as_ref()?.exit_code
}

/// What it is asked to be is as new as the record; what became of it as the controller's last look.
pub fn workload(snapshot: &Snapshot, record: &Row<WorkloadRecord>) -> api::Workload {
    let app = record.app.as_ref().and_then(|app| snapshot.apps.get(app));
    api::Workload {
        id: record.id.clone(),
        name: record.name.clone(),
        tenant: tenant_name(snapshot, &record.tenant),
        app: app.map(|app| app.name.clone()),
        version: record.version,
        spec: record.spec.as_ref().clone(),
        revision: record.revision,
        created_at: record.created_at,
        created_by: record.created_by.clone(),
        status: workload_status(snapshot, record),
    }
}

pub fn workload_status(snapshot: &Snapshot, record: &Row<WorkloadRecord>) -> api::WorkloadStatus {
    let state = snapshot.workload_states.get(&record.id);
    let mut status = state.map_or_else(Default::default, |state| state.status.clone());
    if record.deleting {
        status.phase = WorkloadPhase::Deleting;
    } else if state.is_none_or(|state| state.seen != record.version) {
        // What was true of an older wish need not be true of this one.
        status.phase = if record.spec.paused { WorkloadPhase::Paused } else { WorkloadPhase::Progressing };
        status.message =
            record.spec.paused.then(|| "what changed takes effect when it is resumed".to_owned());
    } else if status.phase == WorkloadPhase::Available && surplus(record, &status) > 0 {
        // Fewer are wanted than are there, and those that are too many have not ended.
        status.phase = WorkloadPhase::Progressing;
    }
    status
}

/// How many of a service are available although they are not wanted any more.
fn surplus(record: &WorkloadRecord, status: &api::WorkloadStatus) -> u32 {
    match record.spec.mode {
        Mode::Service { .. } => status.available.saturating_sub(status.wanted),
        _ => 0,
    }
}

pub fn app(snapshot: &Snapshot, record: &Row<AppRecord>) -> api::App {
    let members = snapshot.app_members.get(&record.id);
    let rows = members.into_iter().flatten().filter_map(|(_, id)| snapshot.workloads.get(id));
    let workloads = rows.map(|row| {
        let status = workload_status(snapshot, row);
        let (phase, wanted, available) = (status.phase, status.wanted, status.available);
        api::AppMember { name: row.name.clone(), phase, wanted, available }
    });
    api::App {
        id: record.id.clone(),
        name: record.name.clone(),
        tenant: tenant_name(snapshot, &record.tenant),
        version: record.version,
        description: record.description.clone(),
        created_at: record.created_at,
        created_by: record.created_by.clone(),
        deleting: record.deleting,
        workloads: workloads.collect(),
    }
}

pub fn image(snapshot: &Snapshot, record: &Row<ImageRecord>) -> api::Image {
    api::Image {
        id: record.id.clone(),
        name: record.name.clone(),
        tenant: tenant_name(snapshot, &record.tenant),
        public: record.public,
        version: record.version,
        size_bytes: record.manifest.layers.iter().map(|layer| layer.size).sum(),
        source: record.source.clone(),
        manifest: record.manifest.clone(),
        created_at: record.created_at,
    }
}

pub fn tenant(cloud: &Cloud, snapshot: &Snapshot, record: &Row<TenantRecord>) -> Result<api::Tenant> {
    Ok(api::Tenant {
        id: record.id.clone(),
        name: record.name.clone(),
        version: record.version,
        quota: record.quota,
        usage: quota::usage(cloud, snapshot, &record.id)?,
        created_at: record.created_at,
    })
}

pub fn user(snapshot: &Snapshot, record: &Row<UserRecord>) -> api::User {
    api::User {
        id: record.id.clone(),
        name: record.name.clone(),
        tenant: tenant_name(snapshot, &record.tenant),
        version: record.version,
        role: record.role,
        email: record.email.clone(),
        created_at: record.created_at,
    }
}

pub fn token(snapshot: &Snapshot, record: &Row<TokenRecord>) -> api::Token {
    api::Token {
        id: record.id.clone(),
        name: record.name.clone(),
        user: user_name(snapshot, &record.user),
        role: record.role,
        version: record.version,
        created_at: record.created_at,
        expires_at: record.expires_at,
    }
}

pub fn key(snapshot: &Snapshot, record: &Row<KeyRecord>) -> api::AccessKey {
    api::AccessKey {
        id: record.id.clone(),
        user: user_name(snapshot, &record.user),
        version: record.version,
        created_at: record.created_at,
    }
}

/// Operators also see the details; `held` is then how many it holds.
pub fn zone(cloud: &Cloud, record: &ZoneRecord, held: Option<Held>) -> api::Zone {
    let emptied = record.mode.empties() && held.is_some();
    let report = emptied.then(|| cloud.tree.zone_report(&record.id)).flatten();
    let (left, remaining) = report.map(|report| (report.left, report.remaining)).unwrap_or_default();
    api::Zone {
        id: record.id.clone(),
        name: record.name.clone(),
        live: cloud.tree.zone_live(&record.id),
        details: held.map(|held| api::place::ZoneDetails {
            enrolled_at: record.enrolled_at,
            last_seen: cloud.tree.zone_last_seen(&record.id),
            instances: held.instances,
            resting: held.resting,
            mode: record.mode,
            left,
            remaining,
            facts: record.facts.clone().map(Into::into),
        }),
    }
}
