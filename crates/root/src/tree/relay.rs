//! Several root servers: what one of them answers the others, and how it follows the holder of the tree.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use link::{BlobSource, ByteStream, PeerHandler};
use model::exchange::{Ask, NodeReport};
use model::{ChildId, Digest, Error, Result, ZoneId};
use serde_json::Value;

use super::TreeService;
use crate::duty;
use crate::peer::{Question, ZoneLife};

/// How often a server asks the holder which zones are there.
const LIVES_EVERY: Duration = Duration::from_secs(1);

/// Said to whoever came to a server that does not hold the tree.
pub(super) fn not_here() -> Error {
    Error::conflict("this root server does not hold the tree").hint("ask the one that does")
}

impl PeerHandler for TreeService {
    /// Never passes a question on a second time.
    fn ask(&self, child: &ChildId, ask: Ask) -> BoxFuture<'_, Result<ByteStream>> {
        let child = child.clone();
        Box::pin(async move {
            self.seat().ok_or_else(not_here)?;
            self.0.calls.call(&child, ask).await
        })
    }

    fn tell(&self, question: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            let question = serde_json::from_value(question)
                .map_err(|error| Error::invalid("this version does not know the question").because(error))?;
            match question {
                Question::Lives => {
                    self.seat().ok_or_else(not_here)?;
                    Ok(serde_json::to_value(self.lives()).expect("plain data"))
                }
                Question::Take { from, digests } => {
                    self.0.replica.take(&from, &digests).await.map(|()| Value::Null)
                }
            }
        })
    }

    /// Only what lies here: a blob that is nowhere must not be looked for in circles.
    fn blob(&self, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let path = self.0.images.blob_path(digest);
        let digest = digest.clone();
        Box::pin(async move {
            let path = path.ok_or_else(|| Error::not_found(format!("blob {digest}")))?;
            BlobSource::from_file(&path).await
        })
    }
}

impl TreeService {
    /// Asks a zone, whichever server it is connected to.
    pub(super) async fn ask_anywhere(&self, child: &ChildId, ask: Ask) -> Result<ByteStream> {
        let asked = match self.0.peers.ask(child, ask.clone()).await {
            Ok(Some(stream)) => Ok(stream),
            Ok(None) => self.0.calls.call(child, ask).await,
            Err(error) => Err(error),
        };
        asked.map_err(|error| self.zone_named(child, error))
    }

    /// The link knows zones by their ids, people by their names.
    fn zone_named(&self, child: &ChildId, mut error: Error) -> Error {
        let id = child.as_str().parse::<ZoneId>().ok();
        if let Some(name) = id.and_then(|id| self.0.state.snapshot().zone_name(&id)) {
            error.message = error.message.replace(child.as_str(), &format!("zone {name}"));
        }
        error
    }

    fn lives(&self) -> Vec<ZoneLife> {
        let snapshot = self.0.state.snapshot();
        let core = self.core();
        let vitals = self.vitals();
        let filled = |mut report: NodeReport| {
            report.last_seen = self.wall(report.last_seen);
            vitals.fill(&mut report);
            (report.id.clone(), report)
        };
        let mut reports: HashMap<String, NodeReport> = core.zones().into_iter().map(filled).collect();
        let life = |zone: &ZoneId| {
            let child = ChildId::from(zone);
            let last_seen = core.zone_last_seen(&child).map(|at| self.wall(at));
            let (live, report) = (core.zone_connected(&child), reports.remove(zone.as_str()));
            ZoneLife { zone: zone.clone(), live, last_seen, report }
        };
        snapshot.zones.keys().map(life).collect()
    }

    /// What the holder says of a zone, where that is another server.
    pub(super) fn life_told(&self, zone: &ZoneId) -> Option<ZoneLife> {
        self.lives_known().get(zone).cloned()
    }

    /// Keeps up with what the holder knows, while that is another server.
    pub(super) async fn lives_follow(&self) {
        let duties = self.0.peers.duties();
        if duties.id().is_none() {
            return;
        }
        loop {
            if let Some(holder) = duties.holder(duty::TREE) {
                match self.0.peers.lives(&holder).await {
                    Ok(lives) => {
                        let lives = lives.into_iter().map(|life| (life.zone.clone(), life)).collect();
                        *self.lives_known() = lives;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the holder of the tree does not say which zones are there")
                    }
                }
            }
            tokio::time::sleep(LIVES_EVERY).await;
        }
    }

    fn lives_known(&self) -> MutexGuard<'_, HashMap<ZoneId, ZoneLife>> {
        self.0.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
