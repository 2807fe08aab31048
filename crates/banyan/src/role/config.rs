//! One role in a process of its own: its configuration file, and its run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use link::limits::{CA_VALID, CERT_VALID, CERT_VALID_MIN};
use link::{EnrollToken, Parents};
use model::constraint::Labels;
use model::exchange::Doorway;
use model::{Area, Name};
use node::legs::{Places, places_validate};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use work::{SharedClock, SystemClock};

use super::gateway::GatewayFile;
use super::node::{BRIDGE_DEFAULT, CGROUP_DEFAULT, Claims, Marks, NodeOptions, NodeRole};
use super::provisioner::{ProvisionerOptions, ProvisionerRole, WORKERS_DEFAULT};
use super::root::{RootOptions, RootRole};
use super::zone::{ZoneOptions, ZoneRole, joined};
use crate::output::note;
use crate::stop::Stop;

/// Where zones come to root, and nodes to their zone, unless said otherwise.
const ROOT_LINK_PORT: u16 = 7710;
const ZONE_HTTPS_PORT: u16 = 7720;

/// `banyan root --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootFile {
    data: PathBuf,
    #[serde(default = "rest_default")]
    listen: SocketAddr,
    database: Option<String>,
    /// The master key that all root servers of a cloud share [default: master.key in the data folder].
    key_file: Option<PathBuf>,
    /// Where zones come to.
    #[serde(default = "root_link_default")]
    link_listen: SocketAddr,
    /// Names and addresses under which zones reach it.
    names: Vec<String>,
    /// For how many seconds certificates are good that it gives out [default: a year].
    certificate_valid_s: Option<u64>,
    /// The object store; a root without this section serves none.
    object: Option<ObjectFile>,
}

/// `[object]` of a root's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectFile {
    /// Where its data lives [default: object in root's data folder].
    data: Option<PathBuf>,
    /// Where S3 is served.
    #[serde(default = "object_listen_default")]
    listen: SocketAddr,
    /// The certificate that S3 is served with; HTTP without it.
    tls: Option<TlsFile>,
    /// Base domains for buckets in host names.
    #[serde(default)]
    domains: Vec<String>,
    /// Domains under which buckets are websites.
    #[serde(default)]
    website_domains: Vec<String>,
    /// The name of the region [default: us-east-1].
    region: Option<String>,
    /// Further names that are taken as location constraints.
    #[serde(default)]
    locations: Vec<String>,
    /// For how many seconds a day of a lifecycle rule lasts; for trying rules out [default: 86400].
    day_s: Option<u64>,
    /// An S3 store that keeps the bytes of large objects instead of the disk.
    gateway: Option<GatewayFile>,
}

/// `tls` of `[object]`: files in PEM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsFile {
    certificate: PathBuf,
    key: PathBuf,
}

impl ObjectFile {
    fn config(self, data: &Path) -> anyhow::Result<object::Config> {
        let mut config = object::Config::new(self.data.unwrap_or_else(|| data.join("object")), self.listen);
        config.tls = self.tls.map(|TlsFile { certificate, key }| object::TlsFiles { certificate, key });
        config.domains = self.domains;
        config.website_domains = self.website_domains;
        config.locations = self.locations;
        config.region = self.region.unwrap_or(config.region);
        if let Some(seconds) = self.day_s {
            config.day_set(Duration::from_secs(seconds.max(1)));
        }
        config.gateway = self.gateway.map(GatewayFile::gateway).transpose()?;
        Ok(config)
    }
}

/// `banyan zone --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneFile {
    name: Name,
    data: PathBuf,
    /// Root's link, such as https://root.example:7710, or a list of them where there are several root servers.
    root: OneOrMany,
    /// From `banyan enroll zone`; needed once.
    token: Option<String>,
    #[serde(default = "zone_https_default")]
    https_listen: SocketAddr,
    #[serde(default = "zone_mqtt_default")]
    mqtt_listen: SocketAddr,
    /// host:port of a broker that is used instead of the embedded one.
    broker: Option<String>,
    /// Names and addresses under which nodes reach it.
    names: Vec<String>,
    /// Where on the earth it is, for nodes that do not say so themselves.
    location: Option<Area>,
}

