//! A transaction as data: built by the caller, applied by the store all or nothing.

use crate::limits::{BODY_BYTES_MAX, KEY_BYTES_MAX, TXN_OPS_MAX};
use crate::{Body, CommitError, JournalEntry};

/// One operation. Those of a transaction are applied in their order, each on what the ones before it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Must not exist yet.
    Insert { kind: String, id: String, tenant: Option<String>, name: Option<String>, body: Body },
    /// Must exist in this version; keeps tenant and name.
    Update { kind: String, id: String, expect_version: i64, body: Body },
    /// Whether it exists or not.
    Put { kind: String, id: String, tenant: Option<String>, name: Option<String>, body: Body },
    /// In this version, or with `None` whatever is there, also nothing.
    Delete { kind: String, id: String, expect_version: Option<i64> },
    /// Is there in this version, or with `None` is not there.
    Check { kind: String, id: String, expect_version: Option<i64> },
    /// A row of history that is written only if the rest is.
    Journal(JournalEntry),
}

/// Operations that are applied together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Txn {
    ops: Vec<Op>,
}

/// What a commit did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The store's last change once this was applied; a watch that saw it has seen the whole transaction.
    pub seq: i64,
    /// Per operation: the new version; of a delete that of the deletion, or 0 when nothing was there; of a
    /// check the version found or 0; of a journal row its `seq`.
    pub versions: Vec<i64>,
}

impl Txn {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(
        self,
        kind: impl Into<String>,
        id: impl ToString,
        tenant: Option<&str>,
        name: Option<&str>,
        body: impl Into<Body>,
    ) -> Self {
        let (kind, id, body) = (kind.into(), id.to_string(), body.into());
        self.with(Op::Insert { kind, id, tenant: tenant.map(Into::into), name: name.map(Into::into), body })
    }

    pub fn update(
        self,
        kind: impl Into<String>,
        id: impl ToString,
        expect_version: i64,
        body: impl Into<Body>,
    ) -> Self {
        self.with(Op::Update { kind: kind.into(), id: id.to_string(), expect_version, body: body.into() })
    }

    /// Writes whatever is there.
    pub fn put(
        self,
        kind: impl Into<String>,
        id: impl ToString,
        tenant: Option<&str>,
        name: Option<&str>,
        body: impl Into<Body>,
    ) -> Self {
        let (kind, id, body) = (kind.into(), id.to_string(), body.into());
        self.with(Op::Put { kind, id, tenant: tenant.map(Into::into), name: name.map(Into::into), body })
    }

    pub fn delete(self, kind: impl Into<String>, id: impl ToString, expect_version: Option<i64>) -> Self {
        self.with(Op::Delete { kind: kind.into(), id: id.to_string(), expect_version })
    }

    pub fn check(self, kind: impl Into<String>, id: impl ToString, expect_version: Option<i64>) -> Self {
        self.with(Op::Check { kind: kind.into(), id: id.to_string(), expect_version })
    }

    pub fn journal(self, entry: JournalEntry) -> Self {
        self.with(Op::Journal(entry))
    }

    pub fn with(mut self, op: Op) -> Self {
        self.push(op);
        self
    }

    /// Adds an operation in place, for loops.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Both as one.
    pub fn and(mut self, other: Txn) -> Self {
        self.ops.extend(other.ops);
        self
    }

    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Checks the limits, in the caller's task rather than the writer's.
    pub(crate) fn seal(self) -> Result<Sealed, CommitError> {
        if self.ops.len() > TXN_OPS_MAX {
            let count = self.ops.len();
            return Err(CommitError::TooLarge(format!(
                "a transaction holds at most {TXN_OPS_MAX} operations, this one {count}"
            )));
        }
        let mut bytes = 0;
        for op in &self.ops {
            op.check_keys()?;
            bytes += op.size()?;
        }
        Ok(Sealed { ops: self.ops, bytes })
    }
}

/// A transaction within the limits.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub ops: Vec<Op>,
    pub bytes: usize,
}

impl Op {
    /// The record it speaks of.
    pub(crate) fn key(&self) -> Option<(&str, &str)> {
        match self {
            Op::Insert { kind, id, .. }
            | Op::Update { kind, id, .. }
            | Op::Put { kind, id, .. }
            | Op::Delete { kind, id, .. }
            | Op::Check { kind, id, .. } => Some((kind, id)),
            Op::Journal(_) => None,
        }
    }

    /// The name it claims: kind, tenant ("" for none), name.
    pub(crate) fn claim(&self) -> Option<(&str, &str, &str)> {
        match self {
            Op::Insert { kind, tenant, name: Some(name), .. }
            | Op::Put { kind, tenant, name: Some(name), .. } => {
                Some((kind, tenant.as_deref().unwrap_or(""), name))
            }
            _ => None,
        }
    }

    fn size(&self) -> Result<usize, CommitError> {
        let body = match self {
            Op::Insert { body, .. } | Op::Update { body, .. } | Op::Put { body, .. } => body,
            Op::Journal(entry) => &entry.body,
            Op::Delete { .. } | Op::Check { .. } => return Ok(0),
        };
        let size = body.text().len();
        if size > BODY_BYTES_MAX {
            return Err(CommitError::TooLarge(format!(
                "a record holds at most {BODY_BYTES_MAX} bytes, this one {size}"
            )));
        }
        Ok(size)
    }

    fn check_keys(&self) -> Result<(), CommitError> {
        let (tenant, name) = match self {
            Op::Insert { tenant, name, .. } | Op::Put { tenant, name, .. } => {
                (tenant.as_deref(), name.as_deref())
            }
            Op::Journal(entry) => (entry.tenant.as_deref(), Some(entry.subject.as_str())),
            _ => (None, None),
        };
        let (kind, id) = self.key().unzip();
        for (what, text) in [("kind", kind), ("id", id), ("tenant", tenant), ("name or subject", name)] {
            let Some(text) = text else { continue };
            // The empty text stands for "no tenant" in the tables, and PostgreSQL takes no NUL.
            if text.is_empty() || text.len() > KEY_BYTES_MAX || text.contains('\0') {
                return Err(CommitError::Invalid(format!(
                    "a {what} is 1 to {KEY_BYTES_MAX} bytes without NUL, this is {text:?}"
                )));
            }
        }
        Ok(())
    }
}
