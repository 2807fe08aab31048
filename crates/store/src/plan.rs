//! Deciding what a transaction does: one pure function for every engine.
//!
//! An engine fills an [`Index`] with what the transactions touch, lets
//! [`Plan::apply`] decide one after the other, and writes the plan's effects.
//! A transaction that fails is undone in the index and adds nothing to the plan.

use std::collections::{HashMap, HashSet};

use crate::txn::{Op, Sealed};
use crate::{Body, Change, CommitError, Committed, JournalEntry, JournalRow, Record};

pub(crate) type Key = (String, String);

/// What must be known of a record to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub tenant: Option<String>,
    pub name: Option<String>,
    pub version: i64,
}

/// Records by key and by name; it must hold all that the planned operations touch.
#[derive(Debug, Default)]
pub(crate) struct Index {
    metas: HashMap<Key, Meta>,
    names: HashMap<(String, String, String), String>,
}

/// What a batch of transactions will write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub seq: i64,
    pub journal_seq: i64,
    pub changes: Vec<Change>,
    pub journal: Vec<JournalRow>,
    /// Records that gave up a name. It is freed before names are written, so that another may take it.
    pub renamed: Vec<Key>,
}

type Undo = Vec<(Key, Option<Meta>)>;

impl Index {
    pub fn get(&self, kind: &str, id: &str) -> Option<&Meta> {
        self.metas.get(&(kind.to_owned(), id.to_owned()))
    }

    /// Sets or removes a record and its name; returns what was there.
    pub fn set(&mut self, key: &Key, meta: Option<Meta>) -> Option<Meta> {
        let previous = self.metas.remove(key);
        if let Some(name) = previous.as_ref().and_then(|previous| previous.claim(&key.0)) {
            self.names.remove(&name);
        }
        if let Some(meta) = meta {
            if let Some(name) = meta.claim(&key.0) {
                self.names.insert(name, key.1.clone());
            }
            self.metas.insert(key.clone(), meta);
        }
        previous
    }
}

impl Meta {
    fn claim(&self, kind: &str) -> Option<(String, String, String)> {
        let name = self.name.clone()?;
        Some((kind.to_owned(), self.tenant.clone().unwrap_or_default(), name))
    }
}

impl Plan {
    pub fn new(seq: i64, journal_seq: i64) -> Self {
        Self { seq, journal_seq, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.journal.is_empty()
    }

    /// Decides one transaction. On an error neither plan nor index has changed.
    pub fn apply(&mut self, index: &mut Index, txn: &Sealed) -> Result<Committed, CommitError> {
        let before = (self.seq, self.journal_seq, self.changes.len(), self.journal.len(), self.renamed.len());
        let mut undo = Undo::new();
        let mut versions = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            match self.step(index, op, &mut undo) {
                Ok(version) => versions.push(version),
                Err(error) => {
                    for (key, meta) in undo.into_iter().rev() {
                        index.set(&key, meta);
                    }
                    (self.seq, self.journal_seq) = (before.0, before.1);
                    self.changes.truncate(before.2);
                    self.journal.truncate(before.3);
                    self.renamed.truncate(before.4);
                    return Err(error);
                }
            }
        }
        Ok(Committed { seq: self.seq, versions })
    }

    fn step(&mut self, index: &mut Index, op: &Op, undo: &mut Undo) -> Result<i64, CommitError> {
        match op {
            Op::Insert { kind, id, tenant, name, body } => {
                if index.get(kind, id).is_some() {
                    return Err(CommitError::AlreadyExists { kind: kind.clone(), id: id.clone() });
                }
                self.write(index, (kind, id), tenant, name, body, undo)
            }
            Op::Put { kind, id, tenant, name, body } => {
                self.write(index, (kind, id), tenant, name, body, undo)
            }
            Op::Update { kind, id, expect_version, body } => {
                let found = expect(index, kind, id, *expect_version)?;
                let (tenant, name) = (found.tenant.clone(), found.name.clone());
                self.write(index, (kind, id), &tenant, &name, body, undo)
            }
            Op::Delete { kind, id, expect_version } => {
                if let Some(version) = expect_version {
                    expect(index, kind, id, *version)?;
                }
                Ok(self.delete(index, kind, id, undo))
            }
            Op::Check { kind, id, expect_version: Some(version) } => {
                Ok(expect(index, kind, id, *version)?.version)
            }
            Op::Check { kind, id, expect_version: None } => match index.get(kind, id) {
                Some(_) => Err(CommitError::AlreadyExists { kind: kind.clone(), id: id.clone() }),
                None => Ok(0),
            },
            Op::Journal(entry) => Ok(self.append(entry)),
        }
    }

