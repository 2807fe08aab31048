//! `banyan up`: root, zone, node and provisioner on this machine, in one process, over the real links.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use link::Parents;
use model::Name;
use model::constraint::Labels;
use model::exchange::Doorway;
use work::{SharedClock, SystemClock};

use crate::context::{Config as Contexts, Context as CloudContext, config_path};
use crate::doors::{Doors, ports_keep};
use crate::role::node::{Claims, Marks, NodeOptions, NodeRole};
use crate::role::provisioner::{ProvisionerOptions, ProvisionerRole, WORKERS_DEFAULT};
use crate::role::root::{RootOptions, RootRole};
use crate::role::zone::{ZoneOptions, ZoneRole};
use crate::stop::Stop;

/// Where a cloud lives unless told otherwise.
pub const DATA_DEFAULT: &str = "/var/lib/banyan";
const ZONE: &str = "local";
/// Root ends right after it, so what takes longer begins anew with the next start.
const PROVISIONER_DRAIN: Duration = Duration::from_secs(3);
/// Under `localhost`, which browsers take to this machine.
const WEBSITES: &str = "web.localhost";
const S3_NAME_MAX: usize = 63;
const S3_DAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Held by the process that has a data folder.
pub const LOCK_FILE: &str = "banyan.lock";
/// The first operator's credentials, in the data folder.
const ADMIN_FILE: &str = "admin.json";

#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Folder that holds everything of this cloud [default: /var/lib/banyan].
    #[arg(long, env = "BANYAN_DATA")]
    pub data: Option<PathBuf>,
    /// Where REST listens.
    #[arg(long, env = "BANYAN_LISTEN", default_value = "127.0.0.1:7700")]
    pub listen: SocketAddr,
    /// Where S3 listens [default: one port above REST].
    #[arg(long, env = "BANYAN_S3_LISTEN")]
    pub s3_listen: Option<SocketAddr>,
    /// Base domain for buckets in host names (BUCKET.DOMAIN); may be repeated.
    #[arg(long = "s3-domain", env = "BANYAN_S3_DOMAIN", value_delimiter = ',')]
    pub s3_domains: Vec<String>,
    /// Name of the region of S3 [default: us-east-1].
    #[arg(long, env = "BANYAN_S3_REGION", value_name = "NAME", value_parser = s3_name)]
    pub s3_region: Option<String>,
    /// Further name that is taken as a location of buckets; may be repeated.
    #[arg(long = "s3-location", env = "BANYAN_S3_LOCATION", value_name = "NAME", value_delimiter = ',', value_parser = s3_location)]
    pub s3_locations: Vec<String>,
    /// How long a day of a lifecycle rule lasts, such as 10s; for trying rules out [default: a real day].
    #[arg(long, env = "BANYAN_S3_DAY", value_name = "TIME", value_parser = s3_day)]
    pub s3_day: Option<Duration>,
    /// File that names an S3 store which keeps the bytes of large objects instead of this disk.
    #[arg(long, env = "BANYAN_S3_GATEWAY", value_name = "FILE")]
    pub s3_gateway: Option<PathBuf>,
    /// Where records are kept: sqlite:PATH or postgres://USER@HOST/NAME [default: a file in the data folder].
    #[arg(long, env = "BANYAN_DATABASE")]
    pub database: Option<String>,
    /// The OCI runtime to use instead of the first of crun and runc that works.
    #[arg(long, env = "BANYAN_OCI_RUNTIME")]
    pub oci_runtime: Option<PathBuf>,
    /// Name of the bridge that instances are attached to.
    #[arg(long, env = "BANYAN_BRIDGE", default_value = "banyan0")]
    pub bridge: String,
    /// Name of the cgroup that instances live under.
    #[arg(long, env = "BANYAN_CGROUP_PARENT", default_value = "banyan")]
    pub cgroup_parent: String,
    /// Name of this node [default: the host's name].
    #[arg(long, env = "BANYAN_NODE_NAME")]
    pub node_name: Option<Name>,
    /// Labels of this node, as key=value; may be repeated.
    #[arg(long = "label", env = "BANYAN_LABEL", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// How many times over the cores are given away.
    #[arg(long, env = "BANYAN_CPU_OVERCOMMIT", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub cpu_overcommit: u64,
    /// Name or address under which other machines reach this one, so that zones and nodes there may join; may be
    /// repeated. Without it only this machine's own may.
    #[arg(long = "host", value_name = "NAME", env = "BANYAN_HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Do not make this cloud the command line's current context.
    #[arg(long, env = "BANYAN_NO_CONTEXT")]
    pub no_context: bool,
}

