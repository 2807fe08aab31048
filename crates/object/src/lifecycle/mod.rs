//! Carries out the lifecycle rules of buckets, in the background and in small steps.
//!
//! A pass looks at one bucket after the other, a page of keys at a time. What
//! is due is decided on a view and decided again inside the change, so that an
//! object that was written meanwhile stays.

mod rule;

use s3s::dto::BucketLifecycleConfiguration;
use tokio_util::sync::CancellationToken;

use crate::engine::{Tx, View};
use crate::fault::{Fault, Result};
use crate::record::key::{self, Space};
use crate::record::{Bucket, Upload, Version};
use crate::service::{Records, Service};
use crate::time::timestamp;
use crate::{notify, upload, version};
pub use rule::{Due, Rules, Standing};

const EVENTS: [&str; 2] = ["LifecycleExpiration:Delete", "LifecycleExpiration:DeleteMarkerCreated"];
/// Keys looked at in one step.
const PAGE: usize = 500;
/// Older versions of one key looked at in one step.
const VERSIONS_MAX: usize = 1000;

/// Runs passes until `stop`.
pub async fn run(service: Service, stop: CancellationToken) {
    let mut tick = tokio::time::interval(service.config.tick);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        if let Err(error) = pass(&service, &stop).await {
            tracing::warn!(%error, "a lifecycle pass did not end");
        }
    }
}

async fn pass(service: &Service, stop: &CancellationToken) -> Result<()> {
    let mut buckets = Vec::new();
    service.engine.read()?.scan(key::under(vec![Space::Bucket as u8]), |_, value| {
        let bucket: Option<Bucket> = serde_json::from_slice(value).ok();
        buckets.extend(bucket.filter(|bucket| bucket.settings.lifecycle.is_some()));
        true
    })?;
    for bucket in buckets {
        let mut from = Some(key::of_bucket(Space::Current, bucket.id).start);
        while let Some(start) = from.take().filter(|_| !stop.is_cancelled()) {
            let (at, of) = (service.clone(), bucket.clone());
            let looked = tokio::task::spawn_blocking(move || look(&at, &of, start));
            let (due, next) =
                looked.await.map_err(|error| crate::engine::EngineError::Index(error.to_string()))??;
            if !due.is_empty() {
                let (day, bucket) = (service.config.day, bucket.clone());
                service.engine.write(move |tx| act(tx, &bucket, due, day)).await?;
            }
            from = next;
        }
        abandon(service, &bucket).await?;
    }
    Ok(())
}

/// The keys of a page that something is due for, and where the next page begins.
fn look(service: &Service, bucket: &Bucket, start: Vec<u8>) -> Result<(Vec<String>, Option<Vec<u8>>)> {
    let Some(rules) = &bucket.settings.lifecycle else { return Ok((Vec::new(), None)) };
    let rules = Rules { rules, day: service.config.day };
    let view = service.engine.read()?;
    let now = now();
    let mut page = Vec::new();
    let mut next = None;
    view.scan(start..key::of_bucket(Space::Current, bucket.id).end, |name, value| {
        if page.len() == PAGE {
            next = Some(name.to_vec());
            return false;
        }
        let object = std::str::from_utf8(&name[5..]).ok().map(str::to_owned);
        page.extend(object.zip(Version::decode(value)));
        true
    })?;
    let mut due = Vec::new();
    for (object, current) in page {
        if !steps(&view, bucket, &object, current, &rules, now)?.is_empty() {
            due.push(object);
        }
    }
    Ok((due, next))
}

