//! The SQL engine: one code path for SQLite and PostgreSQL through sqlx's `any`.
//!
//! `dialect` is all that differs between the two; `schema` the tables;
//! `reader` what is read outside commits; `writer` the one task that commits,
//! with `batch` and `bulk` as its hands; `listen` hears of other servers'
//! commits; `lock` keeps a second process off.

mod batch;
mod bulk;
mod dialect;
mod listen;
mod lock;
mod reader;
mod schema;
mod writer;

use std::sync::Arc;

use sqlx::Connection;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

pub(crate) use reader::Reader;

use crate::feed::{Feed, Watch};
use crate::limits::{QUEUE_MAX, RING_BYTES_MAX, RING_CHANGES_MAX};
use crate::store::Options;
use crate::txn::Sealed;
use crate::{CommitError, Committed, StoreError};
use dialect::{Connector, Dialect};
use writer::{Work, Writer};

/// The engine's handle; the writer task ends when it is dropped.
pub(crate) struct Sql {
    queue: mpsc::Sender<Work>,
    reader: Reader,
    feed: Arc<Feed>,
    follower: Option<AbortHandle>,
}

impl Sql {
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let connector = Connector::parse(url)?;
        let lock = connector.lock()?;
        if connector.folder().is_some_and(sal::reserve::way_make) {
            tracing::warn!("the disk is full: the room that was kept for the database is used now");
        }
        let dialect = connector.dialect;
        let failed = |error| dialect.store_error(error);
        let mut connection = connector.writer().await.map_err(failed)?;
        if let Err(error) = schema::migrate(&mut connection, dialect).await {
            // Said goodbye to, so that the files are free when the caller sees the error.
            let _ = connection.close().await;
            return Err(error);
        }
        let writer_id =
            schema::writer_register(&mut connection, options.changes_kept).await.map_err(failed)?;
        let reader = Reader::new(connector.pool().await.map_err(failed)?, dialect);
        let feed = Arc::new(Feed::new(reader.head().await?, RING_CHANGES_MAX, RING_BYTES_MAX));
        let (queue, works) = mpsc::channel(QUEUE_MAX);
        let writer = Writer::new(connector, connection, writer_id, options, feed.clone());
        let pool = reader.clone();
        tokio::spawn(async move {
            let closers = writer.run(works).await;
            pool.close().await;
            drop(lock);
            // Only now may those who closed the store open it again.
            drop(closers);
        });
        let follower = (dialect == Dialect::Postgres)
            .then(|| listen::follow(url.to_owned(), reader.clone(), feed.clone()));
        Ok(Self { queue, reader, feed, follower })
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    pub async fn commit(&self, txn: Sealed) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Work::Commit(txn, reply), answer).await
    }

    pub async fn counter_from(&self, name: &str, least: i64) -> Result<u64, CommitError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Work::Counter(name.to_owned(), least, reply), answer).await
    }

    pub async fn watch(&self, since: i64) -> Result<Watch, StoreError> {
        let (oldest, head) = self.reader.bounds().await?;
        if since > head {
            return Err(StoreError::Ahead { since, head });
        }
        if since + 1 < oldest {
            return Err(StoreError::Lapsed { since, oldest });
        }
        self.feed.advance(head);
        Ok(Watch::new(since, self.feed.clone(), Some(self.reader.clone())))
    }

    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.queue.send(Work::Close(reply)).await.is_ok() {
            // No answer is ever sent: the sender is dropped when the database is let go.
            let _ = closed.await;
        }
    }

    async fn ask<T>(
        &self,
        work: Work,
        answer: oneshot::Receiver<Result<T, CommitError>>,
    ) -> Result<T, CommitError> {
        let stopped = || CommitError::Unavailable("the store was closed".to_owned());
        self.queue.send(work).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}
