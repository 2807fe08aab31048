//! Access logs: buckets that ask for it get the requests on them as objects in another bucket.
//!
//! ```text
//!   an answer is ready ─▶ record ─▶ clerk (a thread) ─▶ spool (files) ─▶ deliver ─▶ objects
//! ```
//!
//! A line is in a file before its request is answered, so a crash of the process loses none; files are not synced, so
//! the loss of power may. Some time after the first line of a file all of them are delivered, an object for each target.
//! The change that writes an object also counts it as delivered, so none is written twice. What cannot be delivered for
//! the moment is tried again; what a target refuses is lost, as are lines beyond what the files may hold: best effort,
//! as in S3.

mod clerk;
mod deliver;
mod line;
mod spool;
mod target;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use s3s::dto::LoggingEnabled;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Action, Context};
use crate::record::{Bucket, Grantee, Permission};
use crate::service::{Records, Service};
use clerk::{Clerk, Desk};
pub use line::Line;
use spool::{Record, Spool};
use target::Target;
pub use target::{PREFIX_MAX, name_fits};

/// The folder of lines on their way, in that of the store.
const FOLDER: &str = "log";
/// Who writes logs, as policies name it.
const WRITER: &str = "logging.s3.amazonaws.com";
/// How long an answer waits for its line. After that it goes out while the disk still writes.
const KEPT_WAIT: Duration = Duration::from_millis(100);

/// Takes lines from the listener and delivers them.
#[derive(Clone)]
pub struct Log {
    service: Service,
    desk: Arc<Desk>,
    clerk: Clerk,
}

impl Log {
    pub fn open(service: Service) -> io::Result<Self> {
        let delivered = deliver::progress(&service).map_err(io::Error::other)?;
        let spool = Spool::open(service.config.data.join(FOLDER), delivered.file)?;
        let desk = Arc::new(Desk::new(spool, service.metrics.clone()));
        let clerk = Clerk::start(desk.clone())?;
        Ok(Self { service, desk, clerk })
    }

    /// Keeps the line, if its bucket asks for a log and the target lets it in.
    pub async fn note(&self, line: &Line) {
        let Some(record) = record(&self.service, line) else { return };
        // What is left of a full disk is for deletes.
        if !self.service.engine.has_room() {
            return self.service.metrics.log_lost(record.lines());
        }
        // A disk that stalls does not hold up the answer; the line is kept when it goes on.
        let _ = tokio::time::timeout(KEPT_WAIT, self.clerk.keep(&record)).await;
    }

    /// Delivers until `stop`; at first what an earlier process left.
    pub async fn run(self, stop: CancellationToken) {
        let every = self.service.config.log_every;
        let mut left = !self.deliver().await;
        loop {
            if !left {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.desk.begun.notified() => {}
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
                // There is no more room in a file; not so while files wait for what does not go.
                () = self.desk.full.notified(), if !left => {}
            }
            left = !self.deliver().await;
        }
    }

    /// Delivers all lines noted so far; answers whether none is left.
    pub async fn deliver(&self) -> bool {
        self.clerk.end().await;
        let files = self.desk.spool.ended().unwrap_or_else(|error| {
            tracing::warn!(%error, "the lines of access logs cannot be listed");
            Vec::new()
        });
        for file in files {
            if let Err(error) = deliver::file(&self.service, &self.desk.spool, &file).await {
                tracing::warn!(%error, "access logs wait: they cannot be delivered now");
                return false;
            }
            self.service.metrics.log_waiting(self.desk.spool.bytes());
        }
        true
    }
}

/// What is kept of a request; none where nobody asks for it or the target does not let it in.
fn record(service: &Service, line: &Line) -> Option<Record> {
    let seen = line.trace.seen()?;
    let view = service.engine.read().ok()?;
    let bucket = view.bucket_shared(seen.bucket.as_deref()?).ok()?;
    let asked = bucket.settings.logging.as_ref()?.logging_enabled.as_ref()?;
    let target = view.bucket_shared(&asked.target_bucket).ok()?;
    if !may_log(&bucket, &target, asked) {
        return None;
    }
    let to = Target::of(asked, &target, &bucket, &service.config.region, line.at);
    Some(Record { to, text: line.text(&bucket, seen) })
}

/// Whether the target bucket lets the logs of a bucket in, which has the same owner: by its policy, or by the list of its
/// rights.
pub fn may_log(source: &Bucket, target: &Bucket, asked: &LoggingEnabled) -> bool {
    if source.owner.id != target.owner.id {
        return false;
    }
    let context = Context::new()
        .with("aws:SourceArn", format!("arn:aws:s3:::{}", source.name))
        .with("aws:SourceAccount", &*source.owner.id);
    let by_policy = access::service_may(target, WRITER, Action::PutObject, &asked.target_prefix, &context);
    let by_list = target.acl.grants.iter().any(|grant| {
        let writes = matches!(grant.permission, Permission::Write | Permission::FullControl);
        writes && grant.to == Grantee::LogDelivery
    });
    by_policy || by_list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Account;

    #[test]
    fn logs_go_to_buckets_of_the_same_owner() {
        const LETS: &str = r#"{"Statement":{"Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"*"}}"#;
        let bucket = |name: &str, owner: &str| {
            let owner = Account { id: owner.into(), name: owner.into() };
            Bucket {
                id: 1,
                name: name.into(),
                acl: crate::record::Acl::private(&owner),
                owner,
                created: 0,
                versioning: Default::default(),
                policy: Some(LETS.into()),
                location: None,
                settings: Default::default(),
                quota: None,
            }
        };
        let asked = LoggingEnabled { target_bucket: "logs".into(), ..LoggingEnabled::default() };
        let may = |owner| may_log(&bucket("box", "home"), &bucket("logs", owner), &asked);
        assert!(may("home"));
        assert!(!may("away"), "also where it was set before");
    }
}
