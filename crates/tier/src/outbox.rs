//! The sending half of a replicated map.

use std::collections::BTreeMap;

use model::exchange::Revision;
use model::{InstanceId, RevisionedSet};

use crate::Keyed;
use crate::shelf::Shelf;

/// Removals remembered for differences; past that a slow reader gets the whole map.
const TOMBSTONES_MAX: usize = 65_536;
/// A set travels in pages of about this size.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A map that can say what changed since a revision.
#[derive(Debug, Clone)]
pub struct Outbox<T> {
    epoch: u64,
    rev: u64,
    /// A reader behind this revision needs the whole map.
    floor: u64,
    items: Shelf<(u64, T)>,
    /// Which key changed at which revision; a key stands here once, at its latest.
    log: BTreeMap<u64, InstanceId>,
    tombstones: BTreeMap<InstanceId, u64>,
    /// The tombstones by age.
    graves: BTreeMap<u64, InstanceId>,
}

impl<T: Keyed> Outbox<T> {
    /// `epoch` must be larger than that of every earlier life of this map.
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            rev: 0,
            floor: 0,
            items: Shelf::default(),
            log: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            graves: BTreeMap::new(),
        }
    }

    pub fn at(&self) -> Revision {
        Revision { epoch: self.epoch, rev: self.rev }
    }

    /// A reader has more than was ever sent: an earlier life is forgotten here, because what was kept was lost or put
    /// back from a copy. A new life begins, above that one; otherwise the reader would refuse everything as past.
    /// Says whether that was so.
    pub fn outlive(&mut self, have: Option<Revision>) -> bool {
        let ahead = have.filter(|have| *have > self.at());
        if let Some(have) = ahead {
            self.epoch = have.epoch.saturating_add(1);
        }
        ahead.is_some()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, key: &InstanceId) -> Option<&T> {
        self.items.get(key).map(|(_, item)| item)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values().map(|(_, item)| item)
    }

    /// Puts an item in; says whether that changed anything.
    pub fn upsert(&mut self, item: T) -> bool {
        let key = item.key().clone();
        if self.items.get(&key).is_some_and(|(_, old)| *old == item) {
            return false;
        }
        if let Some(rev) = self.tombstones.remove(&key) {
            self.log.remove(&rev);
            self.graves.remove(&rev);
        }
        self.rev += 1;
        if let Some((old, _)) = self.items.insert(key.clone(), (self.rev, item)) {
            self.log.remove(&old);
        }
        self.log.insert(self.rev, key);
        true
    }

    /// Counts an item as changed, so that every reader gets it anew; false when it is not there.
    pub fn touch(&mut self, key: &InstanceId) -> bool {
        let Some((at, _)) = self.items.get_mut(key) else { return false };
        self.rev += 1;
        let old = std::mem::replace(at, self.rev);
        self.log.remove(&old);
        self.log.insert(self.rev, key.clone());
        true
    }

    pub fn remove(&mut self, key: &InstanceId) -> bool {
        let Some((old, _)) = self.items.remove(key) else { return false };
        self.log.remove(&old);
        self.rev += 1;
        self.log.insert(self.rev, key.clone());
        self.tombstones.insert(key.clone(), self.rev);
        self.graves.insert(self.rev, key.clone());
        self.forget_old_tombstones();
        true
    }

    fn forget_old_tombstones(&mut self) {
        if self.tombstones.len() <= TOMBSTONES_MAX {
            return;
        }
        if let Some((rev, key)) = self.graves.pop_first() {
            self.log.remove(&rev);
            self.tombstones.remove(&key);
            self.floor = rev;
        }
    }

    /// What a reader that has `have` is missing, or the first page of it; nothing when it has everything.
    pub fn since(&self, have: Option<Revision>) -> Option<RevisionedSet<T>> {
        self.since_within(have, PAGE_BYTES_MAX)
    }

    /// As [`Outbox::since`], in pages of about `page_bytes`; a page holds one item at least.
    pub fn since_within(&self, have: Option<Revision>, page_bytes: usize) -> Option<RevisionedSet<T>> {
        match have {
            Some(have) if have == self.at() => None,
            Some(have) if have.epoch == self.epoch && have.rev >= self.floor && have.rev < self.rev => {
                Some(self.page(Some(have), page_bytes))
            }
            _ => Some(self.page(None, page_bytes)),
        }
    }

    /// Everything in one piece, however large.
    pub fn whole(&self) -> RevisionedSet<T> {
        self.page(None, usize::MAX)
    }

    /// What changed after `base`, in the order it changed, so that a reader goes on from any page's end.
    fn page(&self, base: Option<Revision>, page_bytes: usize) -> RevisionedSet<T> {
        let mut set = RevisionedSet {
            base,
            at: self.at(),
            upserts: Vec::new(),
            removes: Vec::new(),
            more: false,
            upto: None,
        };
        let mut bytes = 0;
        let mut last = base.map_or(0, |base| base.rev);
        for (&rev, key) in self.log.range(last + 1..) {
            let item = self.get(key);
            bytes += item.map_or(key.as_str().len(), Keyed::weight);
            if bytes > page_bytes && !(set.upserts.is_empty() && set.removes.is_empty()) {
                set.at = Revision { epoch: self.epoch, rev: last };
                set.more = true;
                set.upto = Some(self.rev);
                break;
            }
            match item {
                Some(item) => set.upserts.push(item.clone()),
                // A reader of the whole drops what is not named.
                None if base.is_some() => set.removes.push(key.clone()),
                None => {}
            }
            last = rev;
        }
        set
    }
}