/// A region, written as clients sign for it.
fn s3_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > S3_NAME_MAX || !text.chars().all(plain) {
        return Err(format!("a name here has 1 to {S3_NAME_MAX} small letters, digits and hyphens"));
    }
    Ok(text.to_owned())
}

/// Old clients name locations in capitals.
fn s3_location(text: &str) -> Result<String, String> {
    s3_name(&text.to_ascii_lowercase()).map(|_| text.to_owned())
}

fn s3_day(text: &str) -> Result<Duration, String> {
    let day = crate::cli::parse::duration(text)?;
    if !(Duration::from_secs(1)..=S3_DAY_MAX).contains(&day) {
        return Err("a day lasts from 1s to 24h".to_owned());
    }
    Ok(day)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not key=value"))?;
    let labels = Labels::from([(key.to_owned(), value.to_owned())]);
    model::constraint::labels_validate(&labels).map_err(|error| error.message)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs until it is told to stop; instances go on without it.
pub async fn run(args: UpArgs) -> anyhow::Result<()> {
    sal::files_raise();
    host_check(args.oci_runtime.is_some())?;
    let data = args.data.clone().unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    let (_alone, _claims, data) = hold(&args, &data)?;
    let mut stop = Stop::new()?;
    let clock: SharedClock = Arc::new(SystemClock);
    let started = std::time::Instant::now();
    let cloud = tokio::select! {
        cloud = Local::start(&args, &data, clock) => cloud?,
        () = stop.wait() => bail!("stopped while starting"),
    };
    let admin = admin_keep(&data, &cloud)?;
    if !args.no_context {
        context_keep(&admin)?;
    }
    greet(&data, &cloud, started.elapsed());
    stop.wait().await;
    say("Stopping. Instances go on; 'banyan up' on the same data takes them over again.");
    cloud.stop().await;
    Ok(())
}

/// Takes what this cloud must have alone: its ports, its folder, its names. A start that is refused leaves no folder.
fn hold(args: &UpArgs, data: &Path) -> anyhow::Result<(File, Claims, PathBuf)> {
    let fresh = !data.exists();
    if fresh {
        for listen in [Some(args.listen), args.s3_listen].into_iter().flatten() {
            link::listen_check(listen)?;
        }
    }
    std::fs::create_dir_all(data)
        .with_context(|| format!("cannot make the data folder {}", data.display()))?;
    let data = data.canonicalize()?;
    let alone = alone(&data, "choose another folder with --data")?;
    let marks = Marks { bridge: args.bridge.clone(), cgroup_parent: args.cgroup_parent.clone() };
    match Claims::take(&marks, &data.join("node")) {
        Ok(claims) => Ok((alone, claims, data)),
        Err(error) => {
            if fresh {
                let _ = std::fs::remove_file(data.join(LOCK_FILE)).and_then(|()| std::fs::remove_dir(&data));
            }
            Err(error.into())
        }
    }
}

/// Everything of the laptop cloud.
struct Local {
    root: RootRole,
    zone: ZoneRole,
    node: NodeRole,
    provisioner: ProvisionerRole,
    /// Where instances reach S3.
    s3_inside: Option<String>,
}

impl Local {
    async fn start(args: &UpArgs, data: &Path, clock: SharedClock) -> anyhow::Result<Self> {
        let mut config = root::Config::new(data.join("root"));
        config.listen = args.listen;
        config.database = args.database.clone();
        let loopback = ["127.0.0.1", "localhost"].map(str::to_owned);
        let names: Vec<String> = args.hosts.iter().cloned().chain(loopback).collect();
        let doors = Doors::find(data, !args.hosts.is_empty());
        let admin = data.join(ADMIN_FILE);
        let link_names = names.clone();
        let options = RootOptions {
            config,
            link_listen: doors.at(doors.ports.root),
            link_names,
            certificate_valid: link::limits::CERT_VALID,
            admin,
            admin_renew: true,
            object: Some(object_config(args, data)?),
        };
        let root = RootRole::start(options, clock.clone()).await?;
        let zone_name: Name = ZONE.parse()?;
        let zone_data = data.join("zone");
        let joined = crate::role::zone::joined(&zone_data)?;
        let token = if joined { None } else { Some(root.zone_token(&zone_name, &args.hosts).await?) };
        root.zone_hosts_grant(&zone_name, &args.hosts).await?;
        let zone = ZoneOptions {
            name: zone_name,
            data: zone_data,
            root: Parents::from(&root.link_url()),
            https_listen: doors.at(doors.ports.zone),
            mqtt_listen: doors.at(doors.ports.broker),
            broker: None,
            link_names: names,
            area: None,
        };
        let zone = ZoneRole::start(zone, token, clock.clone()).await?;
        let (root_port, broker_port) = (port_of(&root.link_url()), port_of(&zone.mqtt_address()));
        ports_keep(data, doors.kept(root_port, zone.https_port(), broker_port))?;
        let node = node_start(args, data, &zone, root.s3_port(), clock).await?;
        let s3_inside = root.s3_listen_also(node.gateway.into()).await.unwrap_or_else(|error| {
            say(&format!("Instances cannot reach S3: {error}"));
            None
        });
        let provisioner = provisioner_start(data, &root).await?;
        Ok(Self { root, zone, node, provisioner, s3_inside })
    }

    async fn stop(self) {
        let Self { root, zone, node, provisioner, .. } = self;
        provisioner.stop().await;
        drop(node);
        drop(zone);
        root.stop().await;
    }
}

fn object_config(args: &UpArgs, data: &Path) -> anyhow::Result<object::Config> {
    let listen = args.s3_listen.unwrap_or_else(|| s3_listen(args.listen));
    let mut config = object::Config::new(data.join("object"), listen);
    config.domains = args.s3_domains.clone();
    config.website_domains = vec![WEBSITES.to_owned()];
    config.region = args.s3_region.clone().unwrap_or(config.region);
    config.locations = args.s3_locations.clone();
    if let Some(day) = args.s3_day {
        config.day_set(day);
    }
    config.gateway = args.s3_gateway.as_deref().map(crate::role::gateway::gateway).transpose()?;
    Ok(config)
}

/// One port above REST; a free one where that is taken or REST itself has none of its own.
fn s3_listen(rest: SocketAddr) -> SocketAddr {
    let next = rest.port().checked_add(1).filter(|_| rest.port() != 0);
    let wish = SocketAddr::new(rest.ip(), next.unwrap_or(0));
    match std::net::TcpListener::bind(wish) {
        Ok(_) => wish,
        Err(error) => {
            say(&format!(
                "S3 cannot listen on {wish} ({error}); it takes a free port. Choose one with --s3-listen."
            ));
            SocketAddr::new(rest.ip(), 0)
        }
    }
}

/// The port at the end of an address.
fn port_of(address: &str) -> u16 {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
}

async fn node_start(
    args: &UpArgs,
    data: &Path,
    zone: &ZoneRole,
    s3_port: Option<u16>,
    clock: SharedClock,
) -> anyhow::Result<NodeRole> {
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => node_name(&sal::host_facts(data)?.hostname),
    };
    let node_data = data.join("node");
    let identity = node_data.join("identity");
    if link::Credentials::load(&identity)?.is_some_and(|kept| zone.node_removed(&kept)) {
        say("The node of this cloud was removed; it joins anew.");
        std::fs::remove_dir_all(&identity)?;
    }
    let joined = crate::role::zone::joined(&node_data)?;
    let token = if joined { None } else { Some(zone.node_token(&name).await?) };
    let options = NodeOptions {
        name,
        data: node_data,
        zone: Parents::from(&zone.https_url()),
        broker: Some(zone.mqtt_address()),
        bridge: args.bridge.clone(),
        cgroup_parent: args.cgroup_parent.clone(),
        oci_runtime: args.oci_runtime.clone(),
        labels: args.labels.iter().cloned().collect(),
        places: node::legs::Places::new(),
        area: None,
        cpu_overcommit: args.cpu_overcommit,
        allow_tcp: s3_port.into_iter().collect(),
    };
    Ok(NodeRole::start(options, token, clock).await?)
}

