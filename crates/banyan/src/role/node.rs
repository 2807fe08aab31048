//! A node: a child of its zone over MQTT or HTTPS, with an engine, a bridge and image layers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use link::{EnrollToken, Parents, RemoteIssuer, Uplink, Wallet};
use model::constraint::Labels;
use model::{Area, Bytes, Cpu, Digest, Error, Facts, GpuDevice, Name, Resources, Result, RuntimeKind};
use node::cgroup::Cgroups;
use node::layer::{BlobFetch, LayerStore};
use node::legs::Places;
use node::{BridgeNetwork, Engine, EngineConfig, NodeService};
use sal::{Claim, Holder, HostFacts};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use work::SharedClock;

use super::listen::renewal;
use super::zone::credentials;

/// Memory that is never given to instances: for the host and for us.
const MEMORY_RESERVE: Bytes = Bytes::mib(256);
/// How often unused image layers are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

pub const BRIDGE_DEFAULT: &str = "banyan0";
pub const CGROUP_DEFAULT: &str = "banyan";

pub struct NodeOptions {
    pub name: Name,
    pub data: PathBuf,
    /// The zone, by HTTPS.
    pub zone: Parents,
    /// The zone's broker; without one the exchange goes over HTTPS too.
    pub broker: Option<String>,
    pub bridge: String,
    pub cgroup_parent: String,
    pub oci_runtime: Option<PathBuf>,
    pub labels: Labels,
    /// Places to which the way is measured, as `host:port` by name.
    pub places: Places,
    /// Where on the earth it is.
    pub area: Option<Area>,
    /// How many times over the cores are given away; each instance is still held to its own share.
    pub cpu_overcommit: u64,
    /// TCP ports of this host that its instances may reach.
    pub allow_tcp: Vec<u16>,
}

/// A node that runs until it is dropped; its instances go on.
pub struct NodeRole {
    pub runtime: PathBuf,
    /// This host's address for its instances.
    pub gateway: Ipv4Addr,
    uplink: Arc<dyn Uplink>,
    tasks: Vec<JoinHandle<()>>,
}

impl NodeRole {
    pub async fn start(options: NodeOptions, token: Option<EnrollToken>, clock: SharedClock) -> Result<Self> {
        sal::folder_private(&options.data)?;
        room_make(&options.data);
        let credentials = credentials(&options.data, &options.zone, token, &options.name).await?;
        let me = Wallet::from(credentials);
        let uplink = match &options.broker {
            Some(broker) => link::mqtt_uplink(&me, broker, &options.zone)?,
            None => link::https_uplink(&me, &options.zone)?,
        };
        let issuer = Arc::new(RemoteIssuer::new(&me, &options.zone)?);
        let host = sal::host_facts(&options.data)?;
        Marks { bridge: options.bridge.clone(), cgroup_parent: options.cgroup_parent.clone() }
            .keep(&options.data);
        let bridge = bridge(&options.bridge, &options.data, &options.allow_tcp).await?;
        let gateway = bridge.gateway();
        let network = BridgeNetwork::new(bridge);
        let layers = LayerStore::open(options.data.join("layers"), Arc::new(Fetch(uplink.clone())))?;
        let mut config = EngineConfig::new(options.data.join("engine"), options.name.clone());
        config.oci_runtime = options.oci_runtime.clone();
        config.cgroup_parent = options.cgroup_parent.clone();
        let engine = Engine::start(config, clock, Arc::new(layers.clone()), Arc::new(network)).await?;
        let runtime = engine.runtime().to_owned();
        let service = NodeService::open(&options.data, facts(&options, &host), engine)?;
        let (running, pulsing) = (service.clone(), service.clone());
        let shown = me.clone();
        uplink.pulse_from(Arc::new(move || pulsing.pulse(shown.credentials().validity().ok())));
        let measured = node::legs::measure(service.clone(), uplink.clone(), options.places.clone());
        let tasks = vec![
            tokio::spawn(measured),
            tokio::spawn(layers_sweep(layers, service.clone())),
            tokio::spawn(async move { running.run().await }),
            tokio::spawn(tier::sync::run(Arc::new(service), uplink.clone())),
            tokio::spawn(renewal(&me, &issuer, Vec::new(), options.data.join("identity")).run()),
        ];
        Ok(Self { runtime, gateway, uplink, tasks })
    }

