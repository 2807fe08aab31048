//! Buckets: create, delete, list, where.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response, s3_error};

use super::{Answer, Req};
use crate::access::acl;
use crate::engine::Tx;
use crate::fault::{Fault, Result};
use crate::record::bucket::Settings;
use crate::record::key::{self, Space};
use crate::record::{Acl, Bucket, Versioning};
use crate::service::{Caller, Records, Service, put_bucket};
use crate::time::timestamp;
use crate::{owned, upload, version};

/// Buckets an account may have.
const BUCKETS_MAX: usize = 1000;
const PAGE_MAX: usize = 10_000;

pub async fn create_bucket(service: &Service, req: Req<CreateBucketInput>) -> Answer<CreateBucketOutput> {
    let account = Caller::of(&req)?.account()?.clone();
    let ask = &req.input;
    check_name(&ask.bucket)?;
    let ownership = ask.object_ownership.as_ref().map(|word| word.as_str().to_owned());
    let enforced = ownership.as_deref() == Some(ObjectOwnership::BUCKET_OWNER_ENFORCED);
    if enforced && acl::asked(&req.headers) && !acl::asks_private(&req.headers) {
        let why = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
        return Err(s3_error!(InvalidBucketAclWithObjectOwnership, "{why}"));
    }
    let asked = acl::from_headers(service.identity.as_ref(), &req.headers, &account, None).await?;
    let acl = asked.unwrap_or_else(|| Acl::private(&account));
    let location = location(service, ask.create_bucket_configuration.as_ref())?;
    let lock = ask.object_lock_enabled_for_bucket == Some(true);
    let bucket = Bucket {
        id: 0,
        name: ask.bucket.clone(),
        owner: account,
        created: 0,
        versioning: if lock { Versioning::Enabled } else { Versioning::Off },
        acl,
        policy: None,
        location,
        settings: Settings {
            ownership,
            lock: lock.then(|| ObjectLockConfiguration {
                object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
                rule: None,
            }),
            ..Settings::default()
        },
        quota: None,
    };
    let path = format!("/{}", bucket.name);
    service.engine.write(move |tx| insert(tx, bucket)).await?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(path) }))
}

/// Making one's own bucket again as it is is fine; anything else that has the name is in the way.
fn insert(tx: &mut Tx<'_>, mut bucket: Bucket) -> Result<()> {
    if tx.record(&key::bucket(&bucket.name))?.is_some() {
        let there = tx.bucket(&bucket.name)?;
        let same = there.owner == bucket.owner && there.acl == bucket.acl;
        let lock = there.settings.lock.is_some() == bucket.settings.lock.is_some();
        if same && lock {
            return Ok(());
        }
        return Err(Fault::new(
            S3ErrorCode::BucketAlreadyExists,
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again.",
        ));
    }
    let mut owned = 0;
    owned::each(tx, &bucket.owner.id, "", "", |_| {
        owned += 1;
        owned < BUCKETS_MAX
    })?;
    if owned >= BUCKETS_MAX {
        return Err(Fault::new(
            S3ErrorCode::TooManyBuckets,
            format!("An account may have {BUCKETS_MAX} buckets."),
        ));
    }
    let id = tx.next("bucket")?;
    bucket.id =
        u32::try_from(id).map_err(|_| Fault::new(S3ErrorCode::TooManyBuckets, "No more bucket numbers."))?;
    bucket.created = tx.now();
    put_bucket(tx, &bucket);
    owned::add(tx, &bucket);
    Ok(())
}

