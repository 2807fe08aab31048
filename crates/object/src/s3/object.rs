//! object.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn put_object(_service: &Service, _req: Req<PutObjectInput>) -> Answer<PutObjectOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object(_service: &Service, _req: Req<GetObjectInput>) -> Answer<GetObjectOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn head_object(_service: &Service, _req: Req<HeadObjectInput>) -> Answer<HeadObjectOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_object_attributes(
    _service: &Service,
    _req: Req<GetObjectAttributesInput>,
) -> Answer<GetObjectAttributesOutput> {
    Err(s3_error!(NotImplemented))
}
