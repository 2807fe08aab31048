//! What travels between a parent and a child.
//!
//! Downwards goes the *desired* set, upwards the *observed* one. Both are maps
//! keyed by instance and sent as a [`RevisionedSet`]: the whole map, or the
//! difference to a revision the other side said it has.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::constraint::Labels;
use crate::explain::Explanation;
use crate::geo::{Area, Leg};
use crate::history::InstanceEvent;
use crate::id::{InstanceId, TenantId, WorkloadId};
use crate::image::ImageManifest;
use crate::instance::{Generation, InstanceSpec};
use crate::name::Name;
use crate::phase::Phase;
use crate::resources::{Arch, GpuDevice, Resources, RuntimeKind};
use crate::time::Timestamp;

/// A point in the life of a set. `epoch` grows with every life of the sender, `rev` with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Revision {
    pub epoch: u64,
    pub rev: u64,
}

/// A map, whole or as the difference to `base`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionedSet<T> {
    /// What the receiver must have for this to apply; absent when the set is whole.
    pub base: Option<Revision>,
    pub at: Revision,
    pub upserts: Vec<T>,
    pub removes: Vec<InstanceId>,
    /// A page: what follows is a difference to `at`. A whole set in pages drops what it does not
    /// name only with its last page.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// With a page that others follow: the newest revision there was when it was made. A whole set does not end before
    /// it, whatever an older answer that comes late says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upto: Option<u64>,
}

pub type Desired = RevisionedSet<Assignment>;

/// Where the children of a parent come to, as it is told to those who join.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Doorway {
    /// By HTTPS.
    #[serde(default)]
    pub urls: Vec<String>,
    /// `host:port` of the broker, where there is one.
    #[serde(default)]
    pub broker: Option<String>,
}

/// What should be done with an instance that is placed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    #[default]
    Running,
    Stopped,
    /// To be removed; the assignment goes when observed says gone.
    Gone,
}

/// One instance as its holder is to keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub id: InstanceId,
    pub tenant: TenantId,
    pub name: Name,
    pub generation: Generation,
    pub run: Run,
    /// Counts the restarts that users asked for; the holder restarts when it grows.
    pub restart_count: u64,
    pub spec: Arc<InstanceSpec>,
    /// The image as it was when the instance was made.
    pub image: Arc<ImageManifest>,
    /// The workload it is one of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
}

/// The workload of an instance, as far as those below must know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub workload: WorkloadId,
    /// It may leave its node now for another. Root says so, which alone sees all instances of a workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_move: bool,
}

/// An instance that is to leave its node for another of the same zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moving {
    /// It runs on until root lets it go.
    Asks,
    /// It is being stopped, and then begins elsewhere.
    Leaves,
}

/// What a child says of itself. A zone speaks as if it were one large node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub name: Name,
    pub version: String,
    /// How many nodes this stands for.
    pub nodes: u32,
    pub archs: Vec<Arch>,
    pub runtimes: Vec<RuntimeKind>,
    /// Label values; an aggregate may hold several values of one label.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Labels of an aggregate that have more values than are listed: any value may be among them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels_cut: BTreeSet<String>,
    /// All that can be given away.
    pub capacity: Resources,
    /// What of the capacity is not given away, for an aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Resources>,
    /// The largest free amount of each resource on any one node, for an aggregate.
    pub largest: Option<Resources>,
    /// Equal ones that stand side by side travel as one, with their number.
    #[serde(with = "crate::resources::gpus_counted")]
    pub gpus: Vec<GpuDevice>,
    /// Takes no new instances.
    pub cordoned: bool,
    /// Where on the earth it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<Area>,
    /// Measured ways to named places; `zone` and `root` are measured without being asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub legs: BTreeMap<String, Leg>,
    /// Of an aggregate: grows when nodes come, go, or change what they are.
    #[serde(default)]
    pub members: u64,
}

impl Facts {
    /// Of one node or zone that has nothing to give yet.
    pub fn new(name: Name, version: &str) -> Self {
        Self {
            name,
            version: version.to_owned(),
            nodes: 1,
            archs: Vec::new(),
            runtimes: Vec::new(),
            labels: BTreeMap::new(),
            labels_cut: BTreeSet::new(),
            capacity: Resources::ZERO,
            free: None,
            largest: None,
            gpus: Vec::new(),
            cordoned: false,
            area: None,
            legs: BTreeMap::new(),
            members: 0,
        }
    }
}

/// Whether a node or a zone takes instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlaceMode {
    #[default]
    Open,
    /// Takes nothing new.
    Cordoned,
    /// Takes nothing new, and what it has moves elsewhere under its policies.
    Draining,
    /// Drained, and expected to be away: nobody is alarmed when it is silent.
    Maintenance,
}

impl PlaceMode {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Maintenance => "maintenance",
        }
    }

    /// Whether what is there moves away.
    pub const fn empties(self) -> bool {
        matches!(self, Self::Draining | Self::Maintenance)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    pub facts: Facts,
    pub set: RevisionedSet<ObservedInstance>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Starting,
    Healthy,
    Unhealthy,
}

