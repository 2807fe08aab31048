//! What is read outside commits, through a small pool of connections.

use std::future::Future;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, AssertSqlSafe, Error, Row};

use super::batch::tenant;
use super::dialect::Dialect;
use crate::limits::READ_TIMEOUT;
use crate::{Body, Change, JournalQuery, JournalRow, Record, StoreError};

#[derive(Clone)]
pub(crate) struct Reader {
    pool: AnyPool,
    dialect: Dialect,
}

impl Reader {
    pub fn new(pool: AnyPool, dialect: Dialect) -> Self {
        Self { pool, dialect }
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub async fn get(&self, kind: &str, id: &str) -> Result<Option<Record>, StoreError> {
        let find = "SELECT kind, id, tenant, name, version, body FROM records WHERE kind = $1 AND id = $2";
        let rows = self.bounded(sqlx::query(find).bind(kind).bind(id).fetch_all(&self.pool)).await?;
        rows.first().map(|row| self.record(row)).transpose()
    }

    pub async fn list(&self, kind: &str) -> Result<Vec<Record>, StoreError> {
        let find = "SELECT kind, id, tenant, name, version, body FROM records WHERE kind = $1";
        let rows = self.bounded(sqlx::query(find).bind(kind).fetch_all(&self.pool)).await?;
        self.records(&rows)
    }

    /// At most `most` records after the id `after`.
    pub async fn list_under(
        &self,
        kind: &str,
        prefix: &str,
        after: &str,
        most: i64,
    ) -> Result<Vec<Record>, StoreError> {
        let find = "SELECT kind, id, tenant, name, version, body FROM records \
                    WHERE kind = $1 AND id >= $2 AND id < $3 AND id > $4 ORDER BY id LIMIT $5";
        // No text that begins with the prefix comes after this one.
        let end = format!("{prefix}{}", char::MAX);
        let query = sqlx::query(find).bind(kind).bind(prefix).bind(end).bind(after).bind(most);
        let rows = self.bounded(query.fetch_all(&self.pool)).await?;
        self.records(&rows)
    }

    /// Records and head of one moment, because both are read in one transaction.
    pub async fn load(&self, without: &[&str]) -> Result<(Vec<Record>, i64), StoreError> {
        let mut find = "SELECT kind, id, tenant, name, version, body FROM records WHERE 1 = 1".to_owned();
        (1..=without.len()).for_each(|position| find.push_str(&format!(" AND kind <> ${position}")));
        let read = async {
            let mut tx = self.pool.begin_with(self.dialect.begin_read()).await?;
            let heads = sqlx::query("SELECT seq FROM head").fetch_all(&mut *tx).await?;
            let seq: i64 = heads.first().ok_or(Error::RowNotFound)?.try_get(0)?;
            let query =
                without.iter().fold(sqlx::query(AssertSqlSafe(find)), |query, kind| query.bind(*kind));
            let rows = query.fetch_all(&mut *tx).await?;
            tx.rollback().await?;
            Ok((rows, seq))
        };
        let (rows, seq) = self.bounded(read).await?;
        Ok((self.records(&rows)?, seq))
    }

    pub async fn head(&self) -> Result<i64, StoreError> {
        let rows = self.bounded(sqlx::query("SELECT seq FROM head").fetch_all(&self.pool)).await?;
        let row = rows.first().ok_or_else(|| StoreError::Corrupt("the table head is empty".to_owned()))?;
        row.try_get(0).map_err(|error| self.dialect.store_error(error))
    }

    /// The oldest change kept (the next one when there is none), and the head.
    pub async fn bounds(&self) -> Result<(i64, i64), StoreError> {
        let find = "SELECT COALESCE((SELECT MIN(seq) FROM changes), seq + 1), seq FROM head";
        let rows = self.bounded(sqlx::query(find).fetch_all(&self.pool)).await?;
        let row = rows.first().ok_or_else(|| StoreError::Corrupt("the table head is empty".to_owned()))?;
        let read = || Ok((row.try_get(0)?, row.try_get(1)?));
        read().map_err(|error| self.dialect.store_error(error))
    }

    /// The changes after `since`, in order.
    pub async fn changes(&self, since: i64, limit: i64) -> Result<Vec<Change>, StoreError> {
        let find =
            "SELECT seq, kind, id, tenant, name, body FROM changes WHERE seq > $1 ORDER BY seq LIMIT $2";
        let rows = self.bounded(sqlx::query(find).bind(since).bind(limit).fetch_all(&self.pool)).await?;
        rows.iter().map(|row| self.change(row)).collect()
    }

    pub async fn journal(&self, query: &JournalQuery) -> Result<Vec<JournalRow>, StoreError> {
        // Both bounds are always given, so that only the two texts make variants.
        let mut find =
            "SELECT seq, at_us, tenant, subject, body FROM journal WHERE seq < $1 AND seq > $2".to_owned();
        let texts: Vec<(&str, &String)> = [("tenant", &query.tenant), ("subject", &query.subject)]
            .into_iter()
            .filter_map(|(column, text)| text.as_ref().map(|text| (column, text)))
            .collect();
        for (position, (column, _)) in texts.iter().enumerate() {
            find.push_str(&format!(" AND {column} = ${}", position + 3));
        }
        find.push_str(&format!(" ORDER BY seq DESC LIMIT ${}", texts.len() + 3));
        let mut statement = sqlx::query(AssertSqlSafe(find))
            .bind(query.before_seq.unwrap_or(i64::MAX))
            .bind(query.after_seq.unwrap_or(0));
        for (_, text) in texts {
            statement = statement.bind(text);
        }
        let rows = self.bounded(statement.bind(query.page()).fetch_all(&self.pool)).await?;
        rows.iter().map(|row| self.journal_row(row)).collect()
    }

    async fn bounded<T>(&self, read: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(result) => result.map_err(|error| self.dialect.store_error(error)),
            Err(_) => Err(StoreError::Unavailable("a read took too long".to_owned())),
        }
    }

