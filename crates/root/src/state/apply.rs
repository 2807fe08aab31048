//! How one change of the feed becomes part of the next snapshot, and what a watch is told of it.

use std::sync::Arc;

use api::Usage;
use model::{AppId, ChildId, InstanceId, Name, Result, TenantId, WorkloadId};
use store::{Body, Change};

use super::cluster;
use super::feed::{Notice, NoticeBody};
use super::snapshot::{Credential, Entry, Row, Snapshot, Versioned};
use crate::resource::ResourceRecord;
use crate::tables::{
    AppRecord, DefinitionRecord, IdempotencyRecord, ImageRecord, InstanceRecord, KeyRecord, RemovedRecord,
    SessionRecord, StatusRecord, TenantRecord, TokenRecord, UserRecord, WorkloadRecord, WorkloadState,
    ZoneRecord, decode, kind,
};

/// Applies one change. A record that cannot be read is an error of the whole: half a state is worse than none.
pub fn apply(snapshot: &mut Snapshot, change: &Change) -> Result<Option<Notice>> {
    let Change { seq, kind, id, version, record } = change;
    let (seq, version) = (*seq, *version);
    let body = record.as_ref().map(|record| &record.body);
    let notice = match kind.as_str() {
        kind::INSTANCE => instance(snapshot, id, version, body)?,
        kind::STATUS => status(snapshot, id, body)?,
        kind::ZONE => zone(snapshot, id, version, body)?,
        kind::PROVISIONER => keep(&mut snapshot.provisioners, id.parse()?, version, body)?,
        kind::REMOVED => removed(snapshot, id, body)?,
        kind::IMAGE => image(snapshot, id, version, body)?,
        kind::WORKLOAD => workload(snapshot, id, version, body)?,
        kind::WORKLOAD_STATE => workload_state(snapshot, id, version, body)?,
        kind::APP => app(snapshot, id, version, body)?,
        kind::CLUSTER => cluster::record(snapshot, id, version, body)?,
        kind::CLUSTER_JOB => cluster::job(snapshot, id, version, body)?,
        kind::CLUSTER_NODE => cluster::node(snapshot, id, version, body)?,
        kind::CLUSTER_CALL => keep(&mut snapshot.cluster_calls, id.clone(), version, body)?,
        kind::TENANT => tenant(snapshot, id, version, body)?,
        kind::USER => user(snapshot, id, version, body)?,
        kind::SESSION => session(snapshot, id, body)?,
        kind::TOKEN => token(snapshot, id, version, body)?,
        kind::KEY => key(snapshot, id, version, body)?,
        kind::IDEMPOTENCY => idempotency(snapshot, id.clone(), body)?,
        kind::GATE => gate(snapshot, id, version, body.is_some())?,
        kind::DEFINITION => definition(snapshot, id, version, body)?,
        kind::CATALOGUE => catalogue(snapshot, id, version, body.is_some()),
        kind::RESOURCE => resource(snapshot, seq, id, version, body)?,
        kind::SERVER => keep(&mut snapshot.servers, id.clone(), version, body)?,
        kind::OBJECT_STORE => keep(&mut snapshot.object_stores, id.clone(), version, body)?,
        kind::SERVER_LOST => keep(&mut snapshot.servers_lost, id.clone(), version, body)?,
        kind::DUTY => keep(&mut snapshot.duties, id.clone(), version, body)?,
        // Other crates may keep records of their own in the same store.
        _ => None,
    };
    snapshot.seq = seq;
    Ok(notice.map(|body| Notice { seq, body }))
}

pub(super) fn row<T: crate::tables::Row>(version: i64, body: &Body) -> Result<Row<T>> {
    Ok(Versioned { version, value: Arc::new(decode(body)?) })
}

pub(super) type Told = Result<Option<NoticeBody>>;