/// `banyan node --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: Name,
    data: PathBuf,
    /// The zone's link, such as https://zone.example:7720.
    zone: OneOrMany,
    #[serde(default)]
    transport: Transport,
    /// The zone's broker, such as zone.example:7721; for the transport mqtt.
    broker: Option<String>,
    /// From `banyan enroll node`; needed once.
    token: Option<String>,
    #[serde(default = "bridge_default")]
    bridge: String,
    #[serde(default = "cgroup_default")]
    cgroup_parent: String,
    oci_runtime: Option<PathBuf>,
    #[serde(default)]
    labels: Labels,
    /// Places to which the way is measured, as host:port by name.
    #[serde(default)]
    places: Places,
    /// Where on the earth it is.
    location: Option<Area>,
    #[serde(default = "overcommit_default")]
    cpu_overcommit: u64,
    /// TCP ports of this host that its instances may reach, such as 7701 where root serves S3 here.
    #[serde(default)]
    allow_tcp: Vec<u16>,
}

/// `banyan provisioner --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvisionerFile {
    name: Name,
    data: PathBuf,
    /// Root's link, such as https://root.example:7710, or a list of them where there are several root servers.
    root: OneOrMany,
    /// From `banyan enroll provisioner`; needed once.
    token: Option<String>,
    /// Tasks at once, all tenants together.
    #[serde(default = "workers_default")]
    workers: u32,
    /// For how many seconds it finishes what is being done when it is told to end.
    #[serde(default = "drain_default")]
    drain_s: u64,
    /// Programs that make machines, by the name of their provider type.
    #[serde(default)]
    providers: BTreeMap<String, PathBuf>,
    /// Programs that install services, by the name of their automator type.
    #[serde(default)]
    automators: BTreeMap<String, PathBuf>,
}

/// How a node exchanges with its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    #[default]
    Mqtt,
    /// Long poll; no broker is needed.
    Https,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "an address, or a list of addresses")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The addresses of the parent that `field` names, in the form that is needed.
fn parents(field: &str, urls: OneOrMany, port: u16) -> anyhow::Result<Parents> {
    let urls = match urls {
        OneOrMany::One(url) => vec![url],
        OneOrMany::Many(urls) => urls,
    };
    anyhow::ensure!(!urls.is_empty(), "{field} names no address; it must look like https://HOST:{port}");
    for url in &urls {
        let host = url.strip_prefix("https://").unwrap_or_default();
        let plain = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest).trim_end_matches('/');
        let meant = match plain {
            "" => format!("https://HOST:{port}"),
            _ if plain.contains(':') => format!("https://{plain}"),
            _ => format!("https://{plain}:{port}"),
        };
        anyhow::ensure!(
            !host.is_empty() && !host.starts_with(['/', ':']),
            "{field} is '{url}', which is no address of a parent; write {field} = \"{meant}\""
        );
    }
    Ok(Parents::from(&urls[..]))
}

/// Stands in the file that `banyan enroll zone` shows, where only who sets the machine up knows what is right.
const PLACEHOLDER: &str = "HOST";

/// The names of a listener as they are given.
fn names(given: Vec<String>) -> anyhow::Result<Vec<String>> {
    anyhow::ensure!(
        !given.iter().any(|name| name == PLACEHOLDER),
        "names still has the placeholder {PLACEHOLDER}; write in its place the name or address under which others reach \
         this machine, such as \"10.0.0.2\""
    );
    Ok(with_loopback(given))
}

fn certificate_valid(seconds: Option<u64>) -> anyhow::Result<Duration> {
    let valid = seconds.map_or(CERT_VALID, Duration::from_secs);
    anyhow::ensure!(
        (CERT_VALID_MIN..=CA_VALID).contains(&valid),
        "certificate_valid_s must lie between {} and {}",
        CERT_VALID_MIN.as_secs(),
        CA_VALID.as_secs()
    );
    Ok(valid)
}

/// The broker of a node, where its transport needs one.
fn broker(transport: Transport, broker: Option<String>) -> anyhow::Result<Option<String>> {
    match (transport, broker) {
        (Transport::Https, None) => Ok(None),
        (Transport::Mqtt, Some(broker)) => Ok(Some(broker)),
        (Transport::Mqtt, None) => {
            anyhow::bail!(
                "broker is missing: the transport mqtt needs one; without a broker say transport = \"https\""
            )
        }
        (Transport::Https, Some(_)) => anyhow::bail!("broker is given, and the transport https uses none"),
    }
}

