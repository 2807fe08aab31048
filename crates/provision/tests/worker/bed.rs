//! A root that gives out what a test tells it to, behind a real listener, and machines that only wait.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use link::limits::CERT_VALID;
use link::{
    BlobSource, Ca, Calls, Children, Dispatcher, Given, HttpsParent, HttpsParentConfig, Identity, Kind,
    ParentHandler, Staged, TaskAnswer, TaskAsk, TaskClient, TaskDone,
};
use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, Digest, Error, Observed, Pulse, Result};
use provision::carry::Carrier;
use provision::provider::{Provider, Setting};
use provision::ssh::Pool;
use provision::task::{Fault, Report};
use provision::worker::{Config, Worker};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use work::queue::Claim;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Root {
    pub state: Mutex<State>,
    pub news: Notify,
}

#[derive(Default)]
pub struct State {
    pub ready: VecDeque<Given>,
    /// Given out, and not finished or given back.
    pub held: BTreeMap<Claim, Given>,
    pub stop: Vec<Claim>,
    pub workers: BTreeMap<String, u32>,
    pub staged: BTreeMap<String, Vec<Staged>>,
    pub files: BTreeMap<Digest, Bytes>,
    pub fetched: Vec<String>,
    /// Files of which nothing ever comes.
    pub hang: Vec<Digest>,
    pub lease_ms: i64,
    pub done: Vec<TaskDone>,
    pub refuse_reports: bool,
    pub capacity: u32,
    seen: u64,
}

impl Root {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.seen += 1;
        drop(state);
        self.news.notify_waiters();
    }

    pub fn give(&self, tenant: &str, task: u32, body: serde_json::Value, limit_ms: i64) -> Claim {
        let claim = Claim { job: "j".into(), task, attempt: 1, life: 1 };
        let given = Given { claim: claim.clone(), tenant: tenant.to_owned(), limit_ms, body };
        self.change(|state| state.ready.push_back(given));
        claim
    }

    pub fn wait_task(&self, tenant: &str, task: u32) -> Claim {
        self.give(tenant, task, body("CREATE", &format!("n{task}")), 60_000)
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let waiting = async {
            while !is_so(&self.state()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}: nothing happened"));
    }

    /// What is to be said; as root does, it takes back what is not named.
    fn answer(&self, ask: &TaskAsk, is_last: bool) -> Option<TaskAnswer> {
        let mut state = self.state();
        state.capacity = ask.capacity;
        let lost: Vec<Claim> =
            state.held.keys().filter(|claim| !ask.holds.contains(claim)).cloned().collect();
        for claim in lost {
            let given = state.held.remove(&claim).unwrap();
            state.ready.push_front(given);
        }
        let room = (ask.capacity as usize).saturating_sub(ask.holds.len()).min(state.ready.len());
        let stop: Vec<Claim> = state.stop.iter().filter(|claim| ask.holds.contains(claim)).cloned().collect();
        if room == 0 && stop.is_empty() && state.seen == ask.seen && !is_last {
            return None;
        }
        for claim in &stop {
            state.held.remove(claim);
        }
        let tasks: Vec<Given> = state.ready.drain(..room).collect();
        state.held.extend(tasks.iter().map(|given| (given.claim.clone(), given.clone())));
        let (workers, staged) = (state.workers.clone(), state.staged.clone());
        let (seen, lease_ms, nodes) = (state.seen, state.lease_ms, BTreeMap::new());
        Some(TaskAnswer { seen, lease_ms, tasks, nodes, stop, workers, staged })
    }
}

impl Dispatcher for Root {
    fn poll(&self, _: &ChildId, ask: TaskAsk, is_last: bool) -> BoxFuture<'_, Result<TaskAnswer>> {
        Box::pin(async move {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if let Some(answer) = self.answer(&ask, is_last) {
                    return Ok(answer);
                }
                news.await;
            }
        })
    }

    fn finish(&self, _: &ChildId, done: TaskDone) -> BoxFuture<'_, Result<()>> {
        let mut state = self.state();
        if state.refuse_reports {
            return Box::pin(async { Err(Error::unavailable("the store is away")) });
        }
        state.held.remove(&done.claim);
        state.done.push(done);
        drop(state);
        self.news.notify_waiters();
        Box::pin(async { Ok(()) })
    }

    fn resource(&self, _: &ChildId, tenant: &str, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let mut state = self.state();
        state.fetched.push(format!("{tenant} {digest}"));
        if state.hang.contains(digest) {
            return Box::pin(std::future::pending());
        }
        let found = state.files.get(digest).cloned().ok_or_else(|| Error::not_found("file"));
        Box::pin(async { found.map(BlobSource::from_bytes) })
    }

    fn admits(&self, _: &ChildId) -> bool {
        true
    }
}

/// Nobody's parent.
struct Barren;

impl ParentHandler for Barren {
    fn observed(&self, _: &ChildId, _: Observed) -> BoxFuture<'_, Result<Ack>> {
        Box::pin(async { Err(Error::internal("there are no children")) })
    }
    fn desired(&self, _: &ChildId, _: Option<Revision>) -> BoxFuture<'_, Result<Desired>> {
        Box::pin(async { Err(Error::internal("there are no children")) })
    }
    fn link_state(&self, _: &ChildId, _: bool) {}
    fn heard(&self, _: &ChildId, _: Option<&Pulse>) {}
    fn blob(&self, _: &ChildId, _: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        Box::pin(async { Err(Error::internal("there are no children")) })
    }
}

