//! How one server sees what others commit: PostgreSQL tells it at once, and a slow look at the head makes up
//! for a word that got lost. A batch tells its last change inside its own transaction, so the word arrives
//! only after the commit can be seen, and in the order of the commits.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use sqlx::{AnyConnection, AssertSqlSafe, Error};
use tokio::task::AbortHandle;

use super::reader::Reader;
use crate::StoreError;
use crate::feed::Feed;
use crate::limits::{CONNECT_TIMEOUT, LOOK_INTERVAL, POLL_INTERVAL};

const CHANNEL: &str = "banyan_changes";

/// Tells the other servers that there are changes up to `seq`, once the transaction is committed.
pub(super) async fn tell(connection: &mut AnyConnection, seq: i64) -> Result<(), Error> {
    let word = AssertSqlSafe(format!("NOTIFY {CHANNEL}, '{seq}'"));
    sqlx::raw_sql(word).execute(connection).await.map(drop)
}

/// Follows the other servers until it is aborted or the store is closed.
pub(super) fn follow(url: String, reader: Reader, feed: Arc<Feed>) -> AbortHandle {
    let task = tokio::spawn(async move {
        let mut listener = None;
        // An outage is told once, not with every look.
        let mut warned = false;
        loop {
            if listener.is_none() {
                listener = match connect(&url).await {
                    Ok(listening) => Some(listening),
                    Err(error) if warned => {
                        tracing::debug!(%error, "the database still does not tell of changes");
                        None
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the database does not tell of changes; it is asked instead");
                        None
                    }
                };
                warned = listener.is_none();
            }
            match next(&mut listener).await {
                Some(seq) => feed.advance(seq),
                None if feed.is_watched() => match reader.head().await {
                    Ok(seq) => feed.advance(seq),
                    Err(StoreError::Closed) => return,
                    Err(error) => tracing::debug!(%error, "cannot look for changes of other servers"),
                },
                None => {}
            }
        }
    });
    task.abort_handle()
}

async fn connect(url: &str) -> Result<PgListener, Error> {
    let connect = async {
        let mut listener = PgListener::connect(url).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    let late = || Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection in time"));
    tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| Err(late()))
}

/// The change that was told of, or `None` when it is time to look. A listener that lost its connection is
/// given up, because words may have been lost with it.
async fn next(listener: &mut Option<PgListener>) -> Option<i64> {
    let Some(listening) = listener else {
        tokio::time::sleep(POLL_INTERVAL).await;
        return None;
    };
    let wait: Duration = LOOK_INTERVAL;
    match tokio::time::timeout(wait, listening.try_recv()).await {
        Ok(Ok(Some(word))) => word.payload().parse().ok(),
        Ok(Ok(None) | Err(_)) => {
            *listener = None;
            None
        }
        Err(_) => None,
    }
}
