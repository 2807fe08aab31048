//! The bed: the switch, the hosts on it, the faults between them, and the operator's way in.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::{Client, EnrolRole, EnrolmentCreate, Instance, InstanceCreate, ListQuery};
use model::{ErrorKind, InstanceSpec, Run};
use serde::Deserialize;

use crate::check::{Promise, Promises, findings};
use crate::fault::{Fault, Faults, switch_rules};
use crate::host::{
    BRIDGE, BROKER_PORT, Host, Kind, NodeSettings, Plan, REST_PORT, ROOT_PORT, SUBNET_PREFIX, SWITCH_ADDRESS,
    ZONE_PORT,
};
use crate::proxy::{Proxy, Side};
use crate::reality::{Reality, look_all, mounts, twins};
use crate::shell::{Shell, network_run};
use crate::sweep::{bed_name, sweep};

const DISK_MB: u64 = 128;
const HOSTS_MAX: usize = 200;
/// How long the parts of a new cloud may take to find each other.
const JOIN_WAIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
const PAGE: usize = 500;

/// Pairs of hosts by name; the first is the sender of what goes one way.
type Pair = (String, String);

/// A set of hosts on one switch. Everything goes when it is dropped; after a panic the logs stay.
pub struct Bed {
    // In this order: hosts end before what they stand on.
    hosts: Vec<Arc<Host>>,
    ways: Mutex<Ways>,
    doors: BTreeMap<String, Proxy>,
    switch: Mutex<Shell>,
    switch_pid: u32,
    name: String,
    folder: PathBuf,
    binary: PathBuf,
    token: Option<String>,
    /// The root that the operator speaks to, unless it is the first.
    operator: Mutex<Option<String>>,
    promises: Mutex<Promises>,
    runtime: tokio::runtime::Runtime,
    keep_logs: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Ways {
    faults: BTreeMap<Pair, Fault>,
    proxies: BTreeMap<Pair, Vec<(u16, Proxy)>>,
}

#[derive(Deserialize)]
struct Admin {
    token: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The binary under test: `BANYAN_BINARY`, else the one that was built beside this program.
fn binary_find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("BANYAN_BINARY") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let found =
        own.ancestors().skip(1).take(2).map(|folder| folder.join("banyan")).find(|path| path.is_file());
    found.context("the program banyan is not built; run: cargo build --workspace --bins")
}

impl Bed {
    /// A switch without hosts. Leftovers of dead beds are swept first.
    pub fn new() -> Result<Self> {
        sweep();
        // Another library may have chosen already; then theirs is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let name = bed_name();
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(folder.join("logs"))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private"]);
        let mut switch = Shell::start(command, false)?;
        switch.run(&format!(
            "set -e; ip link set lo up; ip link add switch type bridge; \
             ip address add {SWITCH_ADDRESS}/{SUBNET_PREFIX} dev switch; ip link set switch up; set +e"
        ))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self {
            hosts: Vec::new(),
            ways: Mutex::default(),
            doors: BTreeMap::new(),
            switch_pid: switch.pid(),
            switch: Mutex::new(switch),
            name,
            folder,
            binary: binary_find()?,
            token: None,
            operator: Mutex::default(),
            promises: Mutex::default(),
            runtime,
            keep_logs: false.into(),
        })
    }

    fn host_add(&mut self, name: &str, kind: Kind) -> Result<Arc<Host>> {
        ensure!(self.hosts.len() < HOSTS_MAX, "a bed has {HOSTS_MAX} hosts at most");
        ensure!(!self.hosts.iter().any(|host| host.name() == name), "there is a host {name} already");
        let plan = Plan {
            name: name.to_owned(),
            kind,
            number: u8::try_from(self.hosts.len() + 1)?,
            folder: self.folder.clone(),
            binary: self.binary.clone(),
            switch: self.switch_pid,
            cgroup: format!("{}-{name}", self.name),
            disk_mb: DISK_MB,
        };
        lock(&self.switch).run(&Host::disk_line(&plan))?;
        let host = Arc::new(Host::new(plan)?);
        self.hosts.push(host.clone());
        Ok(host)
    }

