//! What the store keeps: records, their changes, and the journal.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One versioned document. `(kind, id)` is its key; `(kind, tenant, name)` is unique where there is a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub kind: String,
    pub id: String,
    pub tenant: Option<String>,
    pub name: Option<String>,
    /// The `seq` of the change that wrote it: grows with every write and never comes back.
    pub version: i64,
    pub body: Value,
}

/// One step of the change feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Place in the feed: 1, 2, 3, … without gaps.
    pub seq: i64,
    pub kind: String,
    pub id: String,
    /// Equal to `seq`.
    pub version: i64,
    /// `None` when the record was deleted.
    pub record: Option<Record>,
}

/// A row of history to append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Microseconds since 1970, from the caller's clock.
    pub at_us: i64,
    pub tenant: Option<String>,
    pub subject: String,
    pub body: Value,
}

/// A row of history as kept; `seq` is the journal's own count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalRow {
    pub seq: i64,
    pub at_us: i64,
    pub tenant: Option<String>,
    pub subject: String,
    pub body: Value,
}

/// Which rows of history to read; the newest come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalQuery {
    /// Only this tenant's rows; `None` is every row.
    pub tenant: Option<String>,
    pub subject: Option<String>,
    /// Only rows older than this, for the next page.
    pub before_seq: Option<i64>,
    /// Only rows newer than this, for following.
    pub after_seq: Option<i64>,
    /// 0 and anything above [`crate::JOURNAL_PAGE_MAX`] mean that maximum.
    pub limit: i64,
}

impl JournalQuery {
    pub(crate) fn page(&self) -> i64 {
        match self.limit {
            1..=crate::JOURNAL_PAGE_MAX => self.limit,
            _ => crate::JOURNAL_PAGE_MAX,
        }
    }

    pub(crate) fn matches(&self, row: &JournalRow) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| row.tenant.as_ref() == Some(tenant))
            && self.subject.as_ref().is_none_or(|subject| row.subject == *subject)
            && self.before_seq.is_none_or(|before| row.seq < before)
            && self.after_seq.is_none_or(|after| row.seq > after)
    }
}
