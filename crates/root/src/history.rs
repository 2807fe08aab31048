//! The history: one line per change, written in the same transaction as the change.

use model::{Error, Event, EventId, Result, TenantId, Timestamp};
use store::{Body, JournalEntry, JournalQuery, Txn};

use crate::state::State;

/// Who does something, and from where.
#[derive(Debug, Clone)]
pub struct Actor {
    /// User name, `root`, or the name of a zone or node.
    pub who: String,
    pub from: Option<String>,
}

impl Actor {
    pub fn root() -> Self {
        Self { who: "root".into(), from: None }
    }
}

/// What is said of a change.
pub struct Line<'a> {
    pub tenant: Option<&'a TenantId>,
    /// `instance.create`, …
    pub what: &'a str,
    pub kind: &'a str,
    pub id: &'a str,
    pub name: &'a str,
    pub message: String,
}

/// The subject by which the history of one thing is found; names outlive what they name.
pub fn subject(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// Makes the row of one event.
pub fn row(at: Timestamp, actor: &Actor, line: Line<'_>) -> JournalEntry {
    let event = Event {
        id: EventId::from_random(rand::random()),
        at,
        tenant: line.tenant.cloned(),
        who: actor.who.clone(),
        from: actor.from.clone(),
        what: line.what.to_owned(),
        subject_kind: line.kind.to_owned(),
        subject_id: line.id.to_owned(),
        subject_name: line.name.to_owned(),
        message: line.message,
    };
    JournalEntry {
        at_us: at.0,
        tenant: event.tenant.as_ref().map(ToString::to_string),
        subject: subject(line.kind, line.name),
        body: Body::of(&event),
    }
}

/// Adds one line to a transaction.
pub fn journal(txn: Txn, at: Timestamp, actor: &Actor, line: Line<'_>) -> Txn {
    txn.journal(row(at, actor, line))
}

/// Events, newest first, with the cursor of the next page.
pub async fn list(
    state: &State,
    tenant: Option<&TenantId>,
    subject: Option<String>,
    before: Option<i64>,
    limit: usize,
) -> Result<(Vec<Event>, Option<i64>)> {
    let query = JournalQuery {
        tenant: tenant.map(ToString::to_string),
        subject,
        before_seq: before,
        after_seq: None,
        limit: limit as i64,
    };
    let rows = state.store().journal(query).await?;
    let next = (rows.len() == limit).then(|| rows.last().map(|row| row.seq)).flatten();
    let events = rows
        .into_iter()
        .map(|row| {
            row.body
                .read()
                .map_err(|error| Error::internal("a line of the history cannot be read").because(error))
        })
        .collect::<Result<_>>()?;
    Ok((events, next))
}
