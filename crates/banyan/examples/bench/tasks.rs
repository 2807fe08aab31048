//! Tasks through the queue end to end: a real root with its store, real provisioners over the real link, and tasks that
//! do nothing. A cluster of many machines is ordered; measured is the time until it is active.
//!
//! A case is `WORKERSxMACHINES`, or `WORKERSxMACHINES@MS` where every task takes so many milliseconds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{CatalogueWrite, Client, ClusterCreate, ClusterStatus, Entities};
use serde_json::{Map, json};

use crate::fleet::{TICKS_A_SECOND, ticks};
use crate::noop::{NOOP, StandIn};
use crate::times::Times;

/// Workers of one provisioner; more are spread over several.
const WORKERS_EACH: u32 = 5_000;
const SERVICES: [&str; 3] = ["store", "cache", "web"];
const ACTIONS: [&str; 3] = ["install", "configure", "start"];
/// `CREATE`, `CONFIRM`, `BOOTSTRAP`, and all actions of all services.
const TASKS_EACH: u32 = 3 + (SERVICES.len() * ACTIONS.len()) as u32;
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);
/// How often the tasks that are held are counted.
const LOOK: Duration = Duration::from_millis(10);
/// Machines whose tasks are looked at one by one.
const SAMPLE: u32 = 200;

/// The processes that are measured, and where provisioners come to.
pub struct Place {
    pub link_url: String,
    pub root_pid: u32,
    /// The server of the database, where it is one.
    pub store_pid: Option<u32>,
}

struct Case {
    workers: u32,
    machines: u32,
    takes: Duration,
}

impl std::str::FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (size, ms) = text.split_once('@').unwrap_or((text, "0"));
        let wrong = || format!("'{text}' is not WORKERSxMACHINES[@MS]");
        let (workers, machines) = size.split_once('x').with_context(wrong)?;
        let (workers, machines) =
            (workers.parse().with_context(wrong)?, machines.parse().with_context(wrong)?);
        Ok(Self { workers, machines, takes: Duration::from_millis(ms.parse().with_context(wrong)?) })
    }
}

pub async fn run(client: &Client, place: &Place, cases: &[&str]) -> Result<()> {
    let cases = cases.iter().map(|case| case.parse()).collect::<Result<Vec<Case>>>()?;
    catalogue(client).await?;
    println!(
        "{:<26} {:>8} {:>8} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "workers",
        "tasks",
        "seconds",
        "a second",
        "in flight",
        "p50",
        "p99",
        "root CPU",
        "store CPU",
        "ours CPU"
    );
    let folder = tempfile::tempdir()?;
    for (number, case) in cases.iter().enumerate() {
        measure(client, place, case, number, folder.path()).await?;
    }
    Ok(())
}

/// A template of machines that each carry three services.
async fn catalogue(client: &Client) -> Result<()> {
    let action = json!({"type": NOOP, "fields": {}});
    let actions: Map<String, _> = ACTIONS.iter().map(|name| ((*name).to_owned(), action.clone())).collect();
    let service = |name: &&str| json!({"name": name, "provisioner": {"actions": actions}});
    let entities: Entities = serde_json::from_value(json!({
        "providers": [{"name": "bench", "providertype": NOOP, "provisioner": {}}],
        "hardwaretypes": [{"name": "bench", "providermap": {"bench": {"flavor": "none"}}}],
        "imagetypes": [{"name": "bench", "providermap": {"bench": {"image": "none"}}}],
        "services": SERVICES.iter().map(service).collect::<Vec<_>>(),
        "clustertemplates": [{
            "name": "bench",
            "defaults": {
                "services": SERVICES, "provider": "bench", "hardwaretype": "bench", "imagetype": "bench",
                "config": {"web": {"port": 80}, "store": {"folder": "/srv"}}
            }
        }]
    }))?;
    client.catalogue_write(&CatalogueWrite { entities, replace: false, dry_run: false }).await?;
    Ok(())
}

