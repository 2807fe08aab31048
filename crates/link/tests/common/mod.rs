//! A parent that remembers, and a whole link over loopback for each transport.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use link::limits::CERT_VALID;
use link::{
    BlobSource, Broker, BrokerConfig, Ca, Calls, Children, Credentials, Desk, Down, HttpsParent,
    HttpsParentConfig, Identity, Kind, MemoryBook, MqttParent, MqttParentConfig, ParentHandler, Uplink,
};
use model::exchange::{Ack, Facts, Revision, RevisionedSet};
use model::{ChildId, Desired, Digest, Error, InstanceId, Name, Observed, Pulse, Resources, Result};
use tokio::sync::{mpsc, watch};

/// Longer than anything here takes on a busy machine; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const ZONE: &str = "z-00000000000000001";

pub async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what}: nothing happened"))
}

#[derive(Debug, PartialEq)]
pub enum Heard {
    Observed(ChildId, Revision),
    Link(ChildId, bool),
}

/// A parent with one desired set for all children, sent as a difference where the child has something.
pub struct Parent {
    pub rev: watch::Sender<Revision>,
    pub heard: tokio::sync::Mutex<mpsc::UnboundedReceiver<Heard>>,
    tell: mpsc::UnboundedSender<Heard>,
    pub pulses: Mutex<HashMap<ChildId, Pulse>>,
    pub beats: Mutex<HashMap<ChildId, u64>>,
    pub blobs: Mutex<HashMap<Digest, Bytes>>,
    pub removed: Mutex<Vec<ChildId>>,
    /// Refused, but not because they were removed.
    pub unknown: Mutex<Vec<ChildId>>,
    /// Set where another parent holds the duty.
    pub moved: Mutex<Option<Option<String>>>,
    /// Names that children's listeners may have.
    pub hosts: Mutex<Vec<String>>,
    /// Children of which two processes spoke in turns.
    pub twins: Mutex<Vec<ChildId>>,
}

impl Parent {
    pub fn new(epoch: u64) -> Arc<Self> {
        let (tell, heard) = mpsc::unbounded_channel();
        Arc::new(Self {
            rev: watch::Sender::new(Revision { epoch, rev: 1 }),
            heard: tokio::sync::Mutex::new(heard),
            tell,
            pulses: Mutex::default(),
            beats: Mutex::default(),
            blobs: Mutex::default(),
            removed: Mutex::default(),
            unknown: Mutex::default(),
            moved: Mutex::default(),
            hosts: Mutex::default(),
            twins: Mutex::default(),
        })
    }

    pub fn change(&self) -> Revision {
        self.rev.send_modify(|rev| rev.rev += 1);
        *self.rev.borrow()
    }

    /// Waits for one event, passing over others.
    pub async fn wait(&self, wanted: Heard) {
        let mut heard = self.heard.lock().await;
        patiently(&format!("{wanted:?}"), async {
            while heard.recv().await.expect("the parent lives") != wanted {}
        })
        .await;
    }
}

impl ParentHandler for Parent {
    fn observed(&self, child: &ChildId, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        let at = observed.set.at;
        let _ = self.tell.send(Heard::Observed(child.clone(), at));
        Box::pin(async move { Ok(Ack { have: Some(at) }) })
    }

