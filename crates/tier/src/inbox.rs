//! The receiving half of a replicated map.

use std::collections::HashSet;

use model::exchange::Revision;
use model::{InstanceId, RevisionedSet};

use crate::Keyed;
use crate::shelf::Shelf;

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
    /// The newest revision that was ever held, also while the whole set is asked for.
    newest: Option<Revision>,
    items: Shelf<T>,
    /// While a whole set comes in pages.
    named: Option<Named>,
    /// First pages passed over since the last progress.
    passed_over: u32,
    /// The last set came from the past while the whole one was asked for: the sender must hear what it forgot.
    past: bool,
}

/// What the pages of a whole set named so far. The rest goes with the last page.
#[derive(Debug, Clone)]
struct Named {
    keys: HashSet<InstanceId>,
    /// The newest revision that a page or anything before it was made at. An answer of an earlier time may fit behind a
    /// page and end before what changed since: the set ends here at the earliest.
    upto: u64,
}

/// A repeated first page holds nothing new. When only such pages come, the sender means to begin anew.
const PASSED_OVER_MAX: u32 = 8;

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
        Self { at: None, newest: None, items: Shelf::default(), named: None, passed_over: 0, past: false }
    }
}

impl<T: Keyed> Inbox<T> {
    /// From what was kept on disk.
    pub fn restore(at: Option<Revision>, items: impl IntoIterator<Item = T>) -> Self {
        let items = items.into_iter().map(|item| (item.key().clone(), item)).collect();
        Self { at, newest: at, items, named: None, passed_over: 0, past: false }
    }

    /// What to tell the sender that we have.
    pub fn have(&self) -> Option<Revision> {
        if self.past { self.have_newest() } else { self.at }
    }

    /// What was held last, also where the whole set is asked for.
    pub fn have_newest(&self) -> Option<Revision> {
        self.at.or(self.newest)
    }

    /// What to keep on disk as held: nothing in the middle of a whole set, so that the next life asks for all of it.
    pub fn have_kept(&self) -> Option<Revision> {
        self.at.filter(|_| self.named.is_none())
    }

    /// After this the sender is asked for the whole set; what is held stays.
    pub fn ask_whole(&mut self) {
        self.at = None;
        self.named = None;
    }

