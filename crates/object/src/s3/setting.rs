//! The sub-resources of a bucket that are kept as S3 gives them.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::{Answer, Req};
use crate::fault::{Fault, Result};
use crate::hook;
use crate::record::bucket::Settings;
use crate::record::{Bucket, Versioning};
use crate::service::{Caller, Records, Service, put_bucket};
use crate::setting::{
    check_cors, check_encryption, check_lifecycle, check_logging, check_notification, check_website,
};

/// Changes a bucket's record in one step.
pub(super) async fn change(
    service: &Service,
    name: String,
    change: impl FnOnce(&mut Bucket) -> Result<()> + Send + 'static,
) -> Result<()> {
    let write = service.engine.write(move |tx| -> Result<()> {
        let mut bucket = tx.bucket(&name)?;
        change(&mut bucket)?;
        put_bucket(tx, &bucket);
        Ok(())
    });
    write.await
}

async fn set(
    service: &Service,
    name: String,
    set: impl FnOnce(&mut Settings) + Send + 'static,
) -> Result<()> {
    change(service, name, |bucket| {
        set(&mut bucket.settings);
        Ok(())
    })
    .await
}

/// The bucket as it is now.
pub(super) fn look(service: &Service, name: &str) -> Result<Bucket> {
    service.engine.read()?.bucket(name)
}

fn absent(code: S3ErrorCode, what: &'static str) -> Fault {
    Fault::new(code, what)
}

pub async fn get_bucket_cors(service: &Service, req: Req<GetBucketCorsInput>) -> Answer<GetBucketCorsOutput> {
    let cors = look(service, &req.input.bucket)?.settings.cors;
    let cors = cors.ok_or_else(|| {
        absent(S3ErrorCode::NoSuchCORSConfiguration, "The CORS configuration does not exist")
    })?;
    Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(cors.cors_rules) }))
}

pub async fn put_bucket_cors(service: &Service, req: Req<PutBucketCorsInput>) -> Answer<PutBucketCorsOutput> {
    let cors = req.input.cors_configuration;
    check_cors(&cors)?;
    set(service, req.input.bucket, |settings| settings.cors = Some(cors)).await?;
    Ok(S3Response::new(PutBucketCorsOutput {}))
}

pub async fn delete_bucket_cors(
    service: &Service,
    req: Req<DeleteBucketCorsInput>,
) -> Answer<DeleteBucketCorsOutput> {
    set(service, req.input.bucket, |settings| settings.cors = None).await?;
    Ok(S3Response::new(DeleteBucketCorsOutput {}))
}

pub async fn get_bucket_lifecycle_configuration(
    service: &Service,
    req: Req<GetBucketLifecycleConfigurationInput>,
) -> Answer<GetBucketLifecycleConfigurationOutput> {
    let lifecycle = look(service, &req.input.bucket)?.settings.lifecycle;
    let code = S3ErrorCode::NoSuchLifecycleConfiguration;
    let lifecycle = lifecycle.ok_or_else(|| absent(code, "The lifecycle configuration does not exist"))?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(lifecycle.rules),
        transition_default_minimum_object_size: None,
    }))
}