    fn desired(&self, _: &ChildId, have: Option<Revision>) -> BoxFuture<'_, Result<Desired>> {
        let mut rev = self.rev.subscribe();
        Box::pin(async move {
            let at = *rev.wait_for(|rev| have != Some(*rev)).await.map_err(|_| Error::internal("gone"))?;
            let base = have.filter(|have| have.epoch == at.epoch);
            let removes = (0..at.rev).map(|n| InstanceId::from_random(n.into())).collect();
            Ok(RevisionedSet { base, at, upserts: Vec::new(), removes, more: false, upto: None })
        })
    }

    fn link_state(&self, child: &ChildId, up: bool) {
        let _ = self.tell.send(Heard::Link(child.clone(), up));
    }

    fn heard(&self, child: &ChildId, pulse: Option<&Pulse>) {
        if let Some(pulse) = pulse {
            self.pulses.lock().unwrap().insert(child.clone(), pulse.clone());
        }
        *self.beats.lock().unwrap().entry(child.clone()).or_default() += 1;
    }

    fn blob(&self, _: &ChildId, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let blob = self.blobs.lock().unwrap().get(digest).cloned();
        let digest = digest.clone();
        Box::pin(async move { blob.map(BlobSource::from_bytes).ok_or_else(|| Error::not_found(digest)) })
    }

    fn holds(&self) -> Result<(), Option<String>> {
        self.moved.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn hosts_allow(&self, _: &ChildId, hosts: &[String]) -> Result<()> {
        link::hosts::hosts_allowed(hosts, &self.hosts.lock().unwrap())
    }

    fn twins(&self, child: &ChildId) {
        self.twins.lock().unwrap().push(child.clone());
    }

    fn admits(&self, child: &ChildId) -> bool {
        !self.removed(child) && !self.unknown.lock().unwrap().contains(child)
    }

    fn removed(&self, child: &ChildId) -> bool {
        self.removed.lock().unwrap().contains(child)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Transport {
    Https,
    /// Over the embedded broker.
    Mqtt,
    /// Over a real broker of somebody else.
    Mosquitto,
}

/// A zone on loopback with both listeners. Dropping it is as abrupt as a crash.
pub struct Zone {
    pub handler: Arc<Parent>,
    pub calls: Calls,
    pub https: HttpsParent,
    /// The embedded broker, unless there is another.
    pub broker: Option<Broker>,
    pub broker_address: SocketAddr,
    pub mqtt: MqttParent,
    pub book: Arc<MemoryBook>,
}

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn ca(dir: &Path) -> Arc<Ca> {
    link::tls::provider_install();
    Arc::new(Ca::create_or_load(&dir.join("ca")).unwrap())
}

pub fn server(ca: &Ca) -> Credentials {
    let sans = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    ca.issue_fresh(Identity::new(Kind::Server, ZONE), &sans, CERT_VALID).unwrap()
}

pub fn node(ca: &Ca, n: u128) -> Credentials {
    let id = model::NodeId::from_random(n).to_string();
    ca.issue_fresh(Identity::new(Kind::Node, id).under(ZONE), &[], CERT_VALID).unwrap()
}

pub fn zone_credentials(ca: &Ca) -> Credentials {
    ca.issue_fresh(Identity::new(Kind::Zone, ZONE), &[], CERT_VALID).unwrap()
}

impl Zone {
    pub async fn start(dir: &Path, ca: &Arc<Ca>, handler: Arc<Parent>, at: (SocketAddr, SocketAddr)) -> Self {
        Self::start_with(dir, ca, handler, at, None).await
    }

    /// With `external` there is no embedded broker.
    pub async fn start_with(
        dir: &Path,
        ca: &Arc<Ca>,
        handler: Arc<Parent>,
        at: (SocketAddr, SocketAddr),
        external: Option<SocketAddr>,
    ) -> Self {
        let book = Arc::new(MemoryBook::default());
        let desk = Desk {
            kind: Kind::Node,
            parent: Some(ZONE.into()),
            issuer: ca.clone(),
            book: book.clone(),
            clock: Arc::new(work::SystemClock),
        };
        let calls = Calls::new();
        let config = HttpsParentConfig {
            listen: at.0,
            server: server(ca),
            children: Children::nodes_of(ZONE),
            desk: Some(desk),
            issuer: Some(ca.clone()),
            peers: None,
            dispatcher: None,
        };
        let https = HttpsParent::start(config, handler.clone(), calls.clone()).await.unwrap();
        let broker = match external {
            Some(_) => None,
            None => {
                let config = BrokerConfig {
                    listen: at.1,
                    server: https.wallet().clone(),
                    zone: ZONE.into(),
                    dir: dir.join("broker"),
                    handler: handler.clone(),
                    calls: calls.clone(),
                };
                Some(Broker::start(config).await.unwrap())
            }
        };
        let broker_address = external.or(broker.as_ref().map(Broker::address)).unwrap();
        let config = MqttParentConfig {
            broker: broker_address.to_string(),
            me: zone_credentials(ca).into(),
            own_broker: external.is_none(),
        };
        let mqtt = MqttParent::start(config, handler.clone(), calls.clone()).unwrap();
        Self { handler, calls, https, broker, broker_address, mqtt, book }
    }

    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.https.address(), self.broker_address)
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.https.address())
    }

    pub fn uplink(&self, transport: Transport, credentials: &Credentials) -> Arc<dyn Uplink> {
        match transport {
            Transport::Https => link::https_uplink(credentials, &self.url()).unwrap(),
            Transport::Mqtt | Transport::Mosquitto => {
                link::mqtt_uplink(credentials, &self.broker_address.to_string(), &self.url()).unwrap()
            }
        }
    }
}

