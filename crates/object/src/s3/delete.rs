//! delete.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn delete_object(_service: &Service, _req: Req<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_objects(
    _service: &Service,
    _req: Req<DeleteObjectsInput>,
) -> Answer<DeleteObjectsOutput> {
    Err(s3_error!(NotImplemented))
}
