//! A cloud for tests: its own data folder, port and store, and a tree that answers by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use link::{ByteStream, Frame};
use model::exchange::{Ask, InstanceStats, NodeReport};
use model::{Facts, InstanceSpec, Resources, Result, Role, RuntimeKind, Timestamp, ZoneId};
use root::image::ImageStore;
use root::port::{Enrolled, Join, Tree};
use root::tables::{ZoneRecord, encode, kind};
use root::{AdminCredentials, Cloud, Config, Endpoints, Running, Shared, State, bootstrap, serve};
use store::{Store, Txn};

pub struct World {
    pub cloud: Shared,
    pub admin: api::Client,
    pub credentials: AdminCredentials,
    pub tree: Arc<StubTree>,
    pub zone: ZoneId,
    pub running: Running,
    pub objects: object::Store,
    pub dir: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        Self::with("memory:").await
    }

    /// `sqlite:` stands for a file in the world's own folder.
    pub async fn with(database: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::open(dir, database).await.0
    }

    /// Also says whether this was the first start.
    pub async fn open(dir: tempfile::TempDir, database: &str) -> (Self, bool) {
        let mut config = Config::new(dir.path());
        config.listen = "127.0.0.1:0".parse().unwrap();
        config.database = (database != "sqlite:").then(|| database.to_owned());
        config.image_upload_max_bytes = 64 << 20;
        let store = Store::open(&config.database_url()).await.unwrap();
        let state = State::open(store).await.unwrap();
        let tree = Arc::new(StubTree::default());
        let images = ImageStore::open(dir.path().join("images")).unwrap();
        let cloud =
            Cloud::new(config, state, tree.clone(), images, Arc::new(work::SystemClock)).await.unwrap();
        let endpoints =
            Endpoints { endpoint: String::new(), s3_endpoint: String::new(), ec2_endpoint: String::new() };
        let made = bootstrap(&cloud, endpoints.clone()).await.unwrap();
        let first = made.is_some();
        let credentials = match made {
            Some(made) => made,
            None => root::admin_renew(&cloud, endpoints).await.unwrap(),
        };
        root::ops::image::builtin_ensure(&cloud).await.unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let objects = object::Config::new(dir.path().join("object"), listen);
        let directory = Arc::new(root::directory::Directory::new(&cloud));
        let objects = object::Store::start(objects, directory).await.unwrap();
        let endpoint = format!("http://{}", objects.address());
        let service = objects.service().clone();
        let _ = cloud.objects.set(root::cloud::Objects { service, endpoint, inside: Default::default() });
        let running = serve(cloud.clone()).await.unwrap();
        let admin =
            api::Client::new(&format!("http://{}", running.addr), Some(credentials.token.clone())).unwrap();
        let zone = zone_enrol(&cloud, "alpha").await;
        (Self { cloud, admin, credentials, tree, zone, running, objects, dir }, first)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.addr)
    }

    /// A client of a new user with this role; the tenant is made when it is not there.
    pub async fn user(&self, tenant: &str, role: Role) -> api::Client {
        if self.admin.tenant_get(tenant).await.is_err() {
            let body = api::TenantCreate { name: tenant.parse().unwrap(), quota: Default::default() };
            self.admin.tenant_create(&body).await.unwrap();
        }
        let name: model::Name = format!("{tenant}-{role}").parse().unwrap();
        let password = "correct horse".to_owned();
        let body = api::UserCreate { name: name.clone(), role, password: password.clone(), email: None };
        self.admin.with_tenant(tenant).user_create(&body).await.unwrap();
        let login = api::Login { tenant: Some(tenant.parse().unwrap()), user: name, password };
        let done = self.admin.login(&login).await.unwrap();
        self.admin.with_token(done.token)
    }
}

async fn zone_enrol(cloud: &Cloud, name: &str) -> ZoneId {
    if let Some(zone) = cloud.state.snapshot().zone_find(name) {
        return zone.id.clone();
    }
    let zone = ZoneRecord {
        id: ZoneId::from_random(rand::random()),
        name: name.parse().unwrap(),
        enrolled_at: Timestamp(0),
        facts: Some(facts(name)),
        mode: model::PlaceMode::Open,
        forced: false,
        hosts: Vec::new(),
        granted: Vec::new(),
    };
    let txn = Txn::new().insert(kind::ZONE, &zone.id, None, Some(name), encode(&zone));
    cloud.state.commit(txn).await.unwrap();
    zone.id
}

pub fn facts(name: &str) -> Facts {
    Facts {
        name: name.parse().unwrap(),
        version: "0".into(),
        nodes: 1,
        archs: vec![model::Arch::HOST],
        runtimes: vec![RuntimeKind::Container],
        labels: Default::default(),
        capacity: Resources::ZERO,
        largest: None,
        gpus: vec![],
        cordoned: false,
        free: None,
        area: None,
        legs: std::collections::BTreeMap::new(),
        members: 0,
        labels_cut: Default::default(),
    }
}

pub fn ask_for(name: &str) -> api::InstanceCreate {
    api::InstanceCreate { name: name.parse().unwrap(), spec: InstanceSpec::new("busybox") }
}

/// Answers every question itself and counts questions and wake-ups.
#[derive(Default)]
pub struct StubTree {
    pub wakes: AtomicU64,
    pub asks: AtomicU64,
    pub zone: Arc<Mutex<FakeZone>>,
    /// Instances whose zone was told again, and those taken off it.
    pub healed: Mutex<Vec<String>>,
}