    /// A host that runs nothing of ours.
    pub fn bare(&mut self, name: &str) -> Result<Arc<Host>> {
        self.host_add(name, Kind::Bare)
    }

    /// A host with a root on it. `database` is a URL; without one it keeps its own SQLite. Further roots on the same
    /// database get the key of the first.
    pub fn root(&mut self, name: &str, database: Option<&str>) -> Result<Arc<Host>> {
        let first = self.hosts.iter().find(|host| host.kind() == Kind::Root).cloned();
        let host = self.host_add(name, Kind::Root)?;
        if let (Some(first), Some(_)) = (first, database) {
            std::fs::create_dir_all(host.data_seen())?;
            std::fs::set_permissions(host.data_seen(), std::fs::Permissions::from_mode(0o700))?;
            std::fs::copy(first.data_seen().join("master.key"), host.data_seen().join("master.key"))?;
        }
        let database = database.map(|url| format!("database = \"{url}\"\n")).unwrap_or_default();
        host.role_begin(&format!(
            "data = \"{data}\"\nlisten = \"0.0.0.0:{REST_PORT}\"\nlink_listen = \"0.0.0.0:{ROOT_PORT}\"\n\
             names = [\"{address}\"]\n{database}",
            data = host.data().display(),
            address = host.address(),
        ))?;
        let target = SocketAddr::from((host.address(), REST_PORT));
        let door = Proxy::start(Side::Here, self.switch_pid, target, Duration::ZERO)?;
        self.doors.insert(name.to_owned(), door);
        if self.token.is_none() {
            let admin: Admin = serde_json::from_slice(&std::fs::read(host.data_seen().join("admin.json"))?)?;
            self.token = Some(admin.token);
        }
        Ok(host)
    }

    /// A host with a zone on it, joined to the first root by a token; waits until root sees it.
    pub fn zone(&mut self, name: &str) -> Result<Arc<Host>> {
        let host = self.host_add(name, Kind::Zone)?;
        let token = self.enrol(EnrolRole::Zone, None)?;
        host.role_begin(&self.zone_config(name, &host, &token)?)?;
        self.until(&format!("zone {name} is seen"), JOIN_WAIT, || {
            let zone = self.ask(|client| async move { client.zone_get(name).await }).ok()?;
            zone.live.then_some(())
        })?;
        Ok(host)
    }

    /// The configuration with which a host becomes the zone `name`.
    pub fn zone_config(&self, name: &str, host: &Host, token: &str) -> Result<String> {
        let roots = self.hosts.iter().filter(|host| host.kind() == Kind::Root);
        let roots: Vec<String> =
            roots.map(|root| format!("\"https://{}:{ROOT_PORT}\"", root.address())).collect();
        ensure!(!roots.is_empty(), "there is no root yet");
        Ok(format!(
            "name = \"{name}\"\ndata = \"{data}\"\nroot = [{roots}]\ntoken = \"{token}\"\n\
             https_listen = \"0.0.0.0:{ZONE_PORT}\"\nmqtt_listen = \"0.0.0.0:{BROKER_PORT}\"\n\
             names = [\"{address}\"]\n",
            data = host.data().display(),
            roots = roots.join(", "),
            address = host.address(),
        ))
    }

    /// A host with a node of a zone on it, joined by a token; waits until its zone and root see it.
    pub fn node(&mut self, zone: &str, name: &str, settings: &NodeSettings) -> Result<Arc<Host>> {
        let token = self.enrol(EnrolRole::Node, Some(zone))?;
        self.node_with(zone, name, &token, settings)
    }

    /// As [`Bed::node`], with a token that was asked for before.
    pub fn node_with(
        &mut self,
        zone: &str,
        name: &str,
        token: &str,
        settings: &NodeSettings,
    ) -> Result<Arc<Host>> {
        let host = self.host_add(name, Kind::Node)?;
        host.role_begin(&self.node_config(zone, name, &host, token, settings)?)?;
        self.until(&format!("node {name} is seen"), JOIN_WAIT, || {
            let node = self.ask(|client| async move { client.node_get(name).await }).ok()?;
            node.alive.then_some(())
        })?;
        Ok(host)
    }