pub async fn put_bucket_lifecycle_configuration(
    service: &Service,
    req: Req<PutBucketLifecycleConfigurationInput>,
) -> Answer<PutBucketLifecycleConfigurationOutput> {
    let missing = || Fault::new(S3ErrorCode::MalformedXML, "The lifecycle configuration is missing");
    let mut lifecycle = req.input.lifecycle_configuration.ok_or_else(missing)?;
    check_lifecycle(&mut lifecycle)?;
    set(service, req.input.bucket, |settings| settings.lifecycle = Some(lifecycle)).await?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

pub async fn delete_bucket_lifecycle(
    service: &Service,
    req: Req<DeleteBucketLifecycleInput>,
) -> Answer<DeleteBucketLifecycleOutput> {
    set(service, req.input.bucket, |settings| settings.lifecycle = None).await?;
    Ok(S3Response::new(DeleteBucketLifecycleOutput {}))
}

pub async fn get_bucket_website(
    service: &Service,
    req: Req<GetBucketWebsiteInput>,
) -> Answer<GetBucketWebsiteOutput> {
    let website = look(service, &req.input.bucket)?.settings.website;
    let code = S3ErrorCode::NoSuchWebsiteConfiguration;
    let website =
        website.ok_or_else(|| absent(code, "The specified bucket does not have a website configuration"))?;
    Ok(S3Response::new(GetBucketWebsiteOutput {
        error_document: website.error_document,
        index_document: website.index_document,
        redirect_all_requests_to: website.redirect_all_requests_to,
        routing_rules: website.routing_rules,
    }))
}

pub async fn put_bucket_website(
    service: &Service,
    req: Req<PutBucketWebsiteInput>,
) -> Answer<PutBucketWebsiteOutput> {
    let website = req.input.website_configuration;
    check_website(&website)?;
    set(service, req.input.bucket, |settings| settings.website = Some(website)).await?;
    Ok(S3Response::new(PutBucketWebsiteOutput {}))
}

pub async fn delete_bucket_website(
    service: &Service,
    req: Req<DeleteBucketWebsiteInput>,
) -> Answer<DeleteBucketWebsiteOutput> {
    set(service, req.input.bucket, |settings| settings.website = None).await?;
    Ok(S3Response::new(DeleteBucketWebsiteOutput {}))
}

pub async fn get_bucket_logging(
    service: &Service,
    req: Req<GetBucketLoggingInput>,
) -> Answer<GetBucketLoggingOutput> {
    let logging = look(service, &req.input.bucket)?.settings.logging;
    let enabled = logging.and_then(|status| status.logging_enabled);
    Ok(S3Response::new(GetBucketLoggingOutput { logging_enabled: enabled }))
}

pub async fn put_bucket_logging(
    service: &Service,
    req: Req<PutBucketLoggingInput>,
) -> Answer<PutBucketLoggingOutput> {
    let by = Caller::of(&req)?.account()?.id.clone();
    let mut status = req.input.bucket_logging_status;
    let name = req.input.bucket;
    let write = service.engine.write(move |tx| -> Result<()> {
        let mut bucket = tx.bucket(&name)?;
        // Where lines about a bucket go is for its owner alone to say, whatever a policy lets others do.
        if bucket.owner.id != by {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        if let Some(enabled) = &mut status.logging_enabled {
            check_logging(tx, &bucket, enabled)?;
        }
        bucket.settings.logging = status.logging_enabled.is_some().then_some(status);
        put_bucket(tx, &bucket);
        Ok(())
    });
    write.await?;
    Ok(S3Response::new(PutBucketLoggingOutput {}))
}

pub async fn get_bucket_notification_configuration(
    service: &Service,
    req: Req<GetBucketNotificationConfigurationInput>,
) -> Answer<GetBucketNotificationConfigurationOutput> {
    let kept = look(service, &req.input.bucket)?.settings.notification.unwrap_or_default();
    Ok(S3Response::new(GetBucketNotificationConfigurationOutput {
        event_bridge_configuration: kept.event_bridge_configuration,
        lambda_function_configurations: kept.lambda_function_configurations,
        queue_configurations: kept.queue_configurations,
        topic_configurations: kept.topic_configurations,
    }))
}

pub async fn put_bucket_notification_configuration(
    service: &Service,
    req: Req<PutBucketNotificationConfigurationInput>,
) -> Answer<PutBucketNotificationConfigurationOutput> {
    let side = hook::side(service.config.listen.ip(), Caller::of(&req)?.address);
    let mut ask = req.input.notification_configuration;
    check_notification(&mut ask, side)?;
    set(service, req.input.bucket, move |settings| {
        settings.notification = Some(ask);
        settings.notification_far = !side.is_loopback();
    })
    .await?;
    Ok(S3Response::new(PutBucketNotificationConfigurationOutput {}))
}

pub async fn get_bucket_encryption(
    service: &Service,
    req: Req<GetBucketEncryptionInput>,
) -> Answer<GetBucketEncryptionOutput> {
    let encryption = look(service, &req.input.bucket)?.settings.encryption;
    let code = S3ErrorCode::ServerSideEncryptionConfigurationNotFoundError;
    let kept =
        encryption.ok_or_else(|| absent(code, "The server side encryption configuration was not found"))?;
    Ok(S3Response::new(GetBucketEncryptionOutput { server_side_encryption_configuration: Some(kept) }))
}

pub async fn put_bucket_encryption(
    service: &Service,
    req: Req<PutBucketEncryptionInput>,
) -> Answer<PutBucketEncryptionOutput> {
    let encryption = req.input.server_side_encryption_configuration;
    check_encryption(&encryption)?;
    set(service, req.input.bucket, |settings| settings.encryption = Some(encryption)).await?;
    Ok(S3Response::new(PutBucketEncryptionOutput {}))
}

pub async fn delete_bucket_encryption(
    service: &Service,
    req: Req<DeleteBucketEncryptionInput>,
) -> Answer<DeleteBucketEncryptionOutput> {
    set(service, req.input.bucket, |settings| settings.encryption = None).await?;
    Ok(S3Response::new(DeleteBucketEncryptionOutput {}))
}

pub async fn get_bucket_versioning(
    service: &Service,
    req: Req<GetBucketVersioningInput>,
) -> Answer<GetBucketVersioningOutput> {
    let status = match look(service, &req.input.bucket)?.versioning {
        Versioning::Off => None,
        Versioning::Enabled => Some(BucketVersioningStatus::from_static(BucketVersioningStatus::ENABLED)),
        Versioning::Suspended => Some(BucketVersioningStatus::from_static(BucketVersioningStatus::SUSPENDED)),
    };
    Ok(S3Response::new(GetBucketVersioningOutput { mfa_delete: None, status }))
}

pub async fn put_bucket_versioning(
    service: &Service,
    req: Req<PutBucketVersioningInput>,
) -> Answer<PutBucketVersioningOutput> {
    let ask = req.input.versioning_configuration;
    if ask.mfa_delete.is_some_and(|word| word.as_str() == MFADelete::ENABLED) {
        return Err(Fault::new(S3ErrorCode::NotImplemented, "MFA delete is not offered").into());
    }
    let versioning = match ask.status.as_ref().map(|status| status.as_str()) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        _ => {
            let code = S3ErrorCode::IllegalVersioningConfigurationException;
            return Err(Fault::new(code, "The versioning status must be Enabled or Suspended").into());
        }
    };
    change(service, req.input.bucket, move |bucket| {
        if versioning == Versioning::Suspended && bucket.settings.lock.is_some() {
            let why = "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.";
            return Err(Fault::new(S3ErrorCode::InvalidBucketState, why));
        }
        bucket.versioning = versioning;
        Ok(())
    })
    .await?;
    Ok(S3Response::new(PutBucketVersioningOutput {}))
}

pub async fn get_bucket_request_payment(
    service: &Service,
    req: Req<GetBucketRequestPaymentInput>,
) -> Answer<GetBucketRequestPaymentOutput> {
    let payer = look(service, &req.input.bucket)?.settings.payer;
    let payer = payer.map_or_else(|| Payer::from_static(Payer::BUCKET_OWNER), |kept| kept.payer);
    Ok(S3Response::new(GetBucketRequestPaymentOutput { payer: Some(payer) }))
}

pub async fn put_bucket_request_payment(
    service: &Service,
    req: Req<PutBucketRequestPaymentInput>,
) -> Answer<PutBucketRequestPaymentOutput> {
    let ask = req.input.request_payment_configuration;
    if ![Payer::BUCKET_OWNER, Payer::REQUESTER].contains(&ask.payer.as_str()) {
        return Err(
            Fault::new(S3ErrorCode::MalformedXML, "The payer must be BucketOwner or Requester").into()
        );
    }
    set(service, req.input.bucket, |settings| settings.payer = Some(ask)).await?;
    Ok(S3Response::new(PutBucketRequestPaymentOutput {}))
}

pub async fn get_bucket_accelerate_configuration(
    service: &Service,
    req: Req<GetBucketAccelerateConfigurationInput>,
) -> Answer<GetBucketAccelerateConfigurationOutput> {
    look(service, &req.input.bucket)?;
    Ok(S3Response::new(GetBucketAccelerateConfigurationOutput::default()))
}

pub async fn put_bucket_accelerate_configuration(
    _service: &Service,
    _req: Req<PutBucketAccelerateConfigurationInput>,
) -> Answer<PutBucketAccelerateConfigurationOutput> {
    Err(Fault::new(S3ErrorCode::NotImplemented, "Transfer acceleration is not offered").into())
}
