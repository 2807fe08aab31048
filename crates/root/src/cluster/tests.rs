//! Random jobs with everything that can go wrong: holders that die, answers that get lost, tasks that fail half-way, a
//! store that does not take a commit, an owner that is restarted at any of them, users who pause and abort. Whatever
//! happens, a cluster ends in its old or its new shape, no machine is made and forgotten, and every task comes after
//! what it needs.

mod desk;
mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{ClusterStatus, JobStatus};
use model::{Report, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use template::Catalogue;
use work::queue::{Claim, Outcome};

use self::fixture::{catalogue, cluster};
use super::absent::degrade;
use super::desk::{Desk, LEASE_MS, Said};
use super::end::end;
use super::live::{GONE, Live, News, Next};
use super::plan::{Ground, Wish};
use super::record::{
    Absence, ClusterRecord, JobRecord, Machine, Mark, NodeRecord, PlanRow, PlanTask, Purpose, Shape,
    TaskRecord, Verb,
};

const HOLDERS: [&str; 3] = ["ada", "bob", "cyd"];
const STEPS_MAX: u32 = 60_000;
/// How long a poll waits.
const POLL_MS: i64 = 4_000;

/// A task that is being done, and what came of it once it is.
#[derive(Clone)]
struct Hold {
    claim: Claim,
    verb: Verb,
    task: PlanTask,
    report: Option<Report>,
}

/// What a provisioner believes to have.
#[derive(Default)]
struct Holder {
    holds: Vec<Hold>,
    session: u32,
    polled: i64,
    /// What a poll named that was not answered yet, how it was last heard, and when it began.
    waits: Option<(Vec<Claim>, Option<u64>, i64)>,
}

impl Holder {
    /// Its process ends, and another one begins.
    fn end(&mut self) {
        self.holds.clear();
        self.waits = None;
        self.session += 1;
    }
}

/// What is durable.
struct Kept {
    cluster: Option<ClusterRecord>,
    job: Option<JobRecord>,
    rows: Vec<PlanRow>,
    plan: Vec<PlanTask>,
    nodes: BTreeMap<u32, NodeRecord>,
    tasks: BTreeMap<u32, TaskRecord>,
}

struct World {
    rng: StdRng,
    catalogue: Arc<Catalogue>,
    now: i64,
    life: u64,
    kept: Kept,
    desk: Desk,
    holders: BTreeMap<&'static str, Holder>,
    /// The machines there are, and what is installed on each.
    machines: BTreeMap<u32, BTreeSet<String>>,
    /// How often of a hundred something goes wrong.
    trouble: u32,
    /// Something was left on machines that nobody knows of.
    is_messy: bool,
    /// Nothing went wrong but what is cursed.
    is_calm: bool,
    /// What never goes well in this job.
    curse: Option<(Verb, u32)>,
}

impl World {
    fn new(seed: u64, is_pool: bool) -> Self {
        let holders = HOLDERS.map(|name| (name, Holder::default())).into();
        let kept = Kept {
            cluster: Some(cluster()),
            job: None,
            rows: Vec::new(),
            plan: Vec::new(),
            nodes: BTreeMap::new(),
            tasks: BTreeMap::new(),
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let trouble = rng.random_range(0..30);
        Self {
            rng,
            catalogue: Arc::new(catalogue(is_pool)),
            now: 0,
            life: 1,
            kept,
            desk: Desk::new(1),
            holders,
            machines: BTreeMap::new(),
            trouble,
            is_messy: false,
            is_calm: false,
            curse: None,
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp(self.now * 1_000)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Places an order as users do; what cannot be planned is none.
    fn order(&mut self, wish: &Wish) -> bool {
        let cluster = self.kept.cluster.clone().expect("it is there");
        let nodes = self.kept.nodes.values().collect();
        let ground =
            Ground { cluster: &cluster, catalogue: &self.catalogue, nodes, given_up: BTreeSet::new() };
        let Ok(planned) = ground.plan(wish, &mut || true) else { return false };
        if planned.plan.tasks.is_empty() && *wish != Wish::Delete {
            return false;
        }
        let number = cluster.job + 1;
        let target = planned.target.clone();
        self.kept.cluster = Some(ClusterRecord {
            status: ClusterStatus::Pending,
            job: number,
            node_next: planned.node_next,
            ..cluster.clone()
        });
        self.kept.job = Some(JobRecord {
            cluster: cluster.id,
            tenant: cluster.tenant,
            number,
            action: planned.action.into(),
            purpose: planned.purpose,
            was: cluster.status,
            force: false,
            target,
            cost: None,
            status: JobStatus::Running,
            pages: vec![1],
            undo: None,
            total: 0,
            done: 0,
            failed: 0,
            failing: None,
            message: None,
            created_at: Timestamp(0),
            created_by: "ada".into(),
            ended_at: None,
        });
        self.kept.rows = planned.plan.nodes;
        self.kept.plan = planned.plan.tasks;
        self.kept.tasks = BTreeMap::new();
        for row in &self.kept.rows {
            let cluster = self.kept.cluster.as_ref().expect("it is there");
            let hostname = super::plan::hostname(cluster, row.num);
            let planned = || NodeRecord::planned(&cluster.id, row, hostname);
            self.kept.nodes.entry(row.num).or_insert_with(planned);
        }
        self.open(false);
        true
    }

    /// Builds the desk from what is kept.
    fn open(&mut self, is_resumed: bool) {
        if is_resumed {
            self.life += 1;
            self.desk = Desk::new(self.life);
        }
        let (Some(cluster), Some(job)) = (&self.kept.cluster, &self.kept.job) else { return };
        let live = Live {
            cluster: Arc::new(cluster.clone()),
            job: job.clone(),
            catalogue: self.catalogue.clone(),
            secrets: BTreeMap::new(),
            rows: self.kept.rows.iter().map(|row| (row.num, row.clone())).collect(),
            plan: self.kept.plan.clone(),
            nodes: self.kept.nodes.clone(),
            tasks: self.kept.tasks.clone(),
            dirty: Default::default(),
            counted: Timestamp(0),
            plugins: Default::default(),
            shown: None,
        };
        let resumed = is_resumed.then(|| Timestamp(self.now * 1_000));
        self.desk.open(live, resumed).expect("the plan is sound");
        self.desk.rebalance();
    }

    /// Keeps what changed. Now and then the owner dies before it, or before it says so.
    fn commit(&mut self) -> bool {
        let Some(live) = self.desk.lives.values_mut().next() else { return true };
        let dirty = std::mem::take(&mut live.dirty);
        let dies = self.rng.random_range(0..400);
        if dies == 0 {
            self.open(true);
            return false;
        }
        for num in dirty.nodes {
            self.kept.nodes.insert(num, live.nodes[&num].clone());
        }
        for at in dirty.tasks {
            self.kept.tasks.insert(at, live.tasks[&at].clone());
        }
        self.kept.job = Some(live.job.clone());
        if dies == 1 {
            self.open(true);
            return false;
        }
        true
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0..1_500);
        let name = HOLDERS[self.rng.random_range(0..3)];
        match self.rng.random_range(0..1_000) {
            0..3 => self.open(true),
            3..8 => {
                let holder = self.holders.get_mut(name).expect("it is there");
                holder.end();
            }
            8..10 => self.user(),
            10..60 => self.lapse(),
            60..500 => self.poll(name),
            _ => self.carry(name),
        }
        self.advance();
    }

    fn user(&mut self) {
        let paused = self.chance(50);
        let aborts = self.trouble > 0 && self.chance(10);
        let Some(cluster) = &mut self.kept.cluster else { return };
        cluster.paused = paused && !aborts;
        if aborts {
            cluster.aborted_by = Some("ada".into());
        }
        let cluster = Arc::new(cluster.clone());
        let Some((id, live)) = self.desk.lives.iter_mut().next() else { return };
        let id = id.clone();
        live.cluster = cluster.clone();
        if aborts {
            live.abort("ada");
        }
        let is_failing = live.job.failing.is_some();
        if self.commit() {
            self.desk.queue.pause(&id, cluster.paused && !is_failing);
            self.desk.failing(&id);
        }
    }

    fn lapse(&mut self) {
        let at = self.at();
        let (lost, late) = self.desk.lapse(at);
        self.desk.lose(&lost, at);
        assert!(late.is_empty(), "nothing takes that long here");
        let ids: Vec<String> = self.desk.lives.keys().cloned().collect();
        if self.commit() {
            ids.iter().for_each(|id| self.desk.failing(id));
        }
        self.desk.queue.mature(at);
        self.desk.rebalance();
    }

    fn poll(&mut self, name: &'static str) {
        let at = self.at();
        let holder = self.holders.get_mut(name).expect("it is there");
        let said = || holder.holds.iter().map(|hold| hold.claim.clone()).collect();
        let (holds, mut heard, began) = holder.waits.take().unwrap_or_else(|| (said(), None, self.now));
        let session = holder.session.to_string();
        let said = Said { session: &session, capacity: 4, plugins: &BTreeSet::new(), holds: &holds };
        let (stop, lost) = self.desk.hear(name, said, &mut heard, at, at);
        self.desk.lose(&lost, at);
        let given = self.desk.give(name, at, at);
        // With nothing to say it waits, and whoever asks is heard all the while.
        if given.is_empty() && stop.is_empty() && self.now - began < POLL_MS {
            self.holders.get_mut(name).expect("it is there").waits = Some((holds, heard, began));
            return;
        }
        // Now and then the answer does not arrive.
        if self.chance(self.trouble / 3) {
            return;
        }
        let holder = self.holders.get_mut(name).expect("it is there");
        holder.polled = began;
        holder.holds.retain(|hold| !stop.contains(&hold.claim));
        for claim in given {
            let live = &self.desk.lives[&claim.job];
            let verb = live.verb(claim.task).expect("a gate is never given out");
            let task = live.plan[claim.task as usize].clone();
            holder.holds.push(Hold { claim, verb, task, report: None });
        }
    }

    /// A provisioner does one of its tasks. One that was not heard for a lease does nothing any more.
    fn carry(&mut self, name: &'static str) {
        let holder = self.holders.get_mut(name).expect("it is there");
        if self.now - holder.polled >= LEASE_MS {
            holder.holds.clear();
        }
        if holder.holds.is_empty() {
            return;
        }
        let place = self.rng.random_range(0..holder.holds.len());
        let Hold { claim, verb, task, report } = holder.holds[place].clone();
        let is_wanted = self.desk.queue.is_held(&claim);
        let report = report.unwrap_or_else(|| self.effect(verb, &task, is_wanted));
        self.holders.get_mut(name).expect("it is there").holds[place].report = Some(report.clone());
        // Now and then it dies before it says so.
        if self.chance(self.trouble / 4) {
            let holder = self.holders.get_mut(name).expect("it is there");
            holder.end();
            return;
        }
        self.finish(name, &claim, report);
        // A holder that gets no answer says it again.
        if self.chance(90) {
            let holder = self.holders.get_mut(name).expect("it is there");
            holder.holds.retain(|hold| hold.claim != claim);
        }
    }

    /// What a task does to the machines. One that fails may have done its work, or not.
    fn effect(&mut self, verb: Verb, task: &PlanTask, is_wanted: bool) -> Report {
        let is_cursed = self.curse == Some((verb, task.node));
        let fails = is_cursed || self.chance(self.trouble);
        let acts = !fails || self.chance(50);
        let is_nothing = verb == Verb::Create && fails && !acts && self.chance(30);
        if verb == Verb::Confirm && !self.machines.contains_key(&task.node) {
            let message = "the machine is gone".into();
            return Report { status: GONE, message, is_passing: false, ..Report::default() };
        }
        let is_there = self.machines.contains_key(&task.node) || matches!(verb, Verb::Create | Verb::Delete);
        let is_leaving = self.kept.rows.iter().any(|row| row.num == task.node && row.gone);
        assert!(is_there || !is_wanted || is_leaving, "{verb:?} of {task:?} without a machine");
        if verb == Verb::Delete && is_wanted && self.is_calm && self.catalogue.is_pool("lab") {
            let left = self.machines.get(&task.node).filter(|services| !services.is_empty());
            assert_eq!(left, None, "node {} went back to the pool with services on it", task.node);
        }
        if acts && is_there {
            match verb {
                Verb::Create => drop(self.machines.entry(task.node).or_default()),
                Verb::Delete => drop(self.machines.remove(&task.node)),
                verb => {
                    let machine = self.machines.entry(task.node).or_default();
                    match verb {
                        Verb::Install => drop(machine.insert(task.service.clone())),
                        Verb::Remove => drop(machine.remove(&task.service)),
                        _ => {}
                    }
                }
            }
        }
        match fails {
            false => Report::default(),
            true => Report {
                status: if is_nothing { 201 } else { 1 },
                message: "it failed".into(),
                is_passing: self.chance(70),
                ..Report::default()
            },
        }
    }

    fn finish(&mut self, name: &str, claim: &Claim, report: Report) {
        let at = self.at();
        if !self.desk.holder(name, claim, at) {
            return;
        }
        self.desk.finishing(claim);
        // Now and then all fall silent between the report and its end.
        if self.chance(self.trouble / 4) {
            let life = self.life;
            self.now += LEASE_MS;
            self.lapse();
            let is_held = self.desk.queue.is_held(claim) || self.life != life;
            let live = self.desk.lives.get(&claim.job);
            assert!(is_held || live.is_none_or(|live| live.job.failing.is_some()), "a report was lost");
        }
        self.count(claim, report, at);
        self.desk.finished(std::iter::once(claim));
    }

    fn count(&mut self, claim: &Claim, report: Report, at: Timestamp) {
        let Some(outcome) = self.desk.fold(claim, News::Report(report), at) else { return };
        if outcome == Outcome::Done {
            let live = &self.desk.lives[&claim.job];
            let early = live.plan[claim.task as usize].needs.iter().find(|need| !is_done(live, **need));
            assert_eq!(early, None, "task {} came before what it needs", claim.task);
        }
        if self.commit() {
            self.desk.settle_all(&[(claim.clone(), outcome)], at);
            self.desk.rebalance();
        }
    }

    fn advance(&mut self) {
        assert_eq!(self.desk.stuck(), Vec::<String>::new(), "nothing waits for ever");
        for id in self.desk.over() {
            let live = &self.desk.lives[&id];
            match live.next() {
                Next::Undo(tasks) => {
                    let mut job = live.job.clone();
                    job.undo = Some(live.plan.len() as u32);
                    self.kept.job = Some(job.clone());
                    self.kept.plan.extend(tasks.clone());
                    self.desk.lives.get_mut(&id).expect("it is there").job = job;
                    self.desk.undo(&id, tasks);
                    self.desk.rebalance();
                }
                Next::End => {
                    let cluster = self.kept.cluster.clone().expect("it is there");
                    let ended = end(live, &cluster, self.at());
                    self.kept.cluster = ended.cluster;
                    self.kept.job = Some(ended.job);
                    self.kept.nodes = ended.kept.into_iter().map(|node| (node.num, node)).collect();
                    self.desk.close(&id);
                }
            }
        }
    }

    /// Runs the job to its end and checks what it left.
    fn run(&mut self, seed: u64, before: &Shape) {
        let steps = (0..STEPS_MAX).take_while(|_| {
            let is_open = !self.desk.lives.is_empty();
            if is_open {
                self.step();
            }
            is_open
        });
        let steps = steps.count() as u32;
        assert!(steps < STEPS_MAX, "seed {seed} does not end: {:?}", self.desk.queue);
        let known: BTreeSet<u32> = self
            .kept
            .nodes
            .values()
            .filter(|node| node.machine != Machine::None)
            .map(|node| node.num)
            .collect();
        let forgotten: Vec<&u32> = self.machines.keys().filter(|num| !known.contains(num)).collect();
        assert!(forgotten.is_empty(), "seed {seed}: machines {forgotten:?} were forgotten");
        let job = self.kept.job.take().expect("it was there");
        let Some(cluster) = &self.kept.cluster else {
            assert!(self.machines.is_empty() && job.purpose == Purpose::Delete, "seed {seed}");
            return;
        };
        let shape = &cluster.shape;
        if matches!(job.purpose, Purpose::Create | Purpose::Change) {
            let is_old = shape == before;
            assert!(is_old || *shape == job.target, "seed {seed}: neither the old nor the new shape");
        }
        match cluster.status {
            ClusterStatus::Active => self.check_active(seed, cluster),
            ClusterStatus::Degraded => {
                let absent = |node: &NodeRecord| node.absence.is_some() || node.is_gone();
                assert!(self.kept.nodes.values().any(absent), "seed {seed}: nothing is missing");
                assert!(cluster.message.is_some(), "seed {seed}: it says which");
            }
            ClusterStatus::Inconsistent => {
                self.is_messy = true;
                assert!(cluster.message.is_some(), "seed {seed}: it says why");
            }
            ClusterStatus::Terminated => assert!(self.machines.is_empty(), "seed {seed}"),
            ClusterStatus::Pending => panic!("seed {seed}: pending without a job"),
            ClusterStatus::Incomplete => {
                assert!(cluster.message.is_some(), "seed {seed}: it says why");
            }
        }
    }

    /// The machines are those of the shape, with what they should carry.
    fn check_active(&self, seed: u64, cluster: &ClusterRecord) {
        assert_eq!(self.machines.len() as u32, cluster.shape.layout.size(), "seed {seed}");
        assert_eq!(self.kept.nodes.len(), self.machines.len(), "seed {seed}");
        for node in self.kept.nodes.values() {
            assert!(node.joined && !node.leaving, "seed {seed}: {node:?}");
            if self.is_messy {
                continue;
            }
            let has: Vec<&String> = self.machines[&node.num].iter().collect();
            assert_eq!(has, node.services.iter().collect::<Vec<_>>(), "seed {seed}: node {}", node.num);
        }
    }

    fn some_node(&mut self) -> Option<u32> {
        let stands = |node: &&NodeRecord| node.joined && !node.leaving && !node.is_gone();
        let all: Vec<u32> = self.kept.nodes.values().filter(stands).map(|node| node.num).collect();
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len())])
    }

    /// A machine goes behind the cluster's back. Whether that is known at once.
    fn lose(&mut self) -> bool {
        let Some(num) = self.some_node() else { return true };
        self.machines.remove(&num);
        if self.chance(40) {
            return false;
        }
        let (since, why) = (self.at(), "its instance is gone".to_owned());
        self.kept.nodes.get_mut(&num).expect("it is there").absence =
            Some(Absence { gone: true, why, since });
        let nodes: Vec<NodeRecord> = self.kept.nodes.values().cloned().collect();
        degrade(self.kept.cluster.as_mut().expect("it is there"), &nodes);
        true
    }

    /// What was lost and could not be asked for is known in the end.
    fn find_out(&mut self) {
        let at = self.at();
        let Some(cluster) = &mut self.kept.cluster else { return };
        for node in self.kept.nodes.values_mut().filter(|node| node.joined && !node.leaving) {
            if !self.machines.contains_key(&node.num) && !node.is_gone() {
                node.absence = Some(Absence { gone: true, why: "it is gone".to_owned(), since: at });
            }
        }
        degrade(cluster, &self.kept.nodes.values().cloned().collect::<Vec<_>>());
    }

    /// What is asked of a cluster that stands.
    fn wish(&mut self) -> Wish {
        let size = self.rng.random_range(2..7);
        let all = [&["base", "db", "web"][..], &["base", "db"], &["base", "cache", "db", "web"]];
        let services = all[self.rng.random_range(0..3)].iter().map(|name| (*name).to_owned()).collect();
        let anew = self.chance(50);
        match self.rng.random_range(0..14) {
            10 => Wish::Repair(self.some_node().into_iter().collect()),
            11 | 12 => Wish::Repair(BTreeSet::new()),
            13 => Wish::Check,
            0 => Wish::Restart(Vec::new()),
            1 => Wish::Upgrade { services: Vec::new(), batch: 2 },
            2 => Wish::Rollback,
            _ => Wish::Become { size, services, anew },
        }
    }
}