    fn write(
        &mut self,
        index: &mut Index,
        (kind, id): (&str, &str),
        tenant: &Option<String>,
        name: &Option<String>,
        body: &Body,
        undo: &mut Undo,
    ) -> Result<i64, CommitError> {
        let version = self.seq + 1;
        let meta = Meta { tenant: tenant.clone(), name: name.clone(), version };
        let claim = meta.claim(kind);
        let holder = claim.as_ref().and_then(|claim| index.names.get(claim));
        if let (Some(holder), Some(name)) = (holder, name)
            && holder != id
        {
            return Err(CommitError::NameTaken {
                kind: kind.to_owned(),
                tenant: tenant.clone(),
                name: name.clone(),
            });
        }
        let key = (kind.to_owned(), id.to_owned());
        let previous = index.set(&key, Some(meta));
        let freed = previous.as_ref().and_then(|previous| previous.claim(kind));
        if freed.is_some() && freed != claim {
            self.renamed.push(key.clone());
        }
        undo.push((key, previous));
        let record = Record {
            kind: kind.to_owned(),
            id: id.to_owned(),
            tenant: tenant.clone(),
            name: name.clone(),
            version,
            body: body.clone(),
        };
        self.change(kind, id, Some(record));
        Ok(version)
    }

    fn delete(&mut self, index: &mut Index, kind: &str, id: &str, undo: &mut Undo) -> i64 {
        let key = (kind.to_owned(), id.to_owned());
        let Some(previous) = index.set(&key, None) else { return 0 };
        // Another record may take the name while this id is written again, all in one batch.
        if previous.name.is_some() {
            self.renamed.push(key.clone());
        }
        undo.push((key, Some(previous)));
        self.change(kind, id, None);
        self.seq
    }

    fn change(&mut self, kind: &str, id: &str, record: Option<Record>) {
        self.seq += 1;
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.changes.push(Change { seq: self.seq, kind, id, version: self.seq, record });
    }

    fn append(&mut self, entry: &JournalEntry) -> i64 {
        self.journal_seq += 1;
        let JournalEntry { at_us, tenant, subject, body } = entry.clone();
        self.journal.push(JournalRow { seq: self.journal_seq, at_us, tenant, subject, body });
        self.journal_seq
    }

    /// Those of `puts` whose stored name must be freed first.
    pub fn renamed_among<'a>(&self, puts: &[&'a Change]) -> Vec<&'a Change> {
        if self.renamed.is_empty() {
            return Vec::new();
        }
        let renamed: HashSet<(&str, &str)> = self.renamed.iter().map(|(kind, id)| (&**kind, &**id)).collect();
        let is_renamed = |change: &Change| renamed.contains(&(change.kind.as_str(), change.id.as_str()));
        puts.iter().copied().filter(|change| is_renamed(change)).collect()
    }

    /// The last effect on each record, in the order of the effects: what the table of records must hold.
    pub fn finals(&self) -> Vec<&Change> {
        let mut last: HashMap<(&str, &str), i64> = HashMap::with_capacity(self.changes.len());
        for change in &self.changes {
            last.insert((&change.kind, &change.id), change.seq);
        }
        let is_last =
            |change: &Change| last.get(&(change.kind.as_str(), change.id.as_str())) == Some(&change.seq);
        self.changes.iter().filter(|change| is_last(change)).collect()
    }
}

fn expect<'a>(index: &'a Index, kind: &str, id: &str, version: i64) -> Result<&'a Meta, CommitError> {
    let (kind, id) = (kind.to_owned(), id.to_owned());
    match index.get(&kind, &id) {
        None => Err(CommitError::Missing { kind, id }),
        Some(meta) if meta.version != version => Err(CommitError::VersionMismatch { kind, id }),
        Some(meta) => Ok(meta),
    }
}
