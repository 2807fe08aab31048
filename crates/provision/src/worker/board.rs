//! What is held at the moment, and how it can be stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use work::queue::Claim;

#[derive(Default)]
pub(super) struct Board {
    held: Mutex<Claims>,
    empty: Notify,
}

#[derive(Default)]
struct Claims {
    all: BTreeMap<Claim, Held>,
    /// How many of them are over.
    reporting: usize,
}

struct Held {
    tenant: String,
    stop: CancellationToken,
    /// It is over, and root does not know yet.
    is_reporting: bool,
    /// Root said that it must stop.
    is_told: bool,
}

impl Board {
    /// What a poll names: also what is being stopped and what is being reported.
    pub(super) fn holds(&self) -> Vec<Claim> {
        self.held().all.keys().cloned().collect()
    }

    /// Whether one more can be begun where so many are done at once. What is over needs no worker; but as many
    /// reports may wait as there are workers, and no more.
    pub(super) fn has_room(&self, workers: usize) -> bool {
        let held = self.held();
        held.all.len() - held.reporting < workers && held.reporting <= workers
    }

    pub(super) fn len(&self) -> usize {
        self.held().all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held().all.is_empty()
    }

    /// Whether something is being done that was not told to stop.
    pub(super) fn is_running(&self) -> bool {
        self.held().all.values().any(|held| !held.is_reporting && !held.stop.is_cancelled())
    }

    pub(super) fn tenants(&self) -> BTreeSet<String> {
        self.held().all.values().map(|held| held.tenant.clone()).collect()
    }

    /// Takes a claim up; `None` when it is held already.
    pub(super) fn add(&self, claim: &Claim, tenant: &str) -> Option<CancellationToken> {
        let mut held = self.held();
        if held.all.contains_key(claim) {
            return None;
        }
        let stop = CancellationToken::new();
        let new = Held { tenant: tenant.to_owned(), stop: stop.clone(), is_reporting: false, is_told: false };
        held.all.insert(claim.clone(), new);
        Some(stop)
    }

    /// It is over, unless it was stopped before.
    pub(super) fn reporting(&self, claim: &Claim) -> bool {
        let mut held = self.held();
        let Claims { all, reporting } = &mut *held;
        let Some(held) = all.get_mut(claim).filter(|held| !held.stop.is_cancelled()) else { return false };
        *reporting += usize::from(!held.is_reporting);
        held.is_reporting = true;
        true
    }

    pub(super) fn remove(&self, claim: &Claim) {
        let mut held = self.held();
        let gone = held.all.remove(claim);
        held.reporting -= usize::from(gone.is_some_and(|gone| gone.is_reporting));
        if held.all.is_empty() {
            self.empty.notify_waiters();
        }
    }

    /// Returns whether any of them was not stopped before.
    pub(super) fn stop(&self, claims: &[Claim]) -> bool {
        let mut held = self.held();
        let mut is_news = false;
        for claim in claims {
            let Some(stopped) = held.all.get_mut(claim) else { continue };
            stopped.is_told |= !stopped.is_reporting;
            is_news |= !stopped.stop.is_cancelled();
            stopped.stop.cancel();
        }
        is_news
    }

    /// Whether root had it stopped while it was being done.
    pub(super) fn is_told(&self, claim: &Claim) -> bool {
        self.held().all.get(claim).is_some_and(|held| held.is_told)
    }

    /// Stops what is being done. What is over keeps being reported: it counts if nobody else did it.
    pub(super) fn stop_running(&self) {
        self.held().all.values().filter(|held| !held.is_reporting).for_each(|held| held.stop.cancel());
    }

    pub(super) fn stop_all(&self) {
        self.held().all.values().for_each(|held| held.stop.cancel());
    }

    /// Waits until nothing is held.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.empty.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Claims> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(task: u32) -> Claim {
        Claim { job: "j".into(), task, attempt: 1, life: 1 }
    }

    #[test]
    fn a_report_outlives_a_lapsed_lease_and_what_was_stopped_reports_nothing() {
        let board = Board::default();
        let tokens = [1, 2, 3].map(|task| board.add(&claim(task), "main").unwrap());
        assert!(board.add(&claim(1), "main").is_none(), "it is given twice and begun once");
        assert!(!board.has_room(3));
        assert!(board.reporting(&claim(1)));
        assert!(board.has_room(3), "what is over needs no worker");
        assert!(board.stop(&[claim(2), claim(9)]));
        assert!(!board.stop(&[claim(2), claim(9)]), "it is known");
        assert!(!board.reporting(&claim(2)));
        assert_eq!([1, 2, 3].map(|task| board.is_told(&claim(task))), [false, true, false]);
        assert!(board.is_running());
        board.stop_running();
        assert_eq!(tokens.each_ref().map(CancellationToken::is_cancelled), [false, true, true]);
        assert!(!board.is_running());
        assert_eq!(board.holds(), [claim(1), claim(2), claim(3)], "all are named until they ended");
        [1, 2, 3].iter().for_each(|task| board.remove(&claim(*task)));
        assert!(board.is_empty());
        assert_eq!(board.held().reporting, 0);
    }
}