    /// Drops everything; the sender is asked for the whole set if it ever speaks again.
    pub fn clear(&mut self) -> Changed {
        self.ask_whole();
        let removed = std::mem::take(&mut self.items).into_keys().collect();
        Changed { upserted: Vec::new(), removed }
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

    /// Takes a set or a page of one. A repetition changes nothing; a set from the past is refused.
    pub fn apply(&mut self, set: RevisionedSet<T>) -> Result<Changed, Refused> {
        if self.at == Some(set.at) {
            return Ok(Changed::default());
        }
        let fits = self.check(&set);
        self.past = fits == Err(Refused::Past) && self.at.is_none();
        fits?;
        self.passed_over = 0;
        if set.base.is_none() {
            let known = self.newest.filter(|newest| newest.epoch == set.at.epoch);
            self.named = Some(Named { keys: HashSet::new(), upto: known.map_or(0, |known| known.rev) });
        }
        if let Some(named) = &mut self.named {
            named.upto = named.upto.max(set.upto.unwrap_or(0));
        }
        let mut changed = Changed::default();
        for item in set.upserts {
            let key = item.key().clone();
            if let Some(named) = &mut self.named {
                named.keys.insert(key.clone());
            }
            if self.items.get(&key) != Some(&item) {
                self.items.insert(key.clone(), item);
                changed.upserted.push(key);
            }
        }
        for key in set.removes {
            if let Some(named) = &mut self.named {
                named.keys.remove(&key);
            }
            if self.items.remove(&key).is_some() {
                changed.removed.push(key);
            }
        }
        if !set.more
            && let Some(Named { keys, .. }) = self.named.take_if(|named| named.upto <= set.at.rev)
            && keys.len() < self.items.len()
        {
            let dropped: Vec<InstanceId> =
                self.items.keys().filter(|key| !keys.contains(*key)).cloned().collect();
            dropped.iter().for_each(|key| drop(self.items.remove(key)));
            changed.removed.extend(dropped);
        }
        self.at = Some(set.at);
        self.newest = self.newest.max(self.at);
        Ok(changed)
    }

    /// Whether the set applies to what is held.
    fn check(&mut self, set: &RevisionedSet<T>) -> Result<(), Refused> {
        match (set.base, self.at, self.newest) {
            (Some(_), Some(at), _) if set.at < at => Err(Refused::Past),
            (Some(base), Some(at), _) if base == at => Ok(()),
            (Some(_), ..) => Err(Refused::NeedWhole),
            (None, _, Some(newest)) if set.at.epoch < newest.epoch => Err(Refused::Past),
            // The end of a first page says nothing about the age of the set, but all before it is held.
            (None, Some(at), _) if set.more && set.at < at && set.at.epoch == at.epoch => {
                self.passed_over += 1;
                Err(if self.passed_over < PASSED_OVER_MAX { Refused::Past } else { Refused::NeedWhole })
            }
            (None, _, Some(newest)) if !set.more && set.at < newest => Err(Refused::Past),
            (None, ..) => Ok(()),
        }
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
    fn after_all_was_dropped_only_a_whole_set_is_taken() {
        let mut outbox = Outbox::new(7);
        outbox.upsert(item(1, 1));
        let mut inbox = Inbox::default();
        inbox.apply(outbox.whole()).expect("taken");
        let at = inbox.have();
        assert_eq!(inbox.clear().removed, [item(1, 1).id]);
        assert!(inbox.is_empty() && inbox.have().is_none() && inbox.clear().is_empty());
        outbox.upsert(item(2, 1));
        let difference = outbox.since(at).expect("newer");
        assert!(difference.base.is_some());
        assert_eq!(inbox.apply(difference), Err(Refused::NeedWhole));
        assert_eq!(inbox.apply(outbox.whole()).expect("taken").upserted.len(), 2);
    }

    /// A sender that forgot lives, whatever the reader holds: what it reads in the end.
    fn settle(outbox: &mut Outbox<ObservedInstance>, inbox: &mut Inbox<ObservedInstance>) {
        for _ in 0..4 {
            outbox.outlive(inbox.have());
            let Some(set) = outbox.since(inbox.have()) else { return };
            if inbox.apply(set) == Err(Refused::NeedWhole) {
                inbox.ask_whole();
            }
        }
        panic!("they do not come together");
    }

    #[test]
    fn a_sender_that_was_put_back_from_a_copy_is_heard_again() {
        // The copy is of an earlier life, of the same one, or there is none at all; the reader may ask for the whole.
        for (epoch, items, whole) in [(5, 1, false), (7, 1, false), (1, 0, false), (5, 2, true), (7, 1, true)]
        {
            let mut before = Outbox::new(7);
            for key in 1..=3 {
                before.upsert(item(key, 1));
            }
            let mut inbox = Inbox::default();
            inbox.apply(before.whole()).expect("taken");
            if whole {
                inbox.ask_whole();
            }
            let mut restored = Outbox::new(epoch);
            for key in 1..=items {
                restored.upsert(item(key, 2));
            }
            settle(&mut restored, &mut inbox);
            assert!(agree(&restored, &inbox), "epoch {epoch}, {items} items, whole {whole}");
            // What an older process with the same identity still sends is of the past.
            before.upsert(item(9, 9));
            assert_eq!(inbox.apply(before.whole()), Err(Refused::Past));
        }
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

    fn agree(outbox: &Outbox<ObservedInstance>, inbox: &Inbox<ObservedInstance>) -> bool {
        outbox.len() == inbox.len() && outbox.iter().all(|item| inbox.get(&item.id) == Some(item))
    }

    #[test]
    fn a_whole_set_in_pages_drops_nothing_before_its_end() {
        let mut outbox = Outbox::new(2);
        for key in 0..4 {
            outbox.upsert(item(key, 1));
        }
        let old: Vec<_> = (2..8).map(|key| item(key, 1)).collect();
        let mut inbox = Inbox::restore(Some(Revision { epoch: 1, rev: 9 }), old);
        let first = outbox.since_within(inbox.have(), 1).expect("newer");
        assert!(first.base.is_none() && first.more && first.upserts.len() == 1);
        assert!(inbox.apply(first).expect("taken").removed.is_empty());
        assert_eq!((inbox.len(), inbox.have_kept()), (7, None), "nothing dropped, and not kept as held");
        while let Some(page) = outbox.since_within(inbox.have(), 1) {
            let (more, changed) = (page.more, inbox.apply(page).expect("taken"));
            assert_eq!(changed.removed.is_empty(), more);
        }
        assert!(agree(&outbox, &inbox));
        assert_eq!(inbox.have_kept(), Some(outbox.at()));
    }

    #[test]
    fn a_late_answer_does_not_end_a_whole_set() {
        let mut outbox = Outbox::new(1);
        for key in 0..3 {
            outbox.upsert(item(key, 1));
        }
        let mut inbox = Inbox::default();
        inbox.apply(outbox.since_within(None, 1).expect("a page")).expect("taken");
        let late = outbox.since(inbox.have()).expect("the rest");
        inbox.apply(late.clone()).expect("taken");
        // The whole is asked for again, one of its items has changed since, and the old answer comes once more.
        outbox.upsert(item(2, 2));
        inbox.ask_whole();
        inbox.apply(outbox.since_within(inbox.have(), 1).expect("a page")).expect("taken");
        outbox.upsert(item(1, 2));
        assert_eq!(inbox.apply(late).expect("it fits").removed, []);
        assert_eq!(inbox.have_kept(), None, "the whole set has not come yet");
        let mut removed = Vec::new();
        while read(&outbox, &mut inbox, 1, &mut removed) {}
        assert_eq!(removed, []);
        assert!(agree(&outbox, &inbox));
        assert_eq!(inbox.have_kept(), Some(outbox.at()));
    }

    #[test]
    fn a_late_first_page_does_not_undo_what_is_held() {
        let mut outbox = Outbox::new(1);
        for key in 0..3 {
            outbox.upsert(item(key, 1));
        }
        let late = outbox.since_within(None, 1).expect("a page");
        outbox.upsert(item(0, 2));
        let mut inbox = Inbox::default();
        inbox.apply(outbox.whole()).expect("taken");
        assert_eq!(inbox.apply(late.clone()), Err(Refused::Past));
        assert!(agree(&outbox, &inbox));
        // A sender that says nothing else has forgotten too much to go on from there.
        let refused = (0..PASSED_OVER_MAX)
            .map(|_| inbox.apply(late.clone()))
            .find(|taken| *taken != Err(Refused::Past));
        assert_eq!(refused, Some(Err(Refused::NeedWhole)));
    }

    /// What happens next between a sender and a reader.
    #[derive(Debug, Clone)]
    enum Step {
        Upsert(u8, u64),
        Remove(u8),
        Read {
            page_bytes: usize,
        },
        /// An answer of before comes once more, on the connection of before.
        Late(usize),
        /// The reader starts again from its disk.
        Restart,
        /// The sender starts again with the same items.
        Reborn,
        AskWhole,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u8..24, 0u64..3).prop_map(|(key, minor)| Step::Upsert(key, minor)),
            2 => (0u8..24).prop_map(Step::Remove),
            6 => (1usize..3000).prop_map(|page_bytes| Step::Read { page_bytes }),
            3 => any::<usize>().prop_map(Step::Late),
            1 => Just(Step::Restart),
            1 => Just(Step::Reborn),
            1 => Just(Step::AskWhole),
        ]
    }

    /// An answer on its way: it may come late, and twice.
    fn take(
        page: RevisionedSet<ObservedInstance>,
        inbox: &mut Inbox<ObservedInstance>,
        removed: &mut Vec<InstanceId>,
    ) {
        match inbox.apply(page) {
            Ok(changed) => removed.extend(changed.removed),
            Err(Refused::NeedWhole) => inbox.ask_whole(),
            Err(Refused::Past) => {}
        }
    }

    fn read(
        outbox: &Outbox<ObservedInstance>,
        inbox: &mut Inbox<ObservedInstance>,
        page_bytes: usize,
        removed: &mut Vec<InstanceId>,
    ) -> bool {
        let Some(page) = outbox.since_within(inbox.have(), page_bytes) else { return false };
        take(page, inbox, removed);
        true
    }

    proptest! {
        /// Whatever changes, however small the pages, whoever starts again and whatever comes late: both ends agree in
        /// the end, and what was there all the time is never dropped.
        #[test]
        fn pages_bring_both_ends_together(
            steps in proptest::collection::vec(step(), 1..300), page_bytes in 1usize..3000
        ) {
            let mut outbox = Outbox::new(1);
            let mut inbox = Inbox::default();
            let (mut epoch, mut sent) = (1, Vec::new());
            let (mut ended, mut dropped) = (HashSet::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Upsert(key, minor) => {
                        outbox.upsert(item(key, minor));
                    }
                    Step::Remove(key) => {
                        ended.insert(item(key, 0).id);
                        outbox.remove(item(key, 0).key());
                    }
                    Step::Read { page_bytes } => {
                        if let Some(page) = outbox.since_within(inbox.have(), page_bytes) {
                            sent.push(page.clone());
                            take(page, &mut inbox, &mut dropped);
                        }
                    }
                    Step::Late(which) if !sent.is_empty() => {
                        take(sent[which % sent.len()].clone(), &mut inbox, &mut dropped);
                    }
                    Step::Late(_) => {}
                    Step::Restart => {
                        inbox = Inbox::restore(inbox.have_kept(), inbox.iter().cloned().collect::<Vec<_>>());
                        sent.clear();
                    }
                    Step::Reborn => {
                        epoch += 1;
                        let items: Vec<_> = outbox.iter().cloned().collect();
                        outbox = Outbox::new(epoch);
                        for item in items {
                            outbox.upsert(item);
                        }
                    }
                    Step::AskWhole => inbox.ask_whole(),
                }
            }
            let mut reads = 0;
            while read(&outbox, &mut inbox, page_bytes, &mut dropped) {
                reads += 1;
                prop_assert!(reads < 1000, "does not end");
            }
            prop_assert!(agree(&outbox, &inbox));
            prop_assert!(dropped.iter().all(|key| ended.contains(key)), "dropped what was always there");
        }

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
