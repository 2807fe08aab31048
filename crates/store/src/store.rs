//! The handle that everyone holds: cheap to clone, one face for every engine.

use std::sync::Arc;

use crate::limits::{CHANGES_KEPT, JOURNAL_KEPT, KEY_BYTES_MAX, LIST_PAGE};
use crate::memory::Memory;
use crate::sql::Sql;
use crate::{CommitError, Committed, JournalQuery, JournalRow, Record, StoreError, Txn, Watch};

/// What may be set at opening; the defaults are right outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub changes_kept: i64,
    pub journal_kept: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { changes_kept: CHANGES_KEPT, journal_kept: JOURNAL_KEPT }
    }
}

/// An open store. When the last handle is dropped, what was queued is still
/// written and the database is released; [`Store::close`] waits for that.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
}

#[derive(Clone)]
enum Engine {
    Memory(Arc<Memory>),
    Sql(Arc<Sql>),
}

impl Store {
    /// Opens `sqlite:PATH` (made if it is not there), `postgres://…` or `memory:`.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, Options::default()).await
    }

    pub async fn open_with(url: &str, options: Options) -> Result<Self, StoreError> {
        let engine = match url {
            "memory:" => Engine::Memory(Arc::new(Memory::new(options))),
            _ => Engine::Sql(Arc::new(Sql::open(url, options).await?)),
        };
        Ok(Self { engine })
    }

    /// A new, empty store in memory; its clones share it.
    pub fn memory() -> Self {
        Self { engine: Engine::Memory(Arc::new(Memory::new(Options::default()))) }
    }

    /// Applies a transaction; returns when it is durable and in the feed.
    pub async fn commit(&self, txn: Txn) -> Result<Committed, CommitError> {
        let txn = txn.seal()?;
        match &self.engine {
            Engine::Memory(memory) => memory.commit(&txn),
            Engine::Sql(sql) => sql.commit(txn).await,
        }
    }

    pub async fn get(&self, kind: &str, id: &str) -> Result<Option<Record>, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.get(kind, id)),
            Engine::Sql(sql) => sql.reader().get(kind, id).await,
        }
    }

    /// All records of a kind, by id.
    pub async fn list(&self, kind: &str) -> Result<Vec<Record>, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.list(kind)),
            Engine::Sql(sql) => sql.reader().list(kind).await,
        }
    }

    /// The records of a kind whose id begins with `prefix`, by id.
    pub async fn list_under(&self, kind: &str, prefix: &str) -> Result<Vec<Record>, StoreError> {
        let mut all = Vec::new();
        let gather = |record| {
            all.push(record);
            Ok::<(), StoreError>(())
        };
        self.each_under(kind, prefix, gather).await?;
        Ok(all)
    }

    /// Goes through the records of a kind whose id begins with `prefix`, by id, a page at a time, for those that may be
    /// too many to be held at once. What changes meanwhile may be seen or not.
    pub async fn each_under<E: From<StoreError>>(
        &self,
        kind: &str,
        prefix: &str,
        mut each: impl FnMut(Record) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut after = String::new();
        loop {
            let page = self.page_under(kind, prefix, &after, LIST_PAGE).await?;
            let is_last = page.len() < LIST_PAGE;
            if let Some(last) = page.last() {
                after.clone_from(&last.id);
            }
            page.into_iter().try_for_each(&mut each)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The first `most` of those records whose id comes after `after`.
    pub async fn page_under(
        &self,
        kind: &str,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<Record>, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.list_under(kind, prefix, after, most)),
            Engine::Sql(sql) => sql.reader().list_under(kind, prefix, after, most as i64).await,
        }
    }

    /// All records by kind and id, and the change they are consistent with.
    pub async fn load(&self) -> Result<(Vec<Record>, i64), StoreError> {
        self.load_without(&[]).await
    }

    /// The same without records of some kinds, of which there may be very many.
    pub async fn load_without(&self, kinds: &[&str]) -> Result<(Vec<Record>, i64), StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.load(kinds)),
            Engine::Sql(sql) => sql.reader().load(kinds).await,
        }
    }

    /// The last committed change.
    pub async fn head(&self) -> Result<i64, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.head()),
            Engine::Sql(sql) => sql.reader().head().await,
        }
    }

    /// Every change after `since`; `Lapsed` when those are no longer kept.
    pub async fn watch(&self, since: i64) -> Result<Watch, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => memory.watch(since),
            Engine::Sql(sql) => sql.watch(since).await,
        }
    }

    /// History, newest first.
    pub async fn journal(&self, query: JournalQuery) -> Result<Vec<JournalRow>, StoreError> {
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.journal(&query)),
            Engine::Sql(sql) => sql.reader().journal(&query).await,
        }
    }

    /// The next value of a durable counter: 1, 2, 3, … and never one twice.
    pub async fn counter_next(&self, name: &str) -> Result<u64, CommitError> {
        self.counter_from(name, 1).await
    }

    /// As [`Store::counter_next`], but never below `least`.
    pub async fn counter_from(&self, name: &str, least: u64) -> Result<u64, CommitError> {
        if name.is_empty() || name.len() > KEY_BYTES_MAX || name.contains('\0') {
            return Err(CommitError::Invalid(format!("{name:?} is no name of a counter")));
        }
        match &self.engine {
            Engine::Memory(memory) => Ok(memory.counter_from(name, least)),
            Engine::Sql(sql) => sql.counter_from(name, i64::try_from(least).unwrap_or(i64::MAX)).await,
        }
    }

    /// Writes what is queued, ends watches and releases the database. Other
    /// handles answer `Unavailable` from then on. The memory engine stays as it is.
    pub async fn close(self) {
        if let Engine::Sql(sql) = &self.engine {
            sql.close().await;
        }
    }
}
