//! The depot: a bucket of another S3 store that keeps the large blobs.
//!
//! ```text
//!   PREFIX/owner            which store this is, and which opening of it has the say
//!   PREFIX/blobs/ID-RUN     large blobs, in the form they have on disk
//!   PREFIX/probe-RUN        there for a moment when the engine opens
//!   data/uploads/ID-RUN     an upload in parts that is not complete: its id there
//! ```
//!
//! Every opening of the engine takes a number by chance, its *run*, which stands in the names it makes: what a
//! process that died still sends never meets what its successor stores. What no record names is removed: what
//! was thrown away at once, what a crash left by a listing, once it is old enough.
//!
//! All requests run on a runtime of the depot's own, so that they can be waited for on any thread. They end
//! by a time limit, and those that can be repeated are, a few times.

mod cargo;
mod carry;
pub(super) mod fetch;
mod open;
mod porter;

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::api::{BlobId, EngineError};
pub(super) use cargo::Cargo;
pub(super) use carry::{Carrier, SPOOL_MAX};
pub(super) use porter::run as porter;

use cargo::Litter;

/// Parts on their way at once, of all blobs together.
const PARTS_AT_ONCE: usize = 8;
/// Names that one page of a listing holds.
const PAGE: usize = 1000;

pub(super) struct Depot {
    store: Arc<AmazonS3>,
    /// For people: where it is.
    name: String,
    prefix: String,
    owner: Owner,
    run: u64,
    /// Whether new blobs go there.
    write: bool,
    /// Where uploads under way are remembered.
    uploads: PathBuf,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    stop: CancellationToken,
    parts: Arc<Semaphore>,
    readers: AtomicUsize,
    /// Whether the prefix is known to be ours. Nothing is written before.
    entered: AtomicBool,
    /// What was wrong when it was last asked for something.
    trouble: Mutex<Option<String>>,
    /// What was put there and is not wanted.
    litter: Mutex<Vec<Litter>>,
}

/// Where large blobs lie, and how it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayState {
    /// For people.
    pub place: String,
    /// Why it cannot be used now.
    pub trouble: Option<String>,
}

/// Who has the say under a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    store: String,
    run: String,
}

impl Drop for Depot {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Depot {
    /// Ends what the engine's own threads wait for.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn takes(&self) -> bool {
        self.write
    }

    pub fn state(&self) -> GatewayState {
        let trouble = self.trouble.lock().expect("no panic under this lock").clone();
        GatewayState { place: format!("{}, under {}/", self.name, self.prefix), trouble }
    }

    fn note<T>(&self, done: Result<T, EngineError>) -> Result<T, EngineError> {
        let trouble = match &done {
            Ok(_) => None,
            Err(EngineError::Away(reason)) => Some(reason.clone()),
            // It answered.
            Err(_) => return done,
        };
        *self.trouble.lock().expect("no panic under this lock") = trouble;
        done
    }

    /// Whether something may be put there.
    fn check_entered(&self) -> Result<(), EngineError> {
        if self.entered.load(Ordering::Acquire) {
            return Ok(());
        }
        let trouble = self.state().trouble.unwrap_or_else(|| "it has not answered yet".to_owned());
        Err(EngineError::Away(trouble))
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there until it is dropped")
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn blob_path(&self, id: BlobId, run: u64) -> Path {
        self.path(&format!("blobs/{}", blob_name(id, run)))
    }

    /// Runs on the depot's runtime; ends when the answer is no longer waited for.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let task = AbortOnDropHandle::new(self.runtime().spawn(work));
        let done = task.await.map_err(|error| EngineError::Away(error.to_string()));
        self.note(done.flatten())
    }