fn instance(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: InstanceId = id.parse()?;
    let mut new: Option<InstanceRecord> = body.map(decode).transpose()?;
    if let Some(new) = &mut new {
        snapshot.intern.share_parts(&mut new.spec, &mut new.image);
    }
    let new: Option<Row<InstanceRecord>> = new.map(|new| Versioned { version, value: Arc::new(new) });
    let old = match &new {
        Some(new) => snapshot.instances.insert(id.clone(), new.clone()),
        None => snapshot.instances.remove(&id),
    };
    let status = snapshot.statuses.get(&id).cloned();
    if let Some(old) = &old {
        let before = Entry { status: status.clone(), instance: old.clone() };
        usage_change(snapshot, &before, before.usage(), false);
    }
    if let Some(new) = new {
        let entry = Entry { status, instance: new };
        usage_change(snapshot, &entry, entry.usage(), true);
        entry_put(snapshot, &entry);
        return Ok(Some(NoticeBody::Instance(entry)));
    }
    let Some(old) = old else { return Ok(None) };
    if let Some(entries) = snapshot.entries.get_mut(&old.tenant) {
        entries.remove(&old.name);
    }
    if let Some(owner) = &old.owner
        && let Some(members) = snapshot.members.get_mut(&owner.workload)
    {
        members.remove(&old.id);
    }
    Ok(Some(NoticeBody::InstanceGone(old)))
}

fn status(snapshot: &mut Snapshot, id: &str, body: Option<&Body>) -> Told {
    let id: InstanceId = id.parse()?;
    let new: Option<Arc<StatusRecord>> = body.map(decode).transpose()?.map(Arc::new);
    let old = match &new {
        Some(new) => snapshot.statuses.insert(id.clone(), new.clone()),
        None => snapshot.statuses.remove(&id),
    };
    let Some(instance) = snapshot.instances.get(&id).cloned() else { return Ok(None) };
    let before = Entry { instance: instance.clone(), status: old };
    let entry = Entry { instance, status: new };
    let (was, is) = (before.usage(), entry.usage());
    if was != is {
        usage_change(snapshot, &entry, was, false);
        usage_change(snapshot, &entry, is, true);
    }
    entry_put(snapshot, &entry);
    // A status goes only together with its instance, which is told of by itself.
    Ok(entry.status.is_some().then_some(NoticeBody::Status(entry)))
}

fn entry_put(snapshot: &mut Snapshot, entry: &Entry) {
    let tenant = entry.instance.tenant.clone();
    snapshot.entries.entry(tenant).or_default().insert(entry.instance.name.clone(), entry.clone());
    if let Some(owner) = &entry.instance.owner {
        let members = snapshot.members.entry(owner.workload.clone()).or_default();
        members.insert(entry.instance.id.clone(), entry.clone());
    }
}

/// The id is `TENANT/KIND/NAME`, the tenant `-` where it serves all.
fn definition(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let mut parts = id.splitn(3, '/');
    let (Some(tenant), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(model::Error::internal(format!("'{id}' is no id of a definition")));
    };
    let tenant = if tenant == "-" { None } else { Some(tenant.parse()?) };
    let key = (kind.to_owned(), name.to_owned());
    let all = snapshot.definitions.entry(tenant).or_default();
    match body {
        Some(body) => drop(all.insert(key, row::<DefinitionRecord>(version, body)?)),
        None => drop(all.remove(&key)),
    }
    Ok(None)
}

fn catalogue(snapshot: &mut Snapshot, id: &str, version: i64, is_there: bool) -> Option<NoticeBody> {
    match is_there {
        true => drop(snapshot.catalogues.insert(id.to_owned(), version)),
        false => drop(snapshot.catalogues.remove(id)),
    }
    None
}

/// The id is `TENANT/PATH@NUMBER`.
fn resource(snapshot: &mut Snapshot, seq: i64, id: &str, version: i64, body: Option<&Body>) -> Told {
    let wrong = || model::Error::internal(format!("'{id}' is no id of a file"));
    let (tenant, rest) = id.split_once('/').ok_or_else(wrong)?;
    let tenant: TenantId = tenant.parse()?;
    let (path, number) = rest.rsplit_once('@').ok_or_else(wrong)?;
    let key = (path.to_owned(), number.parse().map_err(|_| wrong())?);
    let new = body.map(|body| row::<ResourceRecord>(version, body)).transpose()?;
    let is_live = |row: &Option<Row<ResourceRecord>>| row.as_ref().is_some_and(|row| row.flags.live);
    let is = is_live(&new);
    let old = match new {
        Some(new) => snapshot.resources.entry(tenant).or_default().insert(key, new),
        None => snapshot.resources.get_mut(&tenant).and_then(|all| all.remove(&key)),
    };
    if is != is_live(&old) {
        snapshot.resources_seq = seq;
    }
    Ok(None)
}