/// What is due for a key, oldest versions first.
fn steps(
    records: &impl Scan,
    bucket: &Bucket,
    object: &str,
    current: Version,
    rules: &Rules<'_>,
    now: i64,
) -> Result<Vec<(Version, Due)>> {
    let mut past = Vec::new();
    let mut prefix = key::past(bucket.id, object, 0);
    prefix.truncate(prefix.len() - 8);
    records.each(key::under(prefix), &mut |_, value| {
        past.extend(Version::decode(value));
        past.len() < VERSIONS_MAX
    })?;
    let mut since = current.head.modified;
    let mut found = Vec::new();
    let alone = past.is_empty();
    found.extend(rules.due(object, &current, Standing::Current { alone }, now).map(|due| (current, due)));
    for (newer, version) in past.into_iter().enumerate() {
        let standing = Standing::Past { since, newer };
        since = version.head.modified;
        found.extend(rules.due(object, &version, standing, now).map(|due| (version, due)));
    }
    found.reverse();
    Ok(found)
}

/// Does what is still due. A version under lock stays; the next pass looks again.
fn act(tx: &mut Tx<'_>, bucket: &Bucket, objects: Vec<String>, day: std::time::Duration) -> Result<()> {
    let Ok(bucket) = tx.bucket(&bucket.name) else { return Ok(()) };
    let Some(rules) = &bucket.settings.lifecycle else { return Ok(()) };
    let rules = Rules { rules, day };
    let now = tx.now();
    for object in objects {
        let Some(current) = version::newest(tx, bucket.id, &object)? else { continue };
        for (version, due) in steps(tx, &bucket, &object, current, &rules, now)? {
            let id = version.head.version_id();
            let done = match due {
                Due::Expire => {
                    version::delete(tx, &bucket, &object, None, &bucket.owner, false).and_then(|deleted| {
                        notify::removed(tx, &bucket, &object, &deleted, &bucket.owner, EVENTS)
                    })
                }
                Due::Remove => version::delete(tx, &bucket, &object, Some(&id), &bucket.owner, false)
                    .and_then(|deleted| {
                        notify::removed(tx, &bucket, &object, &deleted, &bucket.owner, EVENTS)
                    }),
                Due::Move(class) => version::edit(tx, &bucket, &object, Some(&id), |version| {
                    version.head.storage_class = Some(class);
                    Ok(())
                }),
            };
            match done {
                Ok(()) | Err(Fault::S3(..)) => {}
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

/// Ends uploads that nobody completed.
async fn abandon(service: &Service, bucket: &Bucket) -> Result<()> {
    let Some(rules) = &bucket.settings.lifecycle else { return Ok(()) };
    let rules = Rules { rules, day: service.config.day };
    let now = now();
    let mut due = Vec::new();
    service.engine.read()?.scan(key::of_bucket(Space::Upload, bucket.id), |_, value| {
        let upload = Upload::decode(value);
        due.extend(upload.filter(|upload| rules.abandons(&upload.key, upload.started, now)));
        due.len() < PAGE
    })?;
    for upload in due {
        let name = bucket.name.clone();
        service
            .engine
            .write(move |tx| -> Result<()> {
                let bucket = tx.bucket(&name)?;
                upload::abort(tx, &bucket, &upload)
            })
            .await?;
    }
    Ok(())
}

/// The header `x-amz-expiration` of a current version.
pub fn expiration(
    rules: Option<&BucketLifecycleConfiguration>,
    object: &str,
    version: &Version,
) -> Option<String> {
    let rules = Rules { rules: rules?, day: std::time::Duration::ZERO };
    let (at, id) = rules.expiration(object, version)?;
    let mut date = Vec::new();
    timestamp(at).format(s3s::dto::TimestampFormat::HttpDate, &mut date).ok()?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{id}\"", String::from_utf8(date).ok()?))
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Both views and changes can be walked through.
trait Scan {
    fn each(&self, range: std::ops::Range<Vec<u8>>, each: &mut dyn FnMut(&[u8], &[u8]) -> bool)
    -> Result<()>;
}

impl Scan for View {
    fn each(
        &self,
        range: std::ops::Range<Vec<u8>>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        Ok(self.scan(range, each)?)
    }
}

impl Scan for Tx<'_> {
    fn each(
        &self,
        range: std::ops::Range<Vec<u8>>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        Ok(self.scan(range, each)?)
    }
}