/// Whether a task is done; a gate is when all that it needs is.
fn is_done(live: &Live, at: u32) -> bool {
    let task = &live.plan[at as usize];
    match task.verb {
        Some(_) => live.tasks.get(&at).is_some_and(|row| matches!(row.mark, Mark::Done | Mark::Passed)),
        None => task.needs.iter().all(|need| is_done(live, *need)),
    }
}

/// The life of one cluster. Returns the statuses it was in.
fn life(seed: u64, curse: Option<(Verb, u32)>, is_pool: bool) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut world = World::new(seed, is_pool);
    if curse.is_some() {
        (world.trouble, world.is_calm) = (0, true);
    }
    world.curse = curse;
    let before = world.kept.cluster.as_ref().expect("it is there").shape.clone();
    let size = world.rng.random_range(2..6);
    assert!(world.order(&Wish::Create { size: if curse.is_some() { 3 } else { size } }), "seed {seed}");
    world.run(seed, &before);
    for _ in 0..4 {
        let Some(cluster) = world.kept.cluster.clone() else { break };
        seen.insert(cluster.status.as_str());
        if !world.kept.nodes.values().any(|node| node.joined) {
            break;
        }
        world.curse = None;
        let is_stable = matches!(cluster.status, ClusterStatus::Active | ClusterStatus::Degraded);
        let wish = match is_stable && world.chance(40) && !world.lose() {
            true => Wish::Check,
            false => world.wish(),
        };
        if world.order(&wish) {
            world.run(seed, &cluster.shape);
        }
        world.find_out();
    }
    // In the end all troubles cease, and it is deleted.
    (world.trouble, world.curse) = (0, None);
    world.order(&Wish::Delete);
    while world.kept.cluster.is_some() {
        let shape = world.kept.cluster.as_ref().expect("it is there").shape.clone();
        world.run(seed, &shape);
        if world.kept.cluster.is_some() {
            world.order(&Wish::Delete);
        }
    }
    assert!(world.machines.is_empty(), "seed {seed}: machines are left");
    seen
}

