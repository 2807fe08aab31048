//! What a zone does by the clock: sample, save, heal, clear up.

use std::time::Duration;

use crate::history::{self, FINE_EVERY_MS};
use crate::service::ZoneService;
use crate::stuck::Remedy;

/// How often unused blobs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
const SAMPLE_EVERY: Duration = Duration::from_millis(FINE_EVERY_MS as u64);
/// How often the history is saved; a crash loses no more of it.
const SAVE_EVERY: Duration = Duration::from_secs(120);
/// How often transitions are looked at.
const HEAL_EVERY: Duration = Duration::from_secs(10);

impl ZoneService {
    pub(crate) async fn tend(&self) {
        tokio::join!(self.sweep(), self.sample(), self.save(), self.heal());
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let used = self.core().digests();
            if let Err(error) = self.blobs().sweep(&used).await {
                tracing::warn!(%error, "unused blobs could not be removed");
            }
        }
    }

    async fn sample(&self) {
        let mut steps = tokio::time::interval(SAMPLE_EVERY);
        steps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            self.sample_take();
            self.way_up_take();
        }
    }

    /// One sample of every node that is heard, and of their sum.
    pub fn sample_take(&self) {
        let usages = {
            let core = self.core();
            let mut vitals = self.vitals();
            vitals.retain(|node| core.node_known(node));
            vitals.usages(|node| core.node_alive(node))
        };
        if usages.is_empty() {
            return;
        }
        let mut history = self.history();
        history.take(self.now(), &usages);
        let core = self.core();
        history.retain(|node| core.node_known(node));
    }

    async fn save(&self) {
        loop {
            tokio::time::sleep(SAVE_EVERY).await;
            self.history_save().await;
        }
    }

    /// Node by node, so that the history is never held up nor copied as a whole.
    pub async fn history_save(&self) {
        let (zone, path) = (self.clone(), self.history_path());
        let saved = tokio::task::spawn_blocking(move || {
            let names = zone.history().names();
            let lines = names.into_iter().filter_map(|node| zone.history().line(node.as_ref()));
            history::save(&path, lines)
        });
        match saved.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the history could not be saved; it goes on in memory"),
            Err(error) => tracing::error!(%error, "saving the history broke off"),
        }
    }

    async fn heal(&self) {
        loop {
            tokio::time::sleep(HEAL_EVERY).await;
            let under_way = self.core().under_way();
            let remedies = self.transitions().look(under_way, self.steady());
            if remedies.is_empty() {
                continue;
            }
            let now = self.steady();
            for remedy in remedies {
                let mut core = self.core();
                match remedy {
                    Remedy::TellAgain(id) => {
                        tracing::warn!(instance = %id, "stuck; its node is told again");
                        core.tell_again(&id, now);
                    }
                    Remedy::PlaceAgain(id) => {
                        tracing::warn!(instance = %id, "stuck for too long; another node is tried");
                        core.place_again(&id, now);
                    }
                }
            }
            self.wake();
            self.changed();
        }
    }
}
