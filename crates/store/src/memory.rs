//! The memory engine: the same semantics without a disk, for the simulation and
//! for tests. Its futures complete at once and nothing in it depends on time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::feed::{Feed, Watch};
use crate::plan::{Index, Key, Plan};
use crate::store::Options;
use crate::txn::Sealed;
use crate::{CommitError, Committed, JournalQuery, JournalRow, Record, StoreError};

pub(crate) struct Memory {
    state: Mutex<State>,
    feed: Arc<Feed>,
    journal_kept: usize,
}

#[derive(Default)]
struct State {
    index: Index,
    records: BTreeMap<Key, Record>,
    journal: VecDeque<JournalRow>,
    counters: BTreeMap<String, u64>,
    seq: i64,
    journal_seq: i64,
}

impl Memory {
    pub fn new(options: Options) -> Self {
        let changes_kept = usize::try_from(options.changes_kept).unwrap_or(usize::MAX);
        Self {
            state: Mutex::default(),
            feed: Arc::new(Feed::new(0, changes_kept, usize::MAX)),
            journal_kept: usize::try_from(options.journal_kept).unwrap_or(usize::MAX),
        }
    }

    pub fn commit(&self, txn: &Sealed) -> Result<Committed, CommitError> {
        let mut state = self.lock();
        let mut plan = Plan::new(state.seq, state.journal_seq);
        let committed = plan.apply(&mut state.index, txn)?;
        state.seq = plan.seq;
        state.journal_seq = plan.journal_seq;
        for change in &plan.changes {
            let key = (change.kind.clone(), change.id.clone());
            match &change.record {
                Some(record) => state.records.insert(key, record.clone()),
                None => state.records.remove(&key),
            };
        }
        state.journal.extend(plan.journal);
        let surplus = state.journal.len().saturating_sub(self.journal_kept);
        state.journal.drain(..surplus);
        // Under the lock, so that the feed has the order of the commits.
        self.feed.publish(plan.changes);
        Ok(committed)
    }

    pub fn get(&self, kind: &str, id: &str) -> Option<Record> {
        self.lock().records.get(&(kind.to_owned(), id.to_owned())).cloned()
    }

    pub fn list(&self, kind: &str) -> Vec<Record> {
        let state = self.lock();
        let from = (kind.to_owned(), String::new());
        state.records.range(from..).take_while(|(key, _)| key.0 == kind).map(|(_, r)| r.clone()).collect()
    }

    pub fn list_under(&self, kind: &str, prefix: &str, after: &str, most: usize) -> Vec<Record> {
        let state = self.lock();
        let from = (kind.to_owned(), prefix.max(after).to_owned());
        let under = |key: &(String, String)| key.0 == kind && key.1.starts_with(prefix);
        let rows = state.records.range(from..).take_while(|(key, _)| under(key));
        rows.filter(|(key, _)| key.1.as_str() > after).take(most).map(|(_, r)| r.clone()).collect()
    }

    pub fn load(&self, without: &[&str]) -> (Vec<Record>, i64) {
        let state = self.lock();
        let records = state.records.values().filter(|record| !without.contains(&record.kind.as_str()));
        (records.cloned().collect(), state.seq)
    }

    pub fn head(&self) -> i64 {
        self.lock().seq
    }

    pub fn watch(&self, since: i64) -> Result<Watch, StoreError> {
        let head = self.head();
        if since > head {
            return Err(StoreError::Ahead { since, head });
        }
        let oldest = self.feed.oldest().unwrap_or(head + 1);
        if since + 1 < oldest {
            return Err(StoreError::Lapsed { since, oldest });
        }
        Ok(Watch::new(since, self.feed.clone(), None))
    }

    pub fn journal(&self, query: &JournalQuery) -> Vec<JournalRow> {
        let limit = usize::try_from(query.page()).unwrap_or(usize::MAX);
        self.lock().journal.iter().rev().filter(|row| query.matches(row)).take(limit).cloned().collect()
    }

    pub fn counter_from(&self, name: &str, least: u64) -> u64 {
        let mut state = self.lock();
        let value = state.counters.entry(name.to_owned()).or_default();
        *value = value.saturating_add(1).max(least);
        *value
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the state panics")
    }
}
