//! The owner of all jobs: it reads them from the store, keeps what becomes of them, and lets it count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{ClusterStatus, JobStatus};
use model::{ChildId, ClusterId, Error, Report, Result, Timestamp};
use store::{CommitError, Txn};
use tokio::sync::{Notify, oneshot, watch};
use work::queue::{Claim, Outcome};

use super::desk::Desk;
use super::end::{End, end};
use super::hook::About;
use super::live::{Live, News, Next};
use super::open::{self, Pass};
use super::pages::Packed;
use super::record::{ClusterRecord, JobRecord, NodeRecord, Plan, node_id, task_id};
use super::{hook, janitor, load, plan};
use crate::cloud::{Cloud, Shared};
use crate::duty::{self, Fence};
use crate::history::{Actor, Line, journal};
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{encode, kind};

/// Reports that one transaction keeps.
const BATCH_MAX: usize = 1_000;
/// Reports that wait to be kept.
const INBOX_MAX: usize = 20_000;
/// Records of one transaction.
const OPS_MAX: usize = 2_000;
/// The longest sleep.
const TICK: Duration = Duration::from_millis(500);
/// While many tasks are held, reports are gathered for so long for each of them: a transaction, and the polls that it
/// answers, cost nearly the same for one report as for hundreds.
const GATHER: Duration = Duration::from_micros(4);
const GATHER_MIN: Duration = Duration::from_millis(1);
const GATHER_MAX: Duration = Duration::from_millis(40);
/// Pause after this life of the desk ended.
const RETRY: Duration = Duration::from_millis(500);
/// The counter of lives.
const LIFE: &str = "cluster.life";

/// A report on its way into the store.
pub struct Finish {
    pub claim: Claim,
    pub report: Report,
    /// Nobody waits where root itself reports.
    pub answer: Option<oneshot::Sender<Result<()>>>,
}

