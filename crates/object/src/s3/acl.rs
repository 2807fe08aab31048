//! acl.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn get_bucket_acl(_service: &Service, _req: Req<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_acl(_service: &Service, _req: Req<PutBucketAclInput>) -> Answer<PutBucketAclOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object_acl(_service: &Service, _req: Req<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_object_acl(_service: &Service, _req: Req<PutObjectAclInput>) -> Answer<PutObjectAclOutput> {
    Err(s3_error!(NotImplemented))
}
