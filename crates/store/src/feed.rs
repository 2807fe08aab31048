//! The change feed: recent changes in memory, a wake-up for watchers, and the
//! watch itself, which falls back to the database for what is older.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::Stream;
use tokio::sync::watch;

use crate::limits::WATCH_BATCH_MAX;
use crate::sql::Reader;
use crate::{Change, StoreError};

/// A run of changes without gaps, newest last.
#[derive(Default)]
struct Ring {
    entries: VecDeque<Change>,
    bytes: usize,
}

/// `head` is the last change known to be committed; it may be ahead of the
/// ring when another server committed it.
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    head: watch::Sender<Head>,
    changes_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    seq: i64,
    closed: bool,
}

impl Feed {
    pub fn new(seq: i64, changes_max: usize, bytes_max: usize) -> Self {
        let (head, _) = watch::channel(Head { seq, closed: false });
        Self { ring: Mutex::default(), head, changes_max, bytes_max }
    }

    /// Tells watchers of committed changes. Called in the order of the commits.
    pub fn publish(&self, changes: Vec<Change>) {
        let Some(last) = changes.last().map(|change| change.seq) else { return };
        {
            let mut ring = self.lock();
            ring.extend(changes);
            ring.trim(self.changes_max, self.bytes_max);
        }
        self.advance(last);
    }

    /// Tells watchers that the database has changes up to `seq`.
    pub fn advance(&self, seq: i64) {
        self.head.send_if_modified(|head| {
            let newer = seq > head.seq;
            head.seq = head.seq.max(seq);
            newer
        });
    }

    pub fn close(&self) {
        self.head.send_modify(|head| head.closed = true);
    }

    pub fn is_watched(&self) -> bool {
        self.head.receiver_count() > 0
    }

    pub fn seq(&self) -> i64 {
        self.head.borrow().seq
    }

    /// The oldest change in memory.
    pub fn oldest(&self) -> Option<i64> {
        self.lock().entries.front().map(|change| change.seq)
    }

    /// Changes after `seq`, or `None` when memory does not hold the next one.
    fn read(&self, seq: i64) -> Option<Vec<Change>> {
        let ring = self.lock();
        let first = ring.entries.front()?.seq;
        let skip = usize::try_from(seq + 1 - first).ok()?;
        if skip >= ring.entries.len() {
            return None;
        }
        Some(ring.entries.range(skip..).take(WATCH_BATCH_MAX).cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().expect("no holder of the ring panics")
    }
}

impl Ring {
    fn extend(&mut self, changes: Vec<Change>) {
        for change in changes {
            // Changes of another server lie between: what is older is read from the database.
            if self.entries.back().is_some_and(|last| last.seq + 1 != change.seq) {
                *self = Self::default();
            }
            self.bytes += size(&change);
            self.entries.push_back(change);
        }
    }

    fn trim(&mut self, changes_max: usize, bytes_max: usize) {
        while self.entries.len() > changes_max || self.bytes > bytes_max {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= size(&oldest);
        }
    }
}

fn size(change: &Change) -> usize {
    change.record.as_ref().map_or(0, |record| record.body.text().len())
}

/// Every change after a given one, once and in order.
pub struct Watch {
    seq: i64,
    head: watch::Receiver<Head>,
    feed: Arc<Feed>,
    /// Where older changes are; `None` for the memory engine, whose feed holds all it keeps.
    reader: Option<Reader>,
}

impl Watch {
    pub(crate) fn new(seq: i64, feed: Arc<Feed>, reader: Option<Reader>) -> Self {
        Self { seq, head: feed.head.subscribe(), feed, reader }
    }

    /// The last change returned, or where the watch began.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// Waits for the next changes and returns at least one.
    ///
    /// Cancelling it loses nothing. After `Unavailable` it may be called
    /// again and goes on where it was; after `Lapsed` the caller loads anew.
    pub async fn next_batch(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            let head = *self.head.borrow_and_update();
            if head.seq > self.seq {
                let batch = match self.feed.read(self.seq) {
                    Some(batch) => batch,
                    None => self.older().await?,
                };
                if let Some(last) = batch.last() {
                    self.seq = last.seq;
                    return Ok(batch);
                }
            }
            if head.closed {
                return Err(StoreError::Closed);
            }
            self.head.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }

    async fn older(&self) -> Result<Vec<Change>, StoreError> {
        let since = self.seq;
        let Some(reader) = &self.reader else {
            let oldest = self.feed.oldest().unwrap_or(self.feed.seq() + 1);
            return Err(StoreError::Lapsed { since, oldest });
        };
        let batch = reader.changes(since, WATCH_BATCH_MAX as i64).await?;
        match batch.first() {
            Some(first) if first.seq != since + 1 => Err(StoreError::Lapsed { since, oldest: first.seq }),
            _ => Ok(batch),
        }
    }

    /// The changes one by one; the stream ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Change, StoreError>> + Send + Unpin {
        let start = Some((self, Vec::new().into_iter()));
        Box::pin(futures::stream::unfold(start, |state| async move {
            let (mut watch, mut batch) = state?;
            loop {
                if let Some(change) = batch.next() {
                    return Some((Ok(change), Some((watch, batch))));
                }
                match watch.next_batch().await {
                    Ok(next) => batch = next.into_iter(),
                    Err(error) => return Some((Err(error), None)),
                }
            }
        }))
    }
}
