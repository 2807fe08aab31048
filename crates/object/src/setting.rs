//! What a bucket's settings must hold to be kept.

use std::collections::HashSet;
use std::net::IpAddr;

use s3s::S3ErrorCode;
use s3s::dto::*;

use crate::engine::Tx;
use crate::fault::{Fault, Result};
use crate::record::Bucket;
use crate::service::Records;

const CORS_RULES_MAX: usize = 100;
const LIFECYCLE_RULES_MAX: usize = 1000;
const ROUTING_RULES_MAX: usize = 50;
const NOTIFICATIONS_MAX: usize = 100;
const RULE_ID_MAX: usize = 255;

fn invalid(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, why)
}

fn malformed(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::MalformedXML, why)
}

pub fn check_cors(cors: &CORSConfiguration) -> Result<()> {
    if cors.cors_rules.is_empty() || cors.cors_rules.len() > CORS_RULES_MAX {
        return Err(malformed(format!("A CORS configuration has 1 to {CORS_RULES_MAX} rules")));
    }
    for rule in &cors.cors_rules {
        if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
            return Err(malformed("A CORS rule needs an AllowedMethod and an AllowedOrigin"));
        }
        let known = |method: &String| ["GET", "PUT", "HEAD", "POST", "DELETE"].contains(&method.as_str());
        if let Some(method) = rule.allowed_methods.iter().find(|method| !known(method)) {
            let code = S3ErrorCode::InvalidRequest;
            return Err(Fault::new(
                code,
                format!("Found unsupported HTTP method in CORS config: {}", cut(method)),
            ));
        }
        let patterns = rule.allowed_origins.iter().chain(rule.allowed_headers.iter().flatten());
        if patterns.into_iter().any(|pattern| pattern.matches('*').count() > 1) {
            return Err(Fault::new(
                S3ErrorCode::InvalidRequest,
                "A CORS origin or header may hold one '*' at most",
            ));
        }
    }
    Ok(())
}

/// Also gives ids to rules that came without.
pub fn check_lifecycle(lifecycle: &mut BucketLifecycleConfiguration) -> Result<()> {
    if lifecycle.rules.is_empty() || lifecycle.rules.len() > LIFECYCLE_RULES_MAX {
        return Err(malformed(format!("A lifecycle configuration has 1 to {LIFECYCLE_RULES_MAX} rules")));
    }
    let mut ids = HashSet::new();
    for rule in &mut lifecycle.rules {
        let id = rule.id.get_or_insert_with(|| format!("{:024x}", rand::random::<u128>() >> 32));
        if id.len() > RULE_ID_MAX {
            return Err(invalid(format!("The id of a rule has {RULE_ID_MAX} characters at most")));
        }
        if !ids.insert(id.clone()) {
            return Err(invalid("Rule ID must be unique. Found same ID for more than one rule"));
        }
        check_rule(rule)?;
    }
    Ok(())
}

fn check_rule(rule: &LifecycleRule) -> Result<()> {
    if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
        return Err(malformed("The status of a rule is Enabled or Disabled"));
    }
    let acts = rule.expiration.is_some()
        || rule.noncurrent_version_expiration.is_some()
        || rule.abort_incomplete_multipart_upload.is_some()
        || rule.transitions.as_ref().is_some_and(|list| !list.is_empty())
        || rule.noncurrent_version_transitions.as_ref().is_some_and(|list| !list.is_empty());
    if !acts {
        return Err(malformed("A rule needs at least one action"));
    }
    if let Some(expiration) = &rule.expiration {
        let given = [
            expiration.date.is_some(),
            expiration.days.is_some(),
            expiration.expired_object_delete_marker.is_some(),
        ];
        if given.iter().filter(|is| **is).count() != 1 {
            return Err(malformed("An expiration has one of Date, Days and ExpiredObjectDeleteMarker"));
        }
        midnight(expiration.date.as_ref())?;
        if expiration.days.is_some_and(|days| days < 1) {
            return Err(invalid("'Days' for Expiration action must be a positive integer"));
        }
    }
    if let Some(expiration) = &rule.noncurrent_version_expiration {
        let few = |count: Option<i32>| count.is_some_and(|count| count < 1);
        if few(expiration.noncurrent_days) || few(expiration.newer_noncurrent_versions) {
            return Err(invalid(
                "'NoncurrentDays' for NoncurrentVersionExpiration action must be a positive integer",
            ));
        }
    }
    if let Some(abort) = &rule.abort_incomplete_multipart_upload
        && abort.days_after_initiation.is_none_or(|days| days < 1)
    {
        return Err(invalid(
            "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action must be a positive integer",
        ));
    }
    for transition in rule.transitions.iter().flatten() {
        midnight(transition.date.as_ref())?;
        if transition.days.is_some_and(|days| days < 0) || transition.storage_class.is_none() {
            return Err(invalid("A transition needs a StorageClass and 'Days' of zero or more"));
        }
    }
    Ok(())
}

/// Rules begin with a day.
fn midnight(date: Option<&Timestamp>) -> Result<()> {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    match date.is_some_and(|date| crate::time::millis(date) % DAY_MS != 0) {
        true => Err(invalid("'Date' must be at midnight GMT")),
        false => Ok(()),
    }
}

