//! One role in a process of its own: its configuration file, and its run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use link::EnrollToken;
use model::Name;
use model::constraint::Labels;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use work::{SharedClock, SystemClock};

use super::node::{NodeOptions, NodeRole};
use super::root::{RootOptions, RootRole};
use super::zone::{ZoneOptions, ZoneRole};
use crate::output::note;
use crate::stop::Stop;

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
}

/// `banyan zone --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneFile {
    name: Name,
    data: PathBuf,
    /// Root's link, such as https://root.example:7710.
    root: String,
    /// From `banyan enroll zone`; needed once.
    token: Option<String>,
    #[serde(default = "zone_https_default")]
    https_listen: SocketAddr,
    #[serde(default = "zone_mqtt_default")]
    mqtt_listen: SocketAddr,
    /// Names and addresses under which nodes reach it.
    names: Vec<String>,
}

/// `banyan node --config FILE`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: Name,
    data: PathBuf,
    /// The zone's link, such as https://zone.example:7720.
    zone: String,
    /// The zone's broker, such as zone.example:7721.
    broker: String,
    /// From `banyan enroll node`; needed once.
    token: Option<String>,
    #[serde(default = "bridge_default")]
    bridge: String,
    #[serde(default = "cgroup_default")]
    cgroup_parent: String,
    oci_runtime: Option<PathBuf>,
    #[serde(default)]
    labels: Labels,
    #[serde(default = "overcommit_default")]
    cpu_overcommit: u64,
}

fn rest_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7700))
}
fn root_link_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7710))
}
fn zone_https_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7720))
}
fn zone_mqtt_default() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7721))
}
fn bridge_default() -> String {
    "banyan0".to_owned()
}
fn cgroup_default() -> String {
    "banyan".to_owned()
}
const fn overcommit_default() -> u64 {
    1
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not a configuration for this role", path.display()))
}

fn token(text: Option<String>) -> anyhow::Result<Option<EnrollToken>> {
    Ok(text.map(|text| text.parse()).transpose()?)
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

pub async fn root(path: &Path) -> anyhow::Result<()> {
    let file: RootFile = read(path)?;
    let mut stop = Stop::new()?;
    let mut config = ::root::Config::new(&file.data);
    config.listen = file.listen;
    config.database = file.database;
    config.key_file = file.key_file;
    let options = RootOptions {
        admin_renew: !config.shared_store(),
        config,
        link_listen: file.link_listen,
        link_names: with_loopback(file.names),
        admin: file.data.join("admin.json"),
    };
    let root = RootRole::start(options, clock()).await?;
    note(format!("root is up: REST at {}, zones come to {}", root.endpoint(), root.link_url()));
    stop.wait().await;
    root.stop().await;
    Ok(())
}

pub async fn zone(path: &Path) -> anyhow::Result<()> {
    let file: ZoneFile = read(path)?;
    let mut stop = Stop::new()?;
    let options = ZoneOptions {
        name: file.name,
        data: file.data,
        root_url: file.root,
        https_listen: file.https_listen,
        mqtt_listen: file.mqtt_listen,
        link_names: with_loopback(file.names),
    };
    let zone = ZoneRole::start(options, token(file.token)?, clock()).await?;
    note(format!(
        "zone is up: nodes come to {} and to the broker at {}",
        zone.https_url(),
        zone.mqtt_address()
    ));
    stop.wait().await;
    Ok(())
}

pub async fn node(path: &Path) -> anyhow::Result<()> {
    let file: NodeFile = read(path)?;
    crate::up::host_check(file.oci_runtime.is_some())?;
    let mut stop = Stop::new()?;
    let options = NodeOptions {
        name: file.name,
        data: file.data,
        zone_url: file.zone,
        broker: file.broker,
        bridge: file.bridge,
        cgroup_parent: file.cgroup_parent,
        oci_runtime: file.oci_runtime,
        labels: file.labels,
        cpu_overcommit: file.cpu_overcommit.clamp(1, 100),
    };
    let node = NodeRole::start(options, token(file.token)?, clock()).await?;
    note(format!("node is up, with {}", node.runtime.display()));
    stop.wait().await;
    Ok(())
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}
