//! Servers as Nova shows them, and as it is asked for one.

use std::collections::BTreeMap;

use base64::Engine;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cloud::{Cloud, words};
use super::floating;
use super::identity::{field, list};
use crate::provider::cloud_init::user_data;
use crate::task::{Fault, Task};

const KEY_CLUSTER: &str = "banyan:cluster";
const KEY_NODE: &str = "banyan:node";

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Server {
    pub(super) id: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) created: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    addresses: BTreeMap<String, Vec<Address>>,
    fault: Option<Words>,
    #[serde(rename = "OS-EXT-STS:task_state")]
    doing: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Address {
    addr: String,
    version: u8,
    #[serde(rename = "OS-EXT-IPS:type")]
    kind: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Words {
    #[serde(default)]
    message: String,
}

/// How a machine is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By its floating address if it has one.
    Any,
    Floating,
    /// By its fixed address, of this network if one is named.
    Fixed(Option<String>),
}

impl Way {
    pub(super) fn of(task: &Task) -> Self {
        let is_floating = floating::is_wanted(task);
        match field(task, "address").as_deref() {
            Some("floating") => Self::Floating,
            Some("fixed") => Self::Fixed(None),
            Some(network) => Self::Fixed(Some(network.to_owned())),
            None if is_floating => Self::Floating,
            None => Self::Any,
        }
    }
}

impl Server {
    pub(super) fn is_gone(&self) -> bool {
        ["DELETED", "SOFT_DELETED"].contains(&self.status.as_str())
    }

    /// Also when Nova has only begun.
    pub(super) fn is_going(&self) -> bool {
        self.is_gone() || self.doing.as_deref().is_some_and(|doing| doing.contains("delet"))
    }

    pub(super) fn is_of(&self, task: &Task) -> bool {
        let is = |key: &str, value: &str| self.metadata.get(key).is_some_and(|found| found == value);
        is(KEY_CLUSTER, &task.cluster_id) && is(KEY_NODE, &task.node_id)
    }

    /// What Nova says went wrong. It says so a moment after the status.
    pub(super) fn why(&self) -> Option<String> {
        self.fault.as_ref().map(|fault| words(&fault.message)).filter(|text| !text.is_empty())
    }

    /// Where it is reached, and where its neighbours reach it.
    pub(super) fn addresses(&self, way: &Way) -> Option<(String, String)> {
        let network = if let Way::Fixed(Some(network)) = way { Some(network) } else { None };
        let first = |kind: &str| {
            let all =
                self.addresses.iter().filter(|(name, _)| network.is_none_or(|network| network == *name));
            let all =
                all.flat_map(|(_, all)| all).filter(|one| one.kind.as_deref().unwrap_or("fixed") == kind);
            // The lower version first.
            all.min_by_key(|one| one.version).map(|one| one.addr.clone())
        };
        let (fixed, floating) = (first("fixed"), first("floating"));
        let access = match way {
            Way::Any => floating.clone().or_else(|| fixed.clone()),
            Way::Floating => floating.clone(),
            Way::Fixed(_) => fixed.clone(),
        };
        Some((access?, fixed.or(floating)?))
    }
}

/// The question for a server.
pub(super) async fn wish(cloud: &Cloud<'_>, task: &Task) -> Result<Value, Fault> {
    let missing = |what: &str| Fault::invalid(format!("the task does not say the {what} of the machine"));
    let user_data = base64::engine::general_purpose::STANDARD.encode(user_data(task)?);
    let image = task.text("image").ok_or_else(|| missing("image"))?;
    let wanted = task.text("flavor").ok_or_else(|| missing("flavor"))?;
    let mut server = json!({
        "name": task.hostname(),
        "imageRef": cloud.named("image", &["v2", "images"], "images", &image).await?,
        "flavorRef": flavor(cloud, &wanted).await?,
        "metadata": {KEY_CLUSTER: task.cluster_id, KEY_NODE: task.node_id},
        "user_data": user_data,
        "min_count": 1,
        "max_count": 1,
    });
    let mut networks = Vec::new();
    for network in list(task, "network_ids") {
        let id = cloud.named("network", &["v2.0", "networks"], "networks", &network).await?;
        networks.push(json!({ "uuid": id }));
    }
    let groups: Vec<Value> =
        list(task, "security_groups").into_iter().map(|name| json!({ "name": name })).collect();
    for (name, all) in [("networks", networks), ("security_groups", groups)] {
        if !all.is_empty() {
            server[name] = json!(all);
        }
    }
    for (name, from) in [("availability_zone", "availability_zone"), ("key_name", "ssh_keypair")] {
        if let Some(text) = field(task, from) {
            server[name] = json!(text);
        }
    }
    Ok(json!({ "server": server }))
}

/// A flavor by its id, or else by its name.
async fn flavor(cloud: &Cloud<'_>, wanted: &str) -> Result<String, Fault> {
    #[derive(Deserialize)]
    struct Flavor {
        id: String,
        name: String,
    }
    let all: Vec<Flavor> = cloud.pages(&["flavors"], "flavors", &[]).await?;
    let found = all.iter().find(|one| one.id == wanted).or_else(|| all.iter().find(|one| one.name == wanted));
    found.map(|one| one.id.clone()).ok_or_else(|| {
        Fault::invalid(format!("the cloud has no flavor '{}' for this project", model::shown(wanted)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_chosen() {
        let server = json!({
            "id": "s", "status": "ACTIVE", "OS-EXT-STS:task_state": null,
            "addresses": {
                "inner": [
                    {"addr": "fd00::7", "version": 6, "OS-EXT-IPS:type": "fixed"},
                    {"addr": "10.0.0.7", "version": 4, "OS-EXT-IPS:type": "fixed"},
                    {"addr": "192.0.2.7", "version": 4, "OS-EXT-IPS:type": "floating"}
                ],
                "other": [{"addr": "10.1.0.7", "version": 4, "OS-EXT-IPS:type": "fixed"}]
            }
        });
        let server: Server = serde_json::from_value(server).unwrap();
        let of = |way: Way| server.addresses(&way);
        let pair = |access: &str, bind: &str| Some((access.to_owned(), bind.to_owned()));
        assert_eq!(of(Way::Any), pair("192.0.2.7", "10.0.0.7"));
        assert_eq!(of(Way::Floating), pair("192.0.2.7", "10.0.0.7"));
        assert_eq!(of(Way::Fixed(None)), pair("10.0.0.7", "10.0.0.7"));
        assert_eq!(of(Way::Fixed(Some("other".to_owned()))), pair("10.1.0.7", "10.1.0.7"));
        assert_eq!(of(Way::Fixed(Some("none".to_owned()))), None);
        assert!(!server.is_going());
    }
}
