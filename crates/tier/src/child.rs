//! The child half: what the parent last said, and what to tell it.

use std::time::Duration;

use link::uplink::Rarely;
use model::exchange::Revision;
use model::{Assignment, Desired, Facts, InstanceId, Observed, ObservedInstance, RevisionedSet};

use crate::inbox::{Changed, Inbox, Refused};
use crate::intern::Intern;
use crate::outbox::{Outbox, PAGE_BYTES_MAX};

/// Pages get no smaller than this.
const PAGE_BYTES_MIN: usize = 4 << 10;
/// That a desired set is from the past is said once, and then this often.
const PAST_SAID_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Child {
    desired: Inbox<Assignment>,
    observed: Outbox<ObservedInstance>,
    page_bytes: usize,
    /// Smaller than the usual after a page was too large for the parent.
    page_now: usize,
    /// A parent that goes back in time does so often.
    past_said: Rarely,
    intern: Intern,
    facts: Facts,
    /// The facts that the parent was last told.
    facts_told: Option<Facts>,
}

impl Child {
    /// `kept` is the desired set from the ledger; `epoch` is larger than in every earlier life.
    pub fn new(epoch: u64, facts: Facts, kept: Inbox<Assignment>) -> Self {
        let observed = Outbox::new(epoch);
        let intern = Intern::default();
        Self {
            desired: kept,
            observed,
            page_bytes: PAGE_BYTES_MAX,
            page_now: PAGE_BYTES_MAX,
            past_said: Rarely::new(PAST_SAID_EVERY),
            intern,
            facts,
            facts_told: None,
        }
    }

    /// Reports in pages of this size instead of the usual.
    #[must_use]
    pub fn paged(mut self, page_bytes: usize) -> Self {
        (self.page_bytes, self.page_now) = (page_bytes, page_bytes);
        self
    }

    /// A page was too large for the parent: they are half as large from now on. Says how large; nothing when they are as
    /// small as they get.
    pub fn page_halve(&mut self) -> Option<usize> {
        let half = self.page_now / 2;
        (half >= PAGE_BYTES_MIN).then(|| self.page_now = half).map(|()| half)
    }

    /// Everything got through: pages are as large as usual.
    pub fn page_restore(&mut self) {
        self.page_now = self.page_bytes;
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn facts_set(&mut self, facts: Facts) {
        self.facts = facts;
    }

    /// What to tell the parent that we have.
    pub fn have(&self) -> Option<Revision> {
        self.desired.have()
    }

    /// What to keep on disk as held; see [`Inbox::have_kept`].
    pub fn have_kept(&self) -> Option<Revision> {
        self.desired.have_kept()
    }

    pub fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        self.desired.iter()
    }

    pub fn assignment(&self, id: &InstanceId) -> Option<&Assignment> {
        self.desired.get(id)
    }

    /// Takes a desired set. When it cannot be applied the whole one is asked for next.
    pub fn desired(&mut self, mut set: Desired) -> Result<Changed, Refused> {
        set.upserts.iter_mut().for_each(|assignment| self.intern.share(assignment));
        let at = set.at;
        let taken = self.desired.apply(set);
        if taken == Err(Refused::Past) && self.past_said.due() {
            let have = self.desired.have().unwrap_or_default();
            tracing::warn!(
                "a desired set from the past is refused: it is {}.{}, and {}.{} is here",
                at.epoch,
                at.rev,
                have.epoch,
                have.rev
            );
        }
        if taken == Err(Refused::NeedWhole) {
            self.desired.ask_whole();
        }
        taken
    }

    /// What is held may be of an earlier time than what is here: the whole set is asked for.
    pub fn desired_ask_whole(&mut self) {
        self.desired.ask_whole();
    }

    /// The parent removed this child: nothing is desired of it any more.
    pub fn desired_clear(&mut self) -> Changed {
        self.desired.clear()
    }

    /// Goes back to what the ledger has, because the latest set could not be kept; it is asked for again.
    pub fn desired_restore(&mut self, kept: Inbox<Assignment>) {
        self.desired = kept;
    }

    /// Notes how an instance is; says whether that is news.
    pub fn observe(&mut self, instance: ObservedInstance) -> bool {
        self.observed.upsert(instance)
    }

    pub fn forget(&mut self, id: &InstanceId) -> bool {
        self.observed.remove(id)
    }

    pub fn observed_get(&self, id: &InstanceId) -> Option<&ObservedInstance> {
        self.observed.get(id)
    }

    pub fn observed_ids(&self) -> Vec<InstanceId> {
        self.observed.iter().map(|instance| instance.id.clone()).collect()
    }

    /// What to send to a parent that acknowledged `acked`; nothing when it knows everything.
    pub fn report(&mut self, acked: Option<Revision>) -> Option<Observed> {
        if self.observed.outlive(acked) {
            tracing::warn!("the parent knows reports of a life that is forgotten here; all is told anew");
        }
        match self.observed.since_within(acked, self.page_now) {
            Some(set) => Some(Observed { facts: self.facts.clone(), set }),
            None if self.facts_told.as_ref() == Some(&self.facts) => None,
            None => {
                let at = self.observed.at();
                let set = RevisionedSet {
                    base: Some(at),
                    at,
                    upserts: Vec::new(),
                    removes: Vec::new(),
                    more: false,
                    upto: None,
                };
                Some(Observed { facts: self.facts.clone(), set })
            }
        }
    }

    /// The whole of it, for a transport that keeps only the last message.
    pub fn report_whole(&self) -> Observed {
        Observed { facts: self.facts.clone(), set: self.observed.whole() }
    }

    /// Notes what the parent was told, once it acknowledged.
    pub fn told(&mut self, facts: Facts) {
        self.facts_told = Some(facts);
    }

    pub fn at(&self) -> Revision {
        self.observed.at()
    }
}
