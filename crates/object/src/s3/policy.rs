//! policy.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn get_bucket_policy(
    _service: &Service,
    _req: Req<GetBucketPolicyInput>,
) -> Answer<GetBucketPolicyOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_policy(
    _service: &Service,
    _req: Req<PutBucketPolicyInput>,
) -> Answer<PutBucketPolicyOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_policy(
    _service: &Service,
    _req: Req<DeleteBucketPolicyInput>,
) -> Answer<DeleteBucketPolicyOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_policy_status(
    _service: &Service,
    _req: Req<GetBucketPolicyStatusInput>,
) -> Answer<GetBucketPolicyStatusOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_public_access_block(
    _service: &Service,
    _req: Req<GetPublicAccessBlockInput>,
) -> Answer<GetPublicAccessBlockOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_public_access_block(
    _service: &Service,
    _req: Req<PutPublicAccessBlockInput>,
) -> Answer<PutPublicAccessBlockOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_public_access_block(
    _service: &Service,
    _req: Req<DeletePublicAccessBlockInput>,
) -> Answer<DeletePublicAccessBlockOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_ownership_controls(
    _service: &Service,
    _req: Req<GetBucketOwnershipControlsInput>,
) -> Answer<GetBucketOwnershipControlsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_ownership_controls(
    _service: &Service,
    _req: Req<PutBucketOwnershipControlsInput>,
) -> Answer<PutBucketOwnershipControlsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_ownership_controls(
    _service: &Service,
    _req: Req<DeleteBucketOwnershipControlsInput>,
) -> Answer<DeleteBucketOwnershipControlsOutput> {
    Err(s3_error!(NotImplemented))
}
