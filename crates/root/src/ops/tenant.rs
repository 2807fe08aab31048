//! Tenants and their quotas; for operators.

use api::{Page, Tenant, TenantCreate};
use model::{Error, Quota, Result, TenantId, shown};
use store::Txn;

use super::once::{Once, once};
use super::page::{Query, glob};
use super::{bucket, catalogue};
use super::{resource, version_check, view};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Snapshot, Versioned};
use crate::tables::{TenantRecord, encode, kind};

pub const FILTERS: &[&str] = &["name"];
/// Buckets of a tenant that are counted when it is to be deleted.
const BUCKETS_SHOWN: usize = 1000;

/// `*` stands for all tenants in queries and is no name anyway; these are kept for us.
const RESERVED: &[&str] = &["root", "system"];

pub async fn create(
    cloud: &Cloud,
    caller: &Caller,
    body: TenantCreate,
    key: Option<&Once>,
) -> Result<Tenant> {
    if RESERVED.contains(&body.name.as_str()) {
        return Err(Error::invalid(format!("the name '{}' is reserved", body.name)).at("name"));
    }
    once(cloud, key, async || {
        let record = TenantRecord {
            id: TenantId::from_random(rand::random()),
            name: body.name.clone(),
            quota: body.quota,
            created_at: cloud.now(),
        };
        let encoded = encode(&record);
        let row = Versioned { version: 0, value: record.into() };
        let mut answer = view::tenant(cloud, &cloud.state.snapshot(), &row)?;
        let mut txn = Txn::new().insert(kind::TENANT, &row.id, None, Some(row.name.as_str()), encoded);
        if let Some(key) = key {
            txn = key.record(txn, cloud, caller, &answer);
        }
        txn = journal(txn, cloud, caller, &row, "create", String::new());
        answer.version = cloud.state.commit(txn).await?.versions[0];
        Ok(answer)
    })
    .await
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, row: &TenantRecord, verb: &str, message: String) -> Txn {
    let line = Line {
        tenant: Some(&row.id),
        what: &format!("tenant.{verb}"),
        kind: kind::TENANT,
        id: row.id.as_str(),
        name: row.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Row<TenantRecord>> {
    snapshot.tenant_by_name(name).ok_or_else(|| Error::not_found(format!("tenant '{}'", shown(name))))
}

pub fn get(cloud: &Cloud, name: &str) -> Result<Tenant> {
    let snapshot = cloud.state.snapshot();
    view::tenant(cloud, &snapshot, find(&snapshot, name)?)
}

pub fn list(cloud: &Cloud, query: &Query) -> Result<Page<Tenant>> {
    let snapshot = cloud.state.snapshot();
    let after = query.after.as_deref().unwrap_or("");
    let fits = |name: &str| name > after && query.get("name").is_none_or(|pattern| glob(pattern, name));
    let found = snapshot.tenant_names.iter().filter(|(name, _)| fits(name.as_str()));
    let mut items: Vec<Tenant> = found
        .take(query.limit + 1)
        .filter_map(|(_, id)| snapshot.tenants.get(id))
        .map(|row| view::tenant(cloud, &snapshot, row))
        .collect::<Result<_>>()?;
    let next = super::page::cut(&mut items, query.limit, |tenant| tenant.name.to_string());
    Ok(Page { items, next, seq: snapshot.seq })
}

pub async fn quota_set(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    quota: Quota,
    seen: Option<i64>,
) -> Result<Tenant> {
    let snapshot = cloud.state.snapshot();
    let old = find(&snapshot, name)?;
    version_check(seen, old.version, "tenant")?;
    let new = TenantRecord { quota, ..TenantRecord::clone(old) };
    let txn = Txn::new().update(kind::TENANT, &old.id, old.version, encode(&new));
    let message = serde_json::to_string(&quota).unwrap_or_default();
    let txn = journal(txn, cloud, caller, &new, "quota", message);
    let version = cloud.state.commit(txn).await?.versions[0];
    view::tenant(cloud, &snapshot, &Versioned { version, value: new.into() })
}

/// Only an empty tenant goes, and never the caller's own.
pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, name)?;
    version_check(seen, row.version, "tenant")?;
    if row.id == caller.principal.tenant {
        return Err(Error::conflict("nobody can delete the tenant they belong to"));
    }
    let instances = snapshot.tenant_usage(&row.id).instances;
    let users = snapshot.users.values().filter(|user| user.tenant == row.id).count();
    let images = snapshot.images.values().filter(|image| image.tenant == row.id).count();
    let workloads = snapshot.workload_names.get(&row.id).map_or(0, |names| names.len());
    let apps = snapshot.app_names.get(&row.id).map_or(0, |names| names.len());
    let clusters = snapshot.cluster_names.get(&row.id).map_or(0, |names| names.len());
    if clusters > 0 {
        return Err(Error::conflict(format!("the tenant '{name}' still has clusters ({clusters})"))
            .hint("delete those first"));
    }
    let buckets = bucket::owned(cloud, &snapshot, &row.id, BUCKETS_SHOWN)?;
    if buckets > 0 {
        return Err(Error::conflict(format!("the tenant '{name}' still has buckets ({buckets})"))
            .hint("delete those first"));
    }
    if instances > 0 || users > 0 || images > 0 || workloads > 0 || apps > 0 {
        return Err(Error::conflict(format!(
            "the tenant '{name}' still has {instances} instances, {users} users, {images} images, {workloads} workloads and {apps} apps"
        ))
        .hint("delete those first"));
    }
    let txn = Txn::new().delete(kind::TENANT, &row.id, Some(row.version)).delete(kind::GATE, &row.id, None);
    let txn = resource::forget(catalogue::forget(txn, &snapshot, &row.id), &snapshot, &row.id);
    let txn = journal(txn, cloud, caller, row, "delete", String::new());
    cloud.state.commit(txn).await.map(drop)
}
