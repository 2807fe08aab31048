//! One batch inside its SQL transaction: lock the head, read what the batch
//! touches, decide with the plan, write the rows.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Error, Row};

use super::bulk::{Bulk, Rows};
use super::writer::Work;
use crate::plan::{Index, Meta, Plan};
use crate::store::Options;
use crate::txn::Op;
use crate::{CommitError, Committed, limits};

const META_BY_KEY: Bulk = Bulk {
    before: "WITH want (kind, id) AS (VALUES",
    rows: Rows::Values(2),
    after: ") SELECT r.kind, r.id, r.tenant, r.name, r.version \
            FROM want CROSS JOIN records r WHERE r.kind = want.kind AND r.id = want.id",
};
const META_BY_NAME: Bulk = Bulk {
    before: "WITH want (kind, tenant, name) AS (VALUES",
    rows: Rows::Values(3),
    after: ") SELECT r.kind, r.id, r.tenant, r.name, r.version FROM want CROSS JOIN records r \
            WHERE r.kind = want.kind AND r.tenant = want.tenant AND r.name = want.name",
};
const COUNTER_BY_NAME: Bulk = Bulk {
    before: "WITH want (name) AS (VALUES",
    rows: Rows::Values(1),
    after: ") SELECT c.name, c.value FROM want CROSS JOIN counters c WHERE c.name = want.name",
};
const RECORD_PUT: Bulk = Bulk {
    before: "INSERT INTO records (kind, id, tenant, name, version, body) VALUES",
    rows: Rows::Values(6),
    after: "ON CONFLICT (kind, id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, \
            version = excluded.version, body = excluded.body",
};
const RECORD_DELETE: Bulk = Bulk { before: "DELETE FROM records WHERE", rows: Rows::Keys, after: "" };
const RECORD_UNNAME: Bulk =
    Bulk { before: "UPDATE records SET name = NULL WHERE", rows: Rows::Keys, after: "" };
const CHANGE_ADD: Bulk = Bulk {
    before: "INSERT INTO changes (seq, kind, id, tenant, name, body) VALUES",
    rows: Rows::Values(6),
    after: "",
};
const JOURNAL_ADD: Bulk = Bulk {
    before: "INSERT INTO journal (seq, at_us, tenant, subject, body) VALUES",
    rows: Rows::Values(5),
    after: "",
};
const COUNTER_PUT: Bulk = Bulk {
    before: "INSERT INTO counters (name, value) VALUES",
    rows: Rows::Values(2),
    after: "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
};

/// The last seq of changes and of the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub seq: i64,
    pub journal_seq: i64,
}

/// The answer to one work, in the order of the works.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Commit(Result<Committed, CommitError>),
    Counter(u64),
    None,
}

/// What a batch does and what its callers are told.
#[derive(Debug)]
pub(super) struct Outcome {
    pub answers: Vec<Answer>,
    pub plan: Plan,
    counters: BTreeMap<String, i64>,
}

impl Outcome {
    pub fn is_empty(&self) -> bool {
        self.plan.is_empty() && self.counters.is_empty()
    }
}

/// Waits for other servers' batches; until the end of the transaction ours is the only one.
pub(super) async fn head_lock(connection: &mut AnyConnection) -> Result<Head, Error> {
    let lock = sqlx::query("UPDATE head SET seq = seq RETURNING seq, journal_seq");
    let rows = lock.fetch_all(connection).await?;
    let row = rows.first().ok_or(Error::RowNotFound)?;
    Ok(Head { seq: row.try_get(0)?, journal_seq: row.try_get(1)? })
}

/// Whether this writer's batch is in the database already.
pub(super) async fn landed(connection: &mut AnyConnection, writer: i64, batch: i64) -> Result<bool, Error> {
    let find = sqlx::query("SELECT batch FROM writers WHERE id = $1");
    let rows = find.bind(writer).fetch_all(connection).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.try_get::<i64, _>(0)? == batch))
}

pub(super) async fn decide(
    connection: &mut AnyConnection,
    head: Head,
    works: &[Work],
) -> Result<Outcome, Error> {
    let mut index = index_read(connection, works).await?;
    let mut counters = counters_read(connection, works).await?;
    let mut touched = BTreeMap::new();
    let mut plan = Plan::new(head.seq, head.journal_seq);
    let mut answers = Vec::with_capacity(works.len());
    for work in works {
        answers.push(match work {
            Work::Commit(txn, _) => Answer::Commit(plan.apply(&mut index, txn)),
            Work::Counter(name, least, _) => {
                let value = counters.entry(name).or_default();
                *value = value.saturating_add(1).max(*least);
                touched.insert(name.clone(), *value);
                Answer::Counter(value.unsigned_abs())
            }
            Work::Close(_) => Answer::None,
        });
    }
    Ok(Outcome { answers, plan, counters: touched })
}

