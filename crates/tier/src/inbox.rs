//! The receiving half of a replicated map.

use std::collections::BTreeMap;

use model::exchange::Revision;
use model::{InstanceId, RevisionedSet};

use crate::Keyed;

/// Why a set was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the set is older than the one already held")]
    Past,
    #[error("the set is a difference to something not held; the whole set is needed")]
    NeedWhole,
}

/// A map as its sender last told it.
#[derive(Debug, Clone)]
pub struct Inbox<T> {
    at: Option<Revision>,
    items: BTreeMap<InstanceId, T>,
}

/// What a set changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub upserted: Vec<InstanceId>,
    pub removed: Vec<InstanceId>,
}

impl Changed {
    pub fn is_empty(&self) -> bool {
        self.upserted.is_empty() && self.removed.is_empty()
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { at: None, items: BTreeMap::new() }
    }
}

impl<T: Keyed> Inbox<T> {
    /// From what was kept on disk.
    pub fn restore(at: Option<Revision>, items: impl IntoIterator<Item = T>) -> Self {
        Self { at, items: items.into_iter().map(|item| (item.key().clone(), item)).collect() }
    }

    /// What to tell the sender that we have.
    pub fn have(&self) -> Option<Revision> {
        self.at
    }

    /// After this the sender is asked for the whole set; what is held stays.
    pub fn ask_whole(&mut self) {
        self.at = None;
    }

    pub fn get(&self, key: &InstanceId) -> Option<&T> {
        self.items.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes a set. A repetition changes nothing; a set from the past is refused.
    pub fn apply(&mut self, set: RevisionedSet<T>) -> Result<Changed, Refused> {
        if let Some(at) = self.at {
            if set.at == at {
                return Ok(Changed::default());
            }
            if set.at < at {
                return Err(Refused::Past);
            }
        }
        let mut changed = Changed::default();
        match set.base {
            None => {
                let mut old = std::mem::take(&mut self.items);
                for item in set.upserts {
                    if old.remove(item.key()).as_ref() != Some(&item) {
                        changed.upserted.push(item.key().clone());
                    }
                    self.items.insert(item.key().clone(), item);
                }
                changed.removed.extend(old.into_keys());
            }
            Some(base) if Some(base) == self.at => {
                for item in set.upserts {
                    let key = item.key().clone();
                    if self.items.insert(key.clone(), item.clone()).as_ref() != Some(&item) {
                        changed.upserted.push(key);
                    }
                }
                for key in set.removes {
                    if self.items.remove(&key).is_some() {
                        changed.removed.push(key);
                    }
                }
            }
            Some(_) => return Err(Refused::NeedWhole),
        }
        self.at = Some(set.at);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Outbox;
    use model::{Generation, ObservedInstance, Phase};
    use proptest::prelude::*;

    fn item(key: u8, minor: u64) -> ObservedInstance {
        let generation = Generation { major: 0, minor };
        ObservedInstance::new(InstanceId::from_random(u128::from(key)), generation, Phase::Running)
    }

    #[test]
    fn the_past_is_refused_and_a_repetition_changes_nothing() {
        let mut outbox = Outbox::new(7);
        outbox.upsert(item(1, 1));
        let first = outbox.whole();
        outbox.upsert(item(1, 2));
        let second = outbox.whole();
        let mut inbox = Inbox::default();
        assert!(!inbox.apply(second.clone()).expect("taken").is_empty());
        assert!(inbox.apply(second).expect("repeated").is_empty());
        assert_eq!(inbox.apply(first), Err(Refused::Past));
        let mut earlier_life = Outbox::new(6);
        for n in 0..9 {
            earlier_life.upsert(item(n, 9));
        }
        assert_eq!(inbox.apply(earlier_life.whole()), Err(Refused::Past));
    }

    #[test]
    fn a_difference_to_something_unknown_needs_the_whole() {
        let mut outbox = Outbox::new(1);
        outbox.upsert(item(1, 1));
        let base = outbox.at();
        outbox.upsert(item(2, 1));
        let mut inbox = Inbox::default();
        let difference = outbox.since(Some(base)).expect("newer");
        assert_eq!(inbox.apply(difference), Err(Refused::NeedWhole));
    }

    proptest! {
        /// Whatever changes, and however often the reader looks, both ends agree in the end.
        #[test]
        fn a_reader_that_follows_has_the_same_map(
            steps in proptest::collection::vec((0u8..12, 0u64..3, any::<bool>(), any::<bool>()), 1..200)
        ) {
            let mut outbox = Outbox::new(1);
            let mut inbox = Inbox::default();
            for (key, minor, remove, read) in steps {
                if remove {
                    outbox.remove(item(key, 0).key());
                } else {
                    outbox.upsert(item(key, minor));
                }
                if read && let Some(set) = outbox.since(inbox.have()) {
                    inbox.apply(set).expect("applies");
                }
            }
            if let Some(set) = outbox.since(inbox.have()) {
                inbox.apply(set).expect("applies");
            }
            let mut sent: Vec<_> = outbox.iter().cloned().collect();
            let mut held: Vec<_> = inbox.iter().cloned().collect();
            sent.sort_by(|a, b| a.id.cmp(&b.id));
            held.sort_by(|a, b| a.id.cmp(&b.id));
            prop_assert_eq!(sent, held);
        }
    }
}
