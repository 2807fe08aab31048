//! Tasks over HTTPS: what a provisioner asks of root, and its client. Only a certificate of the kind
//! `provisioner` is let in, and it speaks for itself alone.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::routing::{get, post};
use model::{ChildId, Digest, Error, ErrorKind, Result};
use tokio::io::AsyncWrite;
use tokio::sync::watch;

use super::client::{ParentClient, Parents};
use super::routes::{Answer, Peer, Refusal, Shared, answer, blob_answer};
use super::{PATH_RESOURCE, PATH_TASK_DONE, PATH_TASKS};
use crate::dispatch::{Dispatcher, TaskAnswer, TaskAsk, TaskDone};
use crate::identity::{Identity, Kind};
use crate::limits::{PUSH_WAIT, REQUEST_WAIT, TASK_BODY_MAX, TASK_POLL_MAX, TASKS_DONE_MAX};
use crate::wallet::Wallet;
use crate::wire::{self, NotHolder, Removed, WireError};

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route(PATH_TASKS, post(poll))
        .route(PATH_TASK_DONE, post(finish))
        .layer(DefaultBodyLimit::max(TASK_BODY_MAX))
        .route(&format!("{PATH_RESOURCE}/{{tenant}}/{{digest}}"), get(resource))
}

/// Whether this is the certificate of a provisioner that is still one of ours.
pub(super) fn admitted(shared: &Shared, identity: &Identity) -> bool {
    let by = shared.dispatcher.as_ref().filter(|_| is_provisioner(identity));
    by.is_some_and(|dispatcher| dispatcher.admits(&identity.child_id()))
}

fn is_provisioner(identity: &Identity) -> bool {
    identity.kind == Kind::Provisioner && identity.parent.is_none()
}

/// A provisioner, by its certificate, at the server that gives tasks out.
struct Provisioner(ChildId, Arc<dyn Dispatcher>);

impl FromRequestParts<Arc<Shared>> for Provisioner {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let Peer(identity, _) = Peer::from_request_parts(parts, shared).await?;
        let child = identity.child_id();
        let Some(dispatcher) = shared.dispatcher.clone().filter(|_| is_provisioner(&identity)) else {
            return Err(stranger(&identity).into());
        };
        if dispatcher.removed(&child) {
            return Err(Removed.error(identity).into());
        }
        if !dispatcher.admits(&child) {
            return Err(stranger(&identity).into());
        }
        dispatcher.holds().map_err(|holder| NotHolder(holder).error())?;
        Ok(Self(child, dispatcher))
    }
}

fn stranger(identity: &Identity) -> Error {
    Error::new(ErrorKind::Forbidden, format!("{identity} is no provisioner of this server"))
}

async fn poll(Provisioner(child, dispatcher): Provisioner, body: Bytes) -> Answer {
    let ask: TaskAsk = wire::decode_large(body, TASK_BODY_MAX).await?;
    let waited = dispatcher.poll(&child, ask.clone(), false);
    let said = match tokio::time::timeout(TASK_POLL_MAX, waited).await {
        Ok(said) => said?,
        Err(_) => dispatcher.poll(&child, ask, true).await?,
    };
    answer(&said)
}

async fn finish(Provisioner(child, dispatcher): Provisioner, body: Bytes) -> Answer {
    let done: Vec<TaskDone> = wire::decode_large(body, TASK_BODY_MAX).await?;
    if done.len() > TASKS_DONE_MAX {
        return Err(Error::invalid(format!("more than {TASKS_DONE_MAX} reports at once")).into());
    }
    let kept = dispatcher.finish_all(&child, done).await;
    let refused: Vec<Option<WireError>> =
        kept.iter().map(|kept| kept.as_ref().err().map(WireError::from)).collect();
    answer(&refused)
}

async fn resource(
    Provisioner(child, dispatcher): Provisioner,
    Path((tenant, digest)): Path<(String, String)>,
) -> Answer {
    let digest: Digest = digest.parse()?;
    blob_answer(dispatcher.resource(&child, &tenant, &digest).await?)
}

fn unanswered() -> Error {
    Error::unavailable("root did not say of each report whether it is kept")
}

/// Asks root for tasks. Of several addresses it uses the one that answers and gives tasks out.
pub struct TaskClient {
    client: ParentClient,
    renewed: Mutex<watch::Receiver<u64>>,
}

impl TaskClient {
    pub fn new(wallet: impl Into<Wallet>, parents: impl Into<Parents>) -> Result<Self> {
        let wallet = wallet.into();
        let renewed = Mutex::new(wallet.changes());
        Ok(Self { client: ParentClient::new(&wallet, parents)?, renewed })
    }

    /// Waits until there is something to say, or for a while.
    pub async fn poll(&self, ask: &TaskAsk) -> Result<TaskAnswer> {
        self.reconnect_renewed()?;
        let said = self.client.post_any(PATH_TASKS, ask, TASK_POLL_MAX + REQUEST_WAIT).await;
        let said = said.inspect_err(|error| self.reconnect_after(error))?;
        said.ok_or_else(|| Error::unavailable("root gave an empty answer"))
    }

    /// Returns when it is kept.
    pub async fn finish(&self, done: &TaskDone) -> Result<()> {
        self.finish_all(&[done]).await?.pop().unwrap_or_else(|| Err(unanswered()))
    }

    /// Returns when all of them are kept or refused, up to [`TASKS_DONE_MAX`]: each has its own answer.
    pub async fn finish_all(&self, done: &[&TaskDone]) -> Result<Vec<Result<()>>> {
        let kept = self.client.post_any(PATH_TASK_DONE, &done, PUSH_WAIT).await;
        let refused: Vec<Option<WireError>> =
            kept.inspect_err(|error| self.reconnect_after(error))?.unwrap_or_default();
        if refused.len() != done.len() {
            return Err(unanswered());
        }
        Ok(refused.into_iter().map(|refused| refused.map_or(Ok(()), |error| Err(error.into()))).collect())
    }

    /// Fetches a staged file into `to`, checks its digest and returns its length. On an error what was written
    /// must be thrown away.
    pub async fn resource(
        &self,
        tenant: &str,
        digest: &Digest,
        to: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if tenant.is_empty() || !tenant.bytes().all(is_safe) {
            return Err(Error::invalid(format!("'{}' is no tenant", model::shown(tenant))));
        }
        let came = self.client.blob_at(&format!("{PATH_RESOURCE}/{tenant}"), digest, to).await;
        came.inspect_err(|error| {
            if wire::not_holder(error).is_some() {
                self.client.move_on(error);
            }
        })
    }

    /// Whether an error says that root removed this provisioner for good.
    pub fn is_removed(error: &Error) -> bool {
        wire::removed(error)
    }

    /// A renewed certificate is shown by a new connection; what is under way ends where it began.
    fn reconnect_renewed(&self) -> Result<()> {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.has_changed().unwrap_or(false) {
            renewed.mark_unchanged();
            self.client.reconnect()?;
        }
        Ok(())
    }

    /// The connection may be dead without knowing it.
    fn reconnect_after(&self, error: &Error) {
        if error.kind == ErrorKind::Unavailable && wire::not_holder(error).is_none() {
            self.client.move_on(error);
            if let Err(error) = self.client.reconnect() {
                tracing::error!(%error, "no new connection to root");
            }
        }
    }
}
