//! Root as the parent of zones on the link.

use futures::future::BoxFuture;
use link::{BlobSource, ParentHandler};
use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, Digest, Error, Facts, Observed, Pulse, Result, ZoneId};
use store::Txn;

use super::TreeService;
use super::relay::not_here;
use crate::duty;
use crate::tables::{ZoneRecord, encode, kind};

impl ParentHandler for TreeService {
    fn observed(&self, child: &ChildId, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        let child = child.clone();
        Box::pin(async move {
            self.seat().ok_or_else(not_here)?;
            self.zone_name_check(&child, &observed.facts)?;
            let facts = observed.facts.clone();
            let (ack, facts_new) = self.core().zone_observed(&child, observed, self.steady());
            if facts_new {
                self.zone_keep(&child, facts).await;
            }
            self.0.wake.wake();
            Ok(ack)
        })
    }

    fn desired(&self, child: &ChildId, have: Option<Revision>) -> BoxFuture<'_, Result<Desired>> {
        let child = child.clone();
        Box::pin(async move {
            self.seat().ok_or_else(not_here)?;
            let mut seat = self.0.seat.subscribe();
            let read = |child: &ChildId, have| self.core().zone_desired(child, have);
            tokio::select! {
                desired = self.0.doors.wait(&child, have, read) => Ok(desired),
                _ = seat.wait_for(Option::is_none) => Err(not_here()),
            }
        })
    }

    fn link_state(&self, child: &ChildId, up: bool) {
        let now = self.steady();
        if self.seat().is_none() {
            return;
        }
        match up {
            true => self.core().zone_heard(child, now),
            false => self.core().zone_lost(child, now),
        }
        self.0.wake.wake();
    }

    fn heard(&self, child: &ChildId, pulse: Option<&Pulse>) {
        let now = self.steady();
        if self.seat().is_none() {
            return;
        }
        if let Some(pulse) = pulse {
            self.vitals().take(child, pulse, self.now());
        }
        let mut core = self.core();
        if !core.zone_known(child)
            && self.admits(child)
            && let Ok(zone) = child.as_str().parse()
        {
            // It joined through another server, and its record is on its way to the core.
            core.zone_add(&zone, None, now);
        }
        core.zone_heard(child, now);
    }

    fn holds(&self) -> std::result::Result<(), Option<String>> {
        match self.seat() {
            Some(_) => Ok(()),
            None => Err(self.0.peers.duties().holder(duty::TREE).map(|holder| holder.link_url.clone())),
        }
    }

    fn blob(&self, _child: &ChildId, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let digest = digest.clone();
        Box::pin(async move { BlobSource::from_file(&self.0.replica.blob(&digest).await?).await })
    }

    fn desired_page(
        &self,
        child: &ChildId,
        have: Option<Revision>,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Desired>> {
        let page = self.core().zone_desired_page(child, have, bytes);
        Box::pin(async move { page.ok_or_else(not_here) })
    }

    fn twins(&self, child: &ChildId) {
        self.vitals().twins_note(child, self.now());
    }

    fn hosts_allow(&self, child: &ChildId, hosts: &[String]) -> Result<()> {
        self.hosts_issue(child, hosts)
    }

    fn removed(&self, child: &ChildId) -> bool {
        self.0.state.snapshot().removed.contains_key(child)
    }

    fn admits(&self, child: &ChildId) -> bool {
        child.as_str().parse().is_ok_and(|zone| self.0.state.snapshot().zones.contains_key::<ZoneId>(&zone))
    }
}

impl TreeService {
    /// A zone speaks under the name that it joined with, so that no two have the same.
    fn zone_name_check(&self, child: &ChildId, facts: &Facts) -> Result<()> {
        let snapshot = self.0.state.snapshot();
        let Some(zone) = child.as_str().parse::<ZoneId>().ok().and_then(|id| snapshot.zones.get(&id)) else {
            return Ok(());
        };
        if zone.name == facts.name {
            return Ok(());
        }
        let text = format!("this zone joined as '{}' and cannot speak as '{}'", zone.name, facts.name);
        tracing::warn!(zone = %child, "{text}");
        Err(Error::conflict(text).hint("set the name in its file back, or let it join anew"))
    }

    /// Keeps what a zone says of itself where that matters to people; free
    /// room changes with every instance and is not kept.
    async fn zone_keep(&self, child: &ChildId, facts: Facts) {
        let Ok(id) = child.as_str().parse::<ZoneId>() else { return };
        let snapshot = self.0.state.snapshot();
        let Some(zone) = snapshot.zones.get(&id) else { return };
        let settled = |facts: &Facts| Facts { largest: None, ..facts.clone() };
        if zone.facts.as_ref().map(settled) == Some(settled(&facts)) {
            return;
        }
        let record = ZoneRecord { facts: Some(facts), ..ZoneRecord::clone(zone) };
        // Under the version that was read: what an operator changes or removes in this moment stays so.
        let txn = Txn::new().update(kind::ZONE, &id, zone.version, encode(&record));
        if let Err(error) = self.commit(txn).await {
            tracing::warn!(%error, zone = %zone.name, "the facts of a zone were not kept");
        }
    }
}
