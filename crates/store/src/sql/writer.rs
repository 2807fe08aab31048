//! The one task that writes. It takes all that is queued, applies it in one SQL
//! transaction, and answers after the COMMIT: many callers share one sync of the disk.

use std::sync::Arc;

use sal::Reserve;
use sqlx::{AnyConnection, Connection, Error};
use tokio::sync::{mpsc, oneshot};

use super::batch::{self, Answer, Outcome};
use super::dialect::{Connector, Dialect, Fault};
use super::listen;
use crate::feed::Feed;
use crate::limits::{
    BATCH_ATTEMPTS_MAX, BATCH_BYTES_MAX, BATCH_OPS_MAX, BATCH_TIMEOUT, GOODBYE_TIMEOUT, RETRY_PAUSE,
};
use crate::store::Options;
use crate::txn::{Op, Sealed};
use crate::{CommitError, Committed};

/// What callers ask of the writer, and where the answer goes.
pub(super) enum Work {
    Commit(Sealed, oneshot::Sender<Result<Committed, CommitError>>),
    /// The next value of the counter, and the least that it may be.
    Counter(String, i64, oneshot::Sender<Result<u64, CommitError>>),
    /// Take nothing more, finish, let go of the database.
    Close(oneshot::Sender<()>),
}

impl Work {
    pub fn ops(&self) -> &[Op] {
        match self {
            Work::Commit(txn, _) => &txn.ops,
            Work::Counter(..) | Work::Close(_) => &[],
        }
    }

    pub fn counter(&self) -> Option<&String> {
        match self {
            Work::Counter(name, ..) => Some(name),
            Work::Commit(..) | Work::Close(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Commit(txn, _) => txn.bytes,
            Work::Counter(..) | Work::Close(_) => 0,
        }
    }

    /// A caller that no longer waits is no error.
    fn answer(self, answer: Answer) {
        match (self, answer) {
            (Work::Commit(_, reply), Answer::Commit(result)) => drop(reply.send(result)),
            (Work::Counter(_, _, reply), Answer::Counter(value)) => drop(reply.send(Ok(value))),
            _ => {}
        }
    }

    fn refuse(self, error: CommitError) {
        match self {
            Work::Commit(_, reply) => drop(reply.send(Err(error))),
            Work::Counter(_, _, reply) => drop(reply.send(Err(error))),
            Work::Close(_) => {}
        }
    }
}

pub(super) struct Writer {
    connector: Connector,
    /// `None` after a failure, until the next batch connects again.
    connection: Option<AnyConnection>,
    id: i64,
    batch: i64,
    options: Options,
    feed: Arc<Feed>,
    /// So that what makes room can be written on a full disk.
    reserve: Option<Reserve>,
}

impl Writer {
    pub fn new(
        connector: Connector,
        connection: AnyConnection,
        id: i64,
        options: Options,
        feed: Arc<Feed>,
    ) -> Self {
        let reserve = connector.folder().map(Reserve::of);
        Self { connector, connection: Some(connection), id, batch: 0, options, feed, reserve }
    }

    /// Runs until every handle is dropped or one of them asks to close; returns those who wait for the end.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Work>) -> Vec<oneshot::Sender<()>> {
        let mut closers = Vec::new();
        while let Some(first) = queue.recv().await {
            // Callers that were just answered get to queue their next work into this batch.
            tokio::task::yield_now().await;
            let mut works = Vec::new();
            let mut size = (0, 0);
            let mut next = Some(first);
            while let Some(work) = next {
                size = (size.0 + work.ops().len().max(1), size.1 + work.bytes());
                match work {
                    Work::Close(reply) => {
                        queue.close();
                        closers.push(reply);
                    }
                    work => works.push(work),
                }
                let is_full = size.0 >= BATCH_OPS_MAX || size.1 >= BATCH_BYTES_MAX;
                next = if is_full { None } else { queue.try_recv().ok() };
            }
            self.serve(works).await;
        }
        self.feed.close();
        if let Some(connection) = self.connection.take() {
            let _ = tokio::time::timeout(GOODBYE_TIMEOUT, connection.close()).await;
        }
        closers
    }

    async fn serve(&mut self, works: Vec<Work>) {
        if works.is_empty() {
            return;
        }
        match self.apply(&works).await {
            Ok(outcome) => {
                self.reserve.iter().for_each(Reserve::make);
                self.feed.publish(outcome.plan.changes);
                for (work, answer) in works.into_iter().zip(outcome.answers) {
                    work.answer(answer);
                }
            }
            Err(error) => {
                tracing::error!(%error, works = works.len(), "a batch was not written");
                works.into_iter().for_each(|work| work.refuse(error.clone()));
            }
        }
    }

    /// Applies one batch, trying again while the fault may pass.
    async fn apply(&mut self, works: &[Work]) -> Result<Outcome, CommitError> {
        self.batch += 1;
        // What an attempt decided whose COMMIT got no answer: it may have landed.
        let mut unsure = None;
        let mut pause = RETRY_PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.attempt_bounded(works, &mut unsure).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let dialect = self.connector.dialect;
            if dialect.fault(&error) == Fault::Full && self.reserve.as_ref().is_some_and(Reserve::free) {
                tracing::warn!("the disk is full: the room that was kept for the database is used now");
                continue;
            }
            if attempt == BATCH_ATTEMPTS_MAX || dialect.fault(&error) != Fault::Passing {
                return Err(dialect.commit_error(&error));
            }
            tracing::warn!(%error, attempt, "a batch failed and is tried again");
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn attempt_bounded(
        &mut self,
        works: &[Work],
        unsure: &mut Option<Outcome>,
    ) -> Result<Outcome, Error> {
        // A local disk that is slow answers in the end, a silent network does not.
        if self.connector.dialect == Dialect::Sqlite {
            return self.attempt(works, unsure).await;
        }
        let late = || Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time"));
        tokio::time::timeout(BATCH_TIMEOUT, self.attempt(works, unsure)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn attempt(&mut self, works: &[Work], unsure: &mut Option<Outcome>) -> Result<Outcome, Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connector.writer().await?,
        };
        let result = self.transact(&mut connection, works, unsure).await;
        match &result {
            Ok(_) => self.connection = Some(connection),
            // Its state is unknown; a new one is clean.
            Err(_) => drop(tokio::time::timeout(GOODBYE_TIMEOUT, connection.close()).await),
        }
        result
    }

    async fn transact(
        &mut self,
        connection: &mut AnyConnection,
        works: &[Work],
        unsure: &mut Option<Outcome>,
    ) -> Result<Outcome, Error> {
        let mut tx = connection.begin_with(self.connector.dialect.begin_write()).await?;
        let head = batch::head_lock(&mut tx).await?;
        if unsure.is_some() && batch::landed(&mut tx, self.id, self.batch).await? {
            tx.rollback().await?;
            return Ok(unsure.take().expect("checked above"));
        }
        let outcome = batch::decide(&mut tx, head, works).await?;
        if outcome.is_empty() {
            tx.rollback().await?;
            return Ok(outcome);
        }
        batch::write(&mut tx, &outcome).await?;
        batch::finish(&mut tx, head, &outcome.plan, (self.id, self.batch), self.options).await?;
        if self.connector.dialect == Dialect::Postgres && outcome.plan.seq > head.seq {
            listen::tell(&mut tx, outcome.plan.seq).await?;
        }
        *unsure = Some(outcome);
        tx.commit().await?;
        Ok(unsure.take().expect("set before the commit"))
    }
}
