//! list.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn list_objects(_service: &Service, _req: Req<ListObjectsInput>) -> Answer<ListObjectsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn list_objects_v2(
    _service: &Service,
    _req: Req<ListObjectsV2Input>,
) -> Answer<ListObjectsV2Output> {
    Err(s3_error!(NotImplemented))
}

pub async fn list_object_versions(
    _service: &Service,
    _req: Req<ListObjectVersionsInput>,
) -> Answer<ListObjectVersionsOutput> {
    Err(s3_error!(NotImplemented))
}
