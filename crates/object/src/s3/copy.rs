//! copy.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn copy_object(_service: &Service, _req: Req<CopyObjectInput>) -> Answer<CopyObjectOutput> {
    Err(s3_error!(NotImplemented))
}
