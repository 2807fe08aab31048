//! The jobs that are under way, who does their tasks, and who may do more. No I/O: the owner keeps what changes
//! before it is said to anybody.

use std::collections::{BTreeMap, BTreeSet};

use model::{TenantId, Timestamp};
use work::queue::{Claim, Finish, Load, Outcome, Queue, Stage};

use super::live::{Live, News};
use super::record::{PlanTask, Purpose, Verb};
use super::workers::{self, Workers};

/// Who is silent for longer loses what it holds.
pub const LEASE_MS: i64 = 10_000;
/// The longest time for one attempt, whatever is done in it; provisioners are told a shorter one.
pub const TASK_LIMIT_MS: i64 = 35 * 60_000;
/// A job whose plugins nobody has who is there waits so long for those that are away.
const PLUGIN_WAIT_MS: i64 = 10 * 60_000;
/// A job that gives machines up waits so long for somebody who could ask for their end.
pub const FORSAKEN_MS: i64 = 30_000;
/// Tasks of one answer.
pub const GIVEN_MAX: usize = 1_000;
/// Tasks one provisioner may say it does at once.
pub const CAPACITY_MAX: u32 = 10_000;

/// A provisioner that is there.
#[derive(Debug, Clone)]
pub struct Hand {
    pub session: String,
    pub capacity: u32,
    /// What it has; all there are if it did not say.
    pub plugins: BTreeSet<String>,
    /// When it was last heard, by the wall clock.
    pub heard_at: Timestamp,
    until: Timestamp,
}

/// What a provisioner says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    pub session: &'a str,
    pub capacity: u32,
    pub plugins: &'a BTreeSet<String>,
    pub holds: &'a [Claim],
}

#[derive(Debug)]
pub struct Desk {
    pub queue: Queue,
    pub lives: BTreeMap<String, Live>,
    pub hands: BTreeMap<String, Hand>,
    workers: Workers,
    /// Counts what there is to say about workers: of which tenants a provisioner has some, and their files.
    pub seen: u64,
    /// The change of files that provisioners were told of last.
    staged: i64,
    /// Counts how often workers were shared out otherwise than before.
    pub moved: u64,
    /// Counts how often something was taken from whoever does it; those who wait then say anew what they hold.
    pub taken: u64,
    /// Claims whose end is being kept; nobody loses them meanwhile.
    finishing: BTreeSet<Claim>,
    /// Claims of aborted jobs to make or delete machines, until whoever has them says that they ended.
    ending: BTreeSet<Claim>,
    /// Claims of jobs that fail whose end is not waited for, and who has them: what they say is kept, and changes nothing.
    vain: BTreeMap<Claim, String>,
    /// When tasks were given out, by the wall clock.
    began: BTreeMap<(String, u32), Timestamp>,
    /// Whether a provisioner that joined is not heard or is ending; it may have plugins that the others lack.
    is_some_away: bool,
    /// Since when nobody who is there can do a job.
    unable: BTreeMap<String, Timestamp>,
    /// The same of jobs that give machines up.
    forsaken: BTreeMap<String, Timestamp>,
}

impl Desk {
    /// `life` must be another one each time.
    pub fn new(life: u64) -> Self {
        Self {
            queue: Queue::new(life, LEASE_MS),
            lives: BTreeMap::new(),
            hands: BTreeMap::new(),
            workers: Workers::new(),
            // Another life has other things to say.
            seen: life << 20,
            staged: 0,
            moved: 0,
            taken: 0,
            finishing: BTreeSet::new(),
            ending: BTreeSet::new(),
            vain: BTreeMap::new(),
            began: BTreeMap::new(),
            is_some_away: false,
            unable: BTreeMap::new(),
            forsaken: BTreeMap::new(),
        }
    }

    /// Takes up a job. One that ran before is quiet for a lease, so that whoever does something of it can say so.
    pub fn open(&mut self, mut live: Live, resumed: Option<Timestamp>) -> Result<(), String> {
        if resumed.is_some() {
            live.doubt();
        }
        live.plugins = live.plugins_used();
        let graph = live.graph().map_err(|error| error.to_string())?;
        let id = live.job.id();
        self.queue.add(&id, live.job.tenant.as_str(), graph, TASK_LIMIT_MS, resumed);
        self.queue.pause(&id, live.cluster.paused);
        self.lives.insert(id, live);
        Ok(())
    }

