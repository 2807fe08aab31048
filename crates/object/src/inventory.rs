//! What stands in the store, for those who run it: without a signature, without S3.

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, Result};

use crate::access::policy::Policy;
use crate::access::{acl, session};
use crate::engine::{BlobId, GatewayState, Stats};
use crate::fault::Fault;
use crate::identity::Rights;
use crate::record::key::{self, Space};
use crate::record::{Bucket, Usage, Version, Versioning};
use crate::service::{Records, Service, put_bucket};
use crate::{notify, owned, version};

pub use crate::notify::WAITING_MAX as OUTBOX_MAX;

/// A bucket.
#[derive(Debug, Clone)]
pub struct Item {
    pub name: String,
    /// Id of the account.
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: i64,
    pub versioning: &'static str,
    pub public: bool,
    pub usage: Usage,
    pub quota: Option<u64>,
}

/// All buckets together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    pub buckets: u64,
    pub usage: Usage,
}

/// How the store is.
#[derive(Debug, Clone, Default)]
pub struct Condition {
    pub total: Total,
    pub stats: Stats,
    /// Length of the queue of events for webhooks; beyond [`OUTBOX_MAX`] events are dropped.
    pub outbox: u64,
    /// The store that keeps the large objects, if it is another one.
    pub gateway: Option<GatewayState>,
}

pub fn condition(service: &Service) -> Result<Condition> {
    let view = service.engine.read().map_err(failed)?;
    Ok(Condition {
        total: total(service)?,
        stats: service.engine.stats().map_err(failed)?,
        outbox: notify::waiting(&view).map_err(failed)?,
        gateway: service.engine.gateway(),
    })
}

/// A version whose bytes do not match their checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub bucket: String,
    pub key: String,
    pub version_id: String,
    pub size: u64,
}

/// Versions with damaged blobs, at most `limit`. Reads all records if there are such blobs. Blocking.
pub fn damage(service: &Service, limit: usize) -> Result<Vec<Damage>> {
    let blobs: BTreeSet<BlobId> = service.engine.damaged().map_err(failed)?.into_iter().collect();
    let mut found = Vec::new();
    if blobs.is_empty() {
        return Ok(found);
    }
    let view = service.engine.read().map_err(failed)?;
    let mut names = BTreeMap::new();
    view.scan(key::under(vec![Space::Bucket as u8]), |_, value| {
        names.extend(serde_json::from_slice::<Bucket>(value).ok().map(|bucket| (bucket.id, bucket.name)));
        true
    })
    .map_err(failed)?;
    for space in [Space::Current, Space::Past] {
        view.scan(key::under(vec![space as u8]), |name, value| {
            let version = Version::decode(value);
            let version = version.filter(|version| version.blobs.iter().any(|blob| blobs.contains(&blob.id)));
            if let (Some(version), Some((bucket, key))) = (version, key::place(name, space)) {
                found.push(Damage {
                    bucket: names.get(&bucket).cloned().unwrap_or_default(),
                    key,
                    version_id: version.head.version_id(),
                    size: version.head.size,
                });
            }
            found.len() < limit
        })
        .map_err(failed)?;
    }
    found.truncate(limit);
    Ok(found)
}

/// Begins to read everything; 0 is no limit of bytes per second.
pub fn scrub_start(service: &Service, rate: u64) -> Result<()> {
    service
        .engine
        .scrub_start(rate)
        .map_err(|_| Error::unavailable("the store has stopped; restart this server"))
}

fn failed(fault: impl Into<Fault>) -> Error {
    Error::internal(fault.into().to_string())
}

fn item(records: &impl Records, bucket: Bucket) -> Result<Item> {
    let policy = bucket.policy.as_deref().map(Policy::kept);
    let blocked = bucket.settings.public_access.as_ref();
    let restricts = blocked.and_then(|block| block.restrict_public_buckets) == Some(true);
    let ignores = blocked.and_then(|block| block.ignore_public_acls) == Some(true);
    let by_policy = policy.is_some_and(|policy| policy.is_public()) && !restricts;
    let by_acl = acl::is_public(&bucket.acl) && !ignores;
    Ok(Item {
        usage: version::usage(records, bucket.id).map_err(failed)?,
        name: bucket.name,
        owner: bucket.owner.id.to_string(),
        created: bucket.created,
        versioning: match bucket.versioning {
            Versioning::Off => "off",
            Versioning::Enabled => "enabled",
            Versioning::Suspended => "suspended",
        },
        public: by_policy || by_acl,
        quota: bucket.quota,
    })
}