fn workload(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: WorkloadId = id.parse()?;
    let Some(body) = body else {
        let Some(old) = snapshot.workloads.remove(&id) else { return Ok(None) };
        if let Some(names) = snapshot.workload_names.get_mut(&old.tenant) {
            names.remove(&old.name);
        }
        if let Some(members) = old.app.as_ref().and_then(|app| snapshot.app_members.get_mut(app)) {
            members.remove(&old.name);
        }
        snapshot.members.remove(&id);
        return Ok(Some(NoticeBody::WorkloadGone(old)));
    };
    let new: Row<WorkloadRecord> = row(version, body)?;
    snapshot.workload_names.entry(new.tenant.clone()).or_default().insert(new.name.clone(), id.clone());
    if let Some(app) = &new.app {
        snapshot.app_members.entry(app.clone()).or_default().insert(new.name.clone(), id.clone());
    }
    snapshot.workloads.insert(id, new.clone());
    Ok(Some(NoticeBody::Workload(new)))
}

fn workload_state(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: WorkloadId = id.parse()?;
    match body {
        Some(body) => snapshot.workload_states.insert(id.clone(), row::<WorkloadState>(version, body)?),
        None => snapshot.workload_states.remove(&id),
    };
    Ok(snapshot.workloads.get(&id).cloned().map(NoticeBody::Workload))
}

fn app(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: AppId = id.parse()?;
    let Some(body) = body else {
        let Some(old) = snapshot.apps.remove(&id) else { return Ok(None) };
        if let Some(names) = snapshot.app_names.get_mut(&old.tenant) {
            names.remove(&old.name);
        }
        snapshot.app_members.remove(&id);
        return Ok(Some(NoticeBody::AppGone(old)));
    };
    let new: Row<AppRecord> = row(version, body)?;
    snapshot.app_names.entry(new.tenant.clone()).or_default().insert(new.name.clone(), id.clone());
    snapshot.apps.insert(id, new.clone());
    Ok(Some(NoticeBody::App(new)))
}

fn usage_change(snapshot: &mut Snapshot, entry: &Entry, by: Usage, more: bool) {
    let usage: &mut Usage = snapshot.usage.entry(entry.instance.tenant.clone()).or_default();
    let change = |value: &mut u64, by: u64| {
        *value = if more { value.saturating_add(by) } else { value.saturating_sub(by) };
    };
    change(&mut usage.instances, by.instances);
    change(&mut usage.cpu.0, by.cpu.0);
    change(&mut usage.memory.0, by.memory.0);
}

fn zone(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id = id.parse()?;
    let Some(body) = body else {
        let Some(old) = snapshot.zones.remove(&id) else { return Ok(None) };
        snapshot.zone_names.remove(&old.name);
        return Ok(Some(NoticeBody::ZoneGone(old.value)));
    };
    let new: Row<ZoneRecord> = row(version, body)?;
    if let Some(old) = snapshot.zones.insert(id, new.clone()) {
        snapshot.zone_names.remove(&old.name);
    }
    snapshot.zone_names.insert(new.name.clone(), new.id.clone());
    Ok(Some(NoticeBody::Zone(new.value)))
}

fn removed(snapshot: &mut Snapshot, id: &str, body: Option<&Body>) -> Told {
    let id = ChildId::from(id);
    match body {
        Some(body) => snapshot.removed.insert(id, Arc::new(decode::<RemovedRecord>(body)?)),
        None => snapshot.removed.remove(&id),
    };
    Ok(None)
}

