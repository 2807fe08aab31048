//! A job under way: what reports mean for its tasks, its nodes and itself. No I/O.
//!
//! ```text
//!   report ─▶ fold ─▶ Outcome for the queue, and changed records to be kept before it counts
//!
//!   good                               ─▶ done
//!   passing, and not too often         ─▶ again, later
//!   CREATE, CONFIRM, BOOTSTRAP failed  ─▶ the machine is deleted and made anew, by the same task (mending)
//!   DELETE failed                      ─▶ given up for this node; the others go on
//!   of a node that goes, or taking back─▶ passed over
//!   CONFIRM of a machine that stood    ─▶ passed over; its node is absent
//!   else                               ─▶ the job fails: nothing more is begun, then it is taken back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::JobStatus;
use model::{Report, Timestamp};
use template::Catalogue;
use template::entity::ActionKind;
use work::queue::{Claim, Graph, Outcome, Progress, Shape, ShapeError, Stage, Step};

use super::body::Shown;
use super::record::{
    Absence, Attempt, ClusterRecord, JobRecord, Machine, Mark, NodeRecord, PlanRow, PlanTask, Purpose,
    TaskRecord, Verb,
};

/// Attempts of a task on one machine.
pub const ATTEMPTS_MAX: u32 = 5;
/// The same where the machine is not reached: with the waits between them long enough for it to start anew.
pub const ATTEMPTS_REACH_MAX: u32 = 8;
/// Times a task is given out again because nothing was heard of it.
pub const LOSSES_MAX: u32 = 10;
/// Machines that are tried for one node.
pub const MACHINES_MAX: u32 = 3;
const BACKOFF_FIRST_MS: i64 = 1_000;
const BACKOFF_MAX_MS: i64 = 60_000;
/// Bytes of each output of a task that are kept.
pub const OUTPUT_KEPT: usize = 8 << 10;
/// Attempts at a task that are kept besides the last one, and bytes of each of their outputs.
const ATTEMPTS_KEPT: usize = 6;
const ATTEMPT_OUTPUT_KEPT: usize = 2 << 10;
/// Bytes of a message that are kept.
const MESSAGE_KEPT: usize = 2 << 10;
/// Bytes that all results of a node may have.
const RESULT_MAX: usize = 64 << 10;
/// Bytes of a host name, an address or the kind of one that a report may bring, and addresses of a node.
const PLACE_MAX: usize = 255;
const ADDRESSES_MAX: usize = 32;
/// Progress is written at most so often.
const COUNT_MS: i64 = 300;
/// The provider type whose machines are instances of this cloud.
pub const BANYAN: &str = "banyan";
/// What a provider says when nothing was made.
const NOTHING_MADE: std::ops::Range<i32> = 200..300;
/// The task itself cannot be carried out, on no machine.
const INVALID: i32 = 400;
/// There was a machine, and it is gone for good.
pub const GONE: i32 = 410;
/// The machine could not be reached.
const UNREACHED: i32 = 503;
/// There is no room for the machine.
const NO_ROOM: i32 = 507;

/// What changed since it was last kept.
#[derive(Debug, Default)]
pub struct Dirty {
    pub nodes: BTreeSet<u32>,
    pub tasks: BTreeSet<u32>,
    pub job: bool,
}

#[derive(Debug)]
pub struct Live {
    pub cluster: Arc<ClusterRecord>,
    pub job: JobRecord,
    pub catalogue: Arc<Catalogue>,
    /// Of the provider, sealed.
    pub secrets: BTreeMap<String, String>,
    pub rows: BTreeMap<u32, PlanRow>,
    pub plan: Vec<PlanTask>,
    pub nodes: BTreeMap<u32, NodeRecord>,
    /// Of what became of tasks, as far as there is something to say.
    pub tasks: BTreeMap<u32, TaskRecord>,
    pub dirty: Dirty,
    /// When its progress was last written.
    pub counted: Timestamp,
    /// The plugins that its tasks use, as provisioners name them.
    pub plugins: BTreeSet<String>,
    /// What all tasks of now are told of the nodes, once it was asked for.
    pub shown: Option<Shown>,
}

