//! The tables, as a numbered list of migrations. Columns are BIGINT and TEXT
//! only, because those mean the same on both databases.

use sqlx::{AnyConnection, Connection, Row};

use super::dialect::Dialect;
use crate::StoreError;

struct Migration {
    number: i64,
    name: &'static str,
    statements: &'static [&'static str],
    /// What only this database needs.
    postgres: &'static [&'static str],
}

/// Only ever added to: a released migration never changes.
const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "records, changes, journal, counters",
        postgres: &[],
        statements: &[
            // `tenant` is '' where there is none, so that names without a tenant are unique too.
            "CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, name TEXT, \
         version BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, id))",
            "CREATE UNIQUE INDEX records_name ON records (kind, tenant, name)",
            // A `body` of NULL is a deletion. The version of a record is its `seq` here.
            "CREATE TABLE changes (seq BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, \
         tenant TEXT NOT NULL, name TEXT, body TEXT)",
            "CREATE TABLE journal (seq BIGINT NOT NULL PRIMARY KEY, at_us BIGINT NOT NULL, tenant TEXT NOT NULL, \
         subject TEXT NOT NULL, body TEXT NOT NULL)",
            "CREATE INDEX journal_tenant ON journal (tenant, seq)",
            "CREATE INDEX journal_subject ON journal (subject, seq)",
            "CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)",
            // One row. Every batch locks it first, which gives all servers one order.
            "CREATE TABLE head (seq BIGINT NOT NULL, journal_seq BIGINT NOT NULL)",
            "INSERT INTO head (seq, journal_seq) VALUES (0, 0)",
            // Each writer's last batch, so that one whose COMMIT got no answer knows whether it landed.
            "CREATE TABLE writers (id BIGINT NOT NULL PRIMARY KEY, batch BIGINT NOT NULL, seq BIGINT NOT NULL)",
        ],
    },
    Migration {
        number: 2,
        name: "keys in the order of their bytes",
        statements: &[],
        // SQLite has this order already. An order of words, as databases are often set up with, would keep no prefix
        // together, and is slower to compare.
        postgres: &[
            "ALTER TABLE records ALTER COLUMN kind TYPE TEXT COLLATE \"C\", ALTER COLUMN id TYPE TEXT COLLATE \"C\", \
         ALTER COLUMN tenant TYPE TEXT COLLATE \"C\", ALTER COLUMN name TYPE TEXT COLLATE \"C\"",
        ],
    },
    Migration {
        number: 3,
        name: "names indexed where there are any",
        statements: &[
            "DROP INDEX records_name",
            "CREATE UNIQUE INDEX records_name ON records (kind, tenant, name) WHERE name IS NOT NULL",
        ],
        // Room on each page for the next version of what is on it, so that the indexes stay as they are.
        postgres: &["ALTER TABLE records SET (fillfactor = 75)"],
    },
];

/// The counter that numbers the writers.
const WRITER_COUNTER: &str = "store.writer";

/// Brings the tables to this version's shape, or refuses those of a newer version.
pub(super) async fn migrate(connection: &mut AnyConnection, dialect: Dialect) -> Result<(), StoreError> {
    let known = MIGRATIONS.last().map_or(0, |migration| migration.number);
    match step(connection, dialect, known).await {
        Ok(found) if found > known => Err(StoreError::Newer { found, known }),
        Ok(_) => Ok(()),
        Err(error) => Err(dialect.store_error(error)),
    }
}

/// Returns the number that was found; changes nothing when it is above `known`.
async fn step(connection: &mut AnyConnection, dialect: Dialect, known: i64) -> Result<i64, sqlx::Error> {
    let mut tx = connection.begin_with(dialect.begin_write()).await?;
    if let Some(guard) = dialect.migration_guard() {
        sqlx::raw_sql(guard).execute(&mut *tx).await?;
    }
    let table =
        "CREATE TABLE IF NOT EXISTS migrations (number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL)";
    sqlx::query(table).execute(&mut *tx).await?;
    let row = sqlx::query("SELECT COALESCE(MAX(number), 0) FROM migrations").fetch_one(&mut *tx).await?;
    let found: i64 = row.try_get(0)?;
    if found > known {
        tx.rollback().await?;
        return Ok(found);
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > found) {
        let own = if dialect == Dialect::Postgres { migration.postgres } else { &[] };
        for statement in migration.statements.iter().chain(own) {
            sqlx::query(*statement).execute(&mut *tx).await?;
        }
        let done = sqlx::query("INSERT INTO migrations (number, name) VALUES ($1, $2)");
        done.bind(migration.number).bind(migration.name).execute(&mut *tx).await?;
        tracing::info!(number = migration.number, name = migration.name, "migrated the database");
    }
    tx.commit().await?;
    Ok(found)
}

/// Gives this writer a number that no other ever had, and forgets writers that are long gone.
pub(super) async fn writer_register(
    connection: &mut AnyConnection,
    changes_kept: i64,
) -> Result<i64, sqlx::Error> {
    let next = "INSERT INTO counters (name, value) VALUES ($1, 1) \
                ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value";
    let row = sqlx::query(next).bind(WRITER_COUNTER).fetch_all(&mut *connection).await?;
    let id = row.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
    // A writer that still runs makes its row again with its next batch.
    let forget = "DELETE FROM writers WHERE seq < (SELECT MAX(seq) FROM head) - $1";
    sqlx::query(forget).bind(changes_kept).execute(connection).await?;
    Ok(id)
}