/// Everything that most tests begin with: a zone and one child that is up.
pub struct World {
    pub dir: tempfile::TempDir,
    pub ca: Arc<Ca>,
    pub zone: Zone,
    pub credentials: Credentials,
    pub child: ChildId,
    pub uplink: Arc<dyn Uplink>,
    pub mosquitto: Option<Mosquitto>,
}

/// A mosquitto as docs/roles.md says that it is set up.
pub struct Mosquitto {
    pub address: SocketAddr,
    process: std::process::Child,
}

impl Mosquitto {
    pub fn start(dir: &Path, ca: &Ca) -> Self {
        let dir = dir.join("mosquitto");
        std::fs::create_dir_all(&dir).unwrap();
        server(ca).files_write(&dir, "broker").unwrap();
        let address = std::net::TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roles.md")).unwrap();
        let block = |name: &str| {
            let (_, rest) =
                text.split_once(&format!("# {name}\n")).unwrap_or_else(|| panic!("{name} is in docs"));
            rest.split_once("```").unwrap().0.to_owned()
        };
        let acl = dir.join("acl");
        std::fs::write(&acl, block("mosquitto.acl").replace("z-EXAMPLE", ZONE)).unwrap();
        let config = block("mosquitto.conf")
            .replace("listener 7721", &format!("listener {} 127.0.0.1", address.port()))
            .replace("/etc/mosquitto/banyan/acl", &acl.to_string_lossy())
            .replace("/etc/mosquitto/banyan", &dir.to_string_lossy());
        let file = dir.join("mosquitto.conf");
        std::fs::write(&file, format!("user root\n{config}")).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let process = std::process::Command::new("mosquitto")
            .arg("-c")
            .arg(&file)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { address, process }
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub async fn world(transport: Transport) -> World {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let mosquitto = (transport == Transport::Mosquitto).then(|| Mosquitto::start(dir.path(), &ca));
    let external = mosquitto.as_ref().map(|mosquitto| mosquitto.address);
    let at = (any_port(), any_port());
    let zone = Zone::start_with(dir.path(), &ca, Parent::new(1), at, external).await;
    let credentials = node(&ca, 1);
    let uplink = zone.uplink(transport, &credentials);
    let child = credentials.identity.child_id();
    patiently("up", async { while !matches!(uplink.next().await, Down::Up) {} }).await;
    zone.handler.wait(Heard::Link(child.clone(), true)).await;
    World { dir, ca, zone, credentials, child, uplink, mosquitto }
}

/// Whether nothing that matters to the link comes for a while.
pub async fn stays_down(uplink: &dyn Uplink) -> bool {
    let up = async { while !matches!(uplink.next().await, Down::Up) {} };
    tokio::time::timeout(Duration::from_millis(1500), up).await.is_err()
}

/// The next desired set, taken as a child takes it.
pub async fn desired_next(uplink: &dyn Uplink) -> Desired {
    patiently("a desired set", async {
        loop {
            if let Down::Desired(desired) = uplink.next().await {
                uplink.set_have(Some(desired.at));
                return desired;
            }
        }
    })
    .await
}

pub fn observed(rev: u64) -> Observed {
    let facts = Facts {
        name: "node-1".parse::<Name>().unwrap(),
        version: "0".into(),
        nodes: 1,
        archs: Vec::new(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        capacity: Resources::ZERO,
        largest: None,
        gpus: Vec::new(),
        cordoned: false,
        free: None,
        area: None,
        legs: std::collections::BTreeMap::new(),
        members: 0,
        labels_cut: Default::default(),
    };
    let at = Revision { epoch: 1, rev };
    Observed {
        facts,
        set: RevisionedSet {
            base: None,
            at,
            upserts: Vec::new(),
            removes: Vec::new(),
            more: false,
            upto: None,
        },
    }
}
