//! The zone as the parent of its nodes on the link.

use futures::future::BoxFuture;
use link::{BlobSource, ParentHandler};
use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, Digest, Error, Observed, Pulse, Result};

use crate::service::{ZoneService, node_seen};

impl ParentHandler for ZoneService {
    fn observed(&self, child: &ChildId, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        let ack = self.core().node_observed(child, observed, self.steady());
        self.wake();
        self.changed();
        Box::pin(async move { Ok(ack) })
    }

    fn desired(&self, child: &ChildId, have: Option<Revision>) -> BoxFuture<'_, Result<Desired>> {
        let child = child.clone();
        Box::pin(async move {
            let read = |child: &ChildId, have| self.core().node_desired(child, have);
            Ok(self.doors().wait(&child, have, read).await)
        })
    }

    fn desired_page(
        &self,
        child: &ChildId,
        have: Option<Revision>,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Desired>> {
        let page = self.core().node_desired_page(child, have, bytes);
        let child = child.clone();
        Box::pin(async move { page.ok_or_else(|| Error::not_found(format!("node {child}"))) })
    }

    fn twins(&self, child: &ChildId) {
        self.vitals().twins_note(child, self.now());
    }

    fn link_state(&self, child: &ChildId, up: bool) {
        node_seen(child, up);
        if let Some(write) = self.book().member_note(child) {
            let ledger = self.ledger().clone();
            tokio::spawn(async move {
                if let Err(error) = ledger.commit_async(vec![write]).await {
                    tracing::warn!(%error, "a member was not kept");
                }
            });
        }
        let now = self.steady();
        match up {
            true => self.core().node_heard(child, now),
            false => self.core().node_lost(child, now),
        }
        self.wake();
    }

    fn heard(&self, child: &ChildId, pulse: Option<&Pulse>) {
        if let Some(pulse) = pulse {
            self.vitals().take(child, pulse, self.now());
        }
        let now = self.steady();
        self.core().node_heard(child, now);
    }

    fn blob(&self, _child: &ChildId, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let digest = digest.clone();
        Box::pin(async move {
            let path = self.blobs().get(&digest).await?;
            BlobSource::from_file(&path).await
        })
    }

    fn knows(&self, child: &ChildId) -> bool {
        self.book().member(child)
    }

    fn admits(&self, child: &ChildId) -> bool {
        self.core().admits(child)
    }

    fn removed(&self, child: &ChildId) -> bool {
        self.core().node_removed(child)
    }
}
