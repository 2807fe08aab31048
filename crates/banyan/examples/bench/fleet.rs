//! A real root and a real zone with light stand-ins for nodes, over the real links: what the control
//! plane costs with 10, 100 and 1,000 of them, and how fast it places.
//!
//! A stand-in has a node's certificate, link and half of the exchange; where a node would start a
//! container it says at once that it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::{Client, EnrolmentCreate, InstanceCreate, ListQuery, WorkloadCreate};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use link::{ByteStream, EnrollToken, Frame};
use model::exchange::{Ask, Revision};
use model::{
    Arch, Bytes, Cpu, Desired, Facts, Mode, Name, Observed, ObservedInstance, Phase, Resources, Run,
    RuntimeKind, WorkloadSpec,
};
use tier::sync::ChildOwner;
use tier::{Child, Inbox};
use work::Wake;

use crate::spec;

const JOIN_AT_ONCE: usize = 16;
const IDLE: Duration = Duration::from_secs(30);
const BUSY: Duration = Duration::from_secs(30);
const CHANGES_A_SECOND: u32 = 100;
const LIMIT: Duration = Duration::from_secs(300);
/// What the kernel counts CPU time of processes in, on every architecture we run on.
pub const TICKS_A_SECOND: f64 = 100.0;
const POLL: Duration = Duration::from_millis(20);

/// The processes that are measured, and where stand-ins come to.
pub struct Tree {
    pub zone_url: String,
    pub broker: String,
    pub root_pid: u32,
    pub zone_pid: u32,
}

struct StandIn {
    child: Mutex<Child>,
    name: Name,
    news: Wake,
}

impl StandIn {
    fn new(name: Name) -> Self {
        let facts = Facts {
            archs: vec![Arch::HOST],
            runtimes: vec![RuntimeKind::Container],
            capacity: Resources { cpu: Cpu(64_000), memory: Bytes::gib(256), disk: Bytes::gib(1000) },
            ..Facts::new(name.clone(), env!("CARGO_PKG_VERSION"))
        };
        Self { child: Mutex::new(Child::new(1, facts, Inbox::default())), name, news: Wake::new() }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(&self, desired: Desired) -> model::Result<()> {
        let mut child = self.child();
        let changed = match child.desired(desired) {
            Ok(changed) => changed,
            Err(tier::inbox::Refused::Past) => return Ok(()),
            Err(error) => return Err(model::Error::conflict(error.to_string())),
        };
        for id in changed.upserted {
            let Some(assignment) = child.assignment(&id) else { continue };
            let phase = match assignment.run {
                Run::Running => Phase::Running,
                Run::Stopped => Phase::Stopped,
                Run::Gone => Phase::Gone,
            };
            let mut seen = ObservedInstance::new(id, assignment.generation, phase);
            seen.node = Some(self.name.clone());
            child.observe(seen);
        }
        for id in changed.removed {
            child.forget(&id);
        }
        drop(child);
        self.news.wake();
        Ok(())
    }
}

impl ChildOwner for StandIn {
    fn have(&self) -> Option<Revision> {
        self.child().have()
    }

    fn take(&self, desired: Desired) -> BoxFuture<'_, model::Result<()>> {
        Box::pin(async move { self.obey(desired) })
    }

    fn report(&self, acked: Option<Revision>) -> Option<Observed> {
        self.child().report(acked)
    }

    fn told(&self, facts: Facts) {
        self.child().told(facts);
    }

    fn page_halve(&self) -> Option<usize> {
        self.child().page_halve()
    }

    fn page_restore(&self) {
        self.child().page_restore();
    }

    fn news(&self) -> Wake {
        self.news.clone()
    }

    fn removed(&self) -> BoxFuture<'_, model::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn answer(&self, _ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()> {
        Box::pin(async move { drop(stream.send(Frame::Error("this is a stand-in".into())).await) })
    }
}

pub async fn run(client: &Client, tree: &Tree, levels: &[usize], instances: u32) -> Result<()> {
    println!(
        "{:<34} {:>10} {:>10} {:>10} {:>10}",
        "stand-in nodes", "root CPU", "root MB", "zone CPU", "zone MB"
    );
    let mut joined = 0;
    for level in levels {
        join(client, tree, joined..*level).await?;
        joined = *level;
        until("all stand-ins are seen", || async { Ok(nodes(client).await? >= joined) }).await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let meter = Meter::start(tree)?;
        tokio::time::sleep(IDLE).await;
        meter.row(&format!("{level}, idle"))?;
        let meter = Meter::start(tree)?;
        changes(client, BUSY).await?;
        meter.row(&format!("{level}, {CHANGES_A_SECOND} changes a second"))?;
    }
    rate(client, tree, instances).await
}

/// Only the rate, several times over.
pub async fn rates(
    client: &Client,
    tree: &Tree,
    nodes_wanted: usize,
    instances: u32,
    rounds: usize,
) -> Result<()> {
    join(client, tree, 0..nodes_wanted).await?;
    until("all stand-ins are seen", || async { Ok(nodes(client).await? >= nodes_wanted) }).await?;
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_secs(2)).await;
        rate(client, tree, instances).await?;
    }
    Ok(())
}

async fn join(client: &Client, tree: &Tree, which: std::ops::Range<usize>) -> Result<()> {
    let since = Instant::now();
    let count = which.len();
    let joins = futures::stream::iter(which.map(|number| join_one(client, tree, number)));
    joins.buffer_unordered(JOIN_AT_ONCE).try_collect::<Vec<()>>().await?;
    eprintln!("{count} joined in {:.1} s", since.elapsed().as_secs_f64());
    Ok(())
}