/// One instance as its holder sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedInstance {
    pub id: InstanceId,
    pub generation: Generation,
    pub phase: Phase,
    /// Why it is in this phase, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the node that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Times its process was started again.
    #[serde(default)]
    pub restarts: u64,
    /// Ends and failed starts in a row.
    #[serde(default)]
    pub failures: u64,
    /// It ended, and its restart policy does not start it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// The holder has no room or no right node for it and asks its parent to look elsewhere.
    #[serde(default)]
    pub refused: bool,
    /// It should leave its node, and no other node here has room: it runs on until the parent takes it elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_up: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
    /// The latest events, oldest first; numbered, so that a reader takes each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<InstanceEvent>,
    /// Why the zone chose the node, or found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Arc<Explanation>>,
}

impl ObservedInstance {
    pub fn new(id: InstanceId, generation: Generation, phase: Phase) -> Self {
        Self {
            id,
            generation,
            phase,
            message: None,
            node: None,
            address: None,
            exit_code: None,
            started_at: None,
            health: None,
            restarts: 0,
            failures: 0,
            finished: false,
            refused: false,
            handed_up: false,
            moving: None,
            events: Vec::new(),
            explanation: None,
        }
    }

    /// Whether it needs neither processor nor memory until something new is asked of it.
    pub fn rests(&self, asked: Run) -> bool {
        match asked {
            Run::Running => self.phase == Phase::Exited && self.finished,
            Run::Stopped => self.phase == Phase::Stopped,
            Run::Gone => false,
        }
    }
}

/// What a parent answers to an observed set: the revision it now has, or
/// nothing when it needs the whole set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub have: Option<Revision>,
}

/// A question that a parent puts to a child, answered on a byte stream that the child opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum Ask {
    /// The output of an instance: raw bytes until the end, or for ever when following.
    Logs { instance: InstanceId, follow: bool, tail_lines: Option<u64> },
    /// A command in a running instance.
    Exec { instance: InstanceId, command: Vec<String>, tty: bool, stdin: bool, rows: u16, cols: u16 },
    /// One JSON [`InstanceStats`].
    Stats { instance: InstanceId },
    /// One JSON list of [`NodeReport`], answered by a zone.
    Nodes,
    /// Opens, cordons, drains a node or puts it into maintenance; answered by its zone with an empty JSON
    /// object or an error. With `force` also instances move whose policy is to wait for their node.
    Mode {
        node: Name,
        mode: PlaceMode,
        force: bool,
        /// Only if the node is at this version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<i64>,
    },
    /// Sets and removes labels of a node that stand beside those of its own configuration; answered as `Mode` is.
    Label {
        node: Name,
        set: Labels,
        unset: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<i64>,
    },
    /// Forgets a node and never lets its certificate in again. A node that is alive and holds instances is
    /// only removed with `force`. Answered as `Mode` is.
    Remove { node: Name, force: bool },
    /// One JSON list of [`crate::health::Sample`], oldest first, of a node or, without one, of the zone.
    History { node: Option<Name>, since: Timestamp },
    /// One JSON list of [`InstanceUsage`]; of those that run. Answered by zones and nodes.
    Usage { instances: Vec<InstanceId> },
    /// One JSON list of [`crate::health::Check`], answered by a zone for itself and its nodes.
    Health,
    /// Lets one node join with the token of this digest, answered by its zone with an empty JSON object or an error.
    Admit { digest: String, expires_at: Timestamp },
    /// One JSON list of [`Admission`], answered by a zone.
    Tokens,
    /// Voids the token of this digest, answered as `Mode` is.
    Revoke { digest: String },
}

/// A token with which somebody may join; the token itself cannot be told from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub digest: String,
    pub expires_at: Timestamp,
    /// Who joined with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// An [`Ask`] on its way, with the name of the stream that answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub stream: String,
    pub ask: Ask,
}

/// What an instance uses now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceStats {
    pub at: Timestamp,
    /// CPU time used since the start of the instance, in microseconds.
    pub cpu_used_us: u64,
    /// CPU used over the last moment, in thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    pub pids: u64,
    pub net_received_bytes: u64,
    pub net_sent_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
}

/// What an instance uses, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceUsage {
    pub id: InstanceId,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// An instance that is still on a place that empties, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Remaining {
    pub id: InstanceId,
    pub name: Name,
    pub why: String,
    /// It may be nowhere else: it ends with its node.
    #[serde(default)]
    pub pinned: bool,
}

/// A node as its zone sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub id: String,
    /// Of its mode and the labels that operators gave it: differs when they do.
    #[serde(default)]
    pub version: i64,
    pub facts: Facts,
    pub alive: bool,
    /// It stopped in an orderly way and is expected back; until then what it holds is its own.
    #[serde(default)]
    pub restarting: bool,
    pub last_seen: Timestamp,
    pub reserved: Resources,
    pub instances: u64,
    /// Those of them that are stopped or ended for good.
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
    pub usage: Option<crate::health::Usage>,
    /// How far its clock is ahead of the zone's, in milliseconds.
    #[serde(default)]
    pub clock_ahead_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_from: Option<Timestamp>,
}
