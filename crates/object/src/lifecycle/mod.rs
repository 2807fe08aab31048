//! Carries out the lifecycle rules of buckets, in the background and in small steps.
//!
//! A pass looks at one bucket after the other, a page of keys at a time. What
//! is due is decided on a view and decided again inside the change, so that an
//! object that was written meanwhile stays.

mod rule;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use s3s::dto::BucketLifecycleConfiguration;
use tokio_util::sync::CancellationToken;

use crate::engine::Tx;
use crate::fault::{Fault, Result};
use crate::record::key::{self, Space};
use crate::record::{Bucket, Upload, Version};
use crate::service::{Records, Service};
use crate::time::timestamp;
use crate::{lock, notify, upload, version};
pub use rule::{DAY, Due, Rules, Standing};

const EVENTS: [&str; 2] = ["LifecycleExpiration:Delete", "LifecycleExpiration:DeleteMarkerCreated"];
/// Keys looked at in one step.
const PAGE: usize = 500;
/// Versions that are found due before something is done about them.
const DUE_MAX: usize = 50_000;
/// Versions of one change.
const CHANGE_MAX: usize = 1000;
/// Uploads that are ended at once.
const ABORTS: usize = 16;
/// How often in a day a bucket is looked at where days do not begin at midnight.
const LOOKS_PER_DAY: u32 = 10;

/// Runs passes until `stop`.
pub async fn run(service: Service, stop: CancellationToken) {
    let mut tick = tokio::time::interval(service.config.tick);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut done = HashMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        if let Err(error) = pass(&service, &mut done, &stop).await {
            tracing::warn!(%error, "a lifecycle pass did not end");
        }
    }
}

/// When a bucket was looked at to its end, and by which rules.
struct Done {
    at: i64,
    rules: BucketLifecycleConfiguration,
}

impl Done {
    /// Whether nothing can have become due since: whole days end at midnight.
    fn rests(&self, rules: &BucketLifecycleConfiguration, now: i64, day: Duration) -> bool {
        let span = i64::try_from(day.as_millis()).unwrap_or(i64::MAX).max(1);
        let same = if day == DAY {
            self.at.div_euclid(span) == now.div_euclid(span)
        } else {
            (0..span / i64::from(LOOKS_PER_DAY)).contains(&(now - self.at))
        };
        same && self.rules == *rules
    }
}

async fn pass(service: &Service, done: &mut HashMap<u32, Done>, stop: &CancellationToken) -> Result<()> {
    let mut buckets = Vec::new();
    service.engine.read()?.scan(key::under(vec![Space::Bucket as u8]), |_, value| {
        let bucket: Option<Bucket> = serde_json::from_slice(value).ok();
        buckets.extend(bucket.filter(|bucket| bucket.settings.lifecycle.is_some()));
        true
    })?;
    done.retain(|id, _| buckets.iter().any(|bucket| bucket.id == *id));
    for bucket in buckets {
        let Some(rules) = bucket.settings.lifecycle.clone() else { continue };
        let at = now();
        if done.get(&bucket.id).is_some_and(|done| done.rests(&rules, at, service.config.day)) {
            continue;
        }
        whole(service, &bucket, stop).await?;
        if !stop.is_cancelled() {
            done.insert(bucket.id, Done { at, rules });
        }
    }
    Ok(())
}

/// Looks at all of a bucket and does what is due.
async fn whole(service: &Service, bucket: &Bucket, stop: &CancellationToken) -> Result<()> {
    let mut from = Some(key::of_bucket(Space::Current, bucket.id).start);
    while let Some(start) = from.take().filter(|_| !stop.is_cancelled()) {
        let (at, of) = (service.clone(), bucket.clone());
        let looked = tokio::task::spawn_blocking(move || look(&at, &of, start));
        let found = looked.await.map_err(|error| crate::engine::EngineError::Index(error.to_string()))??;
        let mut changed = 0;
        for steps in batches(found.due) {
            let (day, bucket) = (service.config.day, bucket.clone());
            changed += service.engine.write(move |tx| act(tx, &bucket, steps, day)).await?;
        }
        // What could not be done now would be found again and again.
        from = found.again.filter(|_| changed > 0).or(found.next);
    }
    abandon(service, bucket, stop).await
}

