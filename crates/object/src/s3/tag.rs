//! tag.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn get_bucket_tagging(
    _service: &Service,
    _req: Req<GetBucketTaggingInput>,
) -> Answer<GetBucketTaggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_tagging(
    _service: &Service,
    _req: Req<PutBucketTaggingInput>,
) -> Answer<PutBucketTaggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_tagging(
    _service: &Service,
    _req: Req<DeleteBucketTaggingInput>,
) -> Answer<DeleteBucketTaggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object_tagging(
    _service: &Service,
    _req: Req<GetObjectTaggingInput>,
) -> Answer<GetObjectTaggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_object_tagging(
    _service: &Service,
    _req: Req<PutObjectTaggingInput>,
) -> Answer<PutObjectTaggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_object_tagging(
    _service: &Service,
    _req: Req<DeleteObjectTaggingInput>,
) -> Answer<DeleteObjectTaggingOutput> {
    Err(s3_error!(NotImplemented))
}
