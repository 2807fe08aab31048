//! Tags of buckets and objects.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::setting::{change, look};
use super::{Answer, Req};
use crate::fault::{Fault, Result};
use crate::record::{Bucket, Version, Versioning};
use crate::service::{Records, Service};
use crate::tag::{self, BUCKET_TAGS_MAX, OBJECT_TAGS_MAX, Tags};
use crate::version;

pub async fn get_bucket_tagging(
    service: &Service,
    req: Req<GetBucketTaggingInput>,
) -> Answer<GetBucketTaggingOutput> {
    let tags = look(service, &req.input.bucket)?.settings.tags;
    let tag_set = tags.ok_or_else(|| Fault::new(S3ErrorCode::NoSuchTagSet, "The TagSet does not exist"))?;
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set }))
}

pub async fn put_bucket_tagging(
    service: &Service,
    req: Req<PutBucketTaggingInput>,
) -> Answer<PutBucketTaggingOutput> {
    let tags = tag::from_dto(req.input.tagging.tag_set, BUCKET_TAGS_MAX)?;
    change(service, req.input.bucket, move |bucket| {
        bucket.settings.tags = Some(tag::to_dto(&tags));
        Ok(())
    })
    .await?;
    Ok(S3Response::with_status(PutBucketTaggingOutput {}, http::StatusCode::NO_CONTENT))
}

pub async fn delete_bucket_tagging(
    service: &Service,
    req: Req<DeleteBucketTaggingInput>,
) -> Answer<DeleteBucketTaggingOutput> {
    change(service, req.input.bucket, |bucket| {
        bucket.settings.tags = None;
        Ok(())
    })
    .await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput {}))
}

pub async fn get_object_tagging(
    service: &Service,
    req: Req<GetObjectTaggingInput>,
) -> Answer<GetObjectTaggingOutput> {
    let ask = req.input;
    let view = service.engine.read().map_err(Fault::from)?;
    let bucket = view.bucket(&ask.bucket)?;
    let found = version::find(&view, bucket.id, &ask.key, ask.version_id.as_deref())?;
    let version_id = shown(&bucket, &found);
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tag::to_dto(&found.tags), version_id }))
}

pub async fn put_object_tagging(
    service: &Service,
    req: Req<PutObjectTaggingInput>,
) -> Answer<PutObjectTaggingOutput> {
    let ask = req.input;
    let tags = tag::from_dto(ask.tagging.tag_set, OBJECT_TAGS_MAX)?;
    let version_id = set(service, ask.bucket, ask.key, ask.version_id, tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
}

pub async fn delete_object_tagging(
    service: &Service,
    req: Req<DeleteObjectTaggingInput>,
) -> Answer<DeleteObjectTaggingOutput> {
    let ask = req.input;
    let version_id = set(service, ask.bucket, ask.key, ask.version_id, Tags::new()).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id }))
}

async fn set(
    service: &Service,
    bucket: String,
    key: String,
    id: Option<String>,
    tags: Tags,
) -> Result<Option<String>> {
    let write = service.engine.write(move |tx| -> Result<Option<String>> {
        let bucket = tx.bucket(&bucket)?;
        version::edit(tx, &bucket, &key, id.as_deref(), |version| {
            version.tags = tags;
            Ok(shown(&bucket, version))
        })
    });
    write.await
}

/// The id to show, if the bucket ever kept versions.
fn shown(bucket: &Bucket, version: &Version) -> Option<String> {
    (bucket.versioning != Versioning::Off).then(|| version.head.version_id())
}
