//! The zone as the parent of its nodes on the link.

use futures::future::BoxFuture;
use link::{BlobSource, Joiner, ParentHandler, TokenBook, TokenRecord};
use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, Digest, Error, Observed, Pulse, Result};

use tier::ledger::Write;

use crate::service::{ZoneService, node_seen};

impl ParentHandler for ZoneService {
    fn observed(&self, child: &ChildId, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        match self.book().name_check(child, &observed.facts.name) {
            Ok(noted) => self.member_keep(noted),
            Err(error) => {
                self.node_refused(child, &error);
                return Box::pin(async move { Err(error) });
            }
        }
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
        self.member_keep(self.book().member_note(child));
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
        match pulse.is_some_and(|pulse| pulse.leaving) {
            true => {
                tracing::info!(node = %child, "it stops and is expected back");
                self.core().node_leaving(child, now);
                self.changed();
            }
            false => self.core().node_heard(child, now),
        }
    }

    fn spare(&self, children: &[ChildId]) {
        self.core().nodes_spare(children, self.steady());
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

/// Nodes join here with a token, under a name that no living node of the zone has.
impl TokenBook for ZoneService {
    fn add(&self, record: TokenRecord) -> BoxFuture<'_, Result<()>> {
        let book = self.book();
        Box::pin(async move { book.add(record).await })
    }

    fn check(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let (book, digest) = (self.book(), digest.to_owned());
        Box::pin(async move { book.look(&digest, &joiner).and_then(|_| self.name_free(&joiner)) })
    }

    fn redeem(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let (book, digest) = (self.book(), digest.to_owned());
        Box::pin(async move { book.take(digest, joiner, |joiner| self.name_free(joiner)).await })
    }
}

impl ZoneService {
    /// Writes down what was noted of a member, beside what goes on.
    fn member_keep(&self, noted: Option<Write>) {
        let Some(write) = noted else { return };
        let ledger = self.ledger().clone();
        tokio::spawn(async move {
            if let Err(error) = ledger.commit_async(vec![write]).await {
                tracing::warn!(%error, "a member was not kept");
            }
        });
    }

    fn name_free(&self, joiner: &Joiner) -> Result<()> {
        if !self.core().node_lives(joiner.name.as_str()) {
            return Ok(());
        }
        let text = format!("the zone '{}' has a node '{}' already, which lives", self.name(), joiner.name);
        Err(Error::conflict(text).at("name").hint("choose another name; the token stays good"))
    }
}