async fn index_read(connection: &mut AnyConnection, works: &[Work]) -> Result<Index, Error> {
    let ops = || works.iter().flat_map(Work::ops);
    let keys: BTreeSet<(&str, &str)> = ops().filter_map(Op::key).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let claims: BTreeSet<(&str, &str, &str)> = ops().filter_map(Op::claim).collect();
    let claims: Vec<_> = claims.into_iter().collect();
    let mut rows = META_BY_KEY
        .fetch(connection, &keys, |values, (kind, id)| {
            values.text(kind).text(id);
        })
        .await?;
    let named = META_BY_NAME.fetch(connection, &claims, |values, (kind, tenant, name)| {
        values.text(kind).text(tenant).text(name);
    });
    rows.extend(named.await?);
    let mut index = Index::default();
    for row in &rows {
        let key = (row.try_get(0)?, row.try_get(1)?);
        let meta = Meta { tenant: tenant(row, 2)?, name: row.try_get(3)?, version: row.try_get(4)? };
        index.set(&key, Some(meta));
    }
    Ok(index)
}

async fn counters_read<'a>(
    connection: &mut AnyConnection,
    works: &'a [Work],
) -> Result<BTreeMap<&'a String, i64>, Error> {
    let names: BTreeSet<&String> = works.iter().filter_map(Work::counter).collect();
    let names: Vec<_> = names.into_iter().collect();
    let rows = COUNTER_BY_NAME
        .fetch(connection, &names, |values, name| {
            values.text(name);
        })
        .await?;
    let mut found = BTreeMap::new();
    for row in &rows {
        found.insert(row.try_get::<String, _>(0)?, row.try_get::<i64, _>(1)?);
    }
    Ok(names.into_iter().map(|name| (name, found.get(name).copied().unwrap_or(0))).collect())
}

/// Deletions and freed names go first, so that a name is free when its new holder is written.
pub(super) async fn write(connection: &mut AnyConnection, outcome: &Outcome) -> Result<(), Error> {
    let plan = &outcome.plan;
    let (puts, deletes): (Vec<_>, Vec<_>) =
        plan.finals().into_iter().partition(|change| change.record.is_some());
    RECORD_DELETE
        .execute(connection, &deletes, |values, change| {
            values.text(&change.kind).text(&change.id);
        })
        .await?;
    RECORD_UNNAME
        .execute(connection, &plan.renamed_among(&puts), |values, change| {
            values.text(&change.kind).text(&change.id);
        })
        .await?;
    RECORD_PUT
        .execute(connection, &puts, |values, change| {
            let Some(record) = &change.record else { return };
            values.text(&record.kind).text(&record.id).text(record.tenant.as_deref().unwrap_or(""));
            values.text_or_null(record.name.as_deref()).number(record.version).text(record.body.text());
        })
        .await?;
    CHANGE_ADD
        .execute(connection, &plan.changes, |values, change| {
            let record = change.record.as_ref();
            values.number(change.seq).text(&change.kind).text(&change.id);
            values.text(record.and_then(|record| record.tenant.as_deref()).unwrap_or(""));
            values.text_or_null(record.and_then(|record| record.name.as_deref()));
            values.text_or_null(record.map(|record| record.body.text()));
        })
        .await?;
    JOURNAL_ADD
        .execute(connection, &plan.journal, |values, row| {
            values.number(row.seq).number(row.at_us).text(row.tenant.as_deref().unwrap_or(""));
            values.text(&row.subject).text(row.body.text());
        })
        .await?;
    let counters: Vec<_> = outcome.counters.iter().collect();
    COUNTER_PUT
        .execute(connection, &counters, |values, (name, value)| {
            values.text(name).number(**value);
        })
        .await
}

/// Moves the head, notes the batch and drops what is no longer kept.
pub(super) async fn finish(
    connection: &mut AnyConnection,
    head: Head,
    plan: &Plan,
    (writer, batch): (i64, i64),
    options: Options,
) -> Result<(), Error> {
    let advance = sqlx::query("UPDATE head SET seq = $1, journal_seq = $2");
    advance.bind(plan.seq).bind(plan.journal_seq).execute(&mut *connection).await?;
    let note = "INSERT INTO writers (id, batch, seq) VALUES ($1, $2, $3) \
                ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, seq = excluded.seq";
    sqlx::query(note).bind(writer).bind(batch).bind(plan.seq).execute(&mut *connection).await?;
    if is_prune_due(head.seq, plan.seq, options.changes_kept) {
        let prune = sqlx::query("DELETE FROM changes WHERE seq <= $1");
        prune.bind(plan.seq - options.changes_kept).execute(&mut *connection).await?;
    }
    if is_prune_due(head.journal_seq, plan.journal_seq, options.journal_kept) {
        let prune = sqlx::query("DELETE FROM journal WHERE seq <= $1");
        prune.bind(plan.journal_seq - options.journal_kept).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Often enough that each pruning is short, seldom enough that it costs little.
fn is_prune_due(before: i64, after: i64, kept: i64) -> bool {
    let period = (kept / 8).clamp(1, limits::PRUNE_EVERY);
    after > kept && before / period != after / period
}

/// `''` in the table is no tenant.
pub(super) fn tenant(row: &AnyRow, column: usize) -> Result<Option<String>, Error> {
    let tenant: String = row.try_get(column)?;
    Ok((!tenant.is_empty()).then_some(tenant))
}
