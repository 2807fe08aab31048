//! Access logs: buckets that ask for it get the requests on them as objects in another bucket.
//!
//! Lines are gathered in memory and written some time after the first of them,
//! as in S3: best effort. A crash loses the lines of the last while.

mod line;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use s3s::StdError;
use s3s::dto::{LoggingEnabled, PartitionDateSource};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Action, Context};
use crate::fault::Result;
use crate::headers::Terms;
use crate::put::{self, Source};
use crate::record::{Blob, Bucket, Grantee, Permission};
use crate::service::{Records, Service};
use crate::version;
pub use line::Line;

/// Lines that may wait to be gathered; more are dropped and counted.
const WAITING_MAX: usize = 10_000;
/// A target's lines are written at once when there are so many bytes.
const GATHERED_MAX: usize = 1 << 20;
/// Who writes logs, as policies name it.
const WRITER: &str = "logging.s3.amazonaws.com";

/// Takes lines from the listener.
#[derive(Clone)]
pub struct Log(mpsc::Sender<Line>);

impl Log {
    /// The sender, and the task that writes until `stop`.
    pub fn new(service: Service, stop: CancellationToken) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, lines) = mpsc::channel(WAITING_MAX);
        (Self(sender), run(service, lines, stop))
    }

    /// Never waits. Most buckets ask for no log, which is seen here: to hand their lines over would cost more.
    pub fn note(&self, service: &Service, line: Line) {
        let bucket = line.trace.seen().and_then(|seen| seen.bucket.as_deref());
        if bucket.and_then(|bucket| asking(service, bucket)).is_some() && self.0.try_send(line).is_err() {
            tracing::debug!("a line of the access log is dropped");
        }
    }
}

/// Where lines go: a bucket, and what the names of its objects begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Target {
    bucket: String,
    prefix: String,
    /// The day that names carry: that of the requests, else that of the delivery.
    day: Option<String>,
    /// Whether days are folders.
    parted: bool,
}

/// Lines on their way.
struct Batch {
    text: String,
    due: Instant,
    /// Which buckets may write to this target, asked once for each batch.
    may: HashMap<String, bool>,
}

async fn run(service: Service, mut lines: mpsc::Receiver<Line>, stop: CancellationToken) {
    let mut gathered: HashMap<Target, Batch> = HashMap::new();
    loop {
        let due = gathered.values().map(|batch| batch.due).min();
        let waits = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = waits => {}
            line = lines.recv() => {
                if let Some(line) = line {
                    gather(&service, &line, &mut gathered);
                }
            }
        }
        let (all, now) = (stop.is_cancelled(), Instant::now());
        let is_full = |batch: &Batch| all || batch.due <= now || batch.text.len() > GATHERED_MAX;
        let full: Vec<_> =
            gathered.iter().filter(|(_, batch)| is_full(batch)).map(|(to, _)| to.clone()).collect();
        for to in full {
            let Some(batch) = gathered.remove(&to) else { continue };
            if batch.text.is_empty() {
                continue;
            }
            if let Err(error) = write(&service, &to, batch.text).await {
                tracing::warn!(bucket = to.bucket, %error, "access log lines are lost");
            }
        }
        if all {
            return;
        }
    }
}

fn gather(service: &Service, line: &Line, gathered: &mut HashMap<Target, Batch>) {
    let Some(seen) = line.trace.seen() else { return };
    let Some(name) = &seen.bucket else { return };
    let Some(bucket) = asking(service, name) else { return };
    let Some(asked) = target(&bucket) else { return };
    let to = Target::of(asked, &bucket, &service.config.region, line.at);
    let batch = gathered.entry(to).or_insert_with(|| Batch {
        text: String::new(),
        due: Instant::now() + service.config.log_every,
        may: HashMap::new(),
    });
    let may = || {
        let target =
            service.engine.read().ok().and_then(|view| view.bucket_shared(&asked.target_bucket).ok());
        target.is_some_and(|target| may_log(&bucket, &target, asked))
    };
    if *batch.may.entry(name.clone()).or_insert_with(may) {
        batch.text.push_str(&line.text(&bucket, seen));
    }
}

