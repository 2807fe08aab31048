//! The lock of a bucket, and retention and legal hold of its objects.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::{Answer, Req};
use crate::access::{self, Action};
use crate::fault::{Fault, Result};
use crate::lock;
use crate::record::{Hold, Version, Versioning};
use crate::service::{Caller, Records, Service, put_bucket};
use crate::time::{millis, timestamp};
use crate::version;

pub async fn get_object_lock_configuration(
    service: &Service,
    req: Req<GetObjectLockConfigurationInput>,
) -> Answer<GetObjectLockConfigurationOutput> {
    let bucket = service.engine.read().map_err(Fault::from)?.bucket(&req.input.bucket)?;
    let lock = bucket.settings.lock.ok_or_else(|| {
        Fault::new(
            S3ErrorCode::ObjectLockConfigurationNotFoundError,
            "Object Lock configuration does not exist for this bucket",
        )
    })?;
    Ok(S3Response::new(GetObjectLockConfigurationOutput { object_lock_configuration: Some(lock) }))
}

pub async fn put_object_lock_configuration(
    service: &Service,
    req: Req<PutObjectLockConfigurationInput>,
) -> Answer<PutObjectLockConfigurationOutput> {
    let lock = req.input.object_lock_configuration.ok_or(Fault::from(S3ErrorCode::MalformedXML))?;
    lock::check(&lock)?;
    let name = req.input.bucket;
    let change = service.engine.write(move |tx| -> Result<()> {
        let mut bucket = tx.bucket(&name)?;
        if bucket.versioning != Versioning::Enabled {
            return Err(Fault::new(
                S3ErrorCode::InvalidBucketState,
                "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
            ));
        }
        bucket.settings.lock = Some(lock);
        put_bucket(tx, &bucket);
        Ok(())
    });
    change.await?;
    Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
}

pub async fn get_object_retention(
    service: &Service,
    req: Req<GetObjectRetentionInput>,
) -> Answer<GetObjectRetentionOutput> {
    let input = req.input;
    let version = locked(service, &input.bucket, &input.key, input.version_id.as_deref())?;
    let retention = version.retention.ok_or_else(unset)?;
    let retention = ObjectLockRetention {
        mode: Some(ObjectLockRetentionMode::from_static(lock::mode(&retention))),
        retain_until_date: Some(timestamp(retention.until)),
    };
    Ok(S3Response::new(GetObjectRetentionOutput { retention: Some(retention) }))
}

pub async fn put_object_retention(
    service: &Service,
    req: Req<PutObjectRetentionInput>,
) -> Answer<PutObjectRetentionOutput> {
    let bypass = req.input.bypass_governance_retention.unwrap_or_default();
    if bypass {
        let caller = Caller::of(&req)?;
        let context = access::request_context(caller, &req.uri, &req.headers);
        let (key, id) = (Some(req.input.key.as_str()), req.input.version_id.as_deref());
        let action = Action::BypassGovernanceRetention;
        access::authorize(service, caller, action, &req.input.bucket, key, id, &context)?;
    }
    let input = req.input;
    let asked = input.retention.ok_or(Fault::from(S3ErrorCode::MalformedXML))?;
    let change = service.engine.write(move |tx| -> Result<()> {
        let bucket = tx.bucket(&input.bucket)?;
        lock::of(&bucket)?;
        let now = tx.now();
        let new = match (&asked.mode, &asked.retain_until_date) {
            (Some(mode), Some(until)) => Some(lock::retention(mode.as_str(), millis(until), now)?),
            (None, None) => None,
            _ => return Err(S3ErrorCode::MalformedXML.into()),
        };
        version::edit(tx, &bucket, &input.key, input.version_id.as_deref(), |version| {
            lock::check_change(version.retention.as_ref(), new.as_ref(), now, bypass)?;
            version.retention = new;
            Ok(())
        })
    });
    change.await?;
    Ok(S3Response::new(PutObjectRetentionOutput::default()))
}

pub async fn get_object_legal_hold(
    service: &Service,
    req: Req<GetObjectLegalHoldInput>,
) -> Answer<GetObjectLegalHoldOutput> {
    let input = req.input;
    let version = locked(service, &input.bucket, &input.key, input.version_id.as_deref())?;
    let status = match version.hold {
        Hold::Unset => return Err(unset().into()),
        Hold::On => ObjectLockLegalHoldStatus::ON,
        Hold::Off => ObjectLockLegalHoldStatus::OFF,
    };
    let status = Some(ObjectLockLegalHoldStatus::from_static(status));
    Ok(S3Response::new(GetObjectLegalHoldOutput { legal_hold: Some(ObjectLockLegalHold { status }) }))
}

pub async fn put_object_legal_hold(
    service: &Service,
    req: Req<PutObjectLegalHoldInput>,
) -> Answer<PutObjectLegalHoldOutput> {
    let input = req.input;
    let status = input.legal_hold.and_then(|hold| hold.status);
    let hold = lock::hold(status.as_ref().map_or("", |status| status.as_str()))?;
    let change = service.engine.write(move |tx| -> Result<()> {
        let bucket = tx.bucket(&input.bucket)?;
        lock::of(&bucket)?;
        version::edit(tx, &bucket, &input.key, input.version_id.as_deref(), |version| {
            version.hold = hold;
            Ok(())
        })
    });
    change.await?;
    Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
}

/// A version in a bucket that has a lock.
fn locked(service: &Service, bucket: &str, object: &str, id: Option<&str>) -> Result<Version> {
    let view = service.engine.read()?;
    let bucket = view.bucket(bucket)?;
    lock::of(&bucket)?;
    version::find(&view, bucket.id, object, id)
}

fn unset() -> Fault {
    Fault::new(
        S3ErrorCode::NoSuchObjectLockConfiguration,
        "The specified object does not have a ObjectLock configuration",
    )
}