#[test]
fn no_machine_is_forgotten_whatever_dies() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        seen.extend(life(seed, None, seed % 2 == 1));
    }
    let all = ["active", "degraded", "incomplete", "inconsistent", "terminated"];
    assert_eq!(seen, all.into(), "everything that may happen happened");
}

#[test]
fn a_failure_of_any_task_of_a_create_is_taken_back() {
    use Verb::{Bootstrap, Configure, Confirm, Create, Delete, Initialize, Install, Start};
    for verb in [Create, Confirm, Bootstrap, Install, Configure, Initialize, Start, Delete] {
        for node in 1000..1003 {
            life(u64::from(node), Some((verb, node)), false);
            life(u64::from(node), Some((verb, node)), true);
        }
    }
}

#[test]
fn services_that_are_told_addresses_wait_until_all_are_known() {
    let catalogue = catalogue(false);
    let mut cluster = cluster();
    let waits = |cluster: &ClusterRecord| {
        let ground = Ground { cluster, catalogue: &catalogue, nodes: Vec::new(), given_up: BTreeSet::new() };
        let tasks = ground.plan(&Wish::Create { size: 3 }, &mut || true).expect("it can be").plan.tasks;
        let is_gate = |at: &u32| {
            let needs = &tasks[*at as usize].needs;
            tasks[*at as usize].verb.is_none()
                && needs.iter().filter(|at| tasks[**at as usize].verb == Some(Verb::Confirm)).count() == 3
        };
        let installs: Vec<_> = tasks.iter().filter(|task| task.verb == Some(Verb::Install)).collect();
        assert!(!installs.is_empty());
        installs.iter().all(|task| task.needs.iter().any(is_gate))
    };
    assert!(!waits(&cluster));
    let config = json!({"web": {"db": ["%ip.access_v4.service.db[0]%:5432"], "self": "%ip.self%"}});
    cluster.shape.config = config.as_object().expect("a map").clone();
    assert!(waits(&cluster));
}
