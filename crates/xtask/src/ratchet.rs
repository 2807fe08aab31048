//! The offenders that were there before a rule: each with its size, which may
//! only become smaller. A new one is added by hand, where a reviewer sees it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Finding;

pub const PATH: &str = "crates/xtask/ratchet.json";

pub type Sizes = BTreeMap<String, usize>;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratchet {
    /// File to its lines.
    pub files: Sizes,
    /// `file::function` to its lines.
    pub functions: Sizes,
}

impl Ratchet {
    pub fn load(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(PATH)).with_context(|| format!("cannot read {PATH}"))?;
        serde_json::from_str(&text).with_context(|| format!("{PATH} is not what it should be"))
    }

    pub fn save(&self, root: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(root.join(PATH), text).with_context(|| format!("cannot write {PATH}"))
    }
}

/// Holds what is too large now against what was allowed.
pub fn compare(what: &str, limit: usize, allowed: &Sizes, now: &Sizes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (place, size) in now {
        match allowed.get(place) {
            None => {
                findings.push(format!("{place}: {what} has {size} lines, the limit is {limit}; split it"))
            }
            Some(was) if size > was => {
                findings.push(format!("{place}: {what} grew from {was} to {size} lines; it may only shrink"));
            }
            Some(_) => {}
        }
    }
    for (place, was) in allowed {
        if now.get(place).is_none_or(|size| size < was) {
            findings.push(format!(
                "{place}: shrank below the {was} lines in {PATH}; run cargo xtask tidy --shrink"
            ));
        }
    }
    findings
}

/// Lowers what is allowed to what is there, and drops what is within the limit. Nothing is added.
pub fn shrink(allowed: &mut Sizes, now: &Sizes) {
    allowed.retain(|place, _| now.contains_key(place));
    for (place, size) in allowed {
        *size = (*size).min(now[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pairs: &[(&str, usize)]) -> Sizes {
        pairs.iter().map(|(place, size)| ((*place).to_owned(), *size)).collect()
    }

    #[test]
    fn the_ratchet_only_turns_down() {
        let mut allowed = sizes(&[("a", 100), ("b", 100), ("gone", 100)]);
        let now = sizes(&[("a", 101), ("b", 90), ("new", 99)]);
        let findings = compare("file", 80, &allowed, &now);
        assert_eq!(findings.len(), 4, "{findings:?}");
        assert!(findings[0].contains("a: file grew from 100 to 101"));
        assert!(findings[1].contains("new: file has 99 lines"));
        shrink(&mut allowed, &now);
        assert_eq!(allowed, sizes(&[("a", 100), ("b", 90)]));
    }
}
