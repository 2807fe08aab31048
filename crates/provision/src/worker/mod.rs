//! The loop of a provisioner: asks root for tasks, does them, tells what became of them.
//!
//! ```text
//!   poll ─▶ board: what is new, what must end ─▶ one future a task ─▶ outbox: report, until it is taken
//!             │                                       │
//!             └─ tenant: its files, its carrier ◀─────┘
//! ```
//! Every tenant has a [`Carrier`] and a folder of its own; they end when root assigns it no more workers here. When
//! root is not heard for a lease, what is being done is stopped, because root gives it to another; reports that
//! wait go on waiting. Who is told to end takes nothing more, finishes what it can, and gives the rest back.

mod board;
mod outbox;
mod stage;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use link::limits::{BACKOFF_FIRST, BACKOFF_MAX, REFUSED_SAID_EVERY, REMOVED_PAUSE};
use link::{Given, TaskAnswer, TaskAsk, TaskClient, TaskDone};
use model::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use work::queue::Claim;

use self::board::Board;
use self::outbox::Outbox;
use self::tenant::Tenants;
use crate::carry::Carrier;
use crate::ssh::{Kept, Pool};
use crate::task::{Fault, Report, Task};

/// Tasks at once that make sense for one process.
pub const WORKERS_MAX: u32 = 10_000;
/// How long a task that was told to end may take for it.
const END_MAX: Duration = Duration::from_secs(10);
/// How long it may take to tell root of a task that it had stopped.
const STOPPED_MAX: Duration = Duration::from_secs(10);
/// How long the last word to root may take.
const FAREWELL_MAX: Duration = Duration::from_secs(3);
/// Bytes kept of the beginning and of the end of an output in a report.
const OUTPUT_KEPT: usize = 128 << 10;
/// Bytes kept of an output when the report was too large.
const OUTPUT_KEPT_LAST: usize = 4 << 10;
/// Of a root that answers without having anything to say, nothing is asked sooner than after this.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// Sessions at once for the tasks of one tenant.
pub const SESSIONS_MAX: usize = 1024;
/// A poll names all that is held, and root goes through it: who holds much waits so long for each of them before it asks
/// for more, and gets more at once.
const ASK_PAUSE_EACH: Duration = Duration::from_micros(20);
const ASK_PAUSE_EACH_MIN: Duration = Duration::from_millis(1);
/// How often it is looked for programs that plugins lack.
const PROBE_EVERY: Duration = Duration::from_secs(60);
/// When root says nothing about it.
const LEASE_DEFAULT: Duration = Duration::from_secs(15);

/// Makes the carrier of a tenant, given the folder of its files.
pub type CarrierMake = Arc<dyn Fn(PathBuf) -> Carrier + Send + Sync>;

#[derive(Clone)]
pub struct Config {
    /// Files of tenants lie in `tenants/TENANT` under it.
    pub data: PathBuf,
    /// Tasks at once, all tenants together.
    pub workers: u32,
    /// How long it may take to finish what is being done when it is told to end.
    pub drain: Duration,
    pub carrier: CarrierMake,
}

