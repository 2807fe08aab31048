//! bucket.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn create_bucket(_service: &Service, _req: Req<CreateBucketInput>) -> Answer<CreateBucketOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket(_service: &Service, _req: Req<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn head_bucket(_service: &Service, _req: Req<HeadBucketInput>) -> Answer<HeadBucketOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn list_buckets(_service: &Service, _req: Req<ListBucketsInput>) -> Answer<ListBucketsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_location(
    _service: &Service,
    _req: Req<GetBucketLocationInput>,
) -> Answer<GetBucketLocationOutput> {
    Err(s3_error!(NotImplemented))
}