fn rest_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7700))
}
fn root_link_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], ROOT_LINK_PORT))
}
fn zone_https_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], ZONE_HTTPS_PORT))
}
fn zone_mqtt_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7721))
}
fn bridge_default() -> String {
    BRIDGE_DEFAULT.to_owned()
}
fn cgroup_default() -> String {
    CGROUP_DEFAULT.to_owned()
}
const fn overcommit_default() -> u64 {
    1
}
const fn workers_default() -> u32 {
    WORKERS_DEFAULT
}
const fn drain_default() -> u64 {
    30
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not a configuration for this role", path.display()))
}

/// The token of the file, unless this role has joined already: then it needs none.
fn token(text: Option<String>, data: &Path) -> anyhow::Result<Option<EnrollToken>> {
    let Some(text) = text else { return Ok(None) };
    if joined(data)? {
        note(format!(
            "the token in the file is not used: this machine has joined already, as {} says. If its parent does not know it \
             any more, stop it, delete that folder, and start it with a new token",
            data.join("identity").display()
        ));
        return Ok(None);
    }
    Ok(Some(text.parse()?))
}

fn location(area: Option<Area>) -> anyhow::Result<Option<Area>> {
    if let Some(area) = &area {
        area.validate().map_err(|error| error.at("location"))?;
    }
    Ok(area)
}

/// The names under which a listener is reached; its own loopback is always one of them.
fn with_loopback(mut names: Vec<String>) -> Vec<String> {
    for name in ["127.0.0.1", "localhost"] {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn object_listen_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7701))
}

pub async fn root(path: &Path) -> anyhow::Result<()> {
    let file: RootFile = read(path)?;
    let _alone = alone(&file.data)?;
    let mut stop = Stop::new()?;
    let mut config = ::root::Config::new(&file.data);
    config.listen = file.listen;
    config.database = file.database;
    config.key_file = file.key_file;
    let options = RootOptions {
        admin_renew: !config.shared_store(),
        config,
        link_listen: file.link_listen,
        link_names: names(file.names)?,
        certificate_valid: certificate_valid(file.certificate_valid_s)?,
        admin: file.data.join("admin.json"),
        object: file.object.map(|section| section.config(&file.data)).transpose()?,
    };
    let root = RootRole::start(options, clock()).await?;
    note(format!("root is up: REST at {}, zones come to {}", root.endpoint(), root.link_url_named()));
    stop.wait().await;
    root.stop().await;
    Ok(())
}

pub async fn zone(path: &Path) -> anyhow::Result<()> {
    let file: ZoneFile = read(path)?;
    let (root, link_names) = (parents("root", file.root, ROOT_LINK_PORT)?, names(file.names)?);
    let _alone = alone(&file.data)?;
    let mut stop = Stop::new()?;
    let token = token(file.token, &file.data)?;
    let options = ZoneOptions {
        name: file.name,
        data: file.data,
        root,
        https_listen: file.https_listen,
        mqtt_listen: file.mqtt_listen,
        broker: file.broker,
        link_names,
        area: location(file.location)?,
    };
    let zone = ZoneRole::start(options, token, clock()).await?;
    let Doorway { urls, broker } = zone.doorway();
    note(format!(
        "zone is up: nodes come to {} and to the broker at {}",
        urls.join(", "),
        broker.as_deref().unwrap_or("none")
    ));
    stop.wait().await;
    Ok(())
}

pub async fn node(path: &Path) -> anyhow::Result<()> {
    let file: NodeFile = read(path)?;
    places_validate(&file.places)?;
    let zone = parents("zone", file.zone, ZONE_HTTPS_PORT)?;
    crate::up::host_check(file.oci_runtime.is_some())?;
    let _alone = alone(&file.data)?;
    let marks = Marks { bridge: file.bridge.clone(), cgroup_parent: file.cgroup_parent.clone() };
    let _claims = Claims::take(&marks, &file.data.canonicalize()?)?;
    let mut stop = Stop::new()?;
    let token = token(file.token, &file.data)?;
    let options = NodeOptions {
        name: file.name,
        data: file.data,
        zone,
        broker: broker(file.transport, file.broker)?,
        bridge: file.bridge,
        cgroup_parent: file.cgroup_parent,
        oci_runtime: file.oci_runtime,
        labels: file.labels,
        places: file.places,
        area: location(file.location)?,
        cpu_overcommit: file.cpu_overcommit.clamp(1, 100),
        allow_tcp: file.allow_tcp,
    };
    let node = NodeRole::start(options, token, clock()).await?;
    note(format!("node is up, with {}", node.runtime.display()));
    stop.wait().await;
    node.stop().await;
    Ok(())
}

