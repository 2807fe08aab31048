//! setting.

use s3s::dto::*;
use s3s::s3_error;

use super::{Answer, Req};
use crate::service::Service;

pub async fn get_bucket_cors(
    _service: &Service,
    _req: Req<GetBucketCorsInput>,
) -> Answer<GetBucketCorsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_cors(
    _service: &Service,
    _req: Req<PutBucketCorsInput>,
) -> Answer<PutBucketCorsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_cors(
    _service: &Service,
    _req: Req<DeleteBucketCorsInput>,
) -> Answer<DeleteBucketCorsOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_lifecycle_configuration(
    _service: &Service,
    _req: Req<GetBucketLifecycleConfigurationInput>,
) -> Answer<GetBucketLifecycleConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_lifecycle_configuration(
    _service: &Service,
    _req: Req<PutBucketLifecycleConfigurationInput>,
) -> Answer<PutBucketLifecycleConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_lifecycle(
    _service: &Service,
    _req: Req<DeleteBucketLifecycleInput>,
) -> Answer<DeleteBucketLifecycleOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_website(
    _service: &Service,
    _req: Req<GetBucketWebsiteInput>,
) -> Answer<GetBucketWebsiteOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_website(
    _service: &Service,
    _req: Req<PutBucketWebsiteInput>,
) -> Answer<PutBucketWebsiteOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_website(
    _service: &Service,
    _req: Req<DeleteBucketWebsiteInput>,
) -> Answer<DeleteBucketWebsiteOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_logging(
    _service: &Service,
    _req: Req<GetBucketLoggingInput>,
) -> Answer<GetBucketLoggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_logging(
    _service: &Service,
    _req: Req<PutBucketLoggingInput>,
) -> Answer<PutBucketLoggingOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_notification_configuration(
    _service: &Service,
    _req: Req<GetBucketNotificationConfigurationInput>,
) -> Answer<GetBucketNotificationConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_notification_configuration(
    _service: &Service,
    _req: Req<PutBucketNotificationConfigurationInput>,
) -> Answer<PutBucketNotificationConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_encryption(
    _service: &Service,
    _req: Req<GetBucketEncryptionInput>,
) -> Answer<GetBucketEncryptionOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_encryption(
    _service: &Service,
    _req: Req<PutBucketEncryptionInput>,
) -> Answer<PutBucketEncryptionOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn delete_bucket_encryption(
    _service: &Service,
    _req: Req<DeleteBucketEncryptionInput>,
) -> Answer<DeleteBucketEncryptionOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_versioning(
    _service: &Service,
    _req: Req<GetBucketVersioningInput>,
) -> Answer<GetBucketVersioningOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_versioning(
    _service: &Service,
    _req: Req<PutBucketVersioningInput>,
) -> Answer<PutBucketVersioningOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_request_payment(
    _service: &Service,
    _req: Req<GetBucketRequestPaymentInput>,
) -> Answer<GetBucketRequestPaymentOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_request_payment(
    _service: &Service,
    _req: Req<PutBucketRequestPaymentInput>,
) -> Answer<PutBucketRequestPaymentOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn get_bucket_accelerate_configuration(
    _service: &Service,
    _req: Req<GetBucketAccelerateConfigurationInput>,
) -> Answer<GetBucketAccelerateConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}

pub async fn put_bucket_accelerate_configuration(
    _service: &Service,
    _req: Req<PutBucketAccelerateConfigurationInput>,
) -> Answer<PutBucketAccelerateConfigurationOutput> {
    Err(s3_error!(NotImplemented))
}