/// Buckets by name after `after`: of one account or of all. Blocking.
pub fn list(
    service: &Service,
    owner: Option<&str>,
    after: &str,
    limit: usize,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Item>> {
    let view = service.engine.read().map_err(failed)?;
    let mut found = Vec::new();
    if let Some(owner) = owner {
        let mut names = Vec::new();
        owned::each(&view, owner, "", after, |name| {
            names.extend(wanted(name).then(|| name.to_owned()));
            names.len() < limit
        })
        .map_err(failed)?;
        for name in names {
            found.push(view.bucket(&name).map_err(failed)?);
        }
    } else {
        let mut range = key::under(vec![Space::Bucket as u8]);
        range.start = key::bucket(after);
        view.scan(range, |_, value| {
            let bucket: Option<Bucket> = serde_json::from_slice(value).ok();
            found.extend(bucket.filter(|bucket| bucket.name.as_str() > after && wanted(&bucket.name)));
            found.len() < limit
        })
        .map_err(failed)?;
    }
    found.into_iter().map(|bucket| item(&view, bucket)).collect()
}

pub fn get(service: &Service, name: &str) -> Result<Option<Item>> {
    let view = service.engine.read().map_err(failed)?;
    match view.bucket(name) {
        Ok(bucket) => item(&view, bucket).map(Some),
        Err(Fault::S3(..)) => Ok(None),
        Err(other) => Err(failed(other)),
    }
}

/// How many buckets an account owns, at most `limit`.
pub fn owned(service: &Service, owner: &str, limit: usize) -> Result<usize> {
    list(service, Some(owner), "", limit, |_| true).map(|found| found.len())
}

/// What the buckets of an account hold together.
pub fn account_usage(service: &Service, owner: &str) -> Result<Usage> {
    let view = service.engine.read().map_err(failed)?;
    version::account_usage(&view, owner).map_err(failed)
}

pub fn total(service: &Service) -> Result<Total> {
    let view = service.engine.read().map_err(failed)?;
    let mut total = Total::default();
    view.scan(key::under(vec![Space::Bucket as u8]), |_, _| {
        total.buckets += 1;
        true
    })
    .map_err(failed)?;
    view.scan(key::under(vec![Space::Usage as u8]), |_, value| {
        let usage = Usage::decode(value).unwrap_or_default();
        total.usage.objects += usage.objects;
        total.usage.versions += usage.versions;
        total.usage.bytes += usage.bytes;
        total.usage.upload_bytes += usage.upload_bytes;
        true
    })
    .map_err(failed)?;
    Ok(total)
}

pub async fn quota_set(service: &Service, name: &str, bytes: Option<u64>) -> Result<()> {
    let name = name.to_owned();
    let write = service.engine.write(move |tx| -> std::result::Result<(), Fault> {
        let mut bucket = tx.bucket(&name)?;
        bucket.quota = bytes;
        put_bucket(tx, &bucket);
        Ok(())
    });
    write.await.map_err(failed)
}

/// For whom credentials are.
pub struct Holder<'a> {
    /// The key that stands for the user of the cloud.
    pub user: &'a str,
    pub rights: Rights,
    /// The account of another, in which an operator of this name acts.
    pub elsewhere: Option<(&'a str, &'a str)>,
}

/// Credentials for a user of the cloud that end by themselves. `expires` is in seconds since 1970.
pub fn credentials(service: &Service, holder: &Holder<'_>, expires: i64) -> session::Issued {
    let terms = session::Session {
        parent: holder.user.to_owned(),
        rights: holder.rights.into(),
        role: holder.elsewhere.map(|(_, name)| format!("operator/{name}")),
        expires,
        policy: None,
        account: holder.elsewhere.map(|(account, _)| account.to_owned()),
    };
    session::issue(&service.identity.root_key(), &terms)
}
