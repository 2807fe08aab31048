//! Buckets: what they hold and may hold, and credentials to use them. Their objects are S3's.

use std::time::Duration;

use api::{Bucket, BucketQuota, DamagedObject, ObjectStore, Page, S3Session, Scrub, ScrubStart};
use model::{Bytes, Error, ErrorKind, Result, TenantId, Timestamp};
use object::inventory::{self, Condition, Holder, Item, OUTBOX_MAX};

use super::page::{Query, cut, glob};
use crate::cloud::{Caller, Cloud, Objects};
use crate::directory;
use crate::history::{self, Line};
use crate::state::{Row, Snapshot};
use crate::tables::{ObjectStoreRecord, encode, kind};
use store::Txn;

pub const FILTERS: &[&str] = &["name"];
/// How long the credentials of a session are good unless asked otherwise, at least and at most: as long as a link, and as
/// far as clocks may be apart.
const SESSION: Duration = Duration::from_secs(12 * 60 * 60);
const SESSION_MIN: Duration = Duration::from_secs(1);
const SESSION_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60 + 15 * 60);
/// Damaged versions that are shown.
const DAMAGE_MAX: usize = 1000;

/// The id of the one record that says which server runs the store.
const STORE: &str = "store";
/// How often the record is written when others write it too.
const STORE_TRIES: usize = 5;

fn objects(cloud: &Cloud) -> Result<&Objects> {
    cloud.objects.get().ok_or_else(|| {
        let hint = match elsewhere(&cloud.state.snapshot()) {
            Some(there) => format!("the root server at {} has it ({})", there.endpoint, there.place),
            None => "add [object] to the file of a root server".to_owned(),
        };
        Error::unavailable("this server runs no object store").hint(hint)
    })
}

/// The server that runs the store, if one ever did.
fn elsewhere(snapshot: &Snapshot) -> Option<&Row<ObjectStoreRecord>> {
    snapshot.object_stores.get(STORE)
}

/// Keeps on record that this server runs the store, or that it does not any more.
pub async fn store_register(cloud: &Cloud, me: ObjectStoreRecord, runs: bool) -> Result<()> {
    for tries in 1..=STORE_TRIES {
        let snapshot = cloud.state.snapshot();
        let txn = match (elsewhere(&snapshot), runs) {
            (Some(kept), true) if *kept.value == me => return Ok(()),
            (Some(kept), true) => Txn::new().update(kind::OBJECT_STORE, STORE, kept.version, encode(&me)),
            (None, true) => Txn::new().insert(kind::OBJECT_STORE, STORE, None, None, encode(&me)),
            (Some(kept), false) if kept.place == me.place => {
                Txn::new().delete(kind::OBJECT_STORE, STORE, Some(kept.version))
            }
            (_, false) => return Ok(()),
        };
        match cloud.state.commit(txn).await {
            Err(error) if error.kind == ErrorKind::Conflict && tries < STORE_TRIES => {}
            done => return done.map(drop),
        }
    }
    Ok(())
}

/// How many buckets a tenant has; an error where only another server knows.
pub fn owned(cloud: &Cloud, snapshot: &Snapshot, tenant: &TenantId, limit: usize) -> Result<usize> {
    match (cloud.objects.get(), elsewhere(snapshot)) {
        (Some(objects), _) => inventory::owned(&objects.service, tenant.as_str(), limit),
        (None, None) => Ok(0),
        (None, Some(there)) => Err(Error::unavailable(
            "whether the tenant still has buckets is known only to the root server that runs the object store",
        )
        .hint(format!("ask that one: {} ({})", there.endpoint, there.place))),
    }
}

fn view(snapshot: &Snapshot, item: &Item) -> Option<Bucket> {
    let tenant = snapshot.tenants.get(&item.owner.parse::<TenantId>().ok()?)?;
    Some(Bucket {
        name: item.name.clone(),
        tenant: tenant.name.clone(),
        created_at: Timestamp(item.created * 1000),
        versioning: item.versioning.to_owned(),
        public: item.public,
        objects: item.usage.objects,
        versions: item.usage.versions,
        bytes: Bytes(item.usage.bytes),
        upload_bytes: Bytes(item.usage.upload_bytes),
        quota: item.quota.map(Bytes),
    })
}

pub async fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Bucket>> {
    let objects = objects(cloud)?;
    let snapshot = cloud.state.snapshot();
    let after = query.after.clone().unwrap_or_default();
    let wanted = query.get("name").map(str::to_owned);
    let owner = (!caller.all_tenants).then(|| caller.tenant.to_string());
    let limit = query.limit;
    let service = objects.service.clone();
    let look = move || {
        inventory::list(&service, owner.as_deref(), &after, limit + 1, |name| {
            wanted.as_deref().is_none_or(|pattern| glob(pattern, name))
        })
    };
    let found =
        tokio::task::spawn_blocking(look).await.map_err(|error| Error::internal(error.to_string()))?;
    let mut items: Vec<Bucket> = found?.iter().filter_map(|item| view(&snapshot, item)).collect();
    let next = cut(&mut items, query.limit, |bucket| bucket.name.clone());
    Ok(Page { items, next, seq: snapshot.seq })
}