/// The region's own name and the empty one are the default; others must be known.
fn location(service: &Service, ask: Option<&CreateBucketConfiguration>) -> Result<Option<String>> {
    let Some(constraint) = ask.and_then(|ask| ask.location_constraint.as_ref()) else { return Ok(None) };
    let name = constraint.as_str();
    let known = name.is_empty()
        || name == service.config.region
        || service.config.locations.iter().any(|known| known == name);
    if !known {
        let code = S3ErrorCode::InvalidLocationConstraint;
        return Err(Fault::new(code, "The specified location-constraint is not valid"));
    }
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

/// s3s has refused the worst; these are the rules of S3 that it leaves out.
fn check_name(name: &str) -> Result<()> {
    let labels =
        name.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
    let reserved = name.starts_with("xn--") || name.ends_with("-s3alias") || name.ends_with("--ol-s3");
    if !labels || reserved {
        return Err(Fault::new(S3ErrorCode::InvalidBucketName, "The specified bucket is not valid."));
    }
    Ok(())
}

pub async fn delete_bucket(service: &Service, req: Req<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
    let name = req.input.bucket;
    service.engine.write(move |tx| remove(tx, &name)).await?;
    Ok(S3Response::new(DeleteBucketOutput {}))
}

/// Open uploads go with their bucket; objects do not.
fn remove(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let bucket = tx.bucket(name)?;
    for space in [Space::Current, Space::Past] {
        let mut empty = true;
        tx.scan(key::of_bucket(space, bucket.id), |_, _| {
            empty = false;
            false
        })?;
        if !empty {
            let code = S3ErrorCode::BucketNotEmpty;
            return Err(Fault::new(code, "The bucket you tried to delete is not empty"));
        }
    }
    upload::abort_all(tx, &bucket)?;
    tx.delete(key::usage(bucket.id));
    tx.delete(key::bucket(name));
    owned::remove(tx, &bucket);
    Ok(())
}

pub async fn head_bucket(service: &Service, req: Req<HeadBucketInput>) -> Answer<HeadBucketOutput> {
    let view = service.engine.read().map_err(Fault::from)?;
    let bucket = view.bucket(&req.input.bucket)?;
    let region = bucket.location.unwrap_or_else(|| service.config.region.clone());
    let mut response =
        S3Response::new(HeadBucketOutput { bucket_region: Some(region), ..Default::default() });
    let usage = version::usage(&view, bucket.id)?;
    for (name, value) in [("x-rgw-object-count", usage.versions), ("x-rgw-bytes-used", usage.bytes)] {
        response.headers.insert(name, value.into());
    }
    Ok(response)
}

pub async fn list_buckets(service: &Service, req: Req<ListBucketsInput>) -> Answer<ListBucketsOutput> {
    let Some(principal) = Caller::of(&req)?.principal.clone() else {
        return Ok(S3Response::new(ListBucketsOutput { buckets: Some(Vec::new()), ..Default::default() }));
    };
    let account = principal.account;
    let ask = req.input;
    let limit = match ask.max_buckets {
        None => PAGE_MAX,
        Some(limit) => match usize::try_from(limit) {
            Ok(limit @ 1..=PAGE_MAX) => limit,
            _ => return Err(s3_error!(InvalidArgument, "max-buckets must lie between 1 and 10000")),
        },
    };
    let prefix = ask.prefix.clone().unwrap_or_default();
    let after = ask.continuation_token.unwrap_or_default();
    let view = service.engine.read().map_err(Fault::from)?;
    let mut names = Vec::new();
    owned::each(&view, &account.id, &prefix, &after, |name| {
        names.push(name.to_owned());
        names.len() <= limit
    })?;
    let more = names.len() > limit;
    names.truncate(limit);
    let token = names.last().filter(|_| more).cloned();
    let shown = |name: String| -> Result<s3s::dto::Bucket> {
        let bucket = view.bucket(&name)?;
        Ok(s3s::dto::Bucket {
            bucket_region: Some(bucket.location.unwrap_or_else(|| service.config.region.clone())),
            creation_date: Some(timestamp(bucket.created)),
            name: Some(name),
        })
    };
    let found = names.into_iter().map(shown).collect::<Result<Vec<_>>>()?;
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(found),
        continuation_token: token,
        owner: Some(acl::owner(&account)),
        prefix: ask.prefix,
    }))
}

pub async fn get_bucket_location(
    service: &Service,
    req: Req<GetBucketLocationInput>,
) -> Answer<GetBucketLocationOutput> {
    let view = service.engine.read().map_err(Fault::from)?;
    let bucket = view.bucket(&req.input.bucket)?;
    let constraint = bucket.location.filter(|name| *name != "us-east-1").map(BucketLocationConstraint::from);
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint: constraint }))
}