/// Where the owner and those who ask meet. There is a desk while this server has the duty.
pub struct Board {
    desk: Mutex<Option<Desk>>,
    inbox: Mutex<Vec<Finish>>,
    passes: tokio::sync::Mutex<BTreeMap<ClusterId, Pass>>,
    changed: watch::Sender<u64>,
    wake: Notify,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            desk: Mutex::default(),
            inbox: Mutex::default(),
            passes: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(0),
            wake: Notify::new(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Looks at the desk, where there is one.
    pub fn with<T>(&self, look: impl FnOnce(&mut Desk) -> T) -> Option<T> {
        lock(&self.desk).as_mut().map(look)
    }

    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Hands in what came of tasks. What is too much is not taken, and whoever waits is told to ask again.
    pub fn finish(&self, mut finishes: Vec<Finish>) {
        let mut inbox = lock(&self.inbox);
        finishes.truncate(INBOX_MAX.saturating_sub(inbox.len()));
        self.with(|desk| {
            for finish in &finishes {
                desk.finishing(&finish.claim);
            }
        });
        inbox.append(&mut finishes);
        self.wake.notify_one();
    }

    /// A credential for machines of this cloud.
    pub(super) async fn pass(&self, cloud: &Cloud, cluster: &ClusterRecord) -> Result<Pass> {
        let mut passes = self.passes.lock().await;
        let pass = open::pass(cloud, cluster, passes.get(&cluster.id).cloned()).await?;
        passes.insert(cluster.id.clone(), pass.clone());
        Ok(pass)
    }

    fn bump(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Ends this life of the desk. Whoever waits for an answer asks again.
    fn clear(&self) {
        lock(&self.desk).take();
        lock(&self.inbox).clear();
        self.bump();
    }
}

/// Ends the life of the desk with whoever holds it.
struct Seat<'a>(&'a Board);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Runs for ever; acts while this server has the duty.
pub async fn run(cloud: Shared) {
    let act = |fence: Fence| {
        let cloud = cloud.clone();
        async move {
            let owner = Owner { cloud: cloud.clone(), fence: fence.clone() };
            tokio::join!(owner.own(), hook::run(&cloud, &fence));
        }
    };
    cloud.duties.while_held(duty::CLUSTERS, act).await;
}

pub(super) struct Owner {
    pub cloud: Shared,
    pub fence: Fence,
}

impl Owner {
    async fn own(&self) {
        loop {
            if let Err(error) = self.serve().await {
                tracing::warn!(%error, "the tasks of clusters are read anew");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn serve(&self) -> Result<()> {
        let board = &self.cloud.clusters;
        let life = self
            .cloud
            .state
            .store()
            .counter_from(LIFE, self.cloud.now().epoch())
            .await
            .map_err(commit_error)?;
        *lock(&board.desk) = Some(Desk::new(life));
        let _seat = Seat(board);
        let mut changed = self.cloud.state.changed();
        let mut janitor = janitor::Janitor::new(&self.cloud);
        loop {
            changed.borrow_and_update();
            self.take_up().await?;
            let more = self.take().await?;
            self.advance(&mut janitor).await?;
            janitor.look(self).await?;
            if more {
                continue;
            }
            tokio::select! {
                () = board.wake.notified() => {}
                _ = changed.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
            self.gather().await?;
        }
    }

    async fn gather(&self) -> Result<()> {
        let held = self.with(|desk| desk.load().held)?;
        let wait = (GATHER * held).min(GATHER_MAX);
        let waiting = lock(&self.cloud.clusters.inbox).len();
        if wait >= GATHER_MIN && (1..BATCH_MAX).contains(&waiting) {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(super) async fn commit(&self, txn: Txn) -> Result<()> {
        if txn.is_empty() {
            return Ok(());
        }
        self.cloud.state.commit(self.fence.guard(txn)).await.map(drop)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Desk) -> T) -> Result<T> {
        self.cloud.clusters.with(look).ok_or_else(|| Error::unavailable("the desk is not there"))
    }

    /// Takes up jobs that are new, and what users want of those under way.
    async fn take_up(&self) -> Result<()> {
        let snapshot = self.cloud.state.snapshot();
        let known: BTreeSet<String> = self.with(|desk| desk.lives.keys().cloned().collect())?;
        for (id, (cluster, number)) in snapshot.cluster_open.iter().filter(|(id, _)| !known.contains(*id)) {
            if let Err(error) = self.open(&snapshot, cluster, *number).await {
                if may_pass(&error) {
                    return Err(error);
                }
                tracing::error!(job = %id, %error, "a job cannot be begun");
                self.give_up(&snapshot, cluster, *number, &error).await?;
            }
        }
        let wall = self.cloud.now();
        self.with(|desk| {
            let ids: Vec<String> = desk.lives.keys().cloned().collect();
            for id in ids {
                wishes(desk, &id, &snapshot);
            }
            let is_gone = |name: &&String| snapshot.removed.contains_key(&ChildId::from(name.as_str()));
            let gone: Vec<String> = desk.hands.keys().filter(is_gone).cloned().collect();
            for name in gone {
                let lost = desk.forget(&name);
                desk.lose(&lost, wall);
            }
            if desk.stage(snapshot.resources_seq) {
                self.cloud.clusters.bump();
            }
        })
    }

    async fn open(&self, snapshot: &Snapshot, cluster: &ClusterId, number: u64) -> Result<()> {
        let mut live = load::live(&self.cloud, snapshot, cluster, number).await?;
        let is_resumed = live.is_begun();
        if !is_resumed {
            self.submit(&mut live).await?;
        }
        let resumed = is_resumed.then(|| self.cloud.steady());
        self.with(|desk| {
            let opened = desk.open(live, resumed).map_err(Error::internal);
            desk.rebalance();
            opened
        })??;
        self.cloud.clusters.bump();
        Ok(())
    }

    /// The nodes of a new job are kept before anything is done to them.
    async fn submit(&self, live: &mut Live) -> Result<()> {
        let fresh: Vec<NodeRecord> = live
            .rows
            .values()
            .filter(|row| !live.nodes.contains_key(&row.num))
            .map(|row| NodeRecord::planned(&live.cluster.id, row, plan::hostname(&live.cluster, row.num)))
            .collect();
        for batch in fresh.chunks(OPS_MAX) {
            self.commit(batch.iter().fold(Txn::new(), node_put)).await?;
        }
        live.nodes.extend(fresh.into_iter().map(|node| (node.num, node)));
        live.job.status = JobStatus::Running;
        live.job.total = live.plan.iter().filter(|task| task.verb.is_some()).count() as u32;
        let txn = job_put(Txn::new(), &live.job);
        let about = About { cluster: &live.cluster, job: &live.job, nodes: live.nodes.values().collect() };
        let txn = hook::call(txn, &about, hook::When::Start, self.cloud.now());
        self.commit(txn).await
    }

    /// A job that cannot even be begun is over.
    async fn give_up(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterId,
        number: u64,
        why: &Error,
    ) -> Result<()> {
        let Some(job) = snapshot.cluster_job(cluster, number) else { return Ok(()) };
        let word = if job.status == JobStatus::NotSubmitted { "be begun" } else { "go on" };
        let message = Some(format!("it cannot {word}: {}", why.message));
        let mut job =
            JobRecord { status: JobStatus::Failed, message: message.clone(), ..job.value.as_ref().clone() };
        job.ended_at = Some(self.cloud.now());
        let mut txn = job_put(Txn::new(), &job);
        if let Some(row) = snapshot.clusters.get(cluster) {
            let record =
                ClusterRecord { status: ClusterStatus::Inconsistent, message, ..row.value.as_ref().clone() };
            txn = txn.update(kind::CLUSTER, cluster, row.version, encode(&record));
            let nodes = snapshot.cluster_nodes.get(cluster).into_iter().flatten();
            let nodes = nodes.map(|(_, node)| node.value.as_ref()).collect();
            txn = self.tell(txn, &About { cluster: &record, job: &job, nodes });
        }
        self.commit(txn).await
    }

    /// Adds to the transaction that ends a job what is said of it: a line of the history and a call.
    fn tell(&self, txn: Txn, about: &About<'_>) -> Txn {
        let (now, cluster, job) = (self.cloud.now(), about.cluster, about.job);
        let (verb, when) = match job.status {
            JobStatus::Complete => ("complete", hook::When::Success),
            JobStatus::Aborted => ("aborted", hook::When::Failure),
            _ => ("failed", hook::When::Failure),
        };
        let line = Line {
            tenant: Some(&cluster.tenant),
            what: &format!("cluster.{verb}"),
            kind: kind::CLUSTER,
            id: cluster.id.as_str(),
            name: cluster.name.as_str(),
            message: match &job.message {
                Some(message) => format!("{}: {message}", job.action),
                None => job.action.clone(),
            },
        };
        journal(hook::call(txn, about, when, now), now, &Actor::root(), line)
    }

    /// Keeps what came of tasks, then lets it count. Returns whether there is more.
    async fn take(&self) -> Result<bool> {
        let board = &self.cloud.clusters;
        let (finishes, more) = {
            let mut inbox = lock(&board.inbox);
            let count = inbox.len().min(BATCH_MAX);
            let taken: Vec<Finish> = inbox.drain(..count).collect();
            (taken, !inbox.is_empty())
        };
        let (now, wall) = (self.cloud.steady(), self.cloud.now());
        let mut outcomes: Vec<(Claim, Outcome)> = Vec::new();
        let (mut answers, mut finished) = (Vec::new(), Vec::new());
        let txns = self.with(|desk| {
            let (lost, late) = desk.lapse(now);
            desk.lose(&lost, wall);
            for claim in late {
                // Its report may be on its way.
                if !desk.finishing(&claim) {
                    continue;
                }
                let outcome = desk.fold(&claim, News::Lost("it took too long"), wall);
                outcomes.extend(outcome.map(|outcome| (claim, outcome)));
            }
            for Finish { claim, report, answer } in finishes {
                let outcome = desk.fold(&claim, News::Report(report), wall);
                finished.push(claim.clone());
                outcomes.extend(outcome.map(|outcome| (claim, outcome)));
                answers.extend(answer);
            }
            dirty(desk, wall)
        })?;
        for txn in txns {
            self.commit(txn).await?;
        }
        let is_more = self.with(|desk| {
            desk.settle_all(&outcomes, now);
            desk.finished(outcomes.iter().map(|(claim, _)| claim).chain(&finished));
            let moved = desk.moved;
            let is_ripe = desk.queue.mature(now);
            desk.rebalance();
            is_ripe || desk.moved != moved
        })?;
        if is_more || !outcomes.is_empty() {
            board.bump();
        }
        for answer in answers {
            let _ = answer.send(Ok(()));
        }
        Ok(more)
    }

    /// Goes on with jobs of which nothing is left to do.
    async fn advance(&self, janitor: &mut janitor::Janitor) -> Result<()> {
        let (now, wall) = (self.cloud.steady(), self.cloud.now());
        let stuck = self.with(|desk| {
            desk.forsake(now);
            let stuck = desk.stuck();
            for id in &stuck {
                if let Some(live) = desk.lives.get_mut(id) {
                    live.fail("its tasks wait for what will never be done");
                }
            }
            (!stuck.is_empty()).then(|| (dirty(desk, wall), stuck))
        })?;
        if let Some((txns, stuck)) = stuck {
            for txn in txns {
                self.commit(txn).await?;
            }
            self.with(|desk| stuck.iter().for_each(|id| desk.failing(id)))?;
        }
        for id in self.with(|desk| desk.over())? {
            let next = self.with(|desk| desk.lives.get(&id).map(Live::next))?;
            let went_on = match next {
                Some(Next::Undo(tasks)) => self.undo(&id, tasks).await.map(|()| None),
                Some(Next::End) => self.end(&id).await,
                None => Ok(None),
            };
            match went_on {
                Ok(cluster) => cluster.into_iter().for_each(|cluster| janitor.tidy(cluster)),
                Err(error) if may_pass(&error) => return Err(error),
                // One job that cannot be kept does not hold up those of all others.
                Err(error) => self.abandon(&id, &error).await?,
            }
        }
        Ok(())
    }

    /// Ends a job whose own end cannot be kept. The cluster stays as it is known, and can be deleted.
    async fn abandon(&self, id: &str, why: &Error) -> Result<()> {
        tracing::error!(job = %id, error = %why, "a job cannot go on");
        let of = |desk: &mut Desk| desk.lives.get(id).map(|live| (live.job.cluster.clone(), live.job.number));
        if let Some((cluster, number)) = self.with(of)? {
            self.give_up(&self.cloud.state.snapshot(), &cluster, number, why).await?;
        }
        self.with(|desk| {
            desk.close(id);
            desk.rebalance();
        })
    }

    async fn undo(&self, id: &str, tasks: Vec<super::record::PlanTask>) -> Result<()> {
        let Some(mut job) =
            self.with(|desk| desk.lives.get(id).map(|live| (live.job.clone(), live.plan.len())))?
        else {
            return Ok(());
        };
        let pages = Packed::of(&Plan { nodes: Vec::new(), tasks: tasks.clone() })?;
        let part = job.0.part(job.0.pages.len());
        job.0.undo = Some(job.1 as u32);
        job.0.pages.push(pages.count());
        let txn = pages.put(job_put(Txn::new(), &job.0), &part, job.0.tenant.as_str());
        self.commit(txn).await?;
        self.with(|desk| {
            if let Some(live) = desk.lives.get_mut(id) {
                live.job = job.0;
            }
            desk.undo(id, tasks);
            desk.rebalance();
        })?;
        self.cloud.clusters.bump();
        Ok(())
    }

    /// Keeps what a job leaves behind. A user who changed the cluster meanwhile comes first.
    async fn end(&self, id: &str) -> Result<Option<ClusterId>> {
        let snapshot = self.cloud.state.snapshot();
        let now = self.cloud.now();
        let ended = self.with(|desk| {
            let progress = desk.queue.progress(id).unwrap_or_default();
            let live = desk.lives.get_mut(id)?;
            live.count(progress, now);
            let row = snapshot.clusters.get(&live.cluster.id)?;
            Some((end(live, row, now), row.clone()))
        })?;
        let Some((ended, row)) = ended else {
            self.with(|desk| desk.close(id))?;
            return Ok(None);
        };
        let mut nodes: Vec<Txn> = Vec::new();
        for batch in ended.kept.chunks(OPS_MAX) {
            nodes.push(batch.iter().fold(Txn::new(), node_put));
        }
        for batch in ended.gone.chunks(OPS_MAX) {
            let delete = |txn: Txn, num: &u32| txn.delete(kind::CLUSTER_NODE, node_id(&row.id, *num), None);
            nodes.push(batch.iter().fold(Txn::new(), delete));
        }
        let last = self.last(&snapshot, &row, ended);
        // Few nodes are kept together with the end itself.
        let few = nodes.iter().map(|txn| txn.ops().len()).sum::<usize>() <= OPS_MAX;
        let last = match few {
            true => nodes.drain(..).fold(last, Txn::and),
            false => last,
        };
        for txn in nodes {
            self.commit(txn).await?;
        }
        match self.cloud.state.try_commit(self.fence.guard(last)).await {
            Ok(_) => {}
            // The duty's own record is never updated here, so it is the cluster's that changed.
            Err(CommitError::VersionMismatch { kind, .. }) if kind == kind::CLUSTER => return Ok(None),
            Err(error) => return Err(commit_error(error)),
        }
        self.with(|desk| {
            desk.close(id);
            desk.rebalance();
        })?;
        self.cloud.clusters.bump();
        Ok(Some(row.id.clone()))
    }

    /// The transaction that ends a job.
    fn last(&self, snapshot: &Snapshot, row: &Row<ClusterRecord>, ended: End) -> Txn {
        let End { cluster, job, kept, .. } = ended;
        let txn = match &cluster {
            Some(cluster) => {
                job_put(Txn::new().update(kind::CLUSTER, &row.id, row.version, encode(cluster)), &job)
            }
            None => {
                let jobs = snapshot.cluster_jobs.get(&row.id).into_iter().flatten();
                let txn = Txn::new().delete(kind::CLUSTER, &row.id, Some(row.version));
                jobs.fold(txn, |txn, (_, job)| txn.delete(kind::CLUSTER_JOB, job.id(), None))
            }
        };
        let about =
            About { cluster: cluster.as_ref().unwrap_or(row), job: &job, nodes: kept.iter().collect() };
        self.tell(txn, &about)
    }
}

/// Whether the same may go well later.
fn may_pass(error: &Error) -> bool {
    matches!(error.kind, model::ErrorKind::Unavailable | model::ErrorKind::VersionMismatch)
}

/// What users want of a job under way.
fn wishes(desk: &mut Desk, id: &str, snapshot: &Snapshot) {
    let Some(live) = desk.lives.get_mut(id) else { return };
    let Some(row) = snapshot.clusters.get(&live.cluster.id) else { return };
    if Arc::ptr_eq(&live.cluster, &row.value) {
        return;
    }
    live.cluster = row.value.clone();
    let status = if row.paused { JobStatus::Paused } else { JobStatus::Running };
    if live.job.status != status && live.is_begun() {
        live.job.status = status;
        live.dirty.job = true;
    }
    if let Some(who) = &row.aborted_by {
        live.abort(who);
    }
    let is_failing = live.job.failing.is_some();
    // What is taken back is not held up by a pause.
    desk.queue.pause(id, row.paused && !is_failing);
    desk.failing(id);
}

pub(super) fn node_put(txn: Txn, node: &NodeRecord) -> Txn {
    txn.put(kind::CLUSTER_NODE, node_id(&node.cluster, node.num), None, None, encode(node))
}

pub(super) fn job_put(txn: Txn, job: &JobRecord) -> Txn {
    txn.put(kind::CLUSTER_JOB, job.id(), Some(job.tenant.as_str()), None, encode(job))
}

/// What changed, in transactions: a task together with its node, jobs at the end.
fn dirty(desk: &mut Desk, now: Timestamp) -> Vec<Txn> {
    for (id, live) in &mut desk.lives {
        live.count(desk.queue.progress(id).unwrap_or_default(), now);
    }
    let mut groups: Vec<Txn> = Vec::new();
    for live in desk.lives.values_mut() {
        let mut dirty = std::mem::take(&mut live.dirty);
        for at in &dirty.tasks {
            let Some(row) = live.tasks.get_mut(at) else { continue };
            let id = task_id(&live.cluster.id, row.node, live.job.number, *at);
            let txn = Txn::new().put(kind::CLUSTER_TASK, id, None, None, encode(row));
            row.forget();
            let node = live.nodes.get(&row.node).filter(|_| dirty.nodes.remove(&row.node));
            groups.push(node.into_iter().fold(txn, node_put));
        }
        groups.extend(
            dirty.nodes.iter().filter_map(|num| live.nodes.get(num)).map(|node| node_put(Txn::new(), node)),
        );
        if dirty.job {
            groups.push(job_put(Txn::new(), &live.job));
        }
    }
    let mut txns: Vec<Txn> = Vec::new();
    for group in groups {
        match txns.last_mut() {
            Some(txn) if txn.ops().len() < OPS_MAX => *txn = std::mem::take(txn).and(group),
            _ => txns.push(group),
        }
    }
    txns
}