    /// The configuration with which a host becomes the node `name` of a zone.
    pub fn node_config(
        &self,
        zone: &str,
        name: &str,
        host: &Host,
        token: &str,
        settings: &NodeSettings,
    ) -> Result<String> {
        let zone = self.host(zone)?.address();
        let labels: Vec<String> =
            settings.labels.iter().map(|(key, value)| format!("\"{key}\" = \"{value}\"")).collect();
        let way = match settings.https {
            true => "transport = \"https\"".to_owned(),
            false => format!("broker = \"{zone}:{BROKER_PORT}\""),
        };
        Ok(format!(
            "name = \"{name}\"\ndata = \"{data}\"\nzone = \"https://{zone}:{ZONE_PORT}\"\n\
             {way}\ntoken = \"{token}\"\nbridge = \"{BRIDGE}\"\n\
             cgroup_parent = \"{cgroup}\"\ncpu_overcommit = {overcommit}\nlabels = {{ {labels} }}\n{more}",
            data = host.data().display(),
            cgroup = host.cgroup(),
            overcommit = settings.cpu_overcommit,
            labels = labels.join(", "),
            more = settings.more,
        ))
    }

    /// A one-time token; tried until root and the zone are ready to give it.
    pub fn enrol(&self, role: EnrolRole, zone: Option<&str>) -> Result<String> {
        let made = self.until("a token is given", JOIN_WAIT, || {
            let ask = EnrolmentCreate { role, zone: zone.map(str::to_owned), hosts: Vec::new() };
            self.ask(|client| async move { client.enrolment_create(&ask).await }).ok()
        })?;
        Ok(made.token)
    }

    /// A host by name.
    pub fn host(&self, name: &str) -> Result<&Arc<Host>> {
        self.hosts.iter().find(|host| host.name() == name).with_context(|| format!("there is no host {name}"))
    }

    pub fn hosts(&self) -> &[Arc<Host>] {
        &self.hosts
    }

    /// The binary under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The operator at one root.
    pub fn client_of(&self, root: &str) -> Result<Client> {
        let door = self.doors.get(root).with_context(|| format!("there is no root {root}"))?;
        Ok(Client::new(&format!("http://{}", door.address()), self.token.clone())?)
    }

    /// The operator at the first root, or at the one that was chosen.
    pub fn client(&self) -> Result<Client> {
        let chosen = lock(&self.operator).clone();
        let first =
            || self.hosts.iter().find(|host| host.kind() == Kind::Root).map(|host| host.name().to_owned());
        self.client_of(&chosen.or_else(first).context("there is no root")?)
    }

    /// From now on the operator speaks to this root.
    pub fn operate_at(&self, root: &str) -> Result<()> {
        self.client_of(root)?;
        *lock(&self.operator) = Some(root.to_owned());
        Ok(())
    }

    /// Runs a future to its end.
    pub fn wait_for<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    /// Asks the first root as operator.
    pub fn ask<T, F: Future<Output = model::Result<T>>>(
        &self,
        question: impl FnOnce(Client) -> F,
    ) -> model::Result<T> {
        let client = self.client().map_err(|error| model::Error::internal(format!("{error:#}")))?;
        self.wait_for(question(client))
    }