    /// Sorted here, because the databases do not agree on the order of texts.
    fn records(&self, rows: &[AnyRow]) -> Result<Vec<Record>, StoreError> {
        let mut records = rows.iter().map(|row| self.record(row)).collect::<Result<Vec<_>, _>>()?;
        records.sort_unstable_by(|a, b| (&a.kind, &a.id).cmp(&(&b.kind, &b.id)));
        Ok(records)
    }

    fn record(&self, row: &AnyRow) -> Result<Record, StoreError> {
        let failed = |error| self.dialect.store_error(error);
        let (kind, id): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let (tenant, name) = (tenant(row, 2).map_err(failed)?, row.try_get(3).map_err(failed)?);
        let (version, text) = (row.try_get(4).map_err(failed)?, row.try_get(5).map_err(failed)?);
        let body = body(text, &kind, &id)?;
        Ok(Record { kind, id, tenant, name, version, body })
    }

    fn change(&self, row: &AnyRow) -> Result<Change, StoreError> {
        let read = || {
            let change = Change {
                seq: row.try_get(0)?,
                kind: row.try_get(1)?,
                id: row.try_get(2)?,
                version: row.try_get(0)?,
                record: None,
            };
            Ok((change, tenant(row, 3)?, row.try_get(4)?, row.try_get::<Option<String>, _>(5)?))
        };
        let (mut change, tenant, name, text) = read().map_err(|error| self.dialect.store_error(error))?;
        if let Some(text) = text {
            let body = body(text, &change.kind, &change.id)?;
            let (kind, id, version) = (change.kind.clone(), change.id.clone(), change.version);
            change.record = Some(Record { kind, id, tenant, name, version, body });
        }
        Ok(change)
    }

    fn journal_row(&self, row: &AnyRow) -> Result<JournalRow, StoreError> {
        let failed = |error| self.dialect.store_error(error);
        let (seq, at_us) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let tenant = tenant(row, 2).map_err(failed)?;
        let (subject, text): (String, String) =
            (row.try_get(3).map_err(failed)?, row.try_get(4).map_err(failed)?);
        let body = body(text, "journal row", &subject)?;
        Ok(JournalRow { seq, at_us, tenant, subject, body })
    }
}

fn body(text: String, kind: &str, id: &str) -> Result<Body, StoreError> {
    Body::from_text(text).map_err(|error| StoreError::Corrupt(format!("{kind} {id} is damaged: {error}")))
}
