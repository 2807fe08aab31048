//! multipart.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn create_multipart_upload(
    _service: &Service,
    _req: Req<CreateMultipartUploadInput>,
) -> Answer<CreateMultipartUploadOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn upload_part(_service: &Service, _req: Req<UploadPartInput>) -> Answer<UploadPartOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn upload_part_copy(
    _service: &Service,
    _req: Req<UploadPartCopyInput>,
) -> Answer<UploadPartCopyOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn complete_multipart_upload(
    _service: &Service,
    _req: Req<CompleteMultipartUploadInput>,
) -> Answer<CompleteMultipartUploadOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn abort_multipart_upload(
    _service: &Service,
    _req: Req<AbortMultipartUploadInput>,
) -> Answer<AbortMultipartUploadOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn list_multipart_uploads(
    _service: &Service,
    _req: Req<ListMultipartUploadsInput>,
) -> Answer<ListMultipartUploadsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn list_parts(_service: &Service, _req: Req<ListPartsInput>) -> Answer<ListPartsOutput> {
    Err(s3_error!(NotImplemented))
}
