//! Files that plugins of a tenant use: uploaded, versioned, staged, recalled, synced.
//!
//! [`crate::resource`] decides what becomes of a version, [`upload`](mod@upload) takes new ones in, [`content`] gives
//! their bytes out. Every change is decided on the newest snapshot and fenced by the tenant's catalogue, so two of them
//! never meet.

mod content;
mod upload;

use api::{Page, Resource, ResourceStatus, ResourceSync, ResourceVersion};
use model::{Error, Result, TenantId, shown};
use store::{CommitError, Txn};
use template::Kind;
use template::entity::PluginType;

pub use self::content::{download, fetch, staged};
pub use self::upload::{SIZE_MAX, Upload, upload};
use super::instance::race_wait;
use super::page::{Query, cut, glob};
use super::{DECISIONS_MAX, catalogue, raced, version_check};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::resource::{Order, ResourceRecord};
use crate::state::{Resources, Row, Snapshot, commit_error};
use crate::tables::{encode, kind};

pub const FILTERS: &[&str] = &["kind", "plugin", "type", "name", "status"];
/// Bytes of each part of an address.
const PART_MAX: usize = 100;
/// Files that one line of the history names.
const NAMED_MAX: usize = 20;

/// Which file is meant.
#[derive(Debug, Clone)]
pub struct Address {
    pub kind: String,
    pub plugin: String,
    pub resource_type: String,
    pub name: String,
}

impl Address {
    pub fn path(&self) -> String {
        format!("{}/{}/{}/{}", self.kind, self.plugin, self.resource_type, self.name)
    }

    fn missing(&self) -> Error {
        Error::not_found(format!("file '{}'", shown(&self.path())))
    }

    fn missing_version(&self, number: u32) -> Error {
        Error::not_found(format!("version {number} of the file '{}'", shown(&self.path())))
    }
}

fn kind_parse(folder: &str) -> Result<Kind> {
    let known = [Kind::AutomatorType, Kind::ProviderType];
    known.into_iter().find(|kind| kind.folder() == folder).ok_or_else(|| {
        Error::not_found(format!("kind of plugins '{}'", shown(folder)))
            .at("kind")
            .hint("there are automatortypes and providertypes")
    })
}

fn rows<'a>(snapshot: &'a Snapshot, tenant: &TenantId) -> Option<&'a Resources> {
    snapshot.resources.get(tenant)
}

/// The versions of one file, oldest first.
fn versions<'a>(
    snapshot: &'a Snapshot,
    tenant: &TenantId,
    path: &str,
) -> impl Iterator<Item = &'a Row<ResourceRecord>> + use<'a> {
    let range = (path.to_owned(), 0)..=(path.to_owned(), u32::MAX);
    rows(snapshot, tenant).into_iter().flat_map(move |all| all.range(range.clone())).map(|(_, row)| row)
}

fn version<'a>(
    snapshot: &'a Snapshot,
    tenant: &TenantId,
    address: &Address,
    number: u32,
) -> Result<&'a Row<ResourceRecord>> {
    let found = rows(snapshot, tenant).and_then(|all| all.get(&(address.path(), number)));
    found.ok_or_else(|| address.missing_version(number))
}

fn view_version(row: &Row<ResourceRecord>) -> ResourceVersion {
    ResourceVersion {
        number: row.number,
        version: row.version,
        status: row.flags.status(),
        size_bytes: row.size,
        digest: (!row.secret).then(|| row.digest.clone()),
        created_at: row.created_at,
        created_by: row.created_by.clone(),
    }
}

/// A file of these versions, oldest first.
fn view<'a>(versions: impl DoubleEndedIterator<Item = &'a Row<ResourceRecord>>) -> Option<Resource> {
    let mut newest = versions.rev().peekable();
    let first = *newest.peek()?;
    Some(Resource {
        kind: first.kind.clone(),
        plugin: first.plugin.clone(),
        resource_type: first.resource_type.clone(),
        name: first.name.clone(),
        format: first.format.clone(),
        secret: first.secret,
        versions: newest.map(view_version).collect(),
    })
}

fn found(snapshot: &Snapshot, tenant: &TenantId, address: &Address) -> Result<Resource> {
    let rows: Vec<&Row<ResourceRecord>> = versions(snapshot, tenant, &address.path()).collect();
    view(rows.into_iter()).ok_or_else(|| address.missing())
}