async fn join_one(client: &Client, tree: &Tree, number: usize) -> Result<()> {
    let name: Name = format!("standin-{number}").parse()?;
    let token: EnrollToken = client.enrolment_create(&EnrolmentCreate::node(None)).await?.token.parse()?;
    let credentials = link::enroll(&tree.zone_url, &token, &name).await?;
    let uplink = link::mqtt_uplink(&credentials, &tree.broker, &tree.zone_url)?;
    tokio::spawn(tier::sync::run(Arc::new(StandIn::new(name)), uplink));
    Ok(())
}

async fn nodes(client: &Client) -> Result<usize> {
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let mut query = ListQuery::new().with("alive", "true").limit(1000);
        if let Some(after) = &after {
            query = query.after(after);
        }
        let page = client.node_list(&query).await?;
        count += page.items.len();
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(count),
        }
    }
}

/// Creates and deletes in turn, at an even pace.
async fn changes(client: &Client, time: Duration) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / CHANGES_A_SECOND);
    let mut tasks = tokio::task::JoinSet::new();
    let since = Instant::now();
    let mut number = 0u64;
    // What was created last is deleted too.
    while since.elapsed() < time || number % 2 == 1 {
        tick.tick().await;
        let (client, name) = (client.clone(), format!("change-{}", number / 2));
        let delete = number % 2 == 1;
        number += 1;
        tasks.spawn(async move {
            if delete {
                // The create of the tick before may still be on its way.
                for _ in 0..100 {
                    if client.instance_delete(&name, None).await.is_ok() {
                        return Ok(());
                    }
                    tokio::time::sleep(POLL).await;
                }
                bail!("{name} was not deleted");
            }
            let body = InstanceCreate { name: name.parse()?, spec: spec() };
            client.instance_create(&body).await?;
            Ok(())
        });
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    until("the changes are gone", || async {
        Ok(client.instance_list(&ListQuery::new().limit(1)).await?.items.is_empty())
    })
    .await
}

/// One workload of many instances: from the request until root has seen all of them run.
async fn rate(client: &Client, tree: &Tree, instances: u32) -> Result<()> {
    let mut small = spec();
    (small.cpu, small.memory, small.restart) = (Cpu(100), Bytes::mib(8), model::RestartPolicy::Always);
    let spec = WorkloadSpec { mode: Mode::Service { replicas: instances }, ..WorkloadSpec::new(small) };
    let name: Name = "rate".parse()?;
    let meter = Meter::start(tree)?;
    let since = Instant::now();
    client.workload_create(&WorkloadCreate { name, app: None, spec }).await?;
    let (mut placed, mut first) = (None, None);
    loop {
        let status = client.workload_get("rate").await?.status;
        if status.instances >= instances && placed.is_none() {
            placed = Some(since.elapsed());
        }
        if status.available > 0 && first.is_none() {
            first = Some(since.elapsed());
        }
        if status.available >= instances {
            break;
        }
        ensure!(since.elapsed() < LIMIT, "only {} of {instances} run after {LIMIT:?}", status.available);
        tokio::time::sleep(POLL).await;
    }
    let took = since.elapsed().as_secs_f64();
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    println!(
        "{instances} instances of one workload: asked for after {:.2} s, the first seen running after {:.2} s, all placed, \
         committed at both tiers and seen running after {took:.2} s: {:.0} a second",
        seconds(placed),
        seconds(first),
        f64::from(instances) / took
    );
    println!("{}", meter.spent()?);
    let since = Instant::now();
    client.workload_delete("rate", None).await?;
    until("the workload is gone", || async { Ok(client.workload_get("rate").await.is_err()) }).await?;
    println!("all gone after {:.2} s", since.elapsed().as_secs_f64());
    Ok(())
}

async fn until<F: Future<Output = Result<bool>>>(what: &str, look: impl Fn() -> F) -> Result<()> {
    let since = Instant::now();
    while !look().await? {
        ensure!(since.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(POLL * 10).await;
    }
    Ok(())
}

/// CPU of both processes since its start.
struct Meter<'a> {
    tree: &'a Tree,
    since: Instant,
    root: u64,
    zone: u64,
    stand_ins: u64,
}

impl<'a> Meter<'a> {
    fn start(tree: &'a Tree) -> Result<Self> {
        let (root, zone) = (ticks(tree.root_pid)?, ticks(tree.zone_pid)?);
        Ok(Self { tree, since: Instant::now(), root, zone, stand_ins: ticks(std::process::id())? })
    }

    /// The CPU seconds of each process.
    fn spent(&self) -> Result<String> {
        let seconds = |now: u64, before: u64| (now - before) as f64 / TICKS_A_SECOND;
        let root = seconds(ticks(self.tree.root_pid)?, self.root);
        let zone = seconds(ticks(self.tree.zone_pid)?, self.zone);
        let stand_ins = seconds(ticks(std::process::id())?, self.stand_ins);
        Ok(format!("CPU: root {root:.2} s, zone with broker {zone:.2} s, stand-ins {stand_ins:.2} s"))
    }

    fn row(&self, what: &str) -> Result<()> {
        let share = |now: u64, before: u64| {
            (now - before) as f64 / TICKS_A_SECOND / self.since.elapsed().as_secs_f64() * 100.0
        };
        let root = share(ticks(self.tree.root_pid)?, self.root);
        let zone = share(ticks(self.tree.zone_pid)?, self.zone);
        let (root_mb, zone_mb) = (resident_mb(self.tree.root_pid)?, resident_mb(self.tree.zone_pid)?);
        println!("{what:<34} {root:>8.2} % {root_mb:>10.1} {zone:>8.2} % {zone_mb:>10.1}");
        Ok(())
    }
}

/// User and system time of a process, in clock ticks.
pub fn ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let tail = stat.rsplit_once(')').context("a stat line")?.1;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a resident size")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1000.0)
}
