//! Zones and nodes.

use std::collections::BTreeMap;

use model::constraint::Labels;
use model::exchange::Remaining;
use model::{
    Arch, Area, Check, GpuDevice, Leg, Light, Name, PlaceMode, Resources, RuntimeKind, Timestamp, Usage,
    ZoneId,
};
use serde::{Deserialize, Serialize};

/// A zone. Users see its name and whether it is there; operators see the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Zone {
    pub id: ZoneId,
    pub name: Name,
    /// Whether it is connected.
    pub live: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<ZoneDetails>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ZoneDetails {
    pub enrolled_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    pub instances: u64,
    /// Those of them that are stopped or ended for good; a drain leaves them where they are.
    #[serde(default)]
    pub resting: u64,
    #[serde(default)]
    pub mode: PlaceMode,
    /// Of a zone that empties: why what is left is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// The same, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<Remaining>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

/// What a zone or a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Facts {
    pub version: String,
    pub nodes: u32,
    pub archs: Vec<Arch>,
    pub runtimes: Vec<RuntimeKind>,
    pub labels: BTreeMap<String, Vec<String>>,
    pub capacity: Resources,
    /// What of the capacity is not given away; of a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Resources>,
    /// The largest free amount of each resource on any one node; of a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<Resources>,
    pub gpus: Vec<GpuDevice>,
    pub cordoned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<Area>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub legs: BTreeMap<String, Leg>,
}

impl From<model::Facts> for Facts {
    fn from(facts: model::Facts) -> Self {
        Self {
            version: facts.version,
            nodes: facts.nodes,
            archs: facts.archs,
            runtimes: facts.runtimes,
            labels: facts.labels,
            capacity: facts.capacity,
            free: facts.free,
            largest: facts.largest,
            gpus: facts.gpus,
            cordoned: facts.cordoned,
            area: facts.area,
            legs: facts.legs,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Node {
    pub id: String,
    pub name: Name,
    /// Name of its zone.
    pub zone: Name,
    /// Of its mode and the labels that operators gave it. Give it as `If-Match` to change only what you saw.
    #[serde(default)]
    pub version: i64,
    pub alive: bool,
    /// It stopped in an orderly way and is expected back; until then what it holds is its own.
    #[serde(default)]
    pub restarting: bool,
    pub last_seen: Timestamp,
    pub reserved: Resources,
    pub instances: u64,
    /// Those of them that are stopped or ended for good; a drain leaves them where they are.
    #[serde(default)]
    pub resting: u64,
    #[serde(default)]
    pub mode: PlaceMode,
    /// Of a node that empties: why what is left is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// The same, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<Remaining>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How far its clock is ahead of the zone's, in milliseconds.
    #[serde(default)]
    pub clock_ahead_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<Timestamp>,
    pub facts: Facts,
}

/// Opens, cordons or drains a node or a zone, or puts a node into maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceModeSet {
    pub mode: PlaceMode,
    /// Also move instances whose policy is to wait for their node.
    #[serde(default)]
    pub force: bool,
}

/// Labels of a node that stand beside those of its own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeLabels {
    #[serde(default)]
    pub set: Labels,
    #[serde(default)]
    pub unset: Vec<String>,
}

impl NodeLabels {
    /// What became of a node's labels, in one line: one of the node's own configuration stays when it is removed here.
    pub fn outcome(&self, before: &Facts, after: &Facts) -> String {
        let value = |facts: &Facts, key: &String| facts.labels.get(key).map(|values| values.join(","));
        let set: Vec<String> = self.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (mut removed, mut rest) = (Vec::new(), Vec::new());
        for key in &self.unset {
            match (value(before, key), value(after, key)) {
                (None, None) => rest.push(format!("there was no label {key}")),
                (Some(_), None) => removed.push(key.clone()),
                (Some(old), Some(new)) if old != new => {
                    removed.push(format!("{key}={old}"));
                    rest.push(format!("{key}={new} of the node's own configuration counts again"));
                }
                (_, Some(new)) => {
                    rest.push(format!("{key}={new} stays: it is in the node's own configuration"));
                }
            }
        }
        let verbs = [("set", set), ("removed", removed)].into_iter();
        let said = verbs.filter(|(_, what)| !what.is_empty());
        let said = said.map(|(verb, what)| format!("{verb} {}", what.join(" ")));
        said.chain(rest).collect::<Vec<_>>().join(", ")
    }
}

/// One of the root servers of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Server {
    /// The machine and the folder it runs in.
    pub name: String,
    /// Where it serves REST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// When it joined.
    pub since: Timestamp,
    /// When it last said that it is there, by its own clock.
    pub last_heard: Timestamp,
    /// What it does for all: the tree, workloads, sweeping, clusters.
    pub duties: Vec<String>,
    /// Whether it is the one that answers.
    pub this: bool,
    /// It fell silent and is no longer counted on; shown until it is back or removed.
    #[serde(default)]
    pub lost: bool,
}

