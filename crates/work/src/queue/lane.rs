//! All jobs: whose turn it is, who holds what, and who fell silent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::Timestamp;
use serde::{Deserialize, Serialize};

use super::graph::{Graph, Progress, Stage};

/// The right to do a task, given to one holder. The next one who gets the task has another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    pub job: String,
    pub task: u32,
    /// From 1.
    pub attempt: u32,
    /// The life of the queue that gave it, because attempts that were not kept are counted again.
    pub life: u64,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It is to be tried again after so many milliseconds.
    Again(i64),
    GiveUp,
}

/// What an outcome did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It counts.
    Taken,
    /// The claim holds no longer: the task is over, or another has it. Nothing changed.
    Late,
}

/// How much there is to do in a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Could be taken now.
    pub ready: u32,
    pub held: u32,
    /// For other tasks, for their next try, or because the job stands still.
    pub waiting: u32,
}

#[derive(Debug)]
struct Job {
    lane: String,
    graph: Graph,
    /// What may be taken, in the order in which it became ready.
    ready: VecDeque<u32>,
    claims: BTreeMap<u32, Held>,
    is_paused: bool,
    /// Nothing is given out before, so that those who hold something can say so.
    quiet_until: Timestamp,
    /// The longest time for one attempt.
    limit_ms: i64,
    /// None of its claims is held for too long before.
    due: Timestamp,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    holder: String,
    until: Timestamp,
}

#[derive(Debug, Default)]
struct Holder {
    until: Timestamp,
    /// By job.
    claims: BTreeMap<String, BTreeSet<u32>>,
}

impl Holder {
    fn add(&mut self, job: &str, task: u32) {
        match self.claims.get_mut(job) {
            Some(tasks) => drop(tasks.insert(task)),
            None => drop(self.claims.insert(job.to_owned(), [task].into())),
        }
    }

    fn remove(&mut self, job: &str, task: u32) {
        if let Some(tasks) = self.claims.get_mut(job) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.claims.remove(job);
            }
        }
    }
}

/// Times are of one clock that nobody sets.
#[derive(Debug)]
pub struct Queue {
    life: u64,
    /// A holder that is silent for so long loses what it holds.
    lease_ms: i64,
    jobs: BTreeMap<String, Job>,
    /// The jobs of each lane that have something ready, in the order of their turns.
    turns: BTreeMap<String, VecDeque<String>>,
    holders: BTreeMap<String, Holder>,
    /// Tasks that are tried again at a time.
    later: BTreeSet<(Timestamp, String, u32)>,
}

impl Queue {
    /// `life` must be another one each time.
    pub fn new(life: u64, lease_ms: i64) -> Self {
        Self {
            life,
            lease_ms,
            jobs: BTreeMap::new(),
            turns: BTreeMap::new(),
            holders: BTreeMap::new(),
            later: BTreeSet::new(),
        }
    }

    /// Takes up a job; one that is there already is left as it is. A job that ran in an earlier life is quiet
    /// for a lease.
    pub fn add(&mut self, job: &str, lane: &str, graph: Graph, limit_ms: i64, resumed_at: Option<Timestamp>) {
        if self.jobs.contains_key(job) {
            return;
        }
        let ready = graph.ready().collect();
        let quiet_until = resumed_at.map_or(Timestamp(i64::MIN), |now| now.plus_ms(self.lease_ms));
        let claims = BTreeMap::new();
        let lane = lane.to_owned();
        let due = Timestamp(i64::MAX);
        let entry = Job { lane, graph, ready, claims, is_paused: false, quiet_until, limit_ms, due };
        self.jobs.insert(job.to_owned(), entry);
        self.queue(job);
    }

    pub fn remove(&mut self, job: &str) {
        let Some(entry) = self.jobs.remove(job) else { return };
        for held in entry.claims.into_values() {
            if let Some(holder) = self.holders.get_mut(&held.holder) {
                holder.remove(job, held.claim.task);
            }
        }
        self.later.retain(|(_, of, _)| of != job);
        if let Some(turns) = self.turns.get_mut(&entry.lane) {
            turns.retain(|of| of != job);
        }
    }

    pub fn graph(&self, job: &str) -> Option<&Graph> {
        self.jobs.get(job).map(|job| &job.graph)
    }