async fn provisioner_start(data: &Path, root: &RootRole) -> anyhow::Result<ProvisionerRole> {
    let name: Name = ZONE.parse()?;
    let data = data.join("provisioner");
    let joined = crate::role::zone::joined(&data)?;
    let token = if joined { None } else { Some(root.provisioner_token(&name).await?) };
    let options = ProvisionerOptions {
        name,
        data,
        root: Parents::from(&root.link_url()),
        workers: WORKERS_DEFAULT,
        drain: PROVISIONER_DRAIN,
        providers: BTreeMap::new(),
        automators: BTreeMap::new(),
    };
    Ok(ProvisionerRole::start(options, token).await?)
}

/// The host's name as a name of ours.
fn node_name(hostname: &str) -> Name {
    let text: String = hostname
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(63)
        .collect();
    text.trim_matches('-').parse().unwrap_or_else(|_| "node".parse().expect("a name"))
}

/// Says in one go what is missing on this machine.
pub fn host_check(runtime_given: bool) -> anyhow::Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("banyan up runs containers with the Linux kernel; this is another system");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("banyan up needs root to run containers and networks; run it with sudo");
    }
    let mut wanted = vec![("nft", "nftables")];
    let runtime = runtime_given || sal::program_find("runc").is_some();
    if !runtime {
        wanted.push(("crun", "crun"));
    }
    if let Some(sentence) = sal::missing_sentence(&sal::missing_programs(&wanted)) {
        bail!("{sentence}");
    }
    Ok(())
}

