//! lock.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn get_object_lock_configuration(
    _service: &Service,
    _req: Req<GetObjectLockConfigurationInput>,
) -> Answer<GetObjectLockConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_object_lock_configuration(
    _service: &Service,
    _req: Req<PutObjectLockConfigurationInput>,
) -> Answer<PutObjectLockConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object_retention(
    _service: &Service,
    _req: Req<GetObjectRetentionInput>,
) -> Answer<GetObjectRetentionOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_object_retention(
    _service: &Service,
    _req: Req<PutObjectRetentionInput>,
) -> Answer<PutObjectRetentionOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object_legal_hold(
    _service: &Service,
    _req: Req<GetObjectLegalHoldInput>,
) -> Answer<GetObjectLegalHoldOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_object_legal_hold(
    _service: &Service,
    _req: Req<PutObjectLegalHoldInput>,
) -> Answer<PutObjectLegalHoldOutput> {
    Err(s3_error!(NotImplemented))
}
