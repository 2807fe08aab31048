//! Statuses whose instance is not there. No I/O.
//!
//! A status and its instance go in one transaction, so that only what is alone in two looks is an orphan.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use model::InstanceId;

use crate::state::Snapshot;

/// Statuses looked at in one round; the next goes on from there.
const SCAN_MAX: usize = 50_000;
/// Orphans found in one round; they are removed in one transaction.
const FOUND_MAX: usize = 500;

#[derive(Debug, Default)]
pub struct Orphans {
    /// Alone when they were last looked at.
    suspects: BTreeSet<InstanceId>,
    after: Option<InstanceId>,
}

impl Orphans {
    /// Those that were alone before and still are.
    pub fn look(&mut self, snapshot: &Snapshot) -> Vec<InstanceId> {
        let from = self.after.take().map_or(Unbounded, Excluded);
        let mut found = Vec::new();
        for (count, (id, _)) in snapshot.statuses.range((from, Unbounded)).enumerate() {
            if snapshot.instances.contains_key(id) {
                self.suspects.remove(id);
            } else if !self.suspects.insert(id.clone()) {
                found.push(id.clone());
            }
            if count + 1 == SCAN_MAX || found.len() == FOUND_MAX {
                self.after = Some(id.clone());
                break;
            }
        }
        if self.after.is_none() {
            self.suspects.retain(|id| snapshot.statuses.contains_key(id));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heal::stuck::tests::snapshot;

    #[test]
    fn only_what_stays_alone_is_an_orphan() {
        let (mut orphans, mut snapshot) =
            (Orphans::default(), snapshot(model::Phase::Running, model::Run::Running, 1));
        assert!(orphans.look(&snapshot).is_empty());
        assert!(orphans.look(&snapshot).is_empty());
        let kept = snapshot.instances.clone();
        snapshot.instances.clear();
        assert!(orphans.look(&snapshot).is_empty(), "it may be going");
        let mut back = snapshot.clone();
        back.instances = kept;
        assert!(orphans.look(&back).is_empty());
        assert!(orphans.look(&snapshot).is_empty(), "suspected anew");
        assert_eq!(orphans.look(&snapshot).len(), 1);
    }
}