/// Holds the data folder alone. `other` says how another one is chosen.
pub fn alone(data: &Path, other: &str) -> anyhow::Result<File> {
    let path = data.join(LOCK_FILE);
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
    let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    if lock.is_err() {
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        bail!("another banyan (process {}) runs on {}; stop it, or {other}", holder.trim(), data.display());
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Keeps the first operator's credentials; later starts only bring the addresses up to date.
fn admin_keep(data: &Path, cloud: &Local) -> anyhow::Result<root::AdminCredentials> {
    let path = data.join(ADMIN_FILE);
    let endpoint = cloud.root.endpoint();
    let mut admin = match &cloud.root.admin {
        Some(fresh) => fresh.clone(),
        None => {
            let text = std::fs::read(&path).with_context(|| {
                format!("{} is gone, and the password is known nowhere else", path.display())
            })?;
            serde_json::from_slice(&text)?
        }
    };
    admin.endpoint = endpoint.clone();
    admin.ec2_endpoint = endpoint;
    admin.s3_endpoint = cloud.root.s3_endpoint().unwrap_or_default();
    admin_write(&path, &admin)?;
    Ok(admin)
}

/// Writes credentials where only their owner can read them.
pub fn admin_write(path: &Path, admin: &root::AdminCredentials) -> model::Result<()> {
    let text = serde_json::to_vec_pretty(admin).expect("credentials are plain data");
    Ok(private_write(path, &text)?)
}

/// Makes this cloud the command line's current context.
fn context_keep(admin: &root::AdminCredentials) -> anyhow::Result<()> {
    let path = config_path()?;
    let mut contexts = Contexts::load(&path)?;
    let context = CloudContext {
        endpoint: admin.endpoint.clone(),
        token: Some(admin.token.clone()),
        user: Some(admin.user.clone()),
        tenant: Some(admin.tenant.clone()),
        s3_endpoint: Some(admin.s3_endpoint.clone()).filter(|address| !address.is_empty()),
        ec2_endpoint: None,
    };
    if let Some(old) = contexts.contexts.get(ZONE)
        && old.endpoint != context.endpoint
        && old.token != context.token
    {
        say(&format!(
            "The context '{ZONE}' of the command line was the cloud at {}; it is this one now (--no-context leaves it).",
            old.endpoint
        ));
    }
    contexts.put(ZONE, context);
    Ok(contexts.save(&path)?)
}

/// Forgets the contexts of the command line that hold this cloud's token; says which.
pub fn context_forget(data: &Path) -> anyhow::Result<Vec<String>> {
    let Ok(text) = std::fs::read(data.join(ADMIN_FILE)) else { return Ok(Vec::new()) };
    let admin: root::AdminCredentials = serde_json::from_slice(&text)?;
    let path = config_path()?;
    let mut contexts = Contexts::load(&path)?;
    let of_this =
        contexts.contexts.iter().filter(|(_, context)| context.token.as_ref() == Some(&admin.token));
    let gone: Vec<String> = of_this.map(|(name, _)| name.clone()).collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    contexts.contexts.retain(|name, _| !gone.contains(name));
    if contexts.current.as_ref().is_some_and(|current| gone.contains(current)) {
        contexts.current = None;
    }
    contexts.save(&path)?;
    Ok(gone)
}

/// A whole file with mode 0600: the old one or the new one, never half.
fn private_write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let draft = path.with_extension("draft");
    let _ = std::fs::remove_file(&draft);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    Ok(())
}

fn greet(data: &Path, cloud: &Local, took: std::time::Duration) {
    let endpoint = cloud.root.endpoint();
    say(&format!("Banyan is up ({:.1} s).", took.as_secs_f64()));
    say("");
    say(&format!("  REST         {endpoint}/v1   (OpenAPI at {endpoint}/v1/openapi.json)"));
    if let Some(s3) = cloud.root.s3_endpoint() {
        say(&format!("  S3           {s3}"));
    }
    if let Some(s3) = &cloud.s3_inside {
        say(&format!("               {s3}   (for instances)"));
    }
    say(&format!("  Metrics      {endpoint}/metrics"));
    say(&format!("  Credentials  {}", data.join(ADMIN_FILE).display()));
    say(&format!("  OCI runtime  {}", cloud.node.runtime.display()));
    let Doorway { urls, broker } = cloud.zone.doorway();
    say(&format!("  Zones join   {}", cloud.root.link_url_named()));
    say(&format!("  Nodes join   {}, broker {}", urls.join(", "), broker.as_deref().unwrap_or("none")));
    say("");
    let banyan = program();
    say("Next, in another terminal:");
    say(&format!(
        "  {banyan} instance create hello --image busybox -- sh -c 'while true; do date; sleep 1; done'"
    ));
    say(&format!("  {banyan} instance logs -f hello"));
    say("");
    say(&format!("Stop with Ctrl-C; instances go on until '{banyan} down' ends them."));
}

/// How this program is called: by its name where the shell finds it, else by its path.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "banyan".to_owned() };
    let found = sal::program_find("banyan").and_then(|found| found.canonicalize().ok());
    if found.as_deref() == Some(path.as_path()) { "banyan".to_owned() } else { path.display().to_string() }
}

pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        up: UpArgs,
    }

    fn parse(words: &[&str]) -> Result<UpArgs, clap::Error> {
        let words = [&["up", "--s3-listen", "127.0.0.1:0"][..], words].concat();
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.up)
    }

    #[test]
    fn the_store_takes_its_day_its_region_and_its_locations() {
        let given = ["--s3-day", "10s", "--s3-region", "mars-1", "--s3-location", "default,EU"];
        let config = object_config(&parse(&given).expect("fine"), Path::new("/x")).expect("fine");
        assert_eq!((config.day, config.tick), (Duration::from_secs(10), Duration::from_secs(1)));
        assert_eq!(
            (config.region.as_str(), config.locations),
            ("mars-1", vec!["default".into(), "EU".into()])
        );
        let usual = object_config(&parse(&[]).expect("fine"), Path::new("/x")).expect("fine");
        assert_eq!((usual.day, usual.region.as_str()), (Duration::from_secs(86_400), "us-east-1"));
        for bad in [
            ["--s3-day", "0s"],
            ["--s3-day", "2d"],
            ["--s3-region", "US"],
            ["--s3-region", ""],
            ["--s3-location", "a b"],
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
    }
}