pub fn get(cloud: &Cloud, caller: &Caller, address: &Address) -> Result<Resource> {
    found(&cloud.state.snapshot(), &caller.tenant, address)
}

/// By path.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Resource>> {
    let snapshot = cloud.state.snapshot();
    let wanted = query.get("kind").map(kind_parse).transpose()?;
    let status: Option<ResourceStatus> = query.parsed("status")?;
    let same = |field: &str, value: &str| query.get(field).is_none_or(|wanted| wanted == value);
    let fits = |file: &Resource| {
        wanted.is_none_or(|kind| kind.folder() == file.kind)
            && same("plugin", &file.plugin)
            && same("type", &file.resource_type)
            && query.get("name").is_none_or(|pattern| glob(pattern, &file.name))
            && status.is_none_or(|status| file.versions.iter().any(|one| one.status == status))
    };
    let after = query.after.clone().unwrap_or_default();
    let all: Vec<&Row<ResourceRecord>> = rows(&snapshot, &caller.tenant)
        .into_iter()
        .flatten()
        .filter(|((path, _), _)| *path > after)
        .map(|(_, row)| row)
        .collect();
    let files = all.chunk_by(|one, next| one.path() == next.path());
    let files = files.filter_map(|versions| view(versions.iter().copied()));
    let mut items: Vec<Resource> = files.filter(fits).take(query.limit + 1).collect();
    let next = cut(&mut items, query.limit, Resource::path);
    Ok(Page { items, next, seq: snapshot.seq })
}