    /// Changes a graph by hand, e.g. adds tasks to it.
    pub fn amend<T>(&mut self, job: &str, change: impl FnOnce(&mut Graph) -> T) -> Option<T> {
        let entry = self.jobs.get_mut(job)?;
        let answer = change(&mut entry.graph);
        entry.claims.retain(|task, held| {
            let is_held = entry.graph.stage(*task) == Some(Stage::Held);
            if !is_held && let Some(holder) = self.holders.get_mut(&held.holder) {
                holder.remove(job, *task);
            }
            is_held
        });
        let later: BTreeSet<u32> =
            self.later.iter().filter(|(_, of, _)| of == job).map(|(_, _, task)| *task).collect();
        let known: BTreeSet<u32> = entry.ready.iter().copied().collect();
        let graph = &entry.graph;
        entry.ready.retain(|task| graph.stage(*task) == Some(Stage::Ready));
        let fresh: Vec<u32> =
            graph.ready().filter(|task| !known.contains(task) && !later.contains(task)).collect();
        entry.ready.extend(fresh);
        self.queue(job);
        Some(answer)
    }

    /// A job that stands still gives nothing out; what is held goes on.
    pub fn pause(&mut self, job: &str, is_paused: bool) {
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.is_paused = is_paused;
            self.queue(job);
        }
    }

    /// Gives a job its place among the turns of its lane.
    fn queue(&mut self, job: &str) {
        let Some(entry) = self.jobs.get(job) else { return };
        let turns = self.turns.entry(entry.lane.clone()).or_default();
        if !entry.ready.is_empty() && !entry.is_paused && !turns.iter().any(|of| of == job) {
            turns.push_back(job.to_owned());
        }
    }

    /// A holder shows that it lives and says what it holds. What it does not name is given to others; what it
    /// names and may not hold is returned, and it must stop that. Of an earlier life it keeps what nobody else has.
    pub fn beat(&mut self, holder: &str, holds: &[Claim], now: Timestamp) -> Vec<Claim> {
        let until = now.plus_ms(self.lease_ms);
        let keeper = self.holders.entry(holder.to_owned()).or_default();
        keeper.until = until;
        let mut named: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for claim in holds {
            named.entry(claim.job.as_str()).or_default().insert(claim.task);
        }
        let mut forgotten: Vec<(String, u32)> = Vec::new();
        for (job, tasks) in &keeper.claims {
            let said = named.get(job.as_str());
            let is_unsaid = |task: &&u32| said.is_none_or(|said| !said.contains(task));
            forgotten.extend(tasks.iter().filter(is_unsaid).map(|task| (job.clone(), *task)));
        }
        for (job, task) in forgotten {
            self.let_go(&job, task);
        }
        holds.iter().filter(|claim| !self.keeps(holder, claim, now)).cloned().collect()
    }

    /// A holder shows that it lives, and says nothing of what it holds. Returns whether it is known.
    pub fn renew(&mut self, holder: &str, now: Timestamp) -> bool {
        let until = now.plus_ms(self.lease_ms);
        self.holders.get_mut(holder).map(|holder| holder.until = until).is_some()
    }

    /// Lets a holder that has not beaten yet in this life keep what it has of an earlier one. Returns whether it may.
    pub fn adopt(&mut self, holder: &str, claim: &Claim, now: Timestamp) -> bool {
        self.holders.entry(holder.to_owned()).or_default().until = now.plus_ms(self.lease_ms);
        self.keeps(holder, claim, now)
    }

    fn keeps(&mut self, holder: &str, claim: &Claim, now: Timestamp) -> bool {
        let Some(entry) = self.jobs.get_mut(&claim.job) else { return false };
        if let Some(held) = entry.claims.get(&claim.task) {
            return held.claim == *claim && held.holder == holder;
        }
        // Only of an earlier life: what this one took back, it may have given up on.
        if claim.life >= self.life || entry.graph.hold(claim.task).is_none() {
            return false;
        }
        entry.ready.retain(|task| *task != claim.task);
        self.later.retain(|(_, job, task)| (job, *task) != (&claim.job, claim.task));
        let until = now.plus_ms(entry.limit_ms);
        let held = Held { claim: claim.clone(), holder: holder.to_owned(), until };
        entry.claims.insert(claim.task, held);
        entry.due = entry.due.min(until);
        if let Some(holder) = self.holders.get_mut(holder) {
            holder.add(&claim.job, claim.task);
        }
        true
    }

    /// Gives a holder up to `most` tasks of a lane. The jobs of a lane take turns.
    pub fn take(&mut self, lane: &str, holder: &str, most: usize, now: Timestamp) -> Vec<Claim> {
        self.take_of(lane, holder, most, now, &|_| true)
    }

    /// The same, of those jobs that `may` lets it have; the others keep their turns.
    pub fn take_of(
        &mut self,
        lane: &str,
        holder: &str,
        most: usize,
        now: Timestamp,
        may: &dyn Fn(&str) -> bool,
    ) -> Vec<Claim> {
        self.mature(now);
        let (Some(turns), Some(keeper)) = (self.turns.get_mut(lane), self.holders.get_mut(holder)) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        let mut quiet = Vec::new();
        while taken.len() < most
            && let Some(job) = turns.pop_front()
        {
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            if entry.quiet_until > now || !may(&job) {
                quiet.push(job);
                continue;
            }
            if entry.is_paused {
                continue;
            }
            if let Some(task) = entry.ready.pop_front()
                && let Some(attempt) = entry.graph.hold(task)
            {
                let claim = Claim { job: job.clone(), task, attempt, life: self.life };
                let until = now.plus_ms(entry.limit_ms);
                let held = Held { claim: claim.clone(), holder: holder.to_owned(), until };
                entry.claims.insert(task, held);
                entry.due = entry.due.min(until);
                keeper.add(&job, task);
                taken.push(claim);
            }
            if !entry.ready.is_empty() {
                turns.push_back(job);
            }
        }
        turns.extend(quiet);
        taken
    }

    /// Whether there is something to take in a lane.
    pub fn has(&mut self, lane: &str, now: Timestamp) -> bool {
        self.mature(now);
        let open = |job: &String| {
            let entry = self.jobs.get(job);
            entry.is_some_and(|job| job.quiet_until <= now && !job.is_paused && !job.ready.is_empty())
        };
        self.turns.get(lane).is_some_and(|turns| turns.iter().any(open))
    }

    /// Its holder said what came of a task, and the owner keeps that now: until [`Queue::finish`] nobody else gets
    /// the task, whatever becomes of the holder, which has room for another.
    pub fn report(&mut self, claim: &Claim) {
        let held = self.jobs.get(&claim.job).and_then(|entry| entry.claims.get(&claim.task));
        if let Some(held) = held.filter(|held| held.claim == *claim)
            && let Some(holder) = self.holders.get_mut(&held.holder)
        {
            holder.remove(&claim.job, claim.task);
        }
    }

    pub fn finish(&mut self, claim: &Claim, outcome: Outcome, now: Timestamp) -> Finish {
        let Some(entry) = self.jobs.get_mut(&claim.job) else { return Finish::Late };
        if entry.claims.get(&claim.task).is_none_or(|held| held.claim != *claim) {
            return Finish::Late;
        }
        if let Some(held) = entry.claims.remove(&claim.task)
            && let Some(holder) = self.holders.get_mut(&held.holder)
        {
            holder.remove(&claim.job, claim.task);
        }
        match outcome {
            Outcome::Done => {
                let ready = entry.graph.done(claim.task);
                entry.ready.extend(ready);
                self.queue(&claim.job);
            }
            Outcome::Again(after_ms) => {
                entry.graph.release(claim.task);
                self.later.insert((now.plus_ms(after_ms), claim.job.clone(), claim.task));
            }
            Outcome::GiveUp => entry.graph.fail(claim.task),
        }
        Finish::Taken
    }

    /// Takes back what is held by those who fell silent. Returns it, and what is held for too long, which its
    /// owner has to end.
    pub fn lapse(&mut self, now: Timestamp) -> (Vec<Claim>, Vec<Claim>) {
        let silent: Vec<String> = self
            .holders
            .iter()
            .filter(|(_, holder)| holder.until <= now)
            .map(|(name, _)| name.clone())
            .collect();
        let lost = silent.iter().flat_map(|holder| self.leave(holder)).collect();
        let mut late = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.due <= now) {
            late.extend(job.claims.values().filter(|held| held.until <= now).map(|held| held.claim.clone()));
            job.due = job.claims.values().map(|held| held.until).min().unwrap_or(Timestamp(i64::MAX));
        }
        (lost, late)
    }

    /// A holder goes; what it held is for others.
    pub fn leave(&mut self, holder: &str) -> Vec<Claim> {
        let Some(gone) = self.holders.remove(holder) else { return Vec::new() };
        let mut lost = Vec::new();
        for (job, tasks) in gone.claims {
            lost.extend(tasks.into_iter().filter_map(|task| self.let_go(&job, task)));
        }
        lost
    }

    fn let_go(&mut self, job: &str, task: u32) -> Option<Claim> {
        let entry = self.jobs.get_mut(job)?;
        let held = entry.claims.remove(&task)?;
        if let Some(holder) = self.holders.get_mut(&held.holder) {
            holder.remove(job, task);
        }
        entry.graph.release(task);
        entry.ready.push_front(task);
        self.queue(job);
        Some(held.claim)
    }

    /// Makes those ready whose time for another try came. Returns whether there were any.
    pub fn mature(&mut self, now: Timestamp) -> bool {
        let mut any = false;
        while let Some(first) = self.later.first()
            && first.0 <= now
            && let Some((_, job, task)) = self.later.pop_first()
        {
            if let Some(entry) = self.jobs.get_mut(&job)
                && entry.graph.stage(task) == Some(Stage::Ready)
            {
                entry.ready.push_back(task);
                self.queue(&job);
                any = true;
            }
        }
        any
    }

    /// When something happens if nobody comes before.
    pub fn next(&self) -> Option<Timestamp> {
        let later = self.later.first().map(|(at, ..)| *at);
        let holders = self.holders.values().map(|holder| holder.until);
        let claims = self.jobs.values().flat_map(|job| job.claims.values()).map(|held| held.until);
        let quiet = self.jobs.values().filter(|job| !job.ready.is_empty()).map(|job| job.quiet_until);
        later.into_iter().chain(holders).chain(claims).chain(quiet).min()
    }

    /// Whether somebody does a task under this claim.
    pub fn is_held(&self, claim: &Claim) -> bool {
        self.holder(claim).is_some()
    }

    /// Who does a task under this claim.
    pub fn holder(&self, claim: &Claim) -> Option<&str> {
        let held = self.jobs.get(&claim.job)?.claims.get(&claim.task)?;
        (held.claim == *claim).then_some(held.holder.as_str())
    }

    /// How many tasks of a lane a holder has.
    pub fn held(&self, holder: &str, lane: &str) -> usize {
        let claims = self.holders.get(holder).into_iter().flat_map(|holder| &holder.claims);
        let own = claims.filter(|(job, _)| self.jobs.get(*job).is_some_and(|job| job.lane == lane));
        own.map(|(_, tasks)| tasks.len()).sum()
    }

    /// What is being done of a job.
    pub fn claims(&self, job: &str) -> Vec<Claim> {
        let held = self.jobs.get(job).into_iter().flat_map(|entry| entry.claims.values());
        held.map(|held| held.claim.clone()).collect()
    }

    /// How many tasks a holder has in all.
    pub fn held_all(&self, holder: &str) -> usize {
        self.holders.get(holder).map_or(0, |holder| holder.claims.values().map(BTreeSet::len).sum())
    }

    pub fn progress(&self, job: &str) -> Option<Progress> {
        self.jobs.get(job).map(|job| job.graph.progress())
    }

    pub fn load(&self, lane: &str) -> Load {
        self.loads().remove(lane).unwrap_or_default()
    }

    /// How much there is to do in each lane that has a job.
    pub fn loads(&self) -> BTreeMap<&str, Load> {
        let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
        for job in self.jobs.values() {
            let load = loads.entry(&job.lane).or_default();
            let progress = job.graph.progress();
            let ready = if job.is_paused { 0 } else { job.ready.len() as u32 };
            load.ready += ready;
            load.held += progress.held;
            load.waiting += progress.waiting + progress.ready - ready;
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Shape, Step};
    use super::*;

    const LEASE: i64 = 5_000;
    const LIMIT: i64 = 60_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp(ms * 1_000)
    }

    fn chain(count: u32) -> Graph {
        let needs = |task: u32| task.checked_sub(1).into_iter().collect();
        let tasks = (0..count).map(|task| Step { needs: needs(task), is_gate: false }).collect();
        Graph::new(&Shape { tasks }).expect("sound")
    }

    fn flat(count: u32) -> Graph {
        Graph::new(&Shape { tasks: vec![Step::default(); count as usize] }).expect("sound")
    }

    fn queue() -> Queue {
        let mut queue = Queue::new(7, LEASE);
        queue.beat("p1", &[], at(0));
        queue.beat("p2", &[], at(0));
        queue
    }

    fn one(queue: &mut Queue, holder: &str, now: i64) -> Claim {
        let mut taken = queue.take("acme", holder, 1, at(now));
        taken.pop().expect("something is ready")
    }

    #[test]
    fn jobs_of_a_lane_take_turns_and_lanes_do_not_meet() {
        let mut queue = queue();
        queue.add("big", "acme", flat(1_000), LIMIT, None);
        queue.add("small", "acme", flat(2), LIMIT, None);
        queue.add("other", "bolt", flat(1), LIMIT, None);
        let taken = queue.take("acme", "p1", 5, at(0));
        let jobs: Vec<&str> = taken.iter().map(|claim| claim.job.as_str()).collect();
        assert_eq!(jobs, ["big", "small", "big", "small", "big"]);
        assert_eq!(queue.load("acme"), Load { ready: 997, held: 5, waiting: 0 });
        assert_eq!(queue.take("bolt", "p1", 9, at(0)).len(), 1);
        assert!(queue.take("bolt", "p1", 9, at(0)).is_empty());
        assert!(queue.take("acme", "stranger", 1, at(0)).is_empty(), "who never beat gets nothing");
    }

    #[test]
    fn a_job_that_is_not_for_a_holder_waits_for_another() {
        let mut queue = queue();
        queue.add("big", "acme", flat(3), LIMIT, None);
        queue.add("small", "acme", flat(2), LIMIT, None);
        let taken = queue.take_of("acme", "p1", 9, at(0), &|job| job != "big");
        assert!(taken.len() == 2 && taken.iter().all(|claim| claim.job == "small"), "{taken:?}");
        assert_eq!(queue.take("acme", "p2", 9, at(0)).len(), 3);
    }

    #[test]
    fn what_a_silent_holder_had_is_for_others_and_its_word_no_longer_counts() {
        let mut queue = queue();
        queue.add("job", "acme", chain(2), LIMIT, None);
        let first = one(&mut queue, "p1", 0);
        queue.beat("p2", &[], at(4_000));
        let (lost, late) = queue.lapse(at(5_000));
        assert_eq!((lost.as_slice(), late.len()), ([first.clone()].as_slice(), 0));
        let second = one(&mut queue, "p2", 5_000);
        assert_eq!((second.task, second.attempt), (0, 2));
        assert_eq!(queue.finish(&first, Outcome::Done, at(5_001)), Finish::Late);
        assert!(!queue.has("acme", at(5_001)));
        assert_eq!(queue.finish(&second, Outcome::Done, at(5_002)), Finish::Taken);
        assert_eq!(queue.finish(&second, Outcome::Done, at(5_003)), Finish::Late);
        assert!(queue.has("acme", at(5_003)));
        // The silent one is back and says what it believes to hold.
        assert_eq!(queue.beat("p1", std::slice::from_ref(&first), at(6_000)), [first]);
    }

    #[test]
    fn what_is_reported_is_not_given_to_others_whatever_becomes_of_its_holder() {
        let mut queue = queue();
        queue.add("job", "acme", flat(3), LIMIT, None);
        let taken = queue.take("acme", "p1", 3, at(0));
        taken[..2].iter().for_each(|claim| queue.report(claim));
        assert_eq!(queue.held("p1", "acme"), 1, "whoever reported has room");
        assert!(queue.beat("p1", &taken[..1], at(1)).is_empty(), "it may still be named");
        assert_eq!(one(&mut queue, "p2", 1).task, 2, "what was neither named nor reported is for others");
        queue.beat("p2", &[], at(4_000));
        assert_eq!(queue.lapse(at(5_001)), (vec![], vec![]));
        assert_eq!(queue.finish(&taken[0], Outcome::Done, at(5_002)), Finish::Taken);
        assert_eq!(queue.finish(&taken[1], Outcome::Again(0), at(5_002)), Finish::Taken);
        let again = queue.take("acme", "p2", 9, at(5_003));
        assert_eq!(
            again.iter().map(|claim| (claim.task, claim.attempt)).collect::<Vec<_>>(),
            [(2, 3), (1, 2)]
        );
    }

    #[test]
    fn a_task_that_never_arrived_is_given_out_again() {
        let mut queue = queue();
        queue.add("job", "acme", flat(1), LIMIT, None);
        let lost = one(&mut queue, "p1", 0);
        assert!(queue.beat("p1", std::slice::from_ref(&lost), at(1)).is_empty());
        assert!(!queue.has("acme", at(1)));
        queue.beat("p1", &[], at(2));
        assert_eq!(one(&mut queue, "p2", 2).attempt, 2);
    }

    #[test]
    fn what_fails_is_tried_again_later_and_given_up_in_the_end() {
        let mut queue = queue();
        queue.add("job", "acme", chain(2), LIMIT, None);
        let first = one(&mut queue, "p1", 0);
        assert_eq!(queue.finish(&first, Outcome::Again(1_000), at(0)), Finish::Taken);
        assert!(!queue.has("acme", at(999)));
        assert_eq!(queue.next(), Some(at(1_000)));
        let second = one(&mut queue, "p2", 1_000);
        assert_eq!(second.attempt, 2);
        assert_eq!(queue.finish(&second, Outcome::GiveUp, at(1_001)), Finish::Taken);
        queue.amend("job", Graph::drop_rest);
        let progress = queue.progress("job").expect("it is there");
        assert!(progress.is_over());
        assert_eq!((progress.failed, progress.dropped), (1, 1));
    }

    #[test]
    fn a_task_that_takes_too_long_is_named() {
        let mut queue = queue();
        queue.add("job", "acme", flat(1), 1_000, None);
        let claim = one(&mut queue, "p1", 0);
        assert_eq!(queue.lapse(at(999)), (vec![], vec![]));
        assert_eq!(queue.lapse(at(1_000)), (vec![], vec![claim.clone()]));
        queue.finish(&claim, Outcome::Again(0), at(1_000));
        assert_eq!(queue.beat("p1", std::slice::from_ref(&claim), at(1_001)), [claim], "it must stop");
    }

    #[test]
    fn a_new_life_lets_holders_keep_what_they_have() {
        let mut queue = queue();
        queue.add("job", "acme", flat(2), LIMIT, None);
        let kept = one(&mut queue, "p1", 0);
        let mut next = Queue::new(8, LEASE);
        next.add("job", "acme", flat(2), LIMIT, Some(at(100)));
        next.beat("p2", &[], at(200));
        assert!(next.take("acme", "p2", 2, at(200)).is_empty(), "quiet until all could speak");
        assert!(next.beat("p1", std::slice::from_ref(&kept), at(300)).is_empty());
        let others = next.take("acme", "p2", 2, at(5_100));
        assert_eq!(others.iter().map(|claim| claim.task).collect::<Vec<_>>(), [1]);
        assert_eq!(next.finish(&kept, Outcome::Done, at(5_200)), Finish::Taken);
        assert_eq!(next.progress("job").map(|progress| progress.done), Some(1));
    }

    #[test]
    fn a_paused_job_gives_nothing_out_and_goes_on_after() {
        let mut queue = queue();
        queue.add("job", "acme", flat(2), LIMIT, None);
        let held = one(&mut queue, "p1", 0);
        queue.pause("job", true);
        assert!(!queue.has("acme", at(0)));
        assert!(queue.take("acme", "p1", 1, at(0)).is_empty());
        assert_eq!(queue.finish(&held, Outcome::Done, at(1)), Finish::Taken);
        assert_eq!(queue.load("acme"), Load { ready: 0, held: 0, waiting: 1 });
        queue.pause("job", false);
        assert_eq!(queue.take("acme", "p1", 9, at(2)).len(), 1);
        queue.remove("job");
        assert_eq!(queue.load("acme"), Load::default());
        assert!(!queue.has("acme", at(3)));
    }

    #[test]
    fn tasks_that_are_added_on_the_way_are_given_out() {
        let mut queue = queue();
        queue.add("job", "acme", chain(2), LIMIT, None);
        let first = one(&mut queue, "p1", 0);
        queue.amend("job", |graph| graph.extend([Step::default()])).expect("it is there").expect("sound");
        assert_eq!(one(&mut queue, "p1", 0).task, 2);
        // Withdrawn while it is held: the holder's word no longer counts.
        queue.amend("job", |graph| graph.fail(0));
        assert_eq!(queue.finish(&first, Outcome::Done, at(1)), Finish::Late);
        assert!(!queue.has("acme", at(1)), "nobody may do what needs it");
    }
}