fn image(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: model::ImageId = id.parse()?;
    let index = |image: &ImageRecord| (image.tenant.clone(), image.name.clone());
    let Some(body) = body else {
        let Some(old) = snapshot.images.remove(&id) else { return Ok(None) };
        snapshot.image_names.remove(&index(&old));
        return Ok(Some(NoticeBody::ImageGone(old)));
    };
    let new: Row<ImageRecord> = row(version, body)?;
    snapshot.image_names.insert(index(&new), id.clone());
    snapshot.images.insert(id, new.clone());
    Ok(Some(NoticeBody::Image(new)))
}

fn tenant(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: TenantId = id.parse()?;
    match body {
        Some(body) => {
            let new: Row<TenantRecord> = row(version, body)?;
            snapshot.tenant_names.insert(new.name.clone(), id.clone());
            snapshot.tenants.insert(id, new);
        }
        None => {
            if let Some(old) = snapshot.tenants.remove(&id) {
                snapshot.tenant_names.remove(&old.name);
                snapshot.entries.remove(&id);
                snapshot.usage.remove(&id);
                snapshot.workload_names.remove(&id);
                snapshot.app_names.remove(&id);
                snapshot.cluster_names.remove(&id);
                snapshot.resources.remove(&id);
            }
        }
    }
    Ok(None)
}

fn user(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: model::UserId = id.parse()?;
    let index = |user: &UserRecord| -> (TenantId, Name) { (user.tenant.clone(), user.name.clone()) };
    match body {
        Some(body) => {
            let new: Row<UserRecord> = row(version, body)?;
            snapshot.user_names.insert(index(&new), id.clone());
            snapshot.users.insert(id, new);
        }
        None => {
            if let Some(old) = snapshot.users.remove(&id) {
                snapshot.user_names.remove(&index(&old));
            }
        }
    }
    Ok(None)
}

fn session(snapshot: &mut Snapshot, id: &str, body: Option<&Body>) -> Told {
    let id: model::SessionId = id.parse()?;
    if let Some(old) = snapshot.sessions.remove(&id) {
        snapshot.credentials.remove(&old.hash);
    }
    if let Some(body) = body {
        let new: SessionRecord = decode(body)?;
        snapshot.credentials.insert(new.hash.clone(), Credential::Session(id.clone()));
        snapshot.sessions.insert(id, Arc::new(new));
    }
    Ok(None)
}

fn token(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id: model::TokenId = id.parse()?;
    if let Some(old) = snapshot.tokens.remove(&id) {
        snapshot.credentials.remove(&old.hash);
    }
    if let Some(body) = body {
        let new: Row<TokenRecord> = row(version, body)?;
        snapshot.credentials.insert(new.hash.clone(), Credential::Token(id.clone()));
        snapshot.tokens.insert(id, new);
    }
    Ok(None)
}

fn key(snapshot: &mut Snapshot, id: &str, version: i64, body: Option<&Body>) -> Told {
    let id = model::AccessKeyId(id.to_owned());
    match body {
        Some(body) => snapshot.keys.insert(id, row::<KeyRecord>(version, body)?),
        None => snapshot.keys.remove(&id),
    };
    Ok(None)
}

fn idempotency(snapshot: &mut Snapshot, id: String, body: Option<&Body>) -> Told {
    match body {
        Some(body) => snapshot.idempotency.insert(id, decode::<IdempotencyRecord>(body)?.at),
        None => snapshot.idempotency.remove(&id),
    };
    Ok(None)
}

/// A kind that is looked up by its id alone and that no watch tells of.
fn keep<K: Ord + Clone, T: crate::tables::Row>(
    rows: &mut imbl::OrdMap<K, Row<T>>,
    id: K,
    version: i64,
    body: Option<&Body>,
) -> Told {
    match body {
        Some(body) => rows.insert(id, row(version, body)?),
        None => rows.remove(&id),
    };
    Ok(None)
}

fn gate(snapshot: &mut Snapshot, id: &str, version: i64, present: bool) -> Told {
    let tenant: TenantId = id.parse()?;
    if present {
        snapshot.gates.insert(tenant, version);
    } else {
        snapshot.gates.remove(&tenant);
    }
    Ok(None)
}