impl Config {
    /// With what is built in.
    pub fn new(data: PathBuf, workers: u32, drain: Duration) -> Self {
        let carrier = Arc::new(|folder| Carrier::new(Pool::new(SESSIONS_MAX), folder));
        Self { data, workers, drain, carrier }
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counts {
    pub done: AtomicU64,
    pub failed: AtomicU64,
    /// Stopped because root said so, fell silent, or we ended.
    pub stopped: AtomicU64,
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct Worker(Arc<Inner>);

struct Inner {
    client: Arc<TaskClient>,
    config: Config,
    plugins: BTreeSet<String>,
    session: String,
    board: Board,
    outbox: Outbox,
    tenants: Tenants,
    counts: Counts,
}

/// What the loop remembers between two polls.
struct Memory {
    seen: u64,
    lease: Duration,
    /// When the last poll began that was answered.
    heard: Instant,
    pause: Duration,
    ends_at: Option<Instant>,
    /// When it was last said that root does not let us in.
    refused_said: Option<Instant>,
    /// Plugins that lack a program here: others may have it.
    unready: watch::Receiver<BTreeSet<String>>,
}

impl Worker {
    pub fn new(client: TaskClient, config: Config) -> Result<Self> {
        if config.workers == 0 || config.workers > WORKERS_MAX {
            return Err(Error::invalid(format!("workers must lie between 1 and {WORKERS_MAX}")).at("workers"));
        }
        let tenants = Tenants::open(config.data.join("tenants"), config.carrier.clone())?;
        let session = format!("{:032x}", rand::random::<u128>());
        let plugins = (config.carrier)(config.data.join("tenants")).plugins();
        let (client, (board, outbox, counts)) = (Arc::new(client), Default::default());
        Ok(Self(Arc::new(Inner { client, config, plugins, session, board, outbox, tenants, counts })))
    }

    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Tasks that are held here now.
    pub fn held(&self) -> usize {
        self.0.board.len()
    }

    /// Runs until `ending`, and then until what is being done is finished or given back.
    pub async fn run(&self, ending: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut senders = JoinSet::new();
        for _ in 0..outbox::SENDERS {
            let worker = self.clone();
            senders.spawn(async move { worker.0.outbox.run(&worker.0.client).await });
        }
        let (lease, heard) = (LEASE_DEFAULT, Instant::now());
        let (ends_at, refused_said) = (None, None);
        let mut probes = JoinSet::new();
        let unready = self.probe(&mut probes, &ending).await;
        let mut memory =
            Memory { seen: 0, lease, heard, pause: BACKOFF_FIRST, ends_at, refused_said, unready };
        loop {
            if ending.is_cancelled() && memory.ends_at.is_none() {
                memory.ends_at = Some(Instant::now() + self.0.config.drain);
            }
            let is_over = |at: Instant| self.0.board.is_empty() || Instant::now() >= at;
            if memory.ends_at.is_some_and(is_over) {
                break;
            }
            self.turn(&mut memory, &mut tasks, &ending).await;
            while tasks.try_join_next().is_some() {}
        }
        self.give_back(&mut tasks).await;
    }

    /// Looks which plugins lack a program, now and then as long as `probes` is there.
    async fn probe(
        &self,
        probes: &mut JoinSet<()>,
        ending: &CancellationToken,
    ) -> watch::Receiver<BTreeSet<String>> {
        let carrier = (self.0.config.carrier)(self.0.config.data.join("tenants"));
        let first = tokio::select! {
            unready = carrier.unready() => unready,
            () = ending.cancelled() => BTreeSet::new(),
        };
        let (tell, unready) = watch::channel(first);
        probes.spawn(async move {
            loop {
                sleep(PROBE_EVERY).await;
                tell.send_replace(carrier.unready().await);
            }
        });
        unready
    }

    /// One poll, or what is more urgent.
    async fn turn(&self, memory: &mut Memory, tasks: &mut JoinSet<()>, ending: &CancellationToken) {
        let is_ending = memory.ends_at.is_some();
        let plugins = self.0.plugins.difference(&memory.unready.borrow()).cloned().collect();
        let ask = TaskAsk {
            session: self.0.session.clone(),
            holds: self.0.board.holds(),
            capacity: if is_ending { 0 } else { self.0.config.workers },
            plugins,
            seen: memory.seen,
        };
        let began = Instant::now();
        let lapses_at = memory.heard + memory.lease;
        let ends_at = memory.ends_at.unwrap_or(began);
        tokio::select! {
            polled = self.0.client.poll(&ask) => match polled {
                Ok(answer) => self.answered(answer, began, memory, tasks).await,
                Err(error) => self.unheard(&error, memory, ending).await,
            },
            () = tokio::time::sleep_until(lapses_at), if self.0.board.is_running() => {
                tracing::warn!("root was not heard for a lease; what is being done is stopped");
                self.0.board.stop_running();
                memory.heard = began;
            }
            () = ending.cancelled(), if !is_ending => {}
            () = self.0.board.emptied(), if is_ending => {}
            () = tokio::time::sleep_until(ends_at), if is_ending => {}
        }
    }

    async fn answered(
        &self,
        answer: TaskAnswer,
        began: Instant,
        memory: &mut Memory,
        tasks: &mut JoinSet<()>,
    ) {
        let TaskAnswer { seen, lease_ms, tasks: given, nodes, stop, workers, staged } = answer;
        (memory.seen, memory.heard, memory.pause) = (seen, began, BACKOFF_FIRST);
        memory.refused_said = None;
        if let Ok(ms) = u64::try_from(lease_ms)
            && ms > 0
        {
            memory.lease = Duration::from_millis(ms);
        }
        let is_stop = self.0.board.stop(&stop);
        let in_use = self.0.board.tenants();
        self.0.tenants.assign(&workers, staged, &in_use);
        let is_news = !given.is_empty() || is_stop;
        if memory.ends_at.is_none() {
            given.into_iter().for_each(|given| self.start(given, &nodes, tasks));
        }
        let pause = match is_news || began.elapsed() >= ASK_PAUSE {
            true => ASK_PAUSE_EACH * u32::try_from(self.0.board.len()).unwrap_or(WORKERS_MAX),
            false => ASK_PAUSE,
        };
        if pause >= ASK_PAUSE_EACH_MIN {
            sleep(pause).await;
        }
    }

    async fn unheard(&self, error: &Error, memory: &mut Memory, ending: &CancellationToken) {
        let mut pause = memory.pause;
        memory.pause = (memory.pause * 2).min(BACKOFF_MAX);
        if TaskClient::is_removed(error) {
            tracing::error!("root removed this provisioner; it does nothing more");
            self.0.board.stop_all();
            self.0.tenants.assign(&BTreeMap::new(), BTreeMap::new(), &self.0.board.tenants());
            pause = REMOVED_PAUSE;
        } else if error.kind == ErrorKind::Unavailable {
            tracing::debug!(%error, "root cannot be asked for tasks");
        } else if memory.refused_said.is_none_or(|at| at.elapsed() >= REFUSED_SAID_EVERY) {
            memory.refused_said = Some(Instant::now());
            tracing::warn!(%error, "root gives no tasks to this provisioner");
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = ending.cancelled(), if memory.ends_at.is_none() => {}
        }
    }

    /// Begins a task, unless it was begun already or there is no room. What is not begun is not named in the
    /// next poll, so it is given out again.
    fn start(&self, given: Given, nodes: &BTreeMap<String, Arc<Value>>, tasks: &mut JoinSet<()>) {
        if !self.0.board.has_room(self.0.config.workers as usize) {
            tracing::warn!(?given, "there is no room for the task");
            return;
        }
        let Some(stop) = self.0.board.add(&given.claim, &given.tenant) else { return };
        let worker = self.clone();
        let nodes = nodes.get(&given.claim.job).cloned();
        tasks.spawn(async move {
            let claim = given.claim.clone();
            match worker.carry(given, nodes, &stop).await {
                Some(report) if worker.0.board.reporting(&claim) => {
                    let count =
                        if report.is_good() { &worker.0.counts.done } else { &worker.0.counts.failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    worker.deliver(claim.clone(), report, &stop).await;
                }
                stopped => {
                    worker.0.counts.stopped.fetch_add(1, Ordering::Relaxed);
                    // Root asked for it, and says what it was good for until then.
                    if let Some(report) = stopped.filter(|_| worker.0.board.is_told(&claim)) {
                        let never = CancellationToken::new();
                        let _ = timeout(STOPPED_MAX, worker.deliver(claim.clone(), report, &never)).await;
                    }
                }
            }
            worker.0.board.remove(&claim);
        });
    }

    /// Does a task within its time. Of one that was stopped there is a report of what was done until then.
    async fn carry(
        &self,
        given: Given,
        nodes: Option<Arc<Value>>,
        stop: &CancellationToken,
    ) -> Option<Report> {
        let Given { claim, tenant, limit_ms, body } = given;
        let limit = Duration::from_millis(u64::try_from(limit_ms).unwrap_or(0).max(1));
        let inner = stop.child_token();
        let work = async {
            let mut task: Task = serde_json::from_value(body)
                .map_err(|error| Fault::invalid(format!("the task cannot be read: {error}")))?;
            task.nodes = nodes.filter(|_| task.config.contains_key("service"));
            let tenant = self.0.tenants.get(&tenant);
            let absent = tenant.stage(&self.0.client, &task.plugins()).await?;
            Ok(tenant.carrier().carry_with(&task, &absent, &inner).await)
        };
        tokio::pin!(work);
        let done = tokio::select! {
            done = &mut work => done,
            () = stop.cancelled() => {
                let ended = timeout(END_MAX, work).await;
                return ended.ok().and_then(Result::ok);
            }
            () = sleep(limit) => {
                inner.cancel();
                let ended = timeout(END_MAX, work).await.ok().and_then(Result::ok).unwrap_or_default();
                tracing::warn!(job = %claim.job, task = claim.task, "a task took too long");
                let seconds = limit.as_secs_f64();
                let late = Fault::failed(format!("it was not done within {seconds:.0} s and was stopped"));
                Err(Fault { stdout: ended.stdout, stderr: ended.stderr, ..late })
            }
        };
        match done {
            Ok(report) => Some(report),
            Err(fault) => Some(fault.into()),
        }
    }

    /// Tells root until it took it, or no longer wants it.
    async fn deliver(&self, claim: Claim, mut report: Report, stop: &CancellationToken) {
        cut(&mut report, OUTPUT_KEPT);
        let mut done = TaskDone { claim, report };
        let mut pause = BACKOFF_FIRST;
        loop {
            let told = tokio::select! {
                told = self.0.outbox.send(done) => told,
                () = stop.cancelled() => return,
            };
            // Whoever sends is gone only when this ends as well.
            let Some((sent, told)) = told else { return };
            done = sent;
            match told {
                Ok(()) => return,
                Err(error)
                    if error.kind == ErrorKind::TooLarge && done.report.stdout.len() > OUTPUT_KEPT_LAST =>
                {
                    cut(&mut done.report, OUTPUT_KEPT_LAST / 2);
                    continue;
                }
                Err(error) if is_hopeless(error.kind) => {
                    let (job, task) = (&done.claim.job, done.claim.task);
                    tracing::error!(%error, %job, task, "root does not take a report");
                    return;
                }
                Err(error) => tracing::debug!(%error, "a report was not taken yet"),
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Ends what is left and says that it is not held any more, so that another gets it at once.
    async fn give_back(&self, tasks: &mut JoinSet<()>) {
        let left = self.0.board.len();
        self.0.board.stop_all();
        let _ = timeout(END_MAX, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
        let ask = TaskAsk { session: self.0.session.clone(), ..TaskAsk::default() };
        let _ = timeout(FAREWELL_MAX, self.0.client.poll(&ask)).await;
        if left > 0 {
            tracing::info!(left, "tasks were given back");
        }
    }
}

/// The same report is not taken later either.
fn is_hopeless(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Invalid | ErrorKind::Forbidden | ErrorKind::NotFound | ErrorKind::TooLarge)
}

fn cut(report: &mut Report, keep: usize) {
    for text in [&mut report.stdout, &mut report.stderr, &mut report.message] {
        if text.len() > 2 * keep {
            let mut kept = Kept::new(keep);
            kept.add(text.as_bytes());
            *text = kept.text();
        }
    }
}
