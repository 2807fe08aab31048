//! What the store keeps: records, their changes, and the journal.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A JSON document as its text: written once by its owner, kept and passed on as it is, and read once by whoever
/// needs what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Arc<str>);

impl Body {
    /// Writes a value. It must be one that JSON can hold: no map with keys other than texts.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        let text = serde_json::to_string(value).expect("what is kept can be written as JSON");
        Self(text.into())
    }

    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }

    /// The document as a tree, for those who do not know its shape.
    pub fn value(&self) -> Value {
        self.read().expect("a body is JSON")
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes text that was a body before; it is checked that it is JSON still.
    pub(crate) fn from_text(text: String) -> serde_json::Result<Self> {
        serde_json::from_str::<serde::de::IgnoredAny>(&text)?;
        Ok(Self(text.into()))
    }
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// One versioned document. `(kind, id)` is its key; `(kind, tenant, name)` is unique where there is a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub kind: String,
    pub id: String,
    pub tenant: Option<String>,
    pub name: Option<String>,
    /// The `seq` of the change that wrote it: grows with every write and never comes back.
    pub version: i64,
    pub body: Body,
}

/// One step of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Microseconds since 1970, from the caller's clock.
    pub at_us: i64,
    pub tenant: Option<String>,
    pub subject: String,
    pub body: Body,
}

/// A row of history as kept; `seq` is the journal's own count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRow {
    pub seq: i64,
    pub at_us: i64,
    pub tenant: Option<String>,
    pub subject: String,
    pub body: Body,
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