pub async fn provisioner(path: &Path) -> anyhow::Result<()> {
    let file: ProvisionerFile = read(path)?;
    let root = parents("root", file.root, ROOT_LINK_PORT)?;
    let _alone = alone(&file.data)?;
    let mut stop = Stop::new()?;
    let token = token(file.token, &file.data)?;
    let options = ProvisionerOptions {
        name: file.name,
        data: file.data,
        root,
        workers: file.workers,
        drain: Duration::from_secs(file.drain_s),
        providers: file.providers,
        automators: file.automators,
    };
    let provisioner = ProvisionerRole::start(options, token).await?;
    note("provisioner is up");
    stop.wait().await;
    note("provisioner ends: it finishes what is being done");
    provisioner.stop().await;
    Ok(())
}

/// Holds the data folder alone, so that two processes never are one role.
fn alone(data: &Path) -> anyhow::Result<std::fs::File> {
    sal::folder_private(data)?;
    crate::up::alone(data, "give this one another folder: data in its file")
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The keys of a file, as its reader names them to whoever writes another.
    fn keys<T: DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("no_such_key = 1").err().expect("it is not known").to_string();
        let (_, expected) = error.split_once("expected one of").expect("it says which are");
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_settings_of_buckets_are_as_documented() {
        let text = include_str!("../../../../docs/buckets.md");
        let (_, rest) = text.split_once("```toml\n[object]\n").expect("an example");
        let example = rest.split_once("```").expect("the end of the example").0;
        let file: RootFile =
            toml::from_str(&format!("data = \"d\"\nnames = []\n[object]\n{example}")).unwrap();
        let config = file.object.expect("the section").config(Path::new("d"));
        assert!(config.unwrap().tls.is_some_and(|files| files.key.ends_with("s3.key")));
        for key in keys::<ObjectFile>() {
            let shown = [format!("\n{key} = "), format!("[object.{key}]")];
            let example = format!("\n{example}");
            assert!(
                shown.iter().any(|shown| example.contains(shown)),
                "'{key}' does not stand in docs/buckets.md"
            );
        }
    }

    #[test]
    fn an_address_of_a_parent_is_a_whole_one() {
        let check = |text: &str| parents("zone", OneOrMany::One(text.to_owned()), 7720).map(drop);
        for good in ["https://10.77.0.2:7720", "https://zone.example", "https://[::1]:7720"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for (bad, meant) in [
            ("10.77.0.2", "https://10.77.0.2:7720"),
            ("zone.example:99", "https://zone.example:99"),
            ("http://10.77.0.2:7720", "https://10.77.0.2:7720"),
            ("https://", "https://HOST:7720"),
            ("", "https://HOST:7720"),
        ] {
            let said = check(bad).expect_err(bad).to_string();
            assert!(said.starts_with(&format!("zone is '{bad}'")) && said.contains(meant), "{said}");
        }
        assert!(parents("zone", OneOrMany::Many(Vec::new()), 7720).is_err());
    }

    #[test]
    fn the_placeholder_of_a_shown_file_is_no_name() {
        let said = names(vec!["east.example".to_owned(), PLACEHOLDER.to_owned()]).expect_err("a placeholder");
        assert!(said.to_string().contains("placeholder HOST"), "{said}");
        assert!(names(vec!["host".to_owned()]).is_ok());
    }

    #[test]
    fn every_key_stands_in_the_documentation() {
        let text = include_str!("../../../../docs/roles.md");
        let check = |file: &str, keys: Vec<String>| {
            let (_, rest) = text.split_once(&format!("# {file}\n")).expect("an example of the file");
            let example = rest.split_once("```").expect("the end of the example").0;
            assert!(keys.len() > 5, "{keys:?}");
            for key in keys {
                let forms = [
                    format!("\n{key} ="),
                    format!("\n# {key} ="),
                    format!("\n[{key}]"),
                    format!("\n# [{key}]"),
                ];
                let there = forms.iter().any(|form| format!("\n{example}").contains(form));
                assert!(there, "'{key}' of {file} does not stand in its example in docs/roles.md");
            }
        };
        check("root.toml", keys::<RootFile>());
        check("zone.toml", keys::<ZoneFile>());
        check("node.toml", keys::<NodeFile>());
        check("provisioner.toml", keys::<ProvisionerFile>());
    }
}