/// A version that something is due for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    seq: u64,
    /// When the one after it was written, if there is one.
    since: Option<i64>,
}

/// What a look at a page of keys found.
struct Found {
    due: Vec<(String, Vec<Step>)>,
    /// The page to look at again, because more is due there than was noted.
    again: Option<Vec<u8>>,
    next: Option<Vec<u8>>,
}

/// Cuts what is due into changes of a bounded size.
fn batches(due: Vec<(String, Vec<Step>)>) -> Vec<Vec<(String, Vec<Step>)>> {
    let mut batches = vec![Vec::new()];
    let mut room = CHANGE_MAX;
    for (object, steps) in due {
        let mut steps = steps.as_slice();
        while !steps.is_empty() {
            if room == 0 {
                batches.push(Vec::new());
                room = CHANGE_MAX;
            }
            let (part, rest) = steps.split_at(steps.len().min(room));
            room -= part.len();
            steps = rest;
            let batch = batches.last_mut().expect("there is one from the start");
            batch.push((object.clone(), part.to_vec()));
        }
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// What is due in a page of keys, and where the next page begins.
fn look(service: &Service, bucket: &Bucket, start: Vec<u8>) -> Result<Found> {
    let mut found = Found { due: Vec::new(), again: None, next: None };
    let Some(rules) = &bucket.settings.lifecycle else { return Ok(found) };
    let rules = Rules { rules, day: service.config.day };
    let view = service.engine.read()?;
    let now = now();
    let mut page = Vec::new();
    view.scan(start..key::of_bucket(Space::Current, bucket.id).end, |name, value| {
        if page.len() == PAGE {
            found.next = Some(name.to_vec());
            return false;
        }
        let object = std::str::from_utf8(&name[key::NAME_AT..]).ok().map(str::to_owned);
        page.extend(object.zip(Version::decode(value)));
        true
    })?;
    let mut room = DUE_MAX;
    for (object, current) in page {
        let steps = steps(&view, bucket, &object, &current, &rules, now, room)?;
        room -= steps.len();
        if room == 0 {
            found.again = Some(key::current(bucket.id, &object));
        }
        if !steps.is_empty() {
            found.due.push((object, steps));
        }
        if room == 0 {
            break;
        }
    }
    Ok(found)
}

/// The versions of a key that something is due for, oldest first, and at most `most` of them: the oldest.
fn steps(
    records: &impl Records,
    bucket: &Bucket,
    object: &str,
    current: &Version,
    rules: &Rules<'_>,
    now: i64,
    most: usize,
) -> Result<Vec<Step>> {
    let mut found = VecDeque::new();
    let mut since = current.head.modified;
    let mut newer = 0;
    records.each(key::pasts(bucket.id, object), |_, value| {
        let Some(version) = Version::decode(value) else { return true };
        let due = rules.due(object, &version, Standing::Past { since, newer }, now);
        if due.is_some_and(|due| !is_held(&version, &due, now)) {
            // They come newest first, and the oldest are kept.
            if found.len() == most {
                found.pop_front();
            }
            found.push_back(Step { seq: version.head.seq, since: Some(since) });
        }
        since = version.head.modified;
        newer += 1;
        true
    })?;
    let alone = newer == 0;
    let due = rules.due(object, current, Standing::Current { alone }, now);
    if due.is_some_and(|due| !is_held(current, &due, now)) && found.len() < most {
        found.push_front(Step { seq: current.head.seq, since: None });
    }
    Ok(found.into_iter().rev().collect())
}

/// Whether a lock keeps a version from what is due for it.
fn is_held(version: &Version, due: &Due, now: i64) -> bool {
    *due == Due::Remove && lock::check_removal(version, now, false).is_err()
}

/// What is due for a version now, by what else there is of its key.
fn due_now(
    tx: &Tx<'_>,
    bucket: &Bucket,
    object: &str,
    step: &Step,
    rules: &Rules<'_>,
) -> Result<Option<(Version, Due)>> {
    let Some(current) = version::newest(tx, bucket.id, object)? else { return Ok(None) };
    let most = rules.kept_max();
    let mut newest = Vec::new();
    tx.each(key::pasts(bucket.id, object), |_, value| {
        newest.extend(Version::decode(value).map(|version| version.head.seq));
        newest.len() <= most
    })?;
    let (version, standing) = match step.since {
        _ if step.seq == current.head.seq => (current, Standing::Current { alone: newest.is_empty() }),
        Some(since) => {
            let Some(bytes) = tx.record(&key::past(bucket.id, object, step.seq))? else { return Ok(None) };
            let Some(version) = Version::decode(&bytes) else { return Ok(None) };
            let newer = newest.iter().position(|seq| *seq == step.seq).unwrap_or(newest.len());
            (version, Standing::Past { since, newer })
        }
        // It was the newest and is not any more; the next pass looks again.
        None => return Ok(None),
    };
    let due = rules.due(object, &version, standing, tx.now());
    Ok(due.map(|due| (version, due)))
}

/// Does what is still due; answers how much that was. A version under lock stays.
fn act(tx: &mut Tx<'_>, bucket: &Bucket, due: Vec<(String, Vec<Step>)>, day: Duration) -> Result<usize> {
    let Ok(bucket) = tx.bucket(&bucket.name) else { return Ok(0) };
    let Some(rules) = &bucket.settings.lifecycle else { return Ok(0) };
    let rules = Rules { rules, day };
    let mut changed = 0;
    for (object, step) in due.iter().flat_map(|(object, steps)| steps.iter().map(move |step| (object, step)))
    {
        let Some((version, due)) = due_now(tx, &bucket, object, step, &rules)? else { continue };
        let id = version.head.version_id();
        let done = match due {
            Due::Expire => version::delete(tx, &bucket, object, None, &bucket.owner, false)
                .and_then(|deleted| notify::removed(tx, &bucket, object, &deleted, &bucket.owner, EVENTS)),
            Due::Remove => version::delete(tx, &bucket, object, Some(&id), &bucket.owner, false)
                .and_then(|deleted| notify::removed(tx, &bucket, object, &deleted, &bucket.owner, EVENTS)),
            Due::Move(class) => version::edit(tx, &bucket, object, Some(&id), |version| {
                version.head.storage_class = Some(class);
                Ok(())
            }),
        };
        match done {
            Ok(()) => changed += 1,
            Err(Fault::S3(..)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(changed)
}

/// Ends uploads that nobody completed.
async fn abandon(service: &Service, bucket: &Bucket, stop: &CancellationToken) -> Result<()> {
    let mut from = Some(key::of_bucket(Space::Upload, bucket.id).start);
    while let Some(start) = from.take().filter(|_| !stop.is_cancelled()) {
        let (at, of) = (service.clone(), bucket.clone());
        let looked = tokio::task::spawn_blocking(move || abandoned(&at, &of, start));
        let (due, next) =
            looked.await.map_err(|error| crate::engine::EngineError::Index(error.to_string()))??;
        let ends = due.into_iter().map(|upload| {
            let (name, id) = (bucket.name.clone(), bucket.id);
            service.engine.write(move |tx| -> Result<()> {
                match tx.bucket(&name) {
                    Ok(bucket) if bucket.id == id => upload::abort(tx, &bucket, &upload),
                    Ok(_) | Err(Fault::S3(..)) => Ok(()),
                    Err(other) => Err(other),
                }
            })
        });
        futures::stream::iter(ends).buffer_unordered(ABORTS).try_collect::<()>().await?;
        from = next;
    }
    Ok(())
}

/// The uploads of a page that nobody completed, and where the next page begins.
fn abandoned(service: &Service, bucket: &Bucket, start: Vec<u8>) -> Result<(Vec<Upload>, Option<Vec<u8>>)> {
    let (mut due, mut next) = (Vec::new(), None);
    let Some(rules) = &bucket.settings.lifecycle else { return Ok((due, next)) };
    let rules = Rules { rules, day: service.config.day };
    let (now, mut seen) = (now(), 0);
    service.engine.read()?.scan(start..key::of_bucket(Space::Upload, bucket.id).end, |name, value| {
        if seen == PAGE {
            next = Some(name.to_vec());
            return false;
        }
        seen += 1;
        let upload = Upload::decode(value);
        due.extend(upload.filter(|upload| rules.abandons(&upload.key, upload.started, now)));
        true
    })?;
    Ok((due, next))
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