    pub fn close(&mut self, job: &str) {
        self.taken += 1;
        self.queue.remove(job);
        self.lives.remove(job);
        self.began.retain(|(of, _), _| of != job);
        self.unable.remove(job);
        self.forsaken.remove(job);
        self.ending.retain(|claim| claim.job != job);
        self.vain.retain(|claim, _| claim.job != job);
    }

    /// A provisioner speaks. Another session of it has nothing of what the earlier one had. Returns what it must stop
    /// and what the earlier one lost.
    fn beat(
        &mut self,
        name: &str,
        said: Said<'_>,
        now: Timestamp,
        wall: Timestamp,
    ) -> (Vec<Claim>, Vec<Claim>) {
        let Said { session, capacity, plugins, holds } = said;
        let is_other = self.hands.get(name).is_some_and(|hand| hand.session != session);
        let lost = if is_other { self.queue.leave(name) } else { Vec::new() };
        let capacity = capacity.min(CAPACITY_MAX);
        let until = now.plus_ms(LEASE_MS);
        let hand =
            Hand { session: session.to_owned(), capacity, plugins: plugins.clone(), heard_at: wall, until };
        let is_news = |before: Hand| before.capacity != capacity || before.plugins != *plugins;
        if self.hands.insert(name.to_owned(), hand).is_none_or(is_news) || is_other {
            self.rebalance();
        }
        let said: BTreeSet<&Claim> = holds.iter().collect();
        let said = said.into_iter().cloned();
        let (counted, open): (Vec<Claim>, Vec<Claim>) =
            said.partition(|claim| self.is_counted(claim) && !self.finishing.contains(claim));
        let mut stop = self.queue.beat(name, &open, now);
        stop.extend(counted);
        self.abort(&open, &mut stop);
        (stop, lost)
    }

    /// Of jobs that a user ends, what is done on machines is stopped, and is over once nobody names it any more. For
    /// making and deleting machines see [`Self::end`]: what came of it is not known.
    fn abort(&mut self, open: &[Claim], stop: &mut Vec<Claim>) {
        let aborted: Vec<String> =
            self.lives.iter().filter(|(_, live)| live.is_aborted()).map(|(id, _)| id.clone()).collect();
        if aborted.is_empty() {
            return;
        }
        let may_stop = |claim: &&Claim| {
            let live = self.lives.get(&claim.job).filter(|live| live.is_aborted());
            let verb = live.and_then(|live| live.verb(claim.task));
            verb.is_some_and(|verb| !matches!(verb, Verb::Create | Verb::Delete))
                && !self.finishing.contains(claim)
                && !stop.contains(claim)
        };
        let more: Vec<Claim> = open.iter().filter(may_stop).cloned().collect();
        stop.extend(more);
        aborted.iter().for_each(|job| self.failing(job));
    }

    /// Hears a provisioner that may have waited since it said so: as long as nothing was taken from anybody meanwhile,
    /// what it holds need not be gone through again. `heard` is what the last time left there.
    pub fn hear(
        &mut self,
        name: &str,
        said: Said<'_>,
        heard: &mut Option<u64>,
        now: Timestamp,
        wall: Timestamp,
    ) -> (Vec<Claim>, Vec<Claim>) {
        let is_standing = *heard == Some(self.taken) && self.renew(name, said.session, now, wall);
        let told = match is_standing {
            true => Default::default(),
            false => {
                let (mut stop, mut lost) = self.beat(name, said, now, wall);
                self.end(said.holds, &mut stop, &mut lost);
                (stop, lost)
            }
        };
        *heard = Some(self.taken);
        told
    }

    /// What makes or deletes machines for an aborted job is told to end. Once nobody names it any more it is lost: what
    /// came of it is not known.
    fn end(&mut self, holds: &[Claim], stop: &mut Vec<Claim>, lost: &mut Vec<Claim>) {
        let is_open = |claim: &&Claim| self.queue.is_held(claim) && !self.finishing.contains(*claim);
        let named = holds.iter().filter(|claim| self.ending.contains(*claim)).filter(is_open);
        let named: Vec<Claim> = named.filter(|claim| !stop.contains(*claim)).cloned().collect();
        stop.extend(named);
        let over = self.ending.iter().filter(|claim| !self.queue.is_held(claim)).cloned();
        let (counted, ended): (Vec<Claim>, Vec<Claim>) = over.partition(|claim| self.is_counted(claim));
        for claim in &counted {
            self.ending.remove(claim);
        }
        lost.extend(ended);
        lost.sort();
        lost.dedup();
    }