/// The bucket, if it asks for a log.
fn asking(service: &Service, name: &str) -> Option<Arc<Bucket>> {
    let bucket = service.engine.read().ok()?.bucket_shared(name).ok()?;
    target(&bucket).is_some().then_some(bucket)
}

fn target(bucket: &Bucket) -> Option<&LoggingEnabled> {
    bucket.settings.logging.as_ref()?.logging_enabled.as_ref()
}

/// Whether the target bucket lets the logs of a bucket in: by its policy, or by the list of its rights.
pub fn may_log(source: &Bucket, target: &Bucket, asked: &LoggingEnabled) -> bool {
    let context = Context::new()
        .with("aws:SourceArn", format!("arn:aws:s3:::{}", source.name))
        .with("aws:SourceAccount", &*source.owner.id);
    let by_policy = access::service_may(target, WRITER, Action::PutObject, &asked.target_prefix, &context);
    let by_list = target.acl.grants.iter().any(|grant| {
        let writes = matches!(grant.permission, Permission::Write | Permission::FullControl);
        writes && grant.to == Grantee::LogDelivery
    });
    by_policy || by_list && source.owner.id == target.owner.id
}

impl Target {
    fn of(asked: &LoggingEnabled, source: &Bucket, region: &str, at: Timestamp) -> Self {
        let format = asked.target_object_key_format.as_ref();
        let parted = format.and_then(|format| format.partitioned_prefix.as_ref());
        let (bucket, prefix) = (asked.target_bucket.clone(), asked.target_prefix.clone());
        let Some(parted) = parted else { return Self { bucket, prefix, day: None, parted: false } };
        let by_event = parted
            .partition_date_source
            .as_ref()
            .is_some_and(|date| date.as_str() == PartitionDateSource::EVENT_TIME);
        let region = source.location.as_deref().unwrap_or(region);
        let prefix = format!("{prefix}{}/{region}/{}/", source.owner.id, source.name);
        let day = at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string();
        Self { bucket, prefix, day: by_event.then_some(day), parted: true }
    }

    /// The name of an object that is written now.
    fn object(&self, now: Timestamp) -> String {
        let now = now.to_zoned(TimeZone::UTC);
        let (day, time) = match &self.day {
            Some(day) => (day.clone(), "00-00-00".to_owned()),
            None => (now.strftime("%Y-%m-%d").to_string(), now.strftime("%H-%M-%S").to_string()),
        };
        let folder = if self.parted { day.replace('-', "/") + "/" } else { String::new() };
        format!("{}{folder}{day}-{time}-{:016X}", self.prefix, rand::random::<u64>())
    }
}

/// Writes an object of the target bucket's owner.
async fn write(service: &Service, to: &Target, text: String) -> Result<()> {
    let owner = service.engine.read()?.bucket(&to.bucket)?.owner;
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let body = stream::iter([Ok::<_, StdError>(Bytes::from(text))]);
    let source = Source::of(body, &HeaderMap::new(), Some(length), None)?;
    let taken = put::take(&service.engine, source, None).await?;
    let terms = Terms { headers: vec![("content-type".into(), "text/plain".into())], ..Terms::default() };
    let mut new = terms.version(owner, None, None);
    new.head.size = taken.size;
    new.head.etag = taken.etag();
    let (name, object) = (to.bucket.clone(), to.object(Timestamp::now()));
    let write = service.engine.write(move |tx| -> Result<()> {
        let bucket = tx.bucket(&name)?;
        if let Some(written) = taken.written {
            new.blobs = vec![Blob { id: tx.store(written)?, size: new.head.size, part: 1, checksum: None }];
        }
        version::insert(tx, &bucket, &object, new, None).map(drop)
    });
    write.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_format() {
        let now: Timestamp = "2026-11-16T07:08:09Z".parse().unwrap();
        let name = |day: Option<&str>, parted| {
            let to = Target { bucket: "t".into(), prefix: "log/".into(), day: day.map(Into::into), parted };
            let name = to.object(now);
            name[..name.len() - 16].to_owned()
        };
        assert_eq!(name(None, false), "log/2026-11-16-07-08-09-");
        assert_eq!(name(None, true), "log/2026/11/16/2026-11-16-07-08-09-");
        assert_eq!(name(Some("2026-11-15"), true), "log/2026/11/15/2026-11-15-00-00-00-");
    }
}
