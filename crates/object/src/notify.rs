//! Telling webhooks what happened in a bucket.
//!
//! An event is a record that is written by the very change it tells of, so none
//! is lost and none is told of what did not happen. A background task delivers
//! them in order per store, again after a failure, and lets go of those that
//! nobody wanted for a day.

use std::time::Duration;

use s3s::S3ErrorCode;
use s3s::dto::{FilterRuleName, NotificationConfigurationFilter};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::engine::Tx;
use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::record::Bucket;
use crate::record::key::{self, Space};
use crate::record::version::Head;
use crate::service::{Records, Service};
use crate::time::timestamp;
use crate::version::Deleted;

/// Events that may wait; when there are more, new ones are not kept.
pub const WAITING_MAX: u64 = 100_000;
/// How long an event is tried.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Events looked at in one round.
const ROUND: usize = 100;
const PAUSE: Duration = Duration::from_secs(1);
const CALL_WAIT: Duration = Duration::from_secs(10);
const QUEUE: &str = "event";

/// The address behind a target: a plain `http(s)://` one, or one that ends an ARN.
pub fn target(arn: &str) -> Result<&str> {
    let address = arn.find("http://").or_else(|| arn.find("https://")).map(|at| &arn[at..]);
    let parsed = address.filter(|address| reqwest::Url::parse(address).is_ok());
    parsed.ok_or_else(|| {
        let why = "The target must be a webhook: an address with http:// or https://";
        Fault::new(S3ErrorCode::InvalidArgument, why)
    })
}

/// An event that waits for delivery.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    to: String,
    at: i64,
    body: String,
}

/// What an event is about.
pub struct About<'a> {
    pub object: &'a str,
    pub size: u64,
    pub etag: &'a str,
    pub version_id: Option<String>,
    pub seq: u64,
    /// Who did it.
    pub by: &'a Account,
}

impl<'a> About<'a> {
    pub fn version(object: &'a str, head: &'a Head) -> Self {
        let version_id = Some(head.version_id());
        Self { object, size: head.size, etag: &head.etag, version_id, seq: head.seq, by: &head.owner }
    }
}

/// What happened, in S3's words after `s3:`, such as `ObjectCreated:Put`.
pub fn emit(tx: &mut Tx<'_>, bucket: &Bucket, event: &str, about: &About<'_>) -> Result<()> {
    let Some(asked) = &bucket.settings.notification else { return Ok(()) };
    let topics = asked.topic_configurations.iter().flatten();
    let topics = topics.map(|topic| (&topic.id, &topic.topic_arn, &topic.events, &topic.filter));
    let queues = asked.queue_configurations.iter().flatten();
    let queues = queues.map(|queue| (&queue.id, &queue.queue_arn, &queue.events, &queue.filter));
    for (id, arn, events, filter) in topics.chain(queues) {
        let wanted = events.iter().any(|pattern| event_fits(pattern.as_ref(), event));
        if !wanted || !key_fits(filter.as_ref(), about.object) {
            continue;
        }
        let now = tx.now();
        let body = message(bucket, event, about, id.as_deref().unwrap_or_default(), now);
        let number = tx.next(QUEUE)?;
        if number.saturating_sub(oldest(tx)?.unwrap_or(number)) >= WAITING_MAX {
            tracing::warn!(bucket = bucket.name, "too many events wait; one is dropped");
            continue;
        }
        let waiting = Waiting { to: target(arn)?.to_owned(), at: now, body };
        tx.put(place(number), serde_json::to_vec(&waiting).expect("plain data"));
    }
    Ok(())
}

/// What was removed, if anything; `events` are for what is gone and for a marker that was made.
pub fn removed(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    object: &str,
    deleted: &Deleted,
    by: &Account,
    events: [&str; 2],
) -> Result<()> {
    let marked = deleted.marker && !deleted.removed;
    if !marked && !deleted.removed {
        return Ok(());
    }
    let about = About { object, size: 0, etag: "", version_id: deleted.version_id.clone(), seq: 0, by };
    emit(tx, bucket, events[usize::from(marked)], &about)
}

fn place(number: u64) -> Vec<u8> {
    let mut name = vec![Space::Queue as u8];
    name.extend_from_slice(QUEUE.as_bytes());
    name.push(0);
    name.extend_from_slice(&number.to_be_bytes());
    name
}

fn number(name: &[u8]) -> Option<u64> {
    let tail = name.get(name.len().checked_sub(8)?..)?;
    Some(u64::from_be_bytes(tail.try_into().ok()?))
}

fn all() -> std::ops::Range<Vec<u8>> {
    let mut prefix = place(0);
    prefix.truncate(prefix.len() - 8);
    key::under(prefix)
}