fn find(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Bucket> {
    let snapshot = cloud.state.snapshot();
    let item = inventory::get(&objects(cloud)?.service, name)?;
    let item = item.filter(|item| caller.all_tenants || item.owner == caller.tenant.as_str());
    item.and_then(|item| view(&snapshot, &item))
        .ok_or_else(|| Error::not_found(format!("bucket '{}'", name.escape_debug())))
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Bucket> {
    find(cloud, caller, name)
}

pub async fn quota_set(cloud: &Cloud, caller: &Caller, name: &str, body: BucketQuota) -> Result<Bucket> {
    find(cloud, caller, name)?;
    inventory::quota_set(&objects(cloud)?.service, name, body.bytes.map(|most| most.0)).await?;
    let said = body.bytes.map_or_else(|| "no limit".to_owned(), |most| format!("at most {most}"));
    let line = Line {
        tenant: Some(&caller.tenant),
        what: "bucket.quota",
        kind: "bucket",
        id: name,
        name,
        message: said,
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &caller.actor(), line)).await?;
    find(cloud, caller, name)
}

/// Credentials with which the caller may speak S3 for a while, with the rights it has here. An operator who acts in
/// another tenant acts there under its own name.
pub fn session(cloud: &Cloud, caller: &Caller, seconds: Option<u64>) -> Result<S3Session> {
    let objects = objects(cloud)?;
    let lasts = seconds.map_or(SESSION, Duration::from_secs);
    if !(SESSION_MIN..=SESSION_MAX).contains(&lasts) {
        return Err(Error::invalid(format!(
            "credentials are good for {} to {} seconds",
            SESSION_MIN.as_secs(),
            SESSION_MAX.as_secs()
        ))
        .at("duration_s"));
    }
    let principal = &caller.principal;
    let elsewhere =
        (caller.tenant != principal.tenant).then(|| (caller.tenant.as_str(), principal.user_name.as_str()));
    let holder =
        Holder { user: principal.user.as_str(), rights: directory::rights(principal.role), elsewhere };
    let expires = cloud.now().0 / 1000 + lasts.as_millis() as i64;
    let issued = inventory::credentials(&objects.service, &holder, expires / 1000);
    Ok(S3Session {
        endpoint: objects.endpoint.clone(),
        endpoint_inside: objects.inside.get().cloned(),
        region: objects.service.config.region.clone(),
        access_key_id: issued.id,
        secret_access_key: issued.secret.to_string(),
        session_token: issued.token,
        expires_at: Timestamp(expires * 1000),
    })
}

pub fn store(cloud: &Cloud) -> Result<ObjectStore> {
    let objects = objects(cloud)?;
    let Condition { total, stats, outbox, gateway } = inventory::condition(&objects.service)?;
    let at = |ms: i64| (ms > 0).then_some(Timestamp(ms * 1000));
    Ok(ObjectStore {
        endpoint: objects.endpoint.clone(),
        buckets: total.buckets,
        objects: total.usage.objects,
        bytes: Bytes(total.usage.bytes),
        state: match () {
            () if stats.stopped => "stopped",
            () if gateway.as_ref().is_some_and(|found| found.trouble.is_some()) => "away",
            () if stats.is_full() => "full",
            () if stats.damaged > 0 => "damaged",
            () => "ok",
        }
        .to_owned(),
        gateway: gateway.map(|found| found.place),
        gateway_bytes: Bytes(stats.remote.bytes),
        packed_bytes: Bytes(stats.packed.bytes),
        file_bytes: Bytes(stats.files.bytes),
        dead_bytes: Bytes(stats.dead_bytes()),
        free_bytes: Bytes(stats.free),
        reserve_bytes: Bytes(stats.reserve),
        damaged: stats.damaged,
        outbox,
        outbox_max: OUTBOX_MAX,
        scrub: Scrub {
            running: stats.scrub.running,
            bytes: Bytes(stats.scrub.bytes),
            bytes_all: Bytes(stats.packed.bytes + stats.files.bytes + stats.remote.bytes),
            damaged: stats.scrub.damaged,
            started_at: at(stats.scrub.started),
            ended_at: at(stats.scrub.ended),
        },
    })
}

/// Begins to read everything that is kept; one pass at a time.
pub async fn scrub(cloud: &Cloud, caller: &Caller, body: ScrubStart) -> Result<ObjectStore> {
    inventory::scrub_start(&objects(cloud)?.service, body.rate.map_or(0, |rate| rate.0))?;
    let line = Line {
        tenant: None,
        what: "object-store.scrub",
        kind: "object-store",
        id: "root",
        name: "root",
        message: body.rate.map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} a second")),
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &caller.actor(), line)).await?;
    store(cloud)
}

/// The versions that cannot be read, at most [`DAMAGE_MAX`].
pub async fn damage(cloud: &Cloud) -> Result<Vec<DamagedObject>> {
    let service = objects(cloud)?.service.clone();
    let look = tokio::task::spawn_blocking(move || inventory::damage(&service, DAMAGE_MAX));
    let found = look.await.map_err(|error| Error::internal(error.to_string()))??;
    let shown = |found: inventory::Damage| DamagedObject {
        bucket: found.bucket,
        key: found.key,
        version_id: found.version_id,
        bytes: Bytes(found.size),
    };
    Ok(found.into_iter().map(shown).collect())
}
