//! Zones and nodes.

use std::collections::BTreeMap;

use model::{Arch, GpuDevice, Name, Resources, RuntimeKind, Timestamp, ZoneId};
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
    pub gpus: Vec<GpuDevice>,
    pub cordoned: bool,
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
            gpus: facts.gpus,
            cordoned: facts.cordoned,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Node {
    pub id: String,
    pub name: Name,
    /// Name of its zone.
    pub zone: Name,
    pub alive: bool,
    pub last_seen: Timestamp,
    pub reserved: Resources,
    pub instances: u64,
    pub facts: Facts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeCordon {
    /// True: the node takes no new instances.
    pub cordoned: bool,
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
}

/// A token with which one zone, node or provisioner may enrol once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Enrolment {
    pub role: EnrolRole,
    pub token: String,
    pub expires_at: Timestamp,
}
