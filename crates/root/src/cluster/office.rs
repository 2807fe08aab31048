//! Where provisioners come to: tasks are given out here and reports taken in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use link::BlobSource;
use link::dispatch::{Dispatcher, Given, Staged, TaskAnswer, TaskAsk, TaskDone};
use model::{ChildId, Digest, Error, ErrorKind, Report, Result, TenantId};
use tokio::sync::oneshot;
use work::queue::Claim;

use super::body::{Shown, limit_ms};
use super::desk::{Desk, LEASE_MS, Said};
use super::live::cut;
use super::open::{self, Secrets};
use super::owner::Finish;
use crate::ops::resource;
use crate::{cloud, duty};

/// A poll that waits renews the lease this often.
const RENEW: Duration = Duration::from_millis(LEASE_MS as u64 / 3);
/// What a task cannot be composed for is reported with.
const INVALID: i32 = 400;
/// Bytes of tasks after which an answer takes no more.
const ANSWER_MAX: usize = 16 << 20;

/// The dispatcher of root's link. One for every root server; it answers on the one that has the duty.
pub struct Office(cloud::Shared);

/// What one look at the desk gave.
struct Look {
    answer: TaskAnswer,
    claims: Vec<Claim>,
    /// There is something to say that does not wait.
    is_news: bool,
}

/// What the tasks of a job have in common that are given out together.
struct Shared {
    secrets: Secrets,
    shown: Shown,
}

fn elsewhere() -> Error {
    Error::unavailable("tasks are not given out here at the moment").hint("ask again, or another root server")
}

impl Office {
    pub fn new(cloud: cloud::Shared) -> Self {
        Self(cloud)
    }

    /// `heard` is what the last look of the same poll left there.
    fn look(&self, name: &str, ask: &TaskAsk, heard: &mut Option<u64>) -> Result<Look> {
        let cloud = &self.0;
        let (now, wall) = (cloud.steady(), cloud.now());
        let joined = &cloud.state.snapshot().provisioners;
        let said =
            Said { session: &ask.session, capacity: ask.capacity, plugins: &ask.plugins, holds: &ask.holds };
        cloud
            .clusters
            .with(|desk| {
                let (stop, lost) = desk.hear(name, said, heard, now, wall);
                desk.lose(&lost, wall);
                desk.joined(joined.values().map(|row| row.id.as_str()));
                let claims = desk.give(name, now, wall);
                // Of what was reported the answer is on its way, which is no reason to ask again.
                let is_news = !claims.is_empty()
                    || desk.seen != ask.seen
                    || stop.iter().any(|claim| !desk.is_reported(claim));
                let workers =
                    desk.workers(name).into_iter().map(|(tenant, count)| (tenant.to_string(), count));
                let answer = TaskAnswer {
                    seen: desk.seen,
                    lease_ms: LEASE_MS,
                    stop,
                    workers: workers.collect(),
                    ..TaskAnswer::default()
                };
                Look { answer, claims, is_news }
            })
            .ok_or_else(elsewhere)
    }

