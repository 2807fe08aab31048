//! Access logs: buckets that ask for it get the requests on them as objects in another bucket.
//!
//! Lines are gathered in memory and written every few minutes, as in S3: best
//! effort. A crash loses the lines of the last while.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Method, Uri};
use s3s::StdError;
use s3s::dto::LoggingEnabled;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fault::Result;
use crate::headers::Terms;
use crate::put::{self, Source};
use crate::record::{Blob, Bucket};
use crate::service::{Records, Service};
use crate::trace::Trace;
use crate::version;

/// Lines that may wait to be gathered; more are dropped and counted.
const WAITING_MAX: usize = 10_000;
/// A target's lines are written at once when there are so many bytes.
const GATHERED_MAX: usize = 1 << 20;

/// What a request was, for its line.
pub struct Line {
    pub trace: Trace,
    pub method: Method,
    pub uri: Uri,
    pub status: u16,
    pub sent: Option<u64>,
    pub took: Duration,
    pub request_id: String,
    pub referrer: Option<HeaderValue>,
    pub agent: Option<HeaderValue>,
}

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

async fn run(service: Service, mut lines: mpsc::Receiver<Line>, stop: CancellationToken) {
    let mut gathered: HashMap<(String, String), String> = HashMap::new();
    let mut tick = tokio::time::interval(service.config.log_every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut all = false;
        tokio::select! {
            () = stop.cancelled() => all = true,
            _ = tick.tick() => all = true,
            line = lines.recv() => match line {
                Some(line) => gather(&service, &line, &mut gathered),
                None => all = true,
            },
        }
        let full: Vec<_> = gathered
            .iter()
            .filter(|(_, text)| all || text.len() > GATHERED_MAX)
            .map(|(to, _)| to.clone())
            .collect();
        for to in full {
            let Some(text) = gathered.remove(&to) else { continue };
            if let Err(error) = write(&service, &to.0, &to.1, text).await {
                tracing::warn!(bucket = to.0, %error, "access log lines are lost");
            }
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

fn gather(service: &Service, line: &Line, gathered: &mut HashMap<(String, String), String>) {
    let Some(seen) = line.trace.seen() else { return };
    let Some(name) = &seen.bucket else { return };
    let Some(bucket) = asking(service, name) else { return };
    let Some(to) = target(&bucket) else { return };
    let text = gathered.entry((to.target_bucket.clone(), to.target_prefix.clone())).or_default();
    let owner = &bucket.owner.id;
    let at = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).strftime("[%d/%b/%Y:%H:%M:%S +0000]");
    let from = seen.caller.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
    let by = seen
        .caller
        .principal
        .as_ref()
        .map_or_else(|| "-".to_owned(), |principal| principal.account.id.to_string());
    let key = seen.key.as_deref().map_or_else(|| "-".to_owned(), escape);
    let sent = line.sent.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let ms = line.took.as_millis();
    let _ = writeln!(
        text,
        "{owner} {name} {at} {from} {by} {} REST.{}.{} {key} \"{} {} HTTP/1.1\" {} - {sent} - {ms} - \"{}\" \"{}\" -",
        line.request_id,
        line.method,
        seen.operation,
        line.method,
        escape(&line.uri.to_string()),
        line.status,
        text_of(line.referrer.as_ref()),
        text_of(line.agent.as_ref()),
    );
}

/// The bucket, if it asks for a log.
fn asking(service: &Service, name: &str) -> Option<Arc<Bucket>> {
    let bucket = service.engine.read().ok()?.bucket_shared(name).ok()?;
    target(&bucket).is_some().then_some(bucket)
}

fn target(bucket: &Bucket) -> Option<&LoggingEnabled> {
    bucket.settings.logging.as_ref()?.logging_enabled.as_ref()
}

fn text_of(header: Option<&HeaderValue>) -> String {
    escape(header.and_then(|value| value.to_str().ok()).unwrap_or("-"))
}

/// Without quotes, spaces and control characters, which would end a field.
fn escape(text: &str) -> String {
    text.chars().take(2048).map(|c| if c.is_control() || c == '"' || c == ' ' { '+' } else { c }).collect()
}

/// Writes an object of the target bucket's owner.
async fn write(service: &Service, bucket: &str, prefix: &str, text: String) -> Result<()> {
    let owner = service.engine.read()?.bucket(bucket)?.owner;
    let stamp =
        jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S").to_string();
    let object = format!("{prefix}{stamp}-{:016X}", rand::random::<u64>());
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let body = stream::iter([Ok::<_, StdError>(Bytes::from(text))]);
    let source = Source::of(body, &HeaderMap::new(), Some(length), None)?;
    let taken = put::take(&service.engine, source, None).await?;
    let terms = Terms { headers: vec![("content-type".into(), "text/plain".into())], ..Terms::default() };
    let mut new = terms.version(owner, None, None);
    new.head.size = taken.size;
    new.head.etag = taken.etag();
    let name = bucket.to_owned();
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
    fn fields_do_not_end_early() {
        assert_eq!(escape("a\" b\nc"), "a++b+c");
    }
}