    /// Ends in an orderly way: the zone is told, so that it waits for the next start. The instances go on.
    pub async fn stop(self) {
        // Nothing of ours may reach the zone after the goodbye.
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Err(error) = self.uplink.goodbye().await {
            tracing::info!(%error, "the zone does not know that this node stops");
        }
    }
}

/// Lets go of layers that no instance uses any more.
async fn layers_sweep(layers: LayerStore, service: NodeService) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match layers.retain(&service.digests()).await {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => tracing::info!(count = gone.len(), "unused layers removed"),
            Err(error) => tracing::warn!(%error, "unused layers could not be removed"),
        }
    }
}

/// What a node is called by in the kernel. It is kept beside its data, so that whoever clears up after it finds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Marks {
    pub bridge: String,
    pub cgroup_parent: String,
}

impl Marks {
    const FILE: &str = "marks.json";

    /// Those of the last start; the usual ones where nothing was kept.
    pub fn read(data: &Path) -> Self {
        let kept = std::fs::read(data.join(Self::FILE)).ok();
        let usual = || Self { bridge: BRIDGE_DEFAULT.to_owned(), cgroup_parent: CGROUP_DEFAULT.to_owned() };
        kept.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_else(usual)
    }

    /// A disk that is full must not keep a node from starting.
    fn keep(&self, data: &Path) {
        let (path, text) = (data.join(Self::FILE), serde_json::to_vec(self).expect("plain data"));
        if std::fs::read(&path).ok().as_ref() == Some(&text) {
            return;
        }
        if let Err(error) = std::fs::write(&path, text) {
            tracing::warn!(%error, "the names of the bridge and the cgroup are not kept for 'banyan down'");
        }
    }
}

/// The names of a node on this host, held alone. Without that a second node would take the first one's instances for
/// leftovers and remove them.
pub struct Claims([Claim; 2]);

/// Where claims are kept; it is empty after a boot, as are the names.
const CLAIMS: &str = "/run/banyan";

impl Claims {
    /// Takes the names for the node whose data is in `data`.
    pub fn take(marks: &Marks, data: &Path) -> Result<Self> {
        let Marks { bridge, cgroup_parent } = marks;
        let ports = || {
            let ports = std::fs::read_dir(Path::new("/sys/class/net").join(bridge).join("brif"));
            ports.is_ok_and(|mut ports| ports.next().is_some())
        };
        let groups = || Cgroups::find(cgroup_parent).is_ok_and(|groups| !groups.ids().is_empty());
        let take = |word: &str, name: &str, space: &str, used: &dyn Fn() -> bool| {
            let key = format!("{word}-{name}-{}", sal::namespace_id(space));
            let taken = Claim::take(Path::new(CLAIMS), &key, data, used).map_err(|error| {
                Error::unavailable(format!("the {word} {name} cannot be claimed in {CLAIMS}: {error}"))
                    .because(error)
            })?;
            taken.map_err(|holder| taken_error(word, name, &holder))
        };
        Ok(Self([take("bridge", bridge, "net", &ports)?, take("cgroup", cgroup_parent, "cgroup", &groups)?]))
    }

    /// Gives the names back: nothing of the node is left.
    pub fn end(self) {
        for claim in self.0 {
            if let Err(error) = claim.end() {
                tracing::debug!(%error, "a claim stays behind");
            }
        }
    }
}

/// Whether a bridge or a cgroup of this name is somebody's on this host.
pub fn claimed(name: &str) -> bool {
    let begins = ["bridge", "cgroup"].map(|word| format!("{word}-{name}-"));
    let found = std::fs::read_dir(CLAIMS).into_iter().flatten().flatten();
    found.into_iter().any(|entry| {
        let file = entry.file_name().to_string_lossy().into_owned();
        begins.iter().any(|begin| file.starts_with(begin.as_str()))
    })
}

fn taken_error(word: &str, name: &str, holder: &Holder) -> Error {
    let hint = "for another one use other names: --bridge NAME --cgroup-parent NAME (in a file: bridge, cgroup_parent)";
    match holder {
        Holder::Process { pid, folder } => Error::conflict(format!(
            "the {word} {name} belongs to another banyan on this host (process {pid}, {})",
            folder.display()
        ))
        .hint(hint),
        Holder::Left { folder } => Error::conflict(format!(
            "instances of {} still use the {word} {name}; 'banyan down --data {0}' ends them",
            folder.display()
        ))
        .hint(hint),
    }
}