async fn measure(client: &Client, place: &Place, case: &Case, number: usize, folder: &Path) -> Result<()> {
    let mut stand_ins = Vec::new();
    let mut left = case.workers;
    while left > 0 {
        let workers = left.min(WORKERS_EACH);
        let name = format!("bench-{number}-{}", stand_ins.len());
        stand_ins.push(StandIn::start(client, &place.link_url, &name, workers, case.takes, folder).await?);
        left -= workers;
    }
    let stand_ins = Arc::new(stand_ins);
    until("the provisioners are there", || async {
        Ok(client.provisioner_list().await?.iter().filter(|one| one.live).count() >= stand_ins.len())
    })
    .await?;
    let name = format!("bench-{number}");
    let peak = Peak::watch(stand_ins.clone());
    let before = Spent::now(place)?;
    let since = Instant::now();
    client.cluster_create(&order(&name, case.machines)?, None).await?;
    until("the cluster is active", || async {
        let cluster = client.cluster_get(&name).await?;
        ensure!(
            [ClusterStatus::Pending, ClusterStatus::Active].contains(&cluster.status),
            "the cluster is {:?}: {:?}",
            cluster.status,
            cluster.message
        );
        Ok(cluster.status == ClusterStatus::Active)
    })
    .await?;
    let took = since.elapsed().as_secs_f64();
    let spent = Spent::now(place)?.since(&before);
    let peak = peak.end().await?;
    let times = times(client, &name, case.machines).await?;
    let tasks = case.machines * TASKS_EACH;
    println!(
        "{:<26} {tasks:>8} {took:>8.2} {:>9.0} {peak:>9} {:>7.1} ms {:>7.1} ms {:>7.2} s {:>7.2} s {:>7.2} s",
        case.named(),
        f64::from(tasks) / took,
        times.at(0.5),
        times.at(0.99),
        spent.root,
        spent.store,
        spent.ours,
    );
    client.cluster_delete(&name, None).await?;
    until("the cluster is gone", || async { Ok(client.cluster_get(&name).await.is_err()) }).await?;
    for stand_in in Arc::into_inner(stand_ins).context("nobody else has them")? {
        stand_in.stop(client).await?;
    }
    Ok(())
}

impl Case {
    fn named(&self) -> String {
        match self.takes.is_zero() {
            true => self.workers.to_string(),
            false => format!("{}, tasks of {:.1} s", self.workers, self.takes.as_secs_f64()),
        }
    }
}

fn order(name: &str, size: u32) -> Result<ClusterCreate> {
    Ok(serde_json::from_value(json!({"name": name, "template": "bench", "size": size}))?)
}

/// From being given out until what came of it is kept, for a sample of machines.
async fn times(client: &Client, name: &str, machines: u32) -> Result<Times> {
    let mut times = Vec::new();
    let nodes = client.cluster_nodes(name).await?;
    for node in nodes.iter().step_by((machines / SAMPLE).max(1) as usize) {
        for action in client.cluster_node_log(name, node.num).await? {
            let began = action.began_at.context("it was begun")?;
            times.push(Duration::from_micros(u64::try_from(action.changed_at.0 - began.0).unwrap_or(0)));
        }
    }
    Ok(Times::new(times))
}

/// The most tasks that were held at once.
struct Peak {
    most: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    watching: tokio::task::JoinHandle<()>,
}

impl Peak {
    fn watch(stand_ins: Arc<Vec<StandIn>>) -> Self {
        let (most, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, over) = (most.clone(), is_over.clone());
        let watching = tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let held = stand_ins.iter().map(|one| one.worker.held()).sum();
                seen.fetch_max(held, Ordering::Relaxed);
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { most, is_over, watching }
    }

    async fn end(self) -> Result<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        self.watching.await?;
        Ok(self.most.load(Ordering::Relaxed))
    }
}

/// CPU seconds of the processes.
struct Spent {
    root: f64,
    store: f64,
    ours: f64,
}

impl Spent {
    fn now(place: &Place) -> Result<Self> {
        let seconds = |pid: u32| Ok::<f64, anyhow::Error>(ticks(pid)? as f64 / TICKS_A_SECOND);
        let store = place.store_pid.map_or(Ok(0.0), family)?;
        Ok(Self { root: seconds(place.root_pid)?, store, ours: seconds(std::process::id())? })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            root: self.root - before.root,
            store: self.store - before.store,
            ours: self.ours - before.ours,
        }
    }
}

/// CPU seconds of a process and of its children that run.
fn family(parent: u32) -> Result<f64> {
    let mut sum = ticks(parent)?;
    let own = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    for child in own.split_whitespace() {
        // One may have ended meanwhile.
        sum += ticks(child.parse()?).unwrap_or(0);
    }
    Ok(sum as f64 / TICKS_A_SECOND)
}

async fn until<F: Future<Output = Result<bool>>>(what: &str, look: impl Fn() -> F) -> Result<()> {
    let since = Instant::now();
    while !look().await? {
        ensure!(since.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