/// What came of a task.
pub enum News {
    Report(Report),
    /// Its holder fell silent, or it took too long.
    Lost(&'static str),
}

fn backoff(failures: u32) -> i64 {
    let doubled = BACKOFF_FIRST_MS << failures.saturating_sub(1).min(10);
    doubled.min(BACKOFF_MAX_MS)
}

/// The end of a text, marked where it was cut.
pub fn tail(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let from = (text.len() - most..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("[snipped]{}", &text[from..])
}

/// A report without what is not kept of it, so that many that wait take little room.
pub fn cut(mut report: Report) -> Report {
    report.message = tail(&report.message, MESSAGE_KEPT);
    report.stdout = tail(&report.stdout, OUTPUT_KEPT);
    report.stderr = tail(&report.stderr, OUTPUT_KEPT);
    report
}

/// Keeps what came of an attempt that is not the last one.
fn remember(row: &mut TaskRecord, failed: bool) {
    let attempt = Attempt {
        verb: row.verb,
        failed,
        began_at: row.began_at,
        ended_at: row.changed_at,
        message: row.message.clone(),
        stdout: tail(&std::mem::take(&mut row.stdout), ATTEMPT_OUTPUT_KEPT),
        stderr: tail(&std::mem::take(&mut row.stderr), ATTEMPT_OUTPUT_KEPT),
    };
    if row.earlier.len() >= ATTEMPTS_KEPT {
        // The first one tells what began it.
        row.earlier.remove(1);
    }
    row.earlier.push(attempt);
}

impl Live {
    /// The tasks of the plan for the queue.
    pub fn steps(tasks: &[PlanTask]) -> Vec<Step> {
        tasks.iter().map(|task| Step { needs: task.needs.clone(), is_gate: task.verb.is_none() }).collect()
    }

    /// The graph as far as it has come, from what is kept.
    pub fn graph(&self) -> Result<Graph, ShapeError> {
        let first = self.job.undo.map_or(self.plan.len(), |undo| undo as usize);
        let mut graph = Graph::new(&Shape { tasks: Self::steps(&self.plan[..first]) })?;
        self.restore(&mut graph, 0..first as u32);
        if self.job.failing.is_some() {
            graph.drop_rest();
        }
        graph.extend(Self::steps(&self.plan[first..]))?;
        self.restore(&mut graph, first as u32..self.plan.len() as u32);
        Ok(graph)
    }

    fn restore(&self, graph: &mut Graph, tasks: std::ops::Range<u32>) {
        for (task, row) in self.tasks.range(tasks) {
            let attempts = row.failures + row.losses + 1;
            let stage = match row.mark {
                Mark::Again => Stage::Ready,
                Mark::Done | Mark::Passed => Stage::Done,
                Mark::Failed => Stage::Failed,
            };
            graph.restore(*task, stage, attempts);
        }
    }

    /// Whether it is being taken back.
    pub fn is_undoing(&self) -> bool {
        self.job.undo.is_some()
    }

    /// Machines that may have been begun by somebody who was not heard since are in doubt.
    pub fn doubt(&mut self) {
        // What takes the job back begins when everybody was heard.
        if self.is_undoing() {
            return;
        }
        let is_open = |at: u32| self.tasks.get(&at).is_none_or(|row| row.mark == Mark::Again);
        let open: Vec<u32> = (0..)
            .zip(&self.plan)
            .filter(|(at, _)| is_open(*at) && self.verb(*at) == Some(Verb::Create))
            .map(|(_, task)| task.node)
            .collect();
        for num in open {
            if let Some(node) = self.nodes.get_mut(&num).filter(|node| node.machine == Machine::None) {
                node.machine = Machine::Doubtful;
                self.dirty.nodes.insert(num);
            }
        }
    }

    /// What is done when the task is given out now.
    pub fn verb(&self, task: u32) -> Option<Verb> {
        let task = self.plan.get(task as usize)?;
        let planned = task.verb?;
        let mending = self.nodes.get(&task.node).and_then(|node| node.mending);
        let is_chain = matches!(planned, Verb::Create | Verb::Confirm | Verb::Bootstrap);
        Some(mending.filter(|_| is_chain && !self.is_undoing()).unwrap_or(planned))
    }

    /// Whether what came of a claim, or of a later one, counted already.
    pub fn is_counted(&self, claim: &Claim) -> bool {
        self.tasks.get(&claim.task).is_some_and(|row| row.claim >= (claim.life, claim.attempt))
    }

    /// Takes what came of a task. The queue is to be told the answer once the changes are kept.
    pub fn fold(
        &mut self,
        claim: &Claim,
        news: News,
        began_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Outcome {
        let at = claim.task;
        let (Some(task), Some(verb)) = (self.plan.get(at as usize).cloned(), self.verb(at)) else {
            return Outcome::GiveUp;
        };
        let mut row = self.row(claim, &task, verb, began_at, now);
        let was_failing = self.job.failing.is_some();
        let failed = !matches!(&news, News::Report(report) if report.is_good());
        let outcome = match news {
            News::Report(report) => {
                self.learn(&task, verb, &report);
                row.say(&report);
                match report.is_good() {
                    true => self.good(&task, verb, &mut row),
                    false => self.bad(&task, verb, &report, &mut row),
                }
            }
            News::Lost(why) => self.lost(&task, verb, why, &mut row),
        };
        if row.mark == Mark::Again {
            remember(&mut row, failed);
        }
        self.tasks.insert(at, row);
        self.dirty.tasks.insert(at);
        self.dirty.job |= self.job.failing.is_some() != was_failing;
        outcome
    }

    /// The row of a task with a new claim.
    fn row(
        &self,
        claim: &Claim,
        task: &PlanTask,
        verb: Verb,
        began_at: Option<Timestamp>,
        now: Timestamp,
    ) -> TaskRecord {
        let mut row = self.tasks.get(&claim.task).cloned().unwrap_or(TaskRecord {
            job: self.job.number,
            task: claim.task,
            node: task.node,
            verb,
            service: task.service.clone(),
            mark: Mark::Again,
            claim: (0, 0),
            failures: 0,
            losses: 0,
            began_at,
            changed_at: now,
            message: None,
            stdout: String::new(),
            stderr: String::new(),
            earlier: Vec::new(),
        });
        row.verb = verb;
        row.claim = (claim.life, claim.attempt);
        row.changed_at = now;
        row.began_at = began_at.or(row.began_at);
        row
    }

    /// Keeps what came of a task that the job does not wait for any more; it changes nothing.
    pub fn note(&mut self, claim: &Claim, report: &Report, began_at: Option<Timestamp>, now: Timestamp) {
        let at = claim.task;
        let (Some(task), Some(verb)) = (self.plan.get(at as usize).cloned(), self.verb(at)) else { return };
        let mut row = self.row(claim, &task, verb, began_at, now);
        row.say(report);
        row.mark = Mark::Failed;
        self.tasks.insert(at, row);
        self.dirty.tasks.insert(at);
    }

    /// What a report says of the node.
    fn learn(&mut self, task: &PlanTask, verb: Verb, report: &Report) {
        let Some(node) = self.nodes.get_mut(&task.node) else { return };
        let before = node.clone();
        for (field, value) in &report.result {
            node.result.insert(field.clone(), value.clone());
        }
        let is_more = !report.result.is_empty();
        if is_more && serde_json::to_string(&node.result).map_or(0, |text| text.len()) > RESULT_MAX {
            node.result.clone_from(&before.result);
        }
        if report.is_good() {
            // What a cloud of a tenant says may be anything.
            let is_short = |text: &&String| text.len() <= PLACE_MAX;
            if let Some(hostname) = report.hostname.as_ref().filter(is_short) {
                node.hostname.clone_from(hostname);
            }
            for (kind, at) in report.ipaddresses.iter().filter(|(kind, at)| is_short(kind) && is_short(at)) {
                if node.addresses.len() < ADDRESSES_MAX || node.addresses.contains_key(kind) {
                    node.addresses.insert(kind.clone(), at.clone());
                }
            }
            node.message = None;
            match verb {
                Verb::Create => {
                    node.machine = Machine::Made;
                    let provider = self.catalogue.providers.get(&self.cluster.provider);
                    node.local = provider.is_some_and(|one| one.providertype == BANYAN);
                }
                Verb::Confirm => {
                    node.confirmed = true;
                    node.absence = None;
                }
                Verb::Delete => {
                    node.machine = Machine::None;
                    node.confirmed = false;
                    node.addresses.clear();
                    node.result.clear();
                    node.stopped.clear();
                }
                Verb::Stop => drop(node.stopped.insert(task.service.clone())),
                Verb::Start | Verb::Remove => drop(node.stopped.remove(&task.service)),
                _ => {}
            }
        } else {
            node.message = Some(tail(&format!("{}: {}", verb.word(), report.message), MESSAGE_KEPT));
            let is_nothing = NOTHING_MADE.contains(&report.status);
            if verb == Verb::Create && node.machine == Machine::None && !is_nothing {
                node.machine = Machine::Doubtful;
            }
        }
        if *node != before {
            self.dirty.nodes.insert(task.node);
            self.shown = None;
        }
    }

    fn good(&mut self, task: &PlanTask, verb: Verb, row: &mut TaskRecord) -> Outcome {
        if Some(verb) == task.verb {
            row.mark = Mark::Done;
            return Outcome::Done;
        }
        // A step of making the machine anew; then the next one, or the task itself.
        let next = match verb {
            Verb::Delete => Verb::Create,
            Verb::Create => Verb::Confirm,
            _ => Verb::Bootstrap,
        };
        self.mend(task.node, Some(next).filter(|next| Some(*next) != task.verb));
        row.mark = Mark::Again;
        row.failures = 0;
        Outcome::Again(0)
    }

    fn mend(&mut self, num: u32, step: Option<Verb>) {
        if let Some(node) = self.nodes.get_mut(&num) {
            node.mending = step;
            self.dirty.nodes.insert(num);
        }
    }

    fn bad(&mut self, task: &PlanTask, verb: Verb, report: &Report, row: &mut TaskRecord) -> Outcome {
        row.failures += 1;
        row.mark = Mark::Again;
        // What is wrong with the account says nothing of the machine.
        let is_account = NOTHING_MADE.contains(&report.status) || report.status == INVALID;
        let is_look = verb == Verb::Confirm && self.stood(task.node) && !is_account;
        // Who only looks asks once, and who gives machines up does not wait for them.
        let most = if is_look || self.job.force { 1 } else { self.attempts(task, verb, report) };
        let is_wanted = self.job.failing.is_none() || self.is_undoing();
        if report.is_passing && row.failures < most && is_wanted {
            return Outcome::Again(backoff(row.failures));
        }
        // One that was stopped has not seen that it is absent.
        if is_look && (is_wanted || !report.is_passing) {
            self.absent(task.node, report, row.changed_at);
            row.mark = Mark::Passed;
            return Outcome::Done;
        }
        // A machine that is part of the cluster is never given up.
        let is_new = self.rows.get(&task.node).is_some_and(|row| row.before.is_none());
        let is_chain = is_new && matches!(verb, Verb::Create | Verb::Confirm | Verb::Bootstrap);
        let is_hopeless =
            [INVALID, NO_ROOM].contains(&report.status) || (verb == Verb::Create && !report.is_passing);
        if is_chain && !is_hopeless && is_wanted && self.spend(task.node) {
            row.failures = 0;
            return Outcome::Again(BACKOFF_FIRST_MS);
        }
        self.give_up(task, verb, row)
    }

    /// How often a task is tried. A machine that stays may just be starting anew when it is not reached.
    fn attempts(&self, task: &PlanTask, verb: Verb, report: &Report) -> u32 {
        let stays = self.rows.get(&task.node).is_some_and(|row| !row.gone);
        match report.status == UNREACHED && stays && !verb.is_hardware() {
            true => ATTEMPTS_REACH_MAX,
            false => ATTEMPTS_MAX,
        }
    }

    /// Whether the node was part of the cluster before this job.
    pub fn stood(&self, num: u32) -> bool {
        self.rows.get(&num).is_some_and(|row| row.before.is_some())
    }

    /// Whether the cluster still counts on the machine of a node.
    pub fn counts_on(&self, node: &NodeRecord) -> bool {
        !node.is_gone() && !self.rows.get(&node.num).is_some_and(|row| row.given_up)
    }

    /// A machine that stood was not found, or does not let us in.
    fn absent(&mut self, num: u32, report: &Report, since: Timestamp) {
        if let Some(node) = self.nodes.get_mut(&num) {
            let why = report.message.clone();
            node.absence = Some(Absence { gone: report.status == GONE, why, since });
            self.dirty.nodes.insert(num);
            self.shown = None;
        }
    }

    /// Gives a machine up for another one, while there may be one.
    fn spend(&mut self, num: u32) -> bool {
        let Some(node) = self.nodes.get_mut(&num) else { return false };
        if node.spent + 1 >= MACHINES_MAX {
            return false;
        }
        node.spent += 1;
        node.mending = Some(Verb::Delete);
        self.dirty.nodes.insert(num);
        true
    }

    fn lost(&mut self, task: &PlanTask, verb: Verb, why: &str, row: &mut TaskRecord) -> Outcome {
        row.losses += 1;
        row.mark = Mark::Again;
        row.message = Some(why.to_owned());
        if verb == Verb::Create
            && let Some(node) = self.nodes.get_mut(&task.node).filter(|node| node.machine == Machine::None)
        {
            node.machine = Machine::Doubtful;
            self.dirty.nodes.insert(task.node);
        }
        let is_wanted = self.job.failing.is_none() || self.is_undoing();
        match is_wanted && row.losses < LOSSES_MAX && !self.job.force {
            true => Outcome::Again(0),
            false => self.give_up(task, verb, row),
        }
    }

    fn give_up(&mut self, task: &PlanTask, verb: Verb, row: &mut TaskRecord) -> Outcome {
        let is_gone = self.rows.get(&task.node).is_some_and(|row| row.gone);
        if verb == Verb::Delete && task.verb == Some(Verb::Delete) {
            row.mark = Mark::Failed;
            // Others do not take its place while it may still be there.
            if self.rows.get(&task.node).is_some_and(|row| row.given_up) {
                let why = row.message.as_deref().unwrap_or("it failed");
                self.fail(&format!("the machine of node {} could not be deleted: {why}", task.node));
            }
            return Outcome::GiveUp;
        }
        if self.is_undoing() || (is_gone && matches!(verb, Verb::Stop | Verb::Remove)) {
            row.mark = Mark::Passed;
            return Outcome::Done;
        }
        row.mark = Mark::Failed;
        let service = if task.service.is_empty() { String::new() } else { format!(" of {}", task.service) };
        let why = row.message.as_deref().unwrap_or("it failed");
        let why = format!("{}{service} on node {}: {why}", verb.word(), task.node);
        self.job.failing.get_or_insert(why);
        Outcome::GiveUp
    }

    /// Ends it because a user wants so. A change that deletes machines already goes on to its end.
    pub fn abort(&mut self, who: &str) {
        let is_past = self.job.purpose == Purpose::Change && super::undo::deletes(self);
        if !self.is_undoing() && !is_past {
            self.fail(&format!("Aborted by {who}."));
        }
    }

    /// Whether a user ended it and it is not taken back yet.
    pub fn is_aborted(&self) -> bool {
        self.cluster.aborted_by.is_some() && self.job.failing.is_some() && !self.is_undoing()
    }

    /// Ends it for a reason that no task has.
    pub fn fail(&mut self, why: &str) {
        if self.job.failing.is_none() {
            self.job.failing = Some(why.to_owned());
            self.dirty.job = true;
        }
    }

    /// Counts for people, now and then.
    pub fn count(&mut self, progress: Progress, now: Timestamp) {
        if now < self.counted.plus_ms(COUNT_MS) && !progress.is_over() && !self.dirty.job {
            return;
        }
        self.counted = now;
        let (total, done, failed) = (progress.total(), progress.done, progress.failed);
        if (self.job.total, self.job.done, self.job.failed) != (total, done, failed) {
            (self.job.total, self.job.done, self.job.failed) = (total, done, failed);
            self.dirty.job = true;
        }
    }

    pub fn has_action(&self, service: &str, action: ActionKind) -> bool {
        self.catalogue.services.get(service).is_some_and(|service| service.has(action))
    }

    /// What there is to do once nothing goes on any more.
    pub fn next(&self) -> Next {
        let is_taken_back = matches!(self.job.purpose, Purpose::Create | Purpose::Change);
        if self.job.failing.is_some() && !self.is_undoing() && is_taken_back {
            let tasks = super::undo::tasks(self);
            if !tasks.is_empty() {
                return Next::Undo(tasks);
            }
        }
        Next::End
    }

    pub fn is_begun(&self) -> bool {
        self.job.status != JobStatus::NotSubmitted
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Undo(Vec<PlanTask>),
    End,
}
