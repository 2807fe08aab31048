//! The beat of one server, and what it does about the others.

use std::collections::BTreeMap;

use model::Result;
use store::{CommitError, Txn};
use tokio::time::{Instant, sleep_until};
use work::{Clock, SystemClock};

use super::core::{Act, Core, vacant};
use super::{ALL, BEAT, Duties, Fence, Shared, VALID};
use crate::state::commit_error;
use crate::tables::{DutyRecord, LostServerRecord, ServerRecord, encode, kind};

impl Duties {
    /// Joins the other servers. A record from the same place is of an earlier life of ours and goes, so that a
    /// server that was killed takes up its duties at once when it is back.
    pub async fn join(
        &self,
        link_url: String,
        endpoint: String,
        place: String,
        names: Vec<String>,
    ) -> Result<()> {
        let since = self.0.started;
        let Some(shared) = &self.0.shared else {
            let me = ServerRecord { link_url, endpoint, place, names, since, ..ServerRecord::default() };
            self.0.alone.get_or_init(|| me);
            return Ok(());
        };
        let snapshot = shared.state.snapshot();
        let old = snapshot.servers.values().filter(|row| row.place == place);
        let txn = old.fold(Txn::new(), |txn, row| txn.delete(kind::SERVER, &row.id, None));
        let back = snapshot.servers_lost.values().filter(|row| row.server.place == place);
        let txn = back.fold(txn, |txn, row| txn.delete(kind::SERVER_LOST, &row.server.id, None));
        let id = shared.id.clone();
        let me = ServerRecord { id, link_url, endpoint, place, names, beat: 0, since, at: since };
        let me = shared.me.get_or_init(|| me);
        let sent = Instant::now();
        shared.state.commit(txn.put(kind::SERVER, &me.id, None, None, encode(me))).await?;
        *shared.until() = sent + VALID;
        self.fill(shared).await;
        Ok(())
    }

    /// Beats until it is dropped.
    pub async fn run(&self) {
        let Some(shared) = &self.0.shared else { return std::future::pending().await };
        let Some(me) = shared.me.get() else { return tracing::error!("a server that did not join beats") };
        let mut core = Core::default();
        let mut beat = 0;
        loop {
            let sent = Instant::now();
            beat += 1;
            match self.beat(shared, ServerRecord { beat, at: SystemClock.now(), ..me.clone() }).await {
                Ok(()) => {
                    *shared.until() = sent + VALID;
                    for act in core.beaten(&shared.id, &shared.state.snapshot().servers) {
                        shared.perform(act).await;
                    }
                    self.fill(shared).await;
                }
                Err(error) => tracing::warn!(%error, "the store did not take a beat"),
            }
            self.rest(shared, sent + BEAT).await;
        }
    }

    /// Leaves in good order: the others see it at once.
    pub async fn leave(&self) {
        let Some(shared) = &self.0.shared else { return };
        self.0.held.send_replace(BTreeMap::new());
        let txn = Txn::new().delete(kind::SERVER, &shared.id, None);
        if let Err(error) = shared.state.commit(txn).await {
            tracing::warn!(%error, "this server could not take its leave; the others will miss it soon");
        }
    }

    /// Writes our record. While that takes too long, we step back from what we hold.
    async fn beat(&self, shared: &Shared, me: ServerRecord) -> Result<()> {
        let mut txn = Txn::new().put(kind::SERVER, &me.id, None, None, encode(&me));
        // It was silent, and is back.
        if let Some(lost) = shared.state.snapshot().servers_lost.get(&me.id) {
            txn = txn.delete(kind::SERVER_LOST, &me.id, Some(lost.version));
        }
        let commit = shared.state.commit(txn);
        tokio::pin!(commit);
        loop {
            let until = *shared.until();
            tokio::select! {
                done = &mut commit => return done.map(drop),
                () = sleep_until(until), if !self.0.held.borrow().is_empty() && !shared.only() => {
                    tracing::warn!("no beat was taken for too long; stepping back from every duty");
                    self.0.held.send_replace(BTreeMap::new());
                }
            }
        }
    }

    /// Sleeps until the next beat, and takes what becomes vacant meanwhile.
    async fn rest(&self, shared: &Shared, until: Instant) {
        let mut changed = shared.state.changed();
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                more = changed.changed() => match more {
                    Ok(()) => self.fill(shared).await,
                    Err(_) => return sleep_until(until).await,
                },
            }
        }
    }

    /// Claims what nobody holds, then says what we hold.
    async fn fill(&self, shared: &Shared) {
        let snapshot = shared.state.snapshot();
        // Whoever was forgotten beats first.
        if shared.valid() && snapshot.servers.contains_key(&shared.id) {
            for act in vacant(ALL, &snapshot.servers, &snapshot.duties) {
                shared.perform(act).await;
            }
        }
        let held = if shared.valid() { shared.held() } else { BTreeMap::new() };
        self.0.held.send_if_modified(|now| {
            let differs = *now != held;
            *now = held;
            differs
        });
    }
}

impl Shared {
    fn held(&self) -> BTreeMap<&'static str, Fence> {
        let snapshot = self.state.snapshot();
        let mine = |duty: &&'static str| {
            let row = snapshot.duties.get(*duty).filter(|row| row.holder == self.id)?;
            Some((*duty, Fence { duty, version: Some(row.version) }))
        };
        ALL.iter().filter_map(mine).collect()
    }

    async fn perform(&self, act: Act) {
        let (txn, done) = match act {
            Act::Forget { server, version } => {
                let mut txn = Txn::new().delete(kind::SERVER, &server, Some(version));
                if let Some(row) = self.state.snapshot().servers.get(&server) {
                    let lost = LostServerRecord { server: ServerRecord::clone(row) };
                    txn = txn.put(kind::SERVER_LOST, &server, None, None, encode(&lost));
                }
                (txn, format!("root server {server} is silent and no longer counted"))
            }
            Act::Claim { duty, gone, term } => {
                let body = encode(&DutyRecord { holder: self.id.clone(), term });
                let txn = match gone {
                    // A holder that came back in the meantime keeps it.
                    Some(gone) => Txn::new().check(kind::SERVER, gone.holder, None).update(
                        kind::DUTY,
                        duty,
                        gone.version,
                        body,
                    ),
                    None => Txn::new().insert(kind::DUTY, duty, None, None, body),
                };
                (txn, format!("this server holds the duty '{duty}', term {term}"))
            }
        };
        match self.state.try_commit(txn).await {
            Ok(_) => tracing::info!("{done}"),
            // Another server was quicker, or the silent one spoke.
            Err(
                CommitError::VersionMismatch { .. }
                | CommitError::AlreadyExists { .. }
                | CommitError::Missing { .. },
            ) => {}
            Err(error) => tracing::warn!(error = %commit_error(error), "a duty could not be looked after"),
        }
    }
}