    fn renew(&mut self, name: &str, session: &str, now: Timestamp, wall: Timestamp) -> bool {
        let Some(hand) = self.hands.get_mut(name).filter(|hand| hand.session == session) else {
            return false;
        };
        (hand.heard_at, hand.until) = (wall, now.plus_ms(LEASE_MS));
        self.queue.renew(name, now)
    }

    /// Whether a claim that is to be stopped is one whose report was taken: its answer is on its way.
    pub fn is_reported(&self, claim: &Claim) -> bool {
        let stage = self.queue.graph(&claim.job).and_then(|graph| graph.stage(claim.task));
        stage == Some(Stage::Done) && self.is_counted(claim)
    }

    fn is_counted(&self, claim: &Claim) -> bool {
        self.lives.get(&claim.job).is_some_and(|live| live.is_counted(claim))
    }

    /// The end of a task is being kept. Returns whether it was not before.
    pub fn finishing(&mut self, claim: &Claim) -> bool {
        self.queue.report(claim);
        self.finishing.insert(claim.clone())
    }

    pub fn is_finishing(&self, claim: &Claim) -> bool {
        self.finishing.contains(claim)
    }

    /// The end of tasks was kept.
    pub fn finished<'a>(&mut self, claims: impl Iterator<Item = &'a Claim>) {
        for claim in claims {
            self.finishing.remove(claim);
        }
    }

    /// Whether a provisioner does what is not waited for any more under a claim.
    pub fn is_vain(&self, name: &str, claim: &Claim) -> bool {
        self.vain.get(claim).is_some_and(|holder| holder == name)
    }

    /// Who does a task under a claim. One of an earlier life that nobody else has holds on.
    pub fn holder(&mut self, name: &str, claim: &Claim, now: Timestamp) -> bool {
        if self.queue.holder(claim) == Some(name) {
            return true;
        }
        !self.is_counted(claim) && self.hands.contains_key(name) && self.queue.adopt(name, claim, now)
    }

    /// Gives a provisioner what its workers can do.
    pub fn give(&mut self, name: &str, now: Timestamp, wall: Timestamp) -> Vec<Claim> {
        let Some(own) = self.workers.get(name).cloned() else { return Vec::new() };
        let refused = self.refused(name, now);
        let may = |job: &str| !refused.contains(job);
        let mut given = Vec::new();
        for (tenant, workers) in own {
            let held = self.queue.held(name, tenant.as_str());
            let room = (workers as usize).saturating_sub(held).min(GIVEN_MAX - given.len());
            if room > 0 {
                given.extend(self.queue.take_of(tenant.as_str(), name, room, now, &may));
            }
        }
        for claim in &given {
            self.began.insert((claim.job.clone(), claim.task), wall);
        }
        given
    }

    /// Notes who has joined. One that is ending takes nothing, and comes back as one that was killed does.
    pub fn joined<'a>(&mut self, mut names: impl Iterator<Item = &'a str>) {
        let is_away = |name: &str| self.hands.get(name).is_none_or(|hand| hand.capacity == 0);
        self.is_some_away = names.any(is_away);
    }

    pub fn began(&self, claim: &Claim) -> Option<Timestamp> {
        self.began.get(&(claim.job.clone(), claim.task)).copied()
    }

    pub fn workers(&self, name: &str) -> BTreeMap<TenantId, u32> {
        self.workers.get(name).cloned().unwrap_or_default()
    }

    /// How much there is to do in all.
    pub fn load(&self) -> Load {
        self.queue.loads().values().fold(Load::default(), |sum, load| Load {
            ready: sum.ready + load.ready,
            held: sum.held + load.held,
            waiting: sum.waiting + load.waiting,
        })
    }

    /// Who lacks a plugin that a tenant's jobs use.
    fn barred(&self) -> workers::Barred {
        let mut needs: BTreeMap<TenantId, BTreeSet<&BTreeSet<String>>> = BTreeMap::new();
        for live in self.lives.values() {
            needs.entry(live.job.tenant.clone()).or_default().insert(&live.plugins);
        }
        let able = self.hands.iter().filter(|(_, hand)| hand.capacity > 0);
        workers::barred(&needs, &able.map(|(name, hand)| (name.as_str(), &hand.plugins)).collect())
    }

    /// The jobs that are not for a provisioner, because it lacks a plugin that another has, or that one may have who
    /// is away or is ending. Where nobody will, whoever is asked says so.
    fn refused(&mut self, name: &str, now: Timestamp) -> BTreeSet<String> {
        let Some(hand) = self.hands.get(name) else { return BTreeSet::new() };
        let mut refused = BTreeSet::new();
        for (id, live) in &self.lives {
            let is_able = |hand: &Hand| hand.capacity > 0 && workers::can(&hand.plugins, &live.plugins);
            let is_refused = if self.hands.values().any(is_able) {
                self.unable.remove(id);
                !is_able(hand)
            } else {
                let since = *self.unable.entry(id.clone()).or_insert(now);
                self.is_some_away && now < since.plus_ms(PLUGIN_WAIT_MS)
            };
            if is_refused {
                refused.insert(id.clone());
            }
        }
        refused
    }

    /// Shares workers out anew.
    pub fn rebalance(&mut self) {
        let of = self.queue.loads();
        let load = |live: &Live| {
            let load = of.get(live.job.tenant.as_str()).copied().unwrap_or_default();
            (live.job.tenant.clone(), load.ready + load.held)
        };
        let loads: BTreeMap<TenantId, u32> = self.lives.values().map(load).collect();
        let capacities = self.hands.iter().map(|(name, hand)| (name.clone(), hand.capacity)).collect();
        let new = workers::assign(&loads, &capacities, &self.barred(), &self.workers);
        if new != self.workers {
            let tenants = |workers: &Workers| -> BTreeMap<String, Vec<TenantId>> {
                workers.iter().map(|(name, own)| (name.clone(), own.keys().cloned().collect())).collect()
            };
            self.seen += u64::from(tenants(&new) != tenants(&self.workers));
            self.moved += 1;
            self.workers = new;
        }
    }

    /// Notes the last change of what provisioners have of files. Returns whether it is news.
    pub fn stage(&mut self, seq: i64) -> bool {
        let is_news = self.staged != seq;
        if is_news {
            self.staged = seq;
            self.seen += 1;
        }
        is_news
    }

    /// Whether a provisioner has workers of a tenant, or does something for it.
    pub fn serves(&self, name: &str, tenant: &TenantId) -> bool {
        let workers = self.workers.get(name).and_then(|own| own.get(tenant));
        workers.is_some_and(|count| *count > 0) || self.queue.held(name, tenant.as_str()) > 0
    }

    /// Takes back what is held by those who fell silent, and names what takes too long.
    pub fn lapse(&mut self, now: Timestamp) -> (Vec<Claim>, Vec<Claim>) {
        let silent: Vec<String> =
            self.hands.iter().filter(|(_, hand)| hand.until <= now).map(|(name, _)| name.clone()).collect();
        for name in &silent {
            self.hands.remove(name);
        }
        if !silent.is_empty() {
            self.rebalance();
        }
        self.queue.lapse(now)
    }

    /// A provisioner was removed.
    pub fn forget(&mut self, name: &str) -> Vec<Claim> {
        self.hands.remove(name);
        let lost = self.queue.leave(name);
        self.rebalance();
        lost
    }

    /// Claims that were taken back; the queue has their tasks again.
    pub fn lose(&mut self, claims: &[Claim], wall: Timestamp) {
        self.taken += u64::from(!claims.is_empty());
        for claim in claims {
            let began = self.began(claim);
            let why = match self.ending.remove(claim) {
                true => "it was stopped",
                false => "whoever did it fell silent",
            };
            let Some(live) = self.lives.get_mut(&claim.job) else { continue };
            match live.fold(claim, News::Lost(why), began, wall) {
                Outcome::GiveUp => {
                    self.queue.amend(&claim.job, |graph| graph.fail(claim.task));
                }
                Outcome::Done => {
                    self.queue.amend(&claim.job, |graph| graph.done(claim.task));
                }
                Outcome::Again(_) => {}
            }
        }
    }

    /// What came of a claim that still holds. The answer counts once [`Desk::settle`] is told of it.
    pub fn fold(&mut self, claim: &Claim, news: News, wall: Timestamp) -> Option<Outcome> {
        if !self.queue.is_held(claim) {
            if let (Some(_), News::Report(report)) = (self.vain.remove(claim), news) {
                let began = self.began(claim);
                self.lives.get_mut(&claim.job)?.note(claim, &report, began, wall);
            }
            return None;
        }
        self.taken += u64::from(matches!(news, News::Lost(_)));
        let began = self.began(claim);
        let live = self.lives.get_mut(&claim.job)?;
        Some(live.fold(claim, news, began, wall))
    }

    /// What [`Desk::fold`] decided is kept and counts now. Of jobs that fail by it nothing more is begun.
    pub fn settle_all(&mut self, outcomes: &[(Claim, Outcome)], now: Timestamp) {
        outcomes.iter().for_each(|(claim, outcome)| self.settle(claim, *outcome, now));
        let jobs: BTreeSet<&str> = outcomes.iter().map(|(claim, _)| claim.job.as_str()).collect();
        jobs.into_iter().for_each(|job| self.failing(job));
    }

    fn settle(&mut self, claim: &Claim, outcome: Outcome, now: Timestamp) {
        // Its holder may have been given up while this was being kept; what is kept counts all the same.
        if self.queue.finish(claim, outcome, now) == Finish::Late {
            self.queue.amend(&claim.job, |graph| match outcome {
                Outcome::Done => drop(graph.done(claim.task)),
                Outcome::GiveUp => graph.fail(claim.task),
                Outcome::Again(_) => {}
            });
        }
        self.began.remove(&(claim.job.clone(), claim.task));
    }

    /// The jobs of which nothing goes on and nothing will.
    pub fn over(&self) -> Vec<String> {
        let is_over = |id: &&String| self.queue.progress(id).is_some_and(|progress| progress.is_over());
        self.lives.keys().filter(is_over).cloned().collect()
    }

    /// The jobs whose tasks all wait, for what will never be done.
    pub fn stuck(&self) -> Vec<String> {
        let is_stuck = |id: &&String| {
            let progress = self.queue.progress(id).unwrap_or_default();
            progress.ready + progress.held == 0 && progress.waiting > 0
        };
        self.lives.keys().filter(is_stuck).cloned().collect()
    }

    /// Ends jobs that give machines up, where for long nobody has been there who could ask for their end.
    pub fn forsake(&mut self, now: Timestamp) {
        let is_able = |live: &Live| {
            let able = |hand: &Hand| hand.capacity > 0 && workers::can(&hand.plugins, &live.plugins);
            self.hands.values().any(able)
        };
        let alone: Vec<String> = self
            .lives
            .iter()
            .filter(|(_, live)| live.job.force && !live.cluster.paused && !is_able(live))
            .map(|(id, _)| id.clone())
            .collect();
        self.forsaken.retain(|id, _| alone.contains(id));
        for id in alone {
            let since = *self.forsaken.entry(id.clone()).or_insert(now);
            if now >= since.plus_ms(FORSAKEN_MS) {
                self.taken += 1;
                self.queue.amend(&id, work::queue::Graph::drop_rest);
            }
        }
    }

    /// What takes a job back is kept and begins.
    pub fn undo(&mut self, job: &str, tasks: Vec<PlanTask>) {
        let Some(live) = self.lives.get_mut(job) else { return };
        let steps = Live::steps(&tasks);
        live.plan.extend(tasks);
        live.shown = None;
        self.queue.amend(job, |graph| graph.extend(steps));
    }

    /// Of a job that fails nothing more is begun. What is done on machines that are deleted anyway is not waited for,
    /// unless they go back to a pool: what is being installed there is removed again. Of one that is aborted the making
    /// and deleting of machines is stopped, too, and what takes it back begins when that has ended.
    pub fn failing(&mut self, job: &str) {
        let Some(live) = self.lives.get(job) else { return };
        if live.job.failing.is_none() || live.is_undoing() {
            return;
        }
        let is_vain = |at: &u32| live.verb(*at).is_some_and(|verb| !verb.is_hardware());
        let tasks = 0..live.plan.len() as u32;
        let vain: BTreeSet<u32> = match live.job.purpose {
            Purpose::Create if !live.catalogue.is_pool(&live.cluster.provider) => {
                tasks.filter(is_vain).collect()
            }
            _ => BTreeSet::new(),
        };
        self.taken += 1;
        let held = self.queue.claims(job).into_iter().filter(|claim| vain.contains(&claim.task));
        let held = held.filter_map(|claim| Some((self.queue.holder(&claim)?.to_owned(), claim)));
        self.vain.extend(held.map(|(holder, claim)| (claim, holder)));
        let is_aborted = live.cluster.aborted_by.is_some();
        self.queue.amend(job, |graph| {
            graph.drop_rest();
            vain.into_iter().for_each(|at| graph.fail(at));
        });
        if is_aborted {
            let is_hardware = |claim: &Claim| live.verb(claim.task).is_some_and(Verb::is_hardware);
            self.ending.extend(self.queue.claims(job).into_iter().filter(is_hardware));
        }
    }
}