    /// Puts tasks together. What cannot be is reported in the name of the provisioner, which never sees it; what is too
    /// much for one answer is not named in the next poll, and given out again.
    async fn compose(&self, claims: Vec<Claim>, answer: &mut TaskAnswer) {
        let mut jobs: BTreeMap<String, Shared> = BTreeMap::new();
        let (mut failed, mut bytes) = (Vec::new(), 0);
        for claim in claims {
            if bytes > ANSWER_MAX {
                break;
            }
            let is_first = !jobs.contains_key(&claim.job);
            match self.given(&claim, &mut jobs).await {
                Ok(Some(given)) => {
                    let nodes = jobs.get(&claim.job).filter(|_| is_first).map_or(0, |job| job.shown.bytes);
                    bytes += size(&given.body) + nodes;
                    answer.tasks.push(given);
                }
                Ok(None) => {}
                // That the store is away is no fault of the task: it is given out again.
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    tracing::warn!(job = %claim.job, task = claim.task, %error, "a task cannot be put together yet");
                }
                Err(error) => {
                    let message = match &error.field {
                        Some(field) => format!("{field}: {}", error.message),
                        None => error.message.clone(),
                    };
                    let report = cut(Report { status: INVALID, message, ..Report::default() });
                    failed.push(Finish { claim, report, answer: None });
                }
            }
        }
        if !failed.is_empty() {
            self.0.clusters.finish(failed);
        }
        answer.nodes = jobs.into_iter().map(|(job, shared)| (job, shared.shown.nodes)).collect();
    }

    async fn given(&self, claim: &Claim, jobs: &mut BTreeMap<String, Shared>) -> Result<Option<Given>> {
        let cloud = &self.0;
        if !jobs.contains_key(&claim.job) {
            let Some(shared) = self.shared(&claim.job).await? else { return Ok(None) };
            jobs.insert(claim.job.clone(), shared);
        }
        let Shared { secrets, shown } = &jobs[&claim.job];
        let given = cloud.clusters.with(|desk| {
            let Some(live) = desk.lives.get(&claim.job) else { return Ok(None) };
            let (Some(task), Some(verb)) = (live.plan.get(claim.task as usize), live.verb(claim.task)) else {
                return Ok(None);
            };
            let opened = secrets.opened(cloud, live, task.node)?;
            let body = live.body(claim.task, &shown.known, opened)?;
            let tenant = live.job.tenant.to_string();
            Ok(Some(Given { claim: claim.clone(), tenant, limit_ms: limit_ms(verb, live.job.force), body }))
        });
        given.unwrap_or(Ok(None))
    }

    /// What the tasks of a job have in common.
    async fn shared(&self, job: &str) -> Result<Option<Shared>> {
        let cloud = &self.0;
        let needed = cloud.clusters.with(|desk| {
            let live = desk.lives.get(job)?;
            open::needs_pass(live).then(|| live.cluster.clone())
        });
        let pass = match needed.flatten() {
            Some(cluster) => Some(cloud.clusters.pass(cloud, &cluster).await?),
            None => None,
        };
        let shared = cloud.clusters.with(|desk| {
            let live = desk.lives.get_mut(job)?;
            let secrets = open::Secrets::of(cloud, live, pass.as_ref());
            Some(secrets.map(|secrets| Shared { secrets, shown: live.shown() }))
        });
        shared.flatten().transpose()
    }

    async fn poll_now(&self, provisioner: &ChildId, ask: TaskAsk, is_last: bool) -> Result<TaskAnswer> {
        let mut changed = self.0.clusters.changed();
        let mut heard = None;
        loop {
            changed.borrow_and_update();
            let Look { mut answer, claims, is_news } = self.look(provisioner.as_str(), &ask, &mut heard)?;
            self.compose(claims, &mut answer).await;
            if is_news || is_last {
                answer.staged = self.staged(&answer);
                return Ok(answer);
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(RENEW) => heard = None,
            }
        }
    }

    /// The files of the tenants that have workers there. The snapshot is newer than the look at the desk, so whoever has
    /// seen the count has the files that it counted.
    fn staged(&self, answer: &TaskAnswer) -> BTreeMap<String, Vec<Staged>> {
        let snapshot = self.0.state.snapshot();
        let of = |tenant: &String| {
            let files = resource::staged(&snapshot, &tenant.parse().ok()?);
            (!files.is_empty()).then(|| (tenant.clone(), files))
        };
        answer.workers.keys().filter_map(of).collect()
    }

    /// Other tenants' files do not exist for a provisioner that does nothing for them.
    async fn resource_now(&self, provisioner: &ChildId, tenant: &str, digest: &Digest) -> Result<BlobSource> {
        let missing = || Error::not_found(format!("file {digest}"));
        let tenant: TenantId = tenant.parse().map_err(|_| missing())?;
        let serves = self.0.clusters.with(|desk| desk.serves(provisioner.as_str(), &tenant));
        match serves.ok_or_else(elsewhere)? {
            true => resource::fetch(&self.0, &tenant, digest).await,
            false => Err(missing()),
        }
    }

    /// Takes reports of what the provisioner does; the others are answered at once, and change nothing.
    fn taken(&self, provisioner: &ChildId, done: Vec<TaskDone>) -> Vec<Result<Option<Finish>>> {
        let cloud = &self.0;
        let now = cloud.steady();
        let take = |desk: &mut Desk, TaskDone { claim, report }: TaskDone| {
            let name = provisioner.as_str();
            if !desk.is_vain(name, &claim) && !desk.holder(name, &claim, now) {
                return Ok(None);
            }
            if desk.is_finishing(&claim) {
                return Err(Error::unavailable("this report is being kept at the moment"));
            }
            let Some(live) = desk.lives.get(&claim.job) else { return Ok(None) };
            let Some(task) = live.plan.get(claim.task as usize) else { return Ok(None) };
            let report = open::sealed(cloud, live, task.node, cut(report))?;
            Ok(Some(Finish { claim, report, answer: None }))
        };
        let count = done.len();
        let mut named = BTreeSet::new();
        let mut once = |desk: &mut Desk, done: TaskDone| match named.insert(done.claim.clone()) {
            true => take(desk, done),
            false => Err(Error::invalid("two reports of one request are of the same task")),
        };
        let taken = cloud.clusters.with(|desk| done.into_iter().map(|done| once(desk, done)).collect());
        taken.unwrap_or_else(|| (0..count).map(|_| Err(elsewhere())).collect())
    }

    async fn finish_now(&self, provisioner: &ChildId, done: Vec<TaskDone>) -> Vec<Result<()>> {
        let mut finishes = Vec::new();
        let mut waits = Vec::new();
        for taken in self.taken(provisioner, done) {
            waits.push(taken.map(|finish| {
                finish.map(|mut finish| {
                    let (sender, receiver) = oneshot::channel();
                    finish.answer = Some(sender);
                    finishes.push(finish);
                    receiver
                })
            }));
        }
        self.0.clusters.finish(finishes);
        let mut kept = Vec::with_capacity(waits.len());
        for wait in waits {
            kept.push(match wait {
                Ok(Some(receiver)) => receiver.await.unwrap_or_else(|_| Err(elsewhere())),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            });
        }
        kept
    }
}

