//! Decisions and news on their way into the store.

use std::sync::Arc;

use futures::future::join_all;
use model::{InstanceEvent, Result};
use store::{CommitError, TXN_OPS_MAX, Txn};
use tier::Decision;

use super::TreeService;
use super::core::Folded;
use super::relay::not_here;
use crate::history::{Actor, Line, journal};
use crate::state::Snapshot;
use crate::tables::{InstanceRecord, StatusRecord, encode, kind};

/// Operations of several transactions that are tried as one; the fence needs one more.
const JOINED_OPS_MAX: usize = TXN_OPS_MAX - 1;

impl TreeService {
    /// Commits under the duty: refused when another server holds the tree.
    pub(super) async fn commit(&self, txn: Txn) -> Result<()> {
        let fence = self.0.seat.borrow().clone().ok_or_else(not_here)?;
        self.0.state.commit(fence.guard(txn)).await.map(drop)
    }

    /// Commits each of the transactions, as one where that works; says which were kept.
    async fn commit_each(&self, txns: Vec<Txn>) -> Vec<bool> {
        let mut kept = Vec::with_capacity(txns.len());
        let mut rest = txns.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut part, mut ops) = (Vec::new(), 0);
            while let Some(next) =
                rest.next_if(|next| part.is_empty() || ops + next.ops().len() <= JOINED_OPS_MAX)
            {
                ops += next.ops().len();
                part.push(next);
            }
            kept.extend(self.commit_part(part).await);
        }
        kept
    }

    async fn commit_part(&self, part: Vec<Txn>) -> Vec<bool> {
        let Some(fence) = self.0.seat.borrow().clone() else { return vec![false; part.len()] };
        let try_commit = |txn| self.0.state.try_commit(fence.guard(txn));
        let whole = part.iter().cloned().fold(Txn::new(), Txn::and);
        let error = match try_commit(whole).await {
            Ok(_) => return vec![true; part.len()],
            Err(error) => error,
        };
        if part.len() == 1 || matches!(error, CommitError::Unavailable(_) | CommitError::Full(_)) {
            tracing::warn!(%error, count = part.len(), "what the tree knows was not kept; once more");
            return vec![false; part.len()];
        }
        // One of them met a change of somebody else; it alone is not kept.
        let each = join_all(part.into_iter().map(try_commit)).await;
        each.into_iter().map(|done| done.is_ok()).collect()
    }

    /// Commits each decision if the instance is still as it was when it was decided about; says whether all were kept.
    pub(super) async fn commit_decided(&self, decided: Vec<(Decision, Arc<StatusRecord>)>) -> bool {
        let snapshot = self.0.state.snapshot();
        let mut txns = Vec::with_capacity(decided.len());
        let mut asked = Vec::with_capacity(decided.len());
        for (decision, status) in decided {
            match self.decision_txn(&snapshot, &decision, &status) {
                Some(txn) => {
                    txns.push(txn);
                    asked.push((decision, status));
                }
                None => self.core().rejected(&decision),
            }
        }
        let kept = self.commit_each(txns).await;
        let all_kept = kept.iter().all(|kept| *kept);
        let mut core = self.core();
        for ((decision, status), kept) in asked.into_iter().zip(kept) {
            if kept {
                core.committed(&decision, status);
            } else {
                core.rejected(&decision);
            }
        }
        all_kept
    }

    fn decision_txn(&self, snapshot: &Snapshot, decision: &Decision, status: &StatusRecord) -> Option<Txn> {
        let record = snapshot.instances.get(&decision.id)?;
        let txn = Txn::new().check(kind::INSTANCE, &record.id, Some(record.version));
        let (what, message) = match &decision.explanation.chosen {
            Some(zone) => {
                ("instance.placed", format!("placed on zone {zone}, generation {}", status.generation))
            }
            None => ("instance.unplaceable", "no zone fits; see why".to_owned()),
        };
        // That nothing fits is told once, not with every new look; nor is every try of what is refused again and again.
        let known = |status: &Arc<StatusRecord>| {
            let nowhere = decision.place.is_none() && status.zone.is_none() && status.explanation.is_some();
            nowhere || decision.again
        };
        let txn = match snapshot.statuses.get(&record.id).is_some_and(known) {
            true => txn,
            false => self.with_line(txn, record, &Actor::root(), what, message),
        };
        Some(txn.put(kind::STATUS, &record.id, Some(record.tenant.as_str()), None, encode(status)))
    }

    /// Commits what is newly known; says whether all of it was kept.
    pub(super) async fn commit_folded(&self, folded: Vec<Folded>) -> bool {
        let snapshot = self.0.state.snapshot();
        let (mut txns, mut told) = (Vec::new(), Vec::new());
        for item in folded {
            match self.folded_txn(&snapshot, &item) {
                Some(txn) => {
                    txns.push(txn);
                    told.push(item);
                }
                // The record is gone already; so is the news.
                None => self.core().folded(&item),
            }
        }
        let kept = self.commit_each(txns).await;
        let all_kept = kept.iter().all(|kept| *kept);
        let mut core = self.core();
        for (item, kept) in told.iter().zip(kept) {
            if kept {
                core.folded(item);
            } else {
                core.fold_again(item);
            }
        }
        all_kept
    }

    fn folded_txn(&self, snapshot: &Snapshot, item: &Folded) -> Option<Txn> {
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
        if let Some(message) = snapshot.statuses.get(&record.id).and_then(|old| left(old, &item.status)) {
            txn = self.with_line(txn, record, &Actor::root(), "instance.unplaced", message);
        }
        Some(txn.put(
            kind::STATUS,
            &record.id,
            Some(record.tenant.as_str()),
            None,
            encode(item.status.as_ref()),
        ))
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
fn left(old: &StatusRecord, new: &StatusRecord) -> Option<String> {
    let from = old.observed.as_ref()?.node.as_ref()?;
    let seen = new.observed.as_ref()?;
    if seen.node.as_ref() == Some(from) {
        return None;
    }
    Some(left_words(from.as_str(), seen.message.as_deref().unwrap_or_default()))
}

/// Why an instance left its node, in the words of the one who took it off: a node or a zone that went, another that it
/// gave way to, or something else.
fn left_words(from: &str, why: &str) -> String {
    let gone = |rest: &str| {
        let (place, what) = rest.split_once(' ')?;
        // A zone takes its own nodes for places, root its zones.
        let kind = if place == from { "node" } else { "zone" };
        what.starts_with("was ").then(|| format!("{kind} {place} {what}"))
    };
    match why.strip_prefix("its place ").and_then(gone) {
        Some(words) => words,
        None if why.is_empty() => format!("left node {from}: it is placed again"),
        None if why.starts_with("gave way") => format!("{why} on node {from}"),
        None => format!("left node {from}: {why}"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageStore;
    use crate::state::State;
    use crate::tree::TreeConfig;
    use serde_json::json;
    use store::Store;

    fn put(id: impl ToString) -> Txn {
        Txn::new().put(kind::PROBE, id, None, None, json!({}))
    }

    #[test]
    fn why_an_instance_left_its_node_is_told_as_it_was() {
        for (why, expect) in [
            ("gave way to high (priority 5 over -5)", "gave way to high (priority 5 over -5) on node n2"),
            ("its place n2 was removed", "node n2 was removed"),
            ("its place n2 was lost", "node n2 was lost"),
            ("its place west was lost", "zone west was lost"),
            ("its place was lost", "left node n2: its place was lost"),
            ("", "left node n2: it is placed again"),
        ] {
            assert_eq!(left_words("n2", why), expect, "{why}");
        }
    }

    #[tokio::test]
    async fn what_met_another_change_does_not_keep_the_others_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, clock) = (Store::memory(), Arc::new(work::SystemClock));
        let state = State::open(store.clone()).await.expect("opens");
        let images = ImageStore::open(folder.path()).expect("opens");
        let tree = TreeService::open(state, images, clock, TreeConfig::default()).await.expect("opens");
        let raced = Txn::new().check(kind::PROBE, "a", Some(7)).and(put("b"));
        assert_eq!(tree.commit_each(vec![put("c"), raced, put("d")]).await, [true, false, true]);
        let ids = |records: Vec<store::Record>| records.into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(store.list(kind::PROBE).await.expect("lists")), ["c", "d"]);
        // More than one transaction may hold.
        let many = TXN_OPS_MAX + 5;
        assert_eq!(tree.commit_each((0..many).map(put).collect()).await, vec![true; many]);
        assert_eq!(store.list(kind::PROBE).await.expect("lists").len(), many + 2);
    }
}