/// How the platform itself is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlatformHealth {
    /// The worst of all checks.
    pub light: Light,
    pub at: Timestamp,
    /// Worst first.
    pub checks: Vec<Check>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnrolRole {
    Zone,
    Node,
    Provisioner,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentCreate {
    pub role: EnrolRole,
    /// Name or id of the zone that a node joins; may be left out where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Names and addresses that the listeners of a zone may have even if root or another zone has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl EnrolmentCreate {
    pub fn zone() -> Self {
        Self { role: EnrolRole::Zone, zone: None, hosts: Vec::new() }
    }

    /// For a node of this zone, which may be left out where there is only one.
    pub fn node(zone: Option<&str>) -> Self {
        Self { role: EnrolRole::Node, zone: zone.map(str::to_owned), hosts: Vec::new() }
    }
}

/// Names and addresses that the listeners of a zone may have beside those it joined with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ZoneHosts {
    pub hosts: Vec<String>,
}

/// A token that is out, as far as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnrolmentToken {
    /// The beginning of the token's hash.
    pub id: String,
    pub role: EnrolRole,
    /// The zone that a node joins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    pub expires_at: Timestamp,
    /// The id of who joined with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// A token with which one zone, node or provisioner may enrol once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Enrolment {
    pub role: EnrolRole,
    pub token: String,
    pub expires_at: Timestamp,
    /// Where the newcomer joins, by HTTPS.
    #[serde(default)]
    pub parents: Vec<String>,
    /// The broker of the zone that a node joins.
    #[serde(default)]
    pub broker: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(labels: &[(&str, &str)]) -> Facts {
        let values = |value: &str| vec![value.to_owned()];
        Facts {
            version: String::new(),
            nodes: 1,
            archs: Vec::new(),
            runtimes: Vec::new(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), values(value))).collect(),
            capacity: Resources::default(),
            free: None,
            largest: None,
            gpus: Vec::new(),
            cordoned: false,
            area: None,
            legs: BTreeMap::new(),
        }
    }

    #[test]
    fn what_was_not_removed_is_not_called_removed() {
        let before = facts(&[("disk", "ssd"), ("rack", "4"), ("row", "b")]);
        let after = facts(&[("disk", "ssd"), ("row", "a"), ("new", "x")]);
        let labels = |unset: &[&str]| NodeLabels {
            set: [("new".to_owned(), "x".to_owned())].into(),
            unset: unset.iter().map(|key| (*key).to_owned()).collect(),
        };
        for (unset, expect) in [
            (&["rack"][..], "set new=x, removed rack"),
            (&["disk"], "set new=x, disk=ssd stays: it is in the node's own configuration"),
            (&["none"], "set new=x, there was no label none"),
            (&["row"], "set new=x, removed row=b, row=a of the node's own configuration counts again"),
        ] {
            assert_eq!(labels(unset).outcome(&before, &after), expect);
        }
    }
}