/// Decides and commits, and again when somebody was faster. A decision that changes nothing is not committed.
async fn change<T>(
    cloud: &Cloud,
    caller: &Caller,
    decide: impl Fn(&Snapshot) -> Result<(Txn, T)>,
) -> Result<T> {
    let _turn = cloud.files.lock().await;
    for _ in 0..DECISIONS_MAX {
        let snapshot = cloud.state.snapshot();
        let (txn, told) = decide(&snapshot)?;
        if txn.is_empty() {
            return Ok(told);
        }
        match cloud.state.try_commit(catalogue::fenced(txn, &snapshot, &caller.tenant)?).await {
            Ok(_) => return Ok(told),
            Err(error) if raced(&error) || matches!(error, CommitError::AlreadyExists { .. }) => {
                race_wait(cloud).await;
            }
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(Error::unavailable("too many change the files of this tenant at the same moment")
        .hint("repeat it in a moment"))
}

/// Writes the flags that orders change.
fn put<'a>(txn: Txn, rows: impl Iterator<Item = &'a Row<ResourceRecord>>, orders: &[Order]) -> Txn {
    rows.fold(txn, |txn, row| match row.flags.after_all(orders, row.number) {
        flags if flags == row.flags => txn,
        flags => {
            let new = ResourceRecord { flags, ..ResourceRecord::clone(row) };
            txn.update(kind::RESOURCE, row.id(), row.version, encode(&new))
        }
    })
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, what: &str, path: &str, message: String) -> Txn {
    let line =
        Line { tenant: Some(&caller.tenant), what, kind: kind::RESOURCE, id: path, name: path, message };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

pub async fn stage(cloud: &Cloud, caller: &Caller, address: &Address, number: u32) -> Result<Resource> {
    order(cloud, caller, address, number, Order::Stage(number)).await
}

pub async fn recall(cloud: &Cloud, caller: &Caller, address: &Address, number: u32) -> Result<Resource> {
    order(cloud, caller, address, number, Order::Recall(number)).await
}

/// Changes the versions of one file. What is so already is no error.
async fn order(
    cloud: &Cloud,
    caller: &Caller,
    address: &Address,
    number: u32,
    order: Order,
) -> Result<Resource> {
    let path = address.path();
    let is_stage = matches!(order, Order::Stage(_));
    let what = if is_stage { "resource.stage" } else { "resource.recall" };
    change(cloud, caller, |snapshot| {
        let row = version(snapshot, &caller.tenant, address, number)?;
        // Files whose plugin is gone can still be recalled and deleted.
        if is_stage {
            upload::declared(snapshot, address)?;
        }
        let txn = put(Txn::new(), versions(snapshot, &caller.tenant, &path), &[order]);
        if txn.is_empty() {
            return Ok((txn, ()));
        }
        let status = row.flags.after(order, number).status();
        let message = format!("version {number} is {status}");
        Ok((journal(txn, cloud, caller, what, &path, message), ()))
    })
    .await?;
    get(cloud, caller, address)
}

/// What a sync would change.
fn sync_plan(snapshot: &Snapshot, tenant: &TenantId) -> ResourceSync {
    let mut told = ResourceSync::default();
    for row in rows(snapshot, tenant).into_iter().flat_map(|all| all.values()) {
        match row.flags.status() {
            ResourceStatus::Staged => told.activated.push(row.title()),
            ResourceStatus::Recalled => told.recalled.push(row.title()),
            _ => {}
        }
    }
    told
}

fn said(told: &ResourceSync) -> String {
    let part = |word: &str, titles: &[String]| match titles.len() {
        0 => None,
        count if count > NAMED_MAX => Some(format!("{count} {word}")),
        _ => Some(format!("{} {word}", titles.join(", "))),
    };
    let parts = [part("activated", &told.activated), part("recalled", &told.recalled)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What is staged becomes active and what is recalled inactive, for all files of the tenant. Provisioners that work
/// for it are told at once, and have it before their next task.
pub async fn sync(cloud: &Cloud, caller: &Caller) -> Result<ResourceSync> {
    change(cloud, caller, |snapshot| {
        let told = sync_plan(snapshot, &caller.tenant);
        let all = rows(snapshot, &caller.tenant).into_iter().flat_map(|all| all.values());
        let txn = put(Txn::new(), all, &[Order::Sync]);
        if txn.is_empty() {
            return Ok((txn, told));
        }
        let name = caller.tenant_name.as_str();
        Ok((journal(txn, cloud, caller, "resource.sync", name, said(&told)), told))
    })
    .await
}

pub async fn delete(
    cloud: &Cloud,
    caller: &Caller,
    address: &Address,
    number: u32,
    seen: Option<i64>,
) -> Result<()> {
    change(cloud, caller, |snapshot| {
        let row = version(snapshot, &caller.tenant, address, number)?;
        version_check(seen, row.version, "file")?;
        let way = match row.flags.status() {
            ResourceStatus::Inactive => {
                let txn = removed(Txn::new(), row);
                let message = format!("version {number} deleted");
                let txn = journal(txn, cloud, caller, "resource.delete", &address.path(), message);
                return Ok((txn, ()));
            }
            ResourceStatus::Staged => "recall it first",
            ResourceStatus::Active => "recall it and sync first",
            ResourceStatus::Recalled => "sync first",
        };
        let status = row.flags.status();
        let path = address.path();
        Err(Error::conflict(format!("version {number} of '{path}' is {status}; only inactive ones go"))
            .hint(way))
    })
    .await
}

/// Deletes a version, with its bytes where they are not among the blobs; those are swept.
fn removed(txn: Txn, row: &Row<ResourceRecord>) -> Txn {
    let txn = txn.delete(kind::RESOURCE, row.id(), Some(row.version));
    match row.secret {
        true => txn.delete(kind::RESOURCE_SECRET, row.id(), None),
        false => txn,
    }
}

/// Deletes the files of a tenant with the tenant.
pub(super) fn forget(txn: Txn, snapshot: &Snapshot, tenant: &TenantId) -> Txn {
    let all = rows(snapshot, tenant).into_iter().flat_map(|all| all.values());
    all.fold(txn, removed)
}

/// Refuses a change of a plugin type that would leave files behind which provisioners have or are to have. `new` is
/// the type as it would be, if it would be there.
pub(super) fn plugin_check(
    snapshot: &Snapshot,
    kind: Kind,
    name: &str,
    new: Option<&PluginType>,
) -> Result<()> {
    let is_left = |row: &&Row<ResourceRecord>| {
        let is_used = row.flags.live || row.flags.slated;
        let is_known = new.is_some_and(|new| new.resource_types.contains_key(&row.resource_type));
        row.kind == kind.folder() && row.plugin == name && is_used && !is_known
    };
    let left = snapshot.resources.values().flat_map(|all| all.values()).filter(is_left).count();
    match left {
        0 => Ok(()),
        count => {
            Err(Error::conflict(format!("the {kind} '{name}' has files that are active or staged ({count})"))
                .hint("their tenants recall them and sync first"))
        }
    }
}
