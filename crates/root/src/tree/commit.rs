//! Decisions and news on their way into the store.

use std::sync::Arc;

use futures::future::join_all;
use model::{InstanceEvent, Result};
use store::Txn;
use tier::Decision;

use super::TreeService;
use super::core::Folded;
use super::relay::not_here;
use crate::history::{Actor, Line, journal};
use crate::tables::{InstanceRecord, StatusRecord, encode, kind};

impl TreeService {
    /// Commits under the duty: refused when another server holds the tree.
    pub(super) async fn commit(&self, txn: Txn) -> Result<()> {
        let fence = self.0.seat.borrow().clone().ok_or_else(not_here)?;
        self.0.state.commit(fence.guard(txn)).await.map(drop)
    }

    /// Commits each decision if the instance is still as it was when it was decided about; says whether all were kept.
    pub(super) async fn commit_decided(&self, decided: Vec<(Decision, StatusRecord)>) -> bool {
        let commits = decided.into_iter().map(|(decision, status)| async move {
            match self.decision_txn(&decision, &status) {
                Some(txn) => (self.commit(txn).await.is_ok(), decision, status),
                None => (false, decision, status),
            }
        });
        let done = join_all(commits).await;
        let all_kept = done.iter().all(|(kept, ..)| *kept);
        let mut core = self.core();
        for (kept, decision, status) in done {
            if kept {
                core.committed(&decision, status);
            } else {
                core.rejected(&decision);
            }
        }
        all_kept
    }

    fn decision_txn(&self, decision: &Decision, status: &StatusRecord) -> Option<Txn> {
        let snapshot = self.0.state.snapshot();
        let record = snapshot.instances.get(&decision.id)?;
        let txn = Txn::new().check(kind::INSTANCE, &record.id, Some(record.version));
        let (what, message) = match &decision.explanation.chosen {
            Some(zone) => {
                ("instance.placed", format!("placed on zone {zone}, generation {}", status.generation))
            }
            None => ("instance.unplaceable", "no zone fits; see why".to_owned()),
        };
        // That nothing fits is told once, not with every new look.
        let known = |status: &Arc<StatusRecord>| {
            decision.place.is_none() && status.zone.is_none() && status.explanation.is_some()
        };
        let txn = match snapshot.statuses.get(&record.id).is_some_and(known) {
            true => txn,
            false => self.with_line(txn, record, &Actor::root(), what, message),
        };
        Some(txn.put(kind::STATUS, &record.id, Some(record.tenant.as_str()), None, encode(status)))
    }

    /// Commits what is newly known; says whether all of it was kept.
    pub(super) async fn commit_folded(&self, folded: Vec<Folded>) -> bool {
        let commits = folded.into_iter().map(|item| async move {
            let kept = match self.folded_txn(&item) {
                Some(txn) => self.commit(txn).await,
                // The record is gone already; so is the news.
                None => return (true, item),
            };
            if let Err(error) = &kept {
                tracing::warn!(%error, instance = %item.status.id, "what is known was not kept; once more");
            }
            (kept.is_ok(), item)
        });
        let done = join_all(commits).await;
        let all_kept = done.iter().all(|(kept, _)| *kept);
        let mut core = self.core();
        for (kept, item) in done {
            if kept {
                core.folded(&item);
            } else {
                core.fold_again(&item);
            }
        }
        all_kept
    }

    fn folded_txn(&self, item: &Folded) -> Option<Txn> {
        let snapshot = self.0.state.snapshot();
        let record = snapshot.instances.get(&item.status.id)?;
        let node = item.status.observed.as_ref().and_then(|seen| seen.node.clone());
        let who = Actor { who: node.map_or_else(|| "root".to_owned(), |node| node.to_string()), from: None };
        let mut txn = Txn::new();
        for event in &item.events {
            txn = self.with_event(txn, record, &who, event);
        }
        if item.gone {
            txn = self.with_line(txn, record, &Actor::root(), "instance.gone", "gone everywhere".to_owned());
            let txn = txn.delete(kind::INSTANCE, &record.id, None);
            return Some(match snapshot.statuses.contains_key(&record.id) {
                true => txn.delete(kind::STATUS, &record.id, None),
                false => txn,
            });
        }
        if let Some(message) = snapshot.statuses.get(&record.id).and_then(|old| lost(old, &item.status)) {
            txn = self.with_line(txn, record, &Actor::root(), "instance.unplaced", message);
        }
        Some(txn.put(kind::STATUS, &record.id, Some(record.tenant.as_str()), None, encode(&item.status)))
    }

    fn with_event(&self, txn: Txn, record: &InstanceRecord, who: &Actor, event: &InstanceEvent) -> Txn {
        let what = format!("instance.{}", event.kind);
        let line = line_of(record, &what, event.message.clone());
        journal(txn, event.at, who, line)
    }

    fn with_line(&self, txn: Txn, record: &InstanceRecord, who: &Actor, what: &str, message: String) -> Txn {
        journal(txn, self.now(), who, line_of(record, what, message))
    }
}

/// Says so when the instance is no longer on the node it was on.
fn lost(old: &StatusRecord, new: &StatusRecord) -> Option<String> {
    let from = old.observed.as_ref()?.node.as_ref()?;
    let seen = new.observed.as_ref()?;
    if seen.node.as_ref() == Some(from) {
        return None;
    }
    let why = seen.message.clone().unwrap_or_else(|| "it is placed again".to_owned());
    Some(format!("node {from} was lost: {why}"))
}

fn line_of<'a>(record: &'a InstanceRecord, what: &'a str, message: String) -> Line<'a> {
    Line {
        tenant: Some(&record.tenant),
        what,
        kind: "instance",
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    }
}