/// How long the queue is from its oldest event to its newest; delivered ones between them count.
pub fn waiting(records: &impl Records) -> Result<u64> {
    let newest = records.record(&key::counter(QUEUE))?.as_deref().and_then(number).unwrap_or_default();
    Ok(oldest(records)?.map_or(0, |oldest| newest.saturating_sub(oldest) + 1))
}

fn oldest(records: &impl Records) -> Result<Option<u64>> {
    let mut found = None;
    records.each(all(), |name, _| {
        found = number(name);
        false
    })?;
    Ok(found)
}

fn event_fits(pattern: &str, event: &str) -> bool {
    let pattern = pattern.strip_prefix("s3:").unwrap_or(pattern);
    match pattern.strip_suffix('*') {
        Some(head) => event.starts_with(head),
        None => pattern == event,
    }
}

fn key_fits(filter: Option<&NotificationConfigurationFilter>, object: &str) -> bool {
    let rules = filter.and_then(|filter| filter.key.as_ref()?.filter_rules.as_ref());
    rules.into_iter().flatten().all(|rule| {
        let value = rule.value.as_deref().unwrap_or_default();
        match rule.name.as_ref().map(|name| name.as_str().to_ascii_lowercase()).as_deref() {
            Some(FilterRuleName::PREFIX) => object.starts_with(value),
            Some(FilterRuleName::SUFFIX) => object.ends_with(value),
            _ => true,
        }
    })
}

fn message(bucket: &Bucket, event: &str, about: &About<'_>, id: &str, now: i64) -> String {
    let mut at = Vec::new();
    let format = s3s::dto::TimestampFormat::DateTime;
    let at = timestamp(now).format(format, &mut at).ok().and_then(|()| String::from_utf8(at).ok());
    let record = json!({
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": bucket.location.as_deref().unwrap_or_default(),
        "eventTime": at,
        "eventName": event,
        "userIdentity": { "principalId": &*about.by.id },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": id,
            "bucket": {
                "name": bucket.name,
                "ownerIdentity": { "principalId": &*bucket.owner.id },
                "arn": format!("arn:aws:s3:::{}", bucket.name),
            },
            "object": {
                "key": about.object,
                "size": about.size,
                "eTag": about.etag,
                "versionId": about.version_id,
                "sequencer": format!("{:016X}", about.seq),
            },
        },
    });
    json!({ "Records": [record] }).to_string()
}

/// Delivers until `stop`.
pub async fn run(service: Service, stop: CancellationToken) {
    let client = match reqwest::Client::builder()
        .timeout(CALL_WAIT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
    {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "events cannot be delivered"),
    };
    while !stop.is_cancelled() {
        let more = match round(&service, &client, &stop).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "a round of events did not end");
                false
            }
        };
        if !more {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// Tries the oldest ones, each target at most once after it failed. Whether more wait and could go.
async fn round(service: &Service, client: &reqwest::Client, stop: &CancellationToken) -> Result<bool> {
    let mut waiting = Vec::new();
    service.engine.read()?.scan(all(), |name, value| {
        waiting.push((name.to_vec(), serde_json::from_slice::<Waiting>(value).ok()));
        waiting.len() < ROUND
    })?;
    let full = waiting.len() == ROUND;
    let now = jiff::Timestamp::now().as_millisecond();
    let mut done = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    for (name, event) in waiting {
        let Some(event) = event else {
            done.push(name);
            continue;
        };
        let old = now - event.at > KEPT.as_millis() as i64;
        if stop.is_cancelled() || failed.contains(&event.to) && !old {
            continue;
        }
        let call = client.post(&event.to).header("content-type", "application/json").body(event.body).send();
        match call.await.and_then(reqwest::Response::error_for_status) {
            Ok(_) => done.push(name),
            Err(error) => {
                tracing::warn!(target = event.to, %error, "an event was not taken");
                if old {
                    done.push(name);
                }
                failed.push(event.to);
            }
        }
    }
    let progress = !done.is_empty();
    if progress {
        service
            .engine
            .write(move |tx| -> Result<()> {
                done.into_iter().for_each(|name| tx.delete(name));
                Ok(())
            })
            .await?;
    }
    Ok(full && progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_events() {
        assert!(event_fits("s3:ObjectCreated:*", "ObjectCreated:Put"));
        assert!(event_fits("s3:ObjectCreated:Put", "ObjectCreated:Put"));
        assert!(!event_fits("s3:ObjectRemoved:*", "ObjectCreated:Put"));
        assert!(!event_fits("s3:ObjectCreated:Post", "ObjectCreated:Put"));
    }

    #[test]
    fn targets_are_webhooks() {
        assert_eq!(target("http://h:1/x").expect("plain"), "http://h:1/x");
        assert_eq!(target("arn:aws:sns:us-east-1:t:https://h/x").expect("in an arn"), "https://h/x");
        assert!(target("arn:aws:sns:us-east-1:123:topic").is_err());
        assert!(target("http://").is_err());
    }
}
