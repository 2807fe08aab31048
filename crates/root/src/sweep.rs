//! What has had its time: kept answers, sessions, tokens of users and of joiners, and image layers that nothing names.

use std::time::Duration;

use link::TokenRecord;
use model::{Result, Timestamp};
use store::Txn;

use crate::cloud::{Cloud, Shared};
use crate::config::IDEMPOTENCY_KEPT;
use crate::duty::{self, Fence};
use crate::ops::image::digests_used;
use crate::tables::kind;

const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Deletes of one transaction.
const SWEEP_BATCH_MAX: usize = 500;
/// Layers younger than this may belong to an import on its way.
const BLOB_GRACE: Duration = Duration::from_secs(24 * 3600);

/// Runs for ever: the store is swept by one server, each disk by its own.
pub async fn run(cloud: Shared) {
    let store = cloud.duties.while_held(duty::SWEEP, |fence| {
        let cloud = cloud.clone();
        async move {
            work::drive("sweep", work::Wake::new(), SWEEP_EVERY, || sweep(&cloud, &fence)).await;
        }
    });
    let disk = work::drive("layers", work::Wake::new(), SWEEP_EVERY, || layers_sweep(&cloud));
    tokio::join!(store, disk);
}

/// One pass; what is too much for one transaction waits for the next pass.
pub async fn sweep(cloud: &Cloud, fence: &Fence) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let now = cloud.now();
    let kept_since = now.plus_ms(-(IDEMPOTENCY_KEPT.as_millis() as i64));
    let answers = snapshot.idempotency.iter().filter(|(_, at)| **at < kept_since);
    let answers = answers.map(|(id, _)| (kind::IDEMPOTENCY, id.clone()));
    let sessions = snapshot.sessions.values().filter(|session| session.expires_at < now);
    let sessions = sessions.map(|session| (kind::SESSION, session.id.to_string()));
    let tokens = snapshot.tokens.values().filter(|token| token.expires_at.is_some_and(|at| at < now));
    let tokens = tokens.map(|token| (kind::TOKEN, token.id.to_string()));
    let enrolments = enrolments_over(cloud, now).await?.into_iter().map(|id| (kind::ENROLMENT, id));
    let mut txn = Txn::new();
    for (kind, id) in answers.chain(sessions).chain(tokens).chain(enrolments).take(SWEEP_BATCH_MAX) {
        txn = txn.delete(kind, id, None);
    }
    if !txn.is_empty() {
        cloud.state.commit(fence.guard(txn)).await?;
    }
    Ok(())
}

/// Tokens with which nobody can join any more.
async fn enrolments_over(cloud: &Cloud, now: Timestamp) -> Result<Vec<String>> {
    let records = cloud.state.store().list(kind::ENROLMENT).await?;
    let over = |record: store::Record| {
        let token: TokenRecord = record.body.read().ok()?;
        (token.expires_at <= now).then_some(record.id)
    };
    Ok(records.into_iter().filter_map(over).collect())
}

async fn layers_sweep(cloud: &Cloud) -> Result<()> {
    let used = digests_used(&cloud.state.snapshot());
    let images = cloud.images.clone();
    tokio::task::spawn_blocking(move || images.blobs_retain(&used, BLOB_GRACE))
        .await
        .map_err(|error| model::Error::internal("the image worker ended early").because(error))?
        .map(drop)
}