pub fn check_website(website: &WebsiteConfiguration) -> Result<()> {
    if let Some(all) = &website.redirect_all_requests_to {
        if website.index_document.is_some() || website.routing_rules.is_some() {
            return Err(invalid(
                "RedirectAllRequestsTo cannot be provided in conjunction with other settings",
            ));
        }
        if all.host_name.is_empty() {
            return Err(invalid("The host name must not be empty"));
        }
        return check_protocol(all.protocol.as_ref());
    }
    let Some(index) = &website.index_document else {
        return Err(invalid(
            "A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty",
        ));
    };
    if index.suffix.is_empty() || index.suffix.contains('/') {
        return Err(invalid("The IndexDocument Suffix is not well formed"));
    }
    if website.routing_rules.as_ref().is_some_and(|rules| rules.len() > ROUTING_RULES_MAX) {
        return Err(invalid(format!("A website has {ROUTING_RULES_MAX} routing rules at most")));
    }
    website
        .routing_rules
        .iter()
        .flatten()
        .try_for_each(|rule| check_protocol(rule.redirect.protocol.as_ref()))
}

fn check_protocol(protocol: Option<&Protocol>) -> Result<()> {
    match protocol.map(Protocol::as_str) {
        None | Some(Protocol::HTTP | Protocol::HTTPS) => Ok(()),
        Some(_) => Err(invalid(
            "Invalid protocol, protocol can be http or https. If not defined the protocol will be selected automatically.",
        )),
    }
}

/// The target must be there and let logs in. Fills in what was left open; grants on the logs are not kept,
/// they are their bucket's owner's.
pub fn check_logging(tx: &Tx<'_>, bucket: &Bucket, ask: &mut LoggingEnabled) -> Result<()> {
    let target = match tx.bucket(&ask.target_bucket) {
        Ok(target) => target,
        Err(Fault::S3(..)) => {
            let code = S3ErrorCode::InvalidTargetBucketForLogging;
            return Err(Fault::new(code, "The target bucket for logging does not exist"));
        }
        Err(other) => return Err(other),
    };
    if target.owner.id != bucket.owner.id {
        return Err(Fault::new(
            S3ErrorCode::InvalidTargetBucketForLogging,
            "The owner for the bucket to be logged and the target bucket must be the same.",
        ));
    }
    if !crate::log::name_fits(&ask.target_prefix) {
        return Err(Fault::new(
            S3ErrorCode::InvalidArgument,
            format!("The prefix of logs has up to {} bytes and no NUL", crate::log::PREFIX_MAX),
        ));
    }
    ask.target_grants = None;
    let format = ask.target_object_key_format.get_or_insert_default();
    match &format.partitioned_prefix {
        None => drop(format.simple_prefix.get_or_insert_default()),
        Some(parted) => {
            let date = parted.partition_date_source.as_ref().map(PartitionDateSource::as_str);
            let known = [PartitionDateSource::DELIVERY_TIME, PartitionDateSource::EVENT_TIME];
            if date.is_some_and(|date| !known.contains(&date)) || format.simple_prefix.is_some() {
                return Err(malformed("The format of the names of logs is not well formed"));
            }
        }
    }
    if !crate::log::may_log(bucket, &target, ask) {
        return Err(Fault::new(
            S3ErrorCode::AccessDenied,
            "The target bucket does not let logs in: its policy must allow s3:PutObject to logging.s3.amazonaws.com",
        ));
    }
    Ok(())
}

/// Also gives ids to those that came without.
pub fn check_notification(ask: &mut NotificationConfiguration, listen: IpAddr) -> Result<()> {
    if ask.lambda_function_configurations.as_ref().is_some_and(|list| !list.is_empty()) {
        return Err(Fault::new(
            S3ErrorCode::NotImplemented,
            "Functions cannot be notified; use a topic with a webhook",
        ));
    }
    if ask.event_bridge_configuration.is_some() {
        return Err(Fault::new(
            S3ErrorCode::NotImplemented,
            "There is no EventBridge here; use a topic with a webhook",
        ));
    }
    let topics = ask.topic_configurations.iter_mut().flatten();
    let topics = topics.map(|topic| (&mut topic.id, &topic.topic_arn, &topic.events));
    let queues = ask.queue_configurations.iter_mut().flatten();
    let queues = queues.map(|queue| (&mut queue.id, &queue.queue_arn, &queue.events));
    let mut count = 0;
    for (id, target, events) in topics.chain(queues) {
        count += 1;
        if events.is_empty() {
            return Err(malformed("A notification names at least one event"));
        }
        if let Some(event) = events.iter().find(|event| !crate::notify::is_told(event.as_ref())) {
            let why = format!("The event '{}' is not supported for notifications", cut(event.as_ref()));
            return Err(invalid(why));
        }
        id.get_or_insert_with(|| format!("{:024x}", rand::random::<u128>() >> 32));
        crate::hook::check(target, listen)?;
    }
    if count > NOTIFICATIONS_MAX {
        return Err(invalid(format!("A bucket has {NOTIFICATIONS_MAX} notifications at most")));
    }
    Ok(())
}

pub fn check_encryption(ask: &ServerSideEncryptionConfiguration) -> Result<()> {
    let [rule] = ask.rules.as_slice() else {
        return Err(malformed("An encryption configuration has exactly one rule"));
    };
    let Some(default) = &rule.apply_server_side_encryption_by_default else {
        return Err(malformed("The rule needs ApplyServerSideEncryptionByDefault"));
    };
    let algorithm = default.sse_algorithm.as_str();
    if ![ServerSideEncryption::AES256, ServerSideEncryption::AWS_KMS].contains(&algorithm) {
        return Err(malformed("The algorithm must be AES256 or aws:kms"));
    }
    if algorithm == ServerSideEncryption::AES256 && default.kms_master_key_id.is_some() {
        return Err(invalid(
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms",
        ));
    }
    let named = default.kms_master_key_id.as_ref().is_some_and(|key| !key.is_empty());
    if algorithm == ServerSideEncryption::AWS_KMS && !named {
        return Err(invalid(
            "This store keeps no default key: name one in KMSMasterKeyID, or ask for AES256.",
        ));
    }
    Ok(())
}

/// The start of a text that came from outside, for a message.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}