/// Waits until it is let go, and counts who is inside.
pub struct Gate {
    pub go: Semaphore,
    pub inside: Mutex<Vec<String>>,
    pub most: Mutex<usize>,
}

struct Inside<'a>(&'a Gate, String);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.lock().unwrap().retain(|node| *node != self.1);
    }
}

struct Waiting(Arc<Gate>);

impl Provider for Waiting {
    fn name(&self) -> &str {
        "banyan"
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, std::result::Result<Report, Fault>> {
        async move {
            let node = setting.task.node_id.clone();
            let count = {
                let mut inside = self.0.inside.lock().unwrap();
                inside.push(node.clone());
                inside.len()
            };
            {
                let mut most = self.0.most.lock().unwrap();
                *most = count.max(*most);
            }
            let _inside = Inside(&self.0, node.clone());
            self.0.go.acquire().await.map_err(|error| Fault::failed(error.to_string()))?.forget();
            let folder = setting.resources.folder().display().to_string();
            let file = setting.resources.file("scripts", "a.sh");
            // One that is not staged is none of our business; one that could not be fetched is.
            let found = match file {
                Err(fault) if fault.is_passing => return Err(fault),
                found => found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            };
            let stdout = format!("{folder} {}", found.unwrap_or_default());
            Ok(Report { hostname: Some(node), stdout, ..Report::default() })
        }
        .boxed()
    }
}

pub struct World {
    pub dir: tempfile::TempDir,
    ca: Ca,
    pub root: Arc<Root>,
    pub listener: Option<HttpsParent>,
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
}

impl World {
    pub async fn new() -> Self {
        link::tls::provider_install();
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::create_or_load(&dir.path().join("ca")).unwrap();
        let root = Arc::new(Root::default());
        root.change(|state| {
            state.workers = [("main".to_owned(), 4)].into();
            state.lease_ms = 60_000;
        });
        let gate = Arc::new(Gate { go: Semaphore::new(0), inside: Mutex::default(), most: Mutex::default() });
        let address = "127.0.0.1:0".parse().unwrap();
        let mut world = Self { dir, ca, root, listener: None, address, gate };
        world.up().await;
        world
    }

    /// Root listens, where it did before.
    pub async fn up(&mut self) {
        let sans = ["127.0.0.1".to_owned()];
        for _ in 0..600 {
            let config = HttpsParentConfig {
                listen: self.address,
                server: self.ca.issue_fresh(Identity::new(Kind::Server, "root"), &sans, CERT_VALID).unwrap(),
                children: Children::zones(),
                desk: None,
                issuer: None,
                peers: None,
                dispatcher: Some(self.root.clone()),
            };
            match HttpsParent::start(config, Arc::new(Barren), Calls::new()).await {
                Ok(listener) => {
                    self.address = listener.address();
                    self.listener = Some(listener);
                    return;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("{} is not free again", self.address);
    }

    pub fn down(&mut self) {
        self.listener = None;
    }

    pub fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    pub fn worker(&self, workers: u32, drain: Duration) -> Running {
        let identity = Identity::new(Kind::Provisioner, "prv-1");
        let me = self.ca.issue_fresh(identity, &[], CERT_VALID).unwrap();
        let client = TaskClient::new(&me, &format!("https://{}", self.address)).unwrap();
        let gate = self.gate.clone();
        let mut config = Config::new(self.data(), workers, drain);
        config.carrier = Arc::new(move |folder| {
            let mut carrier = Carrier::new(Pool::new(8), folder);
            carrier.provider_add(Arc::new(Waiting(gate.clone())));
            carrier
        });
        let worker = Worker::new(client, config).unwrap();
        let ending = CancellationToken::new();
        let (running, token) = (worker.clone(), ending.clone());
        Running { worker, ending, task: tokio::spawn(async move { running.run(token).await }) }
    }

    pub async fn inside(&self, count: usize) {
        let waiting = async {
            while self.gate.inside.lock().unwrap().len() != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let inside = || self.gate.inside.lock().unwrap().clone();
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{:?}", inside()));
    }

    /// A file as it is staged, which root has.
    pub fn file(&self, path: &str, content: &'static [u8]) -> Staged {
        let digest = Digest::from_sha256(&Sha256::digest(content));
        self.root.state().files.insert(digest.clone(), Bytes::from_static(content));
        Staged { path: path.to_owned(), digest, size: content.len() as u64 }
    }
}

pub struct Running {
    pub worker: Worker,
    ending: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub fn end(&self) {
        self.ending.cancel();
    }

    pub async fn ended(self) {
        self.ending.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").unwrap();
    }
}

pub fn body(verb: &str, node: &str) -> serde_json::Value {
    json!({
        "taskId": format!("t-{node}"), "jobId": "j", "clusterId": "c", "taskName": verb, "nodeId": node,
        "config": {"provider": {"providertype": "banyan", "provisioner": {}}}
    })
}

/// The files below a folder, by their paths.
pub fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries.map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path()).into_iter().map(|path| format!("{name}/{path}"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}
