//! Who is where: how many instances of a kind each slot holds.
//!
//! A tally is sparse, because most groups and labels live on few slots, and
//! contiguous, because placing walks it.

use std::collections::HashMap;

/// Instances counted by slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    counts: Vec<(u32, u32)>,
    position: HashMap<u32, usize>,
}

impl Tally {
    pub fn add(&mut self, slot: u32) {
        let position = *self.position.entry(slot).or_insert_with(|| {
            self.counts.push((slot, 0));
            self.counts.len() - 1
        });
        self.counts[position].1 += 1;
    }

    fn take(&mut self, slot: u32) {
        let Some(&position) = self.position.get(&slot) else { return };
        self.counts[position].1 -= 1;
        if self.counts[position].1 == 0 {
            self.counts.swap_remove(position);
            self.position.remove(&slot);
            if let Some(&(moved, _)) = self.counts.get(position) {
                self.position.insert(moved, position);
            }
        }
    }

    pub fn at(&self, slot: u32) -> u32 {
        self.position.get(&slot).map_or(0, |&position| self.counts[position].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.counts.iter().map(|&(slot, count)| (slot as usize, count))
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// Tallies by what they count; an empty one is dropped, so that labels which come and go leave nothing behind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tallies(HashMap<String, Tally>);

impl Tallies {
    pub fn add(&mut self, key: &str, slot: u32) {
        match self.0.get_mut(key) {
            Some(tally) => tally.add(slot),
            None => self.0.entry(key.to_owned()).or_default().add(slot),
        }
    }

    pub fn take(&mut self, key: &str, slot: u32) {
        if let Some(tally) = self.0.get_mut(key) {
            tally.take(slot);
            if tally.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Tally> {
        self.0.get(key)
    }
}

/// The key of instances of one tenant that carry `label=value`. No part can hold the separator.
pub(crate) fn label_key(scope: &str, label: &str, value: &str) -> String {
    [scope, label, value].join("\0")
}

/// The key of instances of one tenant in one spread group.
pub(crate) fn group_key(scope: &str, group: &str) -> String {
    [scope, group].join("\0")
}