    /// Tries until there is an answer. Two under one generation are an error at any time.
    pub fn until<T>(&self, what: &str, wait: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            let twins = self.twins();
            ensure!(twins.is_empty(), "while waiting until {what}: {}", twins.join("; "));
            if Instant::now() > deadline {
                bail!("it did not come to this in {} s: {what}", wait.as_secs());
            }
            std::thread::sleep(PAUSE);
        }
    }

    // What users do, with a note of what was promised to them.

    fn promise(&self, name: &str, exists: Option<bool>, run: Option<Run>) {
        lock(&self.promises).insert(name.to_owned(), Promise { exists, run });
    }

    pub fn promises(&self) -> Promises {
        lock(&self.promises).clone()
    }

    /// Asks for an instance. An answer that was lost leaves open whether there is one.
    pub fn create(&self, name: &str, spec: InstanceSpec) -> model::Result<Instance> {
        let body = InstanceCreate { name: name.parse()?, spec };
        let made = self.ask(|client| async move { client.instance_create(&body).await });
        match &made {
            Ok(_) => self.promise(name, Some(true), Some(Run::Running)),
            Err(error) if is_open(error) => self.promise(name, None, None),
            Err(_) => {}
        }
        made
    }

    pub fn delete(&self, name: &str) -> model::Result<()> {
        let done = self.ask(|client| async move { client.instance_delete(name, None).await });
        match &done {
            Ok(_) => self.promise(name, Some(false), None),
            Err(error) if is_open(error) => self.promise(name, None, None),
            Err(_) => {}
        }
        done.map(drop)
    }

    pub fn run_set(&self, name: &str, run: Run) -> model::Result<()> {
        let done = self.ask(|client| async move {
            match run {
                Run::Running => client.instance_start(name, None).await,
                _ => client.instance_stop(name, None).await,
            }
        });
        match &done {
            Ok(_) => self.promise(name, Some(true), Some(run)),
            Err(error) if is_open(error) => {
                let exists = lock(&self.promises).get(name).and_then(|promise| promise.exists);
                self.promise(name, exists, None);
            }
            Err(_) => {}
        }
        done.map(drop)
    }

    pub fn instance(&self, name: &str) -> model::Result<Instance> {
        self.ask(|client| async move { client.instance_get(name).await })
    }

    /// All instances of the operator's tenant.
    pub fn instances(&self) -> model::Result<Vec<Instance>> {
        self.ask(|client| async move {
            let (mut all, mut query) = (Vec::new(), ListQuery::new().limit(PAGE));
            loop {
                let page = client.instance_list(&query).await?;
                all.extend(page.items);
                match page.next {
                    Some(next) => query = ListQuery::new().limit(PAGE).after(&next),
                    None => return Ok(all),
                }
            }
        })
    }

    // What is.

    pub fn reality(&self) -> Reality {
        look_all(self.hosts.iter().map(Arc::as_ref))
    }

    /// Hosts on which a container of the instance runs.
    pub fn runs_on(&self, id: &str) -> Vec<String> {
        let reality = self.reality();
        let holds = |held: &BTreeMap<String, crate::Held>| held.get(id).is_some_and(crate::Held::runs);
        reality.iter().filter(|(_, held)| holds(held)).map(|(host, _)| host.clone()).collect()
    }

    pub fn twins(&self) -> Vec<String> {
        let first = twins(&self.reality());
        // A host is looked at after the other; only what is still so a moment later is so.
        if first.is_empty() { first } else { twins(&self.reality()) }
    }

    /// Everything that is not as it must be once all is calm.
    pub fn check(&self) -> Result<Vec<String>> {
        let instances = self.instances()?;
        let mut found = findings(&self.promises(), &instances, &self.reality());
        for host in &self.hosts {
            found
                .extend(mounts(host).into_iter().map(|point| format!("{} has {point} mounted", host.name())));
        }
        Ok(found)
    }

    /// Waits until there is nothing to find.
    pub fn settle(&self, wait: Duration) -> Result<()> {
        let mut last = vec!["nothing was looked at".to_owned()];
        let calm = self.until("all is as it must be", wait, || {
            last = self.check().unwrap_or_else(|error| vec![format!("{error:#}")]);
            last.is_empty().then_some(())
        });
        calm.map_err(|error| error.context(last.join("\n")))
    }

    // What goes wrong between hosts.

    /// Nothing passes between two hosts.
    pub fn cut(&self, a: &str, b: &str) -> Result<()> {
        self.fault(a, b, Some(Fault::Cut))
    }

    /// What `from` sends to `to` is lost; the other way is open.
    pub fn cut_one_way(&self, from: &str, to: &str) -> Result<()> {
        self.fault(from, to, Some(Fault::OneWay))
    }

    /// Connections are made, and what `from` sends on them is lost.
    pub fn half_open(&self, from: &str, to: &str) -> Result<()> {
        self.fault(from, to, Some(Fault::HalfOpen))
    }

    pub fn loss(&self, a: &str, b: &str, percent: u8) -> Result<()> {
        self.fault(a, b, Some(Fault::Loss(percent)))
    }

    /// Every byte between a child and its parent takes so long, each way.
    pub fn delay(&self, a: &str, b: &str, ms: u64) -> Result<()> {
        self.fault(a, b, Some(Fault::Delay(ms)))
    }

    /// Cuts and mends the way some times over.
    pub fn flap(&self, a: &str, b: &str, times: u32, each: Duration) -> Result<()> {
        for _ in 0..times {
            self.cut(a, b)?;
            std::thread::sleep(each);
            self.fault(a, b, None)?;
            std::thread::sleep(each);
        }
        Ok(())
    }

    /// Mends the way between two hosts.
    pub fn mend(&self, a: &str, b: &str) -> Result<()> {
        self.fault(a, b, None)
    }

    /// Mends every way.
    pub fn heal(&self) -> Result<()> {
        let mut ways = lock(&self.ways);
        ways.faults.clear();
        self.ways_apply(&mut ways)
    }

    /// Sets what is wrong between two hosts, in place of what was.
    pub fn fault(&self, a: &str, b: &str, fault: Option<Fault>) -> Result<()> {
        let mut ways = lock(&self.ways);
        let same = |(x, y): &Pair| (x == a && y == b) || (x == b && y == a);
        ways.faults.retain(|pair, _| !same(pair));
        if let Some(fault) = fault {
            ways.faults.insert((a.to_owned(), b.to_owned()), fault);
        }
        self.ways_apply(&mut ways)
    }

    fn ways_apply(&self, ways: &mut Ways) -> Result<()> {
        let mut faults = Faults::new();
        for ((a, b), fault) in &ways.faults {
            faults.insert((self.host(a)?.address(), self.host(b)?.address()), *fault);
        }
        network_run(self.switch_pid, &["nft", "-f", "-"], &switch_rules(&faults))?;
        self.delays_apply(ways)
    }

    fn delays_apply(&self, ways: &mut Ways) -> Result<()> {
        let Ways { faults, proxies } = ways;
        proxies.retain(|pair, _| matches!(faults.get(pair), Some(Fault::Delay(_))));
        let mut detours: BTreeMap<&str, Vec<(Ipv4Addr, u16, u16)>> =
            self.hosts.iter().map(|host| (host.name(), Vec::new())).collect();
        for (pair, fault) in faults.iter() {
            let Fault::Delay(ms) = fault else { continue };
            let (a, b) = (self.host(&pair.0)?, self.host(&pair.1)?);
            let (parent, child) = if a.kind() < b.kind() { (a, b) } else { (b, a) };
            if !proxies.contains_key(pair) {
                let mut made = Vec::new();
                for port in parent.kind().ports() {
                    let target = SocketAddr::from((parent.address(), *port));
                    let side = Side::There(SWITCH_ADDRESS);
                    made.push((
                        *port,
                        Proxy::start(side, self.switch_pid, target, Duration::from_millis(*ms))?,
                    ));
                }
                proxies.insert(pair.clone(), made);
            }
            let ports = proxies.get(pair).into_iter().flatten();
            let turns = ports.map(|(port, proxy)| (parent.address(), *port, proxy.address().port()));
            detours.entry(child.name()).or_default().extend(turns);
        }
        for host in &self.hosts {
            host.detours_set(detours.remove(host.name()).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Keeps the logs although nothing panicked.
    pub fn logs_keep(&self) {
        self.keep_logs.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// An error that leaves open whether the thing was done.
fn is_open(error: &model::Error) -> bool {
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal)
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() || self.keep_logs.load(std::sync::atomic::Ordering::Relaxed) {
            let kept = std::env::temp_dir().join(format!("kept-{}", self.name));
            let _ = std::fs::rename(self.folder.join("logs"), &kept);
            eprintln!("the logs of the hosts are in {}", kept.display());
        }
        self.hosts.clear();
        let _ = lock(&self.switch).kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
