//! What the store must do, said as simply as possible.

use std::collections::BTreeMap;

use object::record::Versioning;

/// A version as listings show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: String,
    pub id: String,
    pub marker: bool,
    pub latest: bool,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Row(Row),
    Prefix(String),
}

#[derive(Debug, Clone)]
struct Kept {
    id: String,
    marker: bool,
    size: u64,
}

/// Keys and their versions, newest first.
#[derive(Debug, Default)]
pub struct Model {
    keys: BTreeMap<String, Vec<Kept>>,
}

impl Model {
    pub fn put(&mut self, versioning: Versioning, key: &str, id: &str, size: u64) {
        self.push(versioning, key, Kept { id: id.into(), marker: false, size });
    }

    pub fn mark(&mut self, versioning: Versioning, key: &str, id: &str) {
        self.push(versioning, key, Kept { id: id.into(), marker: true, size: 0 });
    }

    fn push(&mut self, versioning: Versioning, key: &str, new: Kept) {
        let versions = self.keys.entry(key.into()).or_default();
        if versioning != Versioning::Enabled {
            versions.retain(|kept| kept.id != "null");
        }
        versions.insert(0, new);
    }

    /// Whether it was there.
    pub fn remove(&mut self, key: &str, id: &str) -> bool {
        let Some(versions) = self.keys.get_mut(key) else { return false };
        let before = versions.len();
        versions.retain(|kept| kept.id != id);
        let found = versions.len() < before;
        if versions.is_empty() {
            self.keys.remove(key);
        }
        found
    }

    pub fn rows(&self) -> Vec<Row> {
        let rows = self.keys.iter().flat_map(|(key, versions)| {
            versions.iter().enumerate().map(|(index, kept)| Row {
                key: key.clone(),
                id: kept.id.clone(),
                marker: kept.marker,
                latest: index == 0,
                size: kept.size,
            })
        });
        rows.collect()
    }

    /// Objects, versions, bytes.
    pub fn usage(&self) -> (u64, u64, u64) {
        let rows = self.rows();
        let objects = rows.iter().filter(|row| row.latest && !row.marker).count();
        (objects as u64, rows.len() as u64, rows.iter().map(|row| row.size).sum())
    }
}

/// What a listing of `rows` shows.
pub fn lines(rows: &[Row], prefix: &str, delimiter: Option<&str>) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in rows.iter().filter(|row| row.key.starts_with(prefix)) {
        let rest = &row.key[prefix.len()..];
        let at = delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()));
        let line = match at {
            Some(at) => Line::Prefix(format!("{prefix}{}", &rest[..at])),
            None => Line::Row(row.clone()),
        };
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}