/// Bytes of a body as it is sent.
fn size(body: &serde_json::Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, body).map_or(0, |()| count.0)
}

impl Dispatcher for Office {
    fn poll(&self, provisioner: &ChildId, ask: TaskAsk, is_last: bool) -> BoxFuture<'_, Result<TaskAnswer>> {
        let provisioner = provisioner.clone();
        Box::pin(async move { self.poll_now(&provisioner, ask, is_last).await })
    }

    fn finish(&self, provisioner: &ChildId, done: TaskDone) -> BoxFuture<'_, Result<()>> {
        let kept = self.finish_all(provisioner, vec![done]);
        Box::pin(async move { kept.await.pop().unwrap_or_else(|| Err(elsewhere())) })
    }

    fn finish_all(&self, provisioner: &ChildId, done: Vec<TaskDone>) -> BoxFuture<'_, Vec<Result<()>>> {
        let provisioner = provisioner.clone();
        Box::pin(async move { self.finish_now(&provisioner, done).await })
    }

    fn resource(
        &self,
        provisioner: &ChildId,
        tenant: &str,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<BlobSource>> {
        let (provisioner, tenant, digest) = (provisioner.clone(), tenant.to_owned(), digest.clone());
        Box::pin(async move { self.resource_now(&provisioner, &tenant, &digest).await })
    }

    fn admits(&self, provisioner: &ChildId) -> bool {
        let id = provisioner.as_str().parse::<model::ProvisionerId>();
        id.is_ok_and(|id| self.0.state.snapshot().provisioners.contains_key(&id))
    }

    fn removed(&self, provisioner: &ChildId) -> bool {
        self.0.state.snapshot().removed.contains_key(provisioner)
    }

    fn holds(&self) -> std::result::Result<(), Option<String>> {
        match self.0.duties.held(duty::CLUSTERS) {
            Some(_) => Ok(()),
            None => Err(self.0.duties.holder(duty::CLUSTERS).map(|server| server.link_url.clone())),
        }
    }
}
