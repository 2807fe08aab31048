//! Access control lists of buckets and objects.

use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::{Answer, Req};
use crate::access::{acl, is_enforced, ownership};
use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::record::{Acl, Bucket};
use crate::service::{Records, Service, put_bucket};
use crate::version;

pub async fn get_bucket_acl(service: &Service, req: Req<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
    let bucket = service.engine.read().map_err(Fault::from)?.bucket(&req.input.bucket)?;
    let list = shown(&bucket, Some(bucket.acl.clone()), &bucket.owner);
    Ok(S3Response::new(GetBucketAclOutput {
        grants: Some(acl::grants(&list)),
        owner: Some(acl::owner(&list.owner)),
    }))
}

pub async fn put_bucket_acl(service: &Service, req: Req<PutBucketAclInput>) -> Answer<PutBucketAclOutput> {
    let bucket = service.engine.read().map_err(Fault::from)?.bucket(&req.input.bucket)?;
    refuse_enforced(&bucket)?;
    let list = given(service, &req.headers, req.input.access_control_policy, &bucket.acl.owner, None).await?;
    let change = service.engine.write(move |tx| {
        let mut now = tx.bucket(&bucket.name)?;
        same(&now, &bucket)?;
        refuse_enforced(&now)?;
        ownership::refuse_public(&now, &list)?;
        now.acl = list;
        put_bucket(tx, &now);
        Ok::<_, Fault>(())
    });
    change.await?;
    Ok(S3Response::new(PutBucketAclOutput {}))
}

pub async fn get_object_acl(service: &Service, req: Req<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
    let view = service.engine.read().map_err(Fault::from)?;
    let bucket = view.bucket(&req.input.bucket)?;
    let object = version::find(&view, bucket.id, &req.input.key, req.input.version_id.as_deref())?;
    let list = shown(&bucket, object.acl, &object.head.owner);
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(acl::grants(&list)),
        owner: Some(acl::owner(&list.owner)),
        request_charged: None,
    }))
}

pub async fn put_object_acl(service: &Service, req: Req<PutObjectAclInput>) -> Answer<PutObjectAclOutput> {
    let Req { input, headers, .. } = req;
    let (bucket, object) = {
        let view = service.engine.read().map_err(Fault::from)?;
        let bucket = view.bucket(&input.bucket)?;
        refuse_enforced(&bucket)?;
        let object = version::find(&view, bucket.id, &input.key, input.version_id.as_deref())?;
        (bucket, object)
    };
    let owner = object.head.owner.clone();
    let list = given(service, &headers, input.access_control_policy, &owner, Some(&bucket.owner)).await?;
    let change = service.engine.write(move |tx| {
        let now = tx.bucket(&bucket.name)?;
        same(&now, &bucket)?;
        refuse_enforced(&now)?;
        ownership::refuse_public(&now, &list)?;
        version::edit(tx, &now, &input.key, input.version_id.as_deref(), |version| {
            // The list is for the owner it was made for; another's object may have come in between.
            if version.head.owner != owner {
                return Err(S3ErrorCode::OperationAborted.into());
            }
            version.acl = Some(list);
            Ok(())
        })
    });
    change.await?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}

/// Where lists are disabled all is the bucket owner's.
fn shown(bucket: &Bucket, list: Option<Acl>, owner: &Account) -> Acl {
    match list {
        _ if is_enforced(bucket) => Acl::private(&bucket.owner),
        Some(list) => list,
        None => Acl::private(owner),
    }
}

/// The list that a request gives, by its headers or its body.
async fn given(
    service: &Service,
    headers: &HeaderMap,
    body: Option<AccessControlPolicy>,
    owner: &Account,
    bucket: Option<&Account>,
) -> Result<Acl> {
    let identity = &*service.identity;
    match (acl::from_headers(identity, headers, owner, bucket).await?, body) {
        (Some(list), None) => Ok(list),
        (None, Some(body)) => acl::from_xml(identity, body, owner).await,
        (Some(_), Some(_)) => Err(Fault::new(
            S3ErrorCode::UnexpectedContent,
            "An ACL is given by headers or by a body, not by both",
        )),
        (None, None) => {
            Err(Fault::new(S3ErrorCode::MissingSecurityHeader, "Your request was missing a required header"))
        }
    }
}

fn refuse_enforced(bucket: &Bucket) -> Result<()> {
    if is_enforced(bucket) { Err(ownership::not_supported()) } else { Ok(()) }
}

/// The bucket may have gone and come back as another's.
fn same(now: &Bucket, seen: &Bucket) -> Result<()> {
    if now.id == seen.id { Ok(()) } else { Err(S3ErrorCode::NoSuchBucket.into()) }
}