/// One zone with one node, which does as it is told and remembers it.
#[derive(Default)]
pub struct FakeZone {
    pub mode: model::PlaceMode,
    pub labels: model::constraint::Labels,
    pub removed: bool,
    /// Does not answer when it is asked how it is.
    pub silent: bool,
    pub checks: Vec<model::Check>,
    /// Every order, in words.
    pub orders: Vec<String>,
}

impl FakeZone {
    fn report(&self) -> NodeReport {
        let mut facts = facts("node-1");
        facts.cordoned = self.mode != model::PlaceMode::Open;
        facts.labels = self.labels.iter().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
        NodeReport {
            id: "n-1".into(),
            facts,
            alive: true,
            restarting: false,
            last_seen: Timestamp(0),
            reserved: Resources::ZERO,
            instances: 3,
            resting: 0,
            version: 7 + self.labels.len() as i64,
            mode: self.mode,
            left: None,
            remaining: Vec::new(),
            usage: None,
            clock_ahead_ms: 0,
            certificate_until: None,
            certificate_from: None,
        }
    }

    fn order(&mut self, ask: Ask) -> serde_json::Value {
        self.orders.push(format!("{ask:?}"));
        match ask {
            Ask::Nodes if self.removed => serde_json::json!([]),
            Ask::Nodes => serde_json::json!([self.report()]),
            Ask::History { since, .. } => {
                let usage = model::Usage { cpu_milli: 250, instances: 3, ..model::Usage::default() };
                serde_json::json!([model::Sample { at: since.plus_ms(1_000), usage }])
            }
            Ask::Health => serde_json::json!(self.checks),
            Ask::Mode { mode, .. } => {
                self.mode = mode;
                serde_json::json!({})
            }
            Ask::Label { set, unset, .. } => {
                self.labels.extend(set);
                self.labels.retain(|key, _| !unset.contains(key));
                serde_json::json!({})
            }
            Ask::Remove { .. } => {
                self.removed = true;
                serde_json::json!({})
            }
            _ => serde_json::json!({}),
        }
    }
}

impl Tree for StubTree {
    fn ask(&self, _: &ZoneId, ask: Ask) -> BoxFuture<'_, Result<ByteStream>> {
        self.asks.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let (ours, theirs) = ByteStream::pair();
            tokio::spawn(answer(theirs, ask, self.zone.clone()));
            Ok(ours)
        })
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }

    fn zone_live(&self, _: &ZoneId) -> bool {
        true
    }

    fn certificates(&self) -> Vec<(String, (Timestamp, Timestamp))> {
        vec![("the certificate of the CA".into(), (Timestamp(0), Timestamp(i64::MAX / 2)))]
    }

    fn tell_again(&self, instance: &model::InstanceId) -> bool {
        self.healed.lock().unwrap().push(format!("told {instance}"));
        true
    }

    fn take_off(&self, instance: &model::InstanceId, _: &str) -> bool {
        self.healed.lock().unwrap().push(format!("took {instance}"));
        true
    }

    fn enroll(&self, _: Join) -> BoxFuture<'_, Result<Enrolled>> {
        let doorway = model::exchange::Doorway { urls: vec!["https://root:7710".into()], broker: None };
        Box::pin(async { Ok(Enrolled { token: "once".into(), expires_at: Timestamp(0), doorway }) })
    }
}

async fn answer(mut stream: ByteStream, ask: Ask, zone: Arc<Mutex<FakeZone>>) {
    let json = |value: serde_json::Value| Frame::Data(Bytes::from(value.to_string()));
    match ask {
        Ask::Logs { follow, tail_lines, .. } => {
            let text = format!("follow {follow} tail {tail_lines:?}\n");
            let _ = stream.send(Frame::Stdout(Bytes::from(text))).await;
            if follow {
                // Until the reader goes.
                while stream.recv().await.is_some() {}
                return;
            }
            let _ = stream.send(Frame::Eof).await;
        }
        Ask::Exec { command, .. } => exec(stream, command).await,
        Ask::Stats { .. } => {
            let stats = InstanceStats { memory_bytes: 42, ..InstanceStats::default() };
            let _ = stream.send(json(serde_json::to_value(stats).unwrap())).await;
            let _ = stream.send(Frame::Eof).await;
        }
        Ask::Health if zone.lock().unwrap().silent => {
            // Until the asker has had enough.
            while stream.recv().await.is_some() {}
        }
        other => {
            let said = zone.lock().unwrap().order(other);
            let _ = stream.send(json(said)).await;
            let _ = stream.send(Frame::Eof).await;
        }
    }
}

/// Repeats its input in upper case, then ends with 7.
async fn exec(mut stream: ByteStream, command: Vec<String>) {
    if command[0] == "missing" {
        let _ = stream.send(Frame::Error("there is no such program".into())).await;
        return;
    }
    while let Some(frame) = stream.recv().await {
        match frame {
            Frame::Data(data) => {
                let _ = stream.send(Frame::Stdout(data.to_ascii_uppercase().into())).await;
            }
            Frame::Resize { rows, cols } => {
                let _ = stream.send(Frame::Stderr(Bytes::from(format!("{rows}x{cols}")))).await;
            }
            Frame::Eof => break,
            _ => return,
        }
    }
    let _ = stream.send(Frame::Exit { code: 7 }).await;
}
