//! All that differs between SQLite and PostgreSQL: how to connect, how a
//! transaction begins, and what an error means.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection};

use super::lock::Lock;
use crate::limits::{CONNECT_TIMEOUT, READERS_MAX};
use crate::{CommitError, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// What the writer does about a failed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The same may succeed soon.
    Passing,
    /// The disk is full.
    Full,
    /// Trying again is useless.
    Lasting,
}

// An acknowledged write survives a power loss: FULL syncs the log at every commit. The log goes into the database
// after 8,000 pages, 32 MB: that syncs once more, and commits wait for it.
const SQLITE_WRITER: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -16000; \
                             PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = 67108864; \
                             PRAGMA busy_timeout = 5000;";
const SQLITE_READER: &str = "PRAGMA query_only = ON; PRAGMA busy_timeout = 5000;";
// A server that dies in the middle of a batch must not hold the head for long. Everything is looked up by a key: a plan
// that reads whole tables is right while they are empty, and would be kept while they grow. What compiling costs is
// never earned back.
const POSTGRES_WRITER: &str = "SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '10s'; \
                               SET client_min_messages = 'warning'; SET enable_seqscan = off; \
                               SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;";
const POSTGRES_READER: &str = "SET default_transaction_read_only = on; SET jit = off;";

impl Dialect {
    pub fn of(connection: &AnyConnection) -> Self {
        match connection.backend_name() {
            "PostgreSQL" => Dialect::Postgres,
            _ => Dialect::Sqlite,
        }
    }

    pub fn begin_write(self) -> &'static str {
        match self {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            // Each statement sees what was committed before the head was locked.
            Dialect::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
        }
    }

    pub fn begin_read(self) -> &'static str {
        match self {
            Dialect::Sqlite => "BEGIN",
            Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Makes servers that start together migrate one after the other.
    pub fn migration_guard(self) -> Option<&'static str> {
        match self {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some("DO $$ BEGIN PERFORM pg_advisory_xact_lock(7222510); END $$"),
        }
    }

    pub(super) fn fault(self, error: &sqlx::Error) -> Fault {
        let sqlx::Error::Database(database) = error else {
            return match error {
                sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => Fault::Full,
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::WorkerCrashed => Fault::Passing,
                _ => Fault::Lasting,
            };
        };
        let code = database.code().unwrap_or_default();
        match self {
            Dialect::Sqlite => sqlite_fault(code.parse().unwrap_or(0)),
            Dialect::Postgres => postgres_fault(&code),
        }
    }

    pub fn store_error(self, error: sqlx::Error) -> StoreError {
        match (self.fault(&error), &error) {
            (_, sqlx::Error::PoolClosed) => StoreError::Closed,
            (Fault::Full, _) => StoreError::Full(error.to_string()),
            _ => StoreError::Unavailable(error.to_string()),
        }
    }

    pub fn commit_error(self, error: &sqlx::Error) -> CommitError {
        match self.fault(error) {
            Fault::Full => CommitError::Full(error.to_string()),
            Fault::Passing | Fault::Lasting => CommitError::Unavailable(error.to_string()),
        }
    }
}

fn sqlite_fault(code: i32) -> Fault {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const FULL: i32 = 13;
    // The shared index of the log could not grow, which on a disk means that it is full.
    const IOERR_SHMSIZE: i32 = 4874;
    match code {
        IOERR_SHMSIZE => Fault::Full,
        _ if code & 0xff == FULL => Fault::Full,
        _ if [BUSY, LOCKED].contains(&(code & 0xff)) => Fault::Passing,
        _ => Fault::Lasting,
    }
}

fn postgres_fault(code: &str) -> Fault {
    match code {
        "53100" => Fault::Full,
        // Serialization, deadlock, lock timeout, idle timeout, a standby not yet promoted, too many connections.
        "40001" | "40P01" | "55P03" | "25P03" | "25006" | "53300" => Fault::Passing,
        _ if code.starts_with("08") || code.starts_with("57P0") => Fault::Passing,
        _ => Fault::Lasting,
    }
}

/// How to reach the database.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub dialect: Dialect,
    options: AnyConnectOptions,
    /// The file, for SQLite.
    path: Option<PathBuf>,
}

impl Connector {
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let wrong = || StoreError::Url(url.to_owned());
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = AnyConnectOptions::from_str(url).map_err(|_| wrong())?.disable_statement_logging();
            return Ok(Self { dialect: Dialect::Postgres, options, path: None });
        }
        let path = url.strip_prefix("sqlite:").ok_or_else(wrong)?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.starts_with(':') {
            return Err(wrong());
        }
        let path = std::path::absolute(path).map_err(|_| wrong())?;
        let encoded = percent_encode(path.to_str().ok_or_else(wrong)?);
        let options =
            AnyConnectOptions::from_str(&format!("sqlite:{encoded}?mode=rwc")).map_err(|_| wrong())?;
        let options = options.disable_statement_logging();
        Ok(Self { dialect: Dialect::Sqlite, options, path: Some(path) })
    }

    pub fn lock(&self) -> Result<Option<Lock>, StoreError> {
        self.path.as_deref().map(Lock::take).transpose()
    }

    /// Where the file is, for SQLite.
    pub fn folder(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }

    pub async fn writer(&self) -> Result<AnyConnection, sqlx::Error> {
        let connect = AnyConnection::connect_with(&self.options);
        let mut connection = tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| {
            Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection in time")))
        })?;
        let setup = match self.dialect {
            Dialect::Sqlite => SQLITE_WRITER,
            Dialect::Postgres => POSTGRES_WRITER,
        };
        sqlx::raw_sql(setup).execute(&mut connection).await?;
        Ok(connection)
    }

    pub async fn pool(&self) -> Result<AnyPool, sqlx::Error> {
        let setup = match self.dialect {
            Dialect::Sqlite => SQLITE_READER,
            Dialect::Postgres => POSTGRES_READER,
        };
        AnyPoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(move |connection, _| {
                Box::pin(async move { sqlx::raw_sql(setup).execute(connection).await.map(drop) })
            })
            .connect_with(self.options.clone())
            .await
    }
}

/// Keeps what a path may hold from being read as a part of the URL.
fn percent_encode(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