/// Ends every instance of a node that does not run, and takes its network away. What was asked for stays
/// asked for: the next start makes it true again.
pub async fn clear(data: &Path, name: Name, marks: &Marks, clock: SharedClock) -> Result<usize> {
    let Marks { bridge: bridge_name, cgroup_parent } = marks;
    room_make(data);
    let bridge = bridge(bridge_name, data, &[]).await?;
    let layers = LayerStore::open(data.join("layers"), Arc::new(NoFetch))?;
    let mut config = EngineConfig::new(data.join("engine"), name);
    config.cgroup_parent.clone_from(cgroup_parent);
    let engine =
        Engine::start(config, clock, Arc::new(layers), Arc::new(BridgeNetwork::new(bridge.clone()))).await?;
    let count = engine.observed().len();
    let mut changed = engine.changed();
    engine.apply(Vec::new());
    while !engine.observed().is_empty() {
        let _ = changed.changed().await;
    }
    engine.shutdown().await;
    bridge.stop().await?;
    if let Ok(cgroups) = Cgroups::find(cgroup_parent) {
        cgroups.parent_remove();
    }
    Ok(count)
}

/// On a full disk nothing could start, and what runs could not be ended.
fn room_make(data: &Path) {
    if sal::reserve::way_make(data) {
        tracing::warn!(folder = %data.display(), "the disk is full: the room that was kept is used now");
    }
}

/// Nothing is fetched where everything goes.
struct NoFetch;

impl BlobFetch for NoFetch {
    fn fetch<'a>(&'a self, digest: &'a Digest, _into: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { Err(Error::unavailable(format!("layer {digest} is not fetched now"))) })
    }
}

impl Drop for NodeRole {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Subnets tried in turn for the bridge; the first that the host does not use is taken. Podman's own
/// default comes last: podman makes its bridge with its first container, and then the two would clash.
fn subnets() -> Vec<net::Ipv4Cidr> {
    let ten = (129..=160).map(|second| format!("10.{second}.0.0/16"));
    let others = ["172.29.0.0/16", "172.30.0.0/16", "192.168.224.0/20", "10.88.0.0/16"].map(str::to_owned);
    ten.chain(others).map(|text| text.parse().expect("these are subnets")).collect()
}

/// The node's network: made, or taken over as it is.
async fn bridge(name: &str, data: &Path, allow_tcp: &[u16]) -> Result<net::Bridge> {
    let subnets = subnets();
    let mut config = net::BridgeConfig::new(name, subnets[0], data.join("leases.json"));
    config.allow_tcp = allow_tcp.to_vec();
    net::Bridge::start_any(config, &subnets).await
}

fn facts(options: &NodeOptions, host: &HostFacts) -> Facts {
    let mut labels: BTreeMap<String, Vec<String>> =
        BTreeMap::from([("hostname".to_owned(), vec![host.hostname.clone()])]);
    labels.extend(options.labels.iter().map(|(key, value)| (key.clone(), vec![value.clone()])));
    let memory = Bytes(host.memory_total.0.saturating_sub(MEMORY_RESERVE.0));
    Facts {
        name: options.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nodes: 1,
        archs: vec![host.arch],
        runtimes: vec![RuntimeKind::Container],
        labels,
        capacity: Resources {
            cpu: Cpu(u64::from(host.cpu_cores) * 1000 * options.cpu_overcommit),
            memory,
            disk: host.disk_total,
        },
        largest: None,
        gpus: host.gpus.iter().map(|gpu| GpuDevice { model: gpu.model.clone(), free_milli: 1000 }).collect(),
        cordoned: false,
        free: None,
        area: options.area,
        legs: std::collections::BTreeMap::new(),
        members: 0,
        labels_cut: Default::default(),
    }
}

/// Layers come over the link, from the zone.
struct Fetch(Arc<dyn Uplink>);

impl BlobFetch for Fetch {
    fn fetch<'a>(&'a self, digest: &'a Digest, into: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut file = tokio::fs::File::create(into).await?;
            self.0.blob(digest, &mut file).await?;
            file.sync_all().await?;
            Ok(())
        })
    }
}