    /// The same for a thread that may block. Ends with the engine.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let stop = self.stop.clone();
        self.runtime().spawn(async move {
            let done = tokio::select! {
                done = work => done,
                () = stop.cancelled() => Err(EngineError::Stopped),
            };
            let _ = reply.send(done);
        });
        self.note(answer.recv().map_err(|_| EngineError::Stopped).flatten())
    }

    /// So many bytes of a blob, which is `length` long.
    fn read(
        &self,
        id: BlobId,
        path: Path,
        place: Range<u64>,
        length: u64,
    ) -> impl Future<Output = Result<Bytes, EngineError>> + Send + 'static {
        let store = self.store.clone();
        async move {
            let wanted = place.end - place.start;
            match store.get_range(&path, place).await {
                Ok(bytes) if bytes.len() as u64 == wanted => Ok(bytes),
                // It is shorter than it was.
                Ok(_) => Err(EngineError::Damaged(id)),
                Err(error) => Err(match failure(&error) {
                    Failure::Absent => EngineError::Missing(id),
                    Failure::Range => match store.head(&path).await {
                        Ok(meta) if meta.size != length => EngineError::Damaged(id),
                        _ => away(&error),
                    },
                    Failure::Other => away(&error),
                }),
            }
        }
    }

    /// A page of the names behind `after`.
    fn list(&self, folder: &str, after: Option<Path>) -> Result<Vec<ObjectMeta>, EngineError> {
        let (store, folder) = (self.store.clone(), self.path(folder));
        self.wait(async move {
            let names = match &after {
                Some(after) => store.list_with_offset(Some(&folder), after),
                None => store.list(Some(&folder)),
            };
            names.take(PAGE).try_collect().await.map_err(|error| away(&error))
        })
    }

    /// Deletes objects; those that are not there are no mistake.
    fn delete(&self, paths: Vec<Path>) -> Result<(), EngineError> {
        if paths.is_empty() {
            return Ok(());
        }
        let store = self.store.clone();
        self.wait(async move {
            let paths = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
            let mut deleted = store.delete_stream(paths);
            while let Some(result) = deleted.next().await {
                match result.map_err(|error| (failure(&error), error)) {
                    Ok(_) | Err((Failure::Absent, _)) => {}
                    Err((_, error)) => return Err(away(&error)),
                }
            }
            Ok(())
        })
    }

    /// How many readers there are.
    fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    fn throw(&self, litter: Litter) {
        self.litter.lock().expect("no panic under this lock").push(litter);
    }
}

fn blob_name(id: BlobId, run: u64) -> String {
    format!("{:016x}-{run:016x}", id.0)
}

fn blob_named(name: &str) -> Option<(BlobId, u64)> {
    let (id, run) = name.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    Some((BlobId(number(id)?), number(run)?))
}

/// What of an error matters to us.
enum Failure {
    /// There is no such object.
    Absent,
    /// The object does not have these bytes.
    Range,
    Other,
}

fn failure(error: &object_store::Error) -> Failure {
    let text = error.to_string();
    match error {
        object_store::Error::NotFound { .. } if !text.contains("NoSuchBucket") => Failure::Absent,
        object_store::Error::Generic { .. } if text.contains("416") || text.contains("range") => {
            Failure::Range
        }
        _ => Failure::Other,
    }
}

/// Whether it was refused by somebody who was there, and would be again.
fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error;
    match error {
        Error::NotFound { .. } | Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => true,
        error => error.to_string().contains("status code: 4"),
    }
}

fn away(error: &object_store::Error) -> EngineError {
    EngineError::Away(reason(error))
}

/// The cause in few words: what the store said, or what is at the bottom of it.
fn reason(error: &object_store::Error) -> String {
    let text = error.to_string();
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
    };
    if let Some(code) = field("Code") {
        return match field("Message") {
            Some(message) if !message.is_empty() => format!("{message} ({code})"),
            _ => code,
        };
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_blobs_are_read_back() {
        let name = blob_name(BlobId(77), u64::MAX);
        assert_eq!(name, "000000000000004d-ffffffffffffffff");
        assert_eq!(blob_named(&name), Some((BlobId(77), u64::MAX)));
        for other in ["", "4d-ff", "probe-1", "000000000000004d", "000000000000004d-fffffffffffffffg"] {
            assert_eq!(blob_named(other), None, "{other}");
        }
    }
}
