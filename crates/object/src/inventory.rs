//! What stands in the store, for those who run it: without a signature, without S3.

use model::{Error, Result};

use crate::access::policy::Policy;
use crate::access::{acl, session};
use crate::fault::Fault;
use crate::identity::Rights;
use crate::record::key::{self, Space};
use crate::record::{Bucket, Usage, Versioning};
use crate::service::{Records, Service, put_bucket};
use crate::version;

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
    let mut range = key::under(vec![Space::Bucket as u8]);
    range.start = key::bucket(after);
    view.scan(range, |_, value| {
        let bucket: Option<Bucket> = serde_json::from_slice(value).ok();
        let fits = |bucket: &Bucket| {
            bucket.name.as_str() > after
                && owner.is_none_or(|owner| *bucket.owner.id == *owner)
                && wanted(&bucket.name)
        };
        found.extend(bucket.filter(fits));
        found.len() < limit
    })
    .map_err(failed)?;
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

pub fn total(service: &Service) -> Result<Total> {
    let view = service.engine.read().map_err(failed)?;
    let mut total = Total::default();
    view.scan(key::under(vec![Space::Bucket as u8]), |_, _| {
        total.buckets += 1;
        true
    })
    .map_err(failed)?;
    view.scan(key::under(vec![Space::Usage as u8]), |_, value| {
        let usage: Usage = postcard::from_bytes(value).unwrap_or_default();
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

/// Credentials for a user of the cloud that end by themselves. `expires` is in seconds since 1970.
pub fn credentials(service: &Service, user: &str, rights: Rights, expires: i64) -> session::Issued {
    let terms = session::Session {
        parent: user.to_owned(),
        rights: rights.into(),
        role: None,
        expires,
        policy: None,
    };
    session::issue(&service.identity.root_key(), &terms)
}
