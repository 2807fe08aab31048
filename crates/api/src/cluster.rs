//! Clusters as users ask for and see them. Words are Coopr's where it has one.

use std::collections::BTreeMap;

use model::{ClusterId, Name, ProvisionerId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Asks for a cluster. What is absent comes from the template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterAsk {
    /// A cluster template of the catalogue.
    pub template: String,
    /// How many machines.
    pub size: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// All services; the template's own when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterCreate {
    /// Unique in the tenant.
    pub name: Name,
    /// A cluster template of the catalogue.
    pub template: String,
    /// How many machines.
    pub size: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Fields of the provider that users may set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider_fields: Map<String, Value>,
    /// All services; the template's own when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    /// How long it lives, in milliseconds; 0 is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_suffix: Option<String>,
    /// Replaces the template's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// Single values of the configuration by their paths, such as `web.port`; the rest stays as it is.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
    /// Who is told when jobs start and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<ClusterWebhooks>,
}

/// Addresses that get a POST with the cluster, the job and the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterWebhooks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Only for these actions, such as `CLUSTER_CREATE`; for all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClusterStatus {
    /// A job is under way.
    #[default]
    Pending,
    Active,
    /// Machines of it are gone, or not as they should be.
    Degraded,
    /// It could not be made, or not be deleted; there are machines left.
    Incomplete,
    /// A later change of it failed.
    Inconsistent,
    /// No machine is left.
    Terminated,
}

impl ClusterStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Incomplete => "incomplete",
            Self::Inconsistent => "inconsistent",
            Self::Terminated => "terminated",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// It is planned; nothing of it has begun.
    #[default]
    NotSubmitted,
    Running,
    Paused,
    Complete,
    Failed,
    Aborted,
}

impl JobStatus {
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Aborted)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSubmitted => "not_submitted",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

/// What was asked for and what is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Cluster {
    pub id: ClusterId,
    pub name: Name,
    /// Name of the tenant.
    pub tenant: Name,
    /// Give it as `If-Match` to change only what you saw.
    pub version: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub template: String,
    pub provider: String,
    /// Machines it should have.
    pub size: u32,
    /// Machines there are, or may be.
    pub nodes: u32,
    pub services: Vec<String>,
    pub status: ClusterStatus,
    /// Why it is in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The job under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobSummary>,
    pub config: Map<String, Value>,
    /// Macros in them are expanded once the machines have addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ClusterLink>,
    /// Of an hour, where the hardware types say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// When its lease ends; absent when never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The public part of the key that its machines let in.
    pub public_key: String,
    /// Whether there is something to go back to: what it was before the last change, or before one that failed half-way.
    #[serde(default)]
    pub can_rollback: bool,
    pub created_at: Timestamp,
    pub created_by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterLink {
    pub label: String,
    pub url: String,
}

/// One change of a cluster, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobSummary {
    pub id: String,
    /// `CLUSTER_CREATE`, `CLUSTER_DELETE`, `ADD_SERVICES`, …
    pub action: String,
    pub status: JobStatus,
    pub steps_total: u32,
    pub steps_completed: u32,
    #[serde(default)]
    pub steps_failed: u32,
    /// It failed, and what it made by half is taken back.
    #[serde(default)]
    pub rolling_back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// One change of a cluster with all its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterJob {
    #[serde(flatten)]
    pub summary: JobSummary,
    /// An order that would do, a node at most once in each stage. A task does not wait for a stage.
    pub stages: Vec<Vec<JobTask>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    #[default]
    NotSubmitted,
    InProgress,
    Complete,
    Failed,
    Dropped,
}

impl TaskStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSubmitted => "not_submitted",
            Self::InProgress => "in_progress",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobTask {
    pub id: String,
    /// `CREATE`, `INSTALL`, …
    pub name: String,
    /// Number of the node.
    pub node: u32,
    /// Empty for what is done to the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    pub status: TaskStatus,
    /// Attempts that failed.
    #[serde(default)]
    pub failures: u32,
    /// When something last came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A machine of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterNode {
    pub id: String,
    pub num: u32,
    pub hostname: String,
    pub services: Vec<String>,
    /// Those of them that were stopped last, rather than started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
    pub hardwaretype: String,
    pub imagetype: String,
    pub status: NodeStatus,
    /// By type, such as `access_v4`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    pub ssh_user: String,
    pub ssh_port: u16,
    /// Host keys that were seen when it was confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ClusterLink>,
    /// What was last said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Its machine is being made.
    #[default]
    Pending,
    /// Its machine is there and let us in.
    Confirmed,
    /// A task of it failed.
    Failed,
    /// Its machine is gone, or not as it should be.
    Missing,
    /// It is on its way out.
    Leaving,
}

/// One thing that was done to a node: an attempt at a task. Those that were followed by another have the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeAction {
    /// Of the task.
    pub id: String,
    /// `CREATE`, `INSTALL`, …
    pub action: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    pub status: TaskStatus,
    /// Attempts that failed.
    #[serde(default)]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
    pub changed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The end of what it printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// Another number of machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterResize {
    pub size: u32,
    /// Allow a layout that cannot keep the machines that stand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

/// Services that come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterServices {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// How many machines it has then; as many as now when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Allow a layout that cannot keep the machines that stand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfigure {
    /// Replaces the configuration.
    pub config: Map<String, Value>,
    /// Services are restarted with it, unless this is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<bool>,
}

/// Services to start, stop or restart; all when empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterServiceOrder {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterUpgrade {
    /// All when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Machines at a time; one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// Takes the template and the services as the catalogue has them now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterRepair {
    /// Numbers of nodes whose machines are made anew although they are not known to be gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u32>,
}

/// When the lease is to end: at a time, or so many milliseconds later than now planned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterLease {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extend_ms: Option<u64>,
}

/// The key that the machines of a cluster let in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterKey {
    pub public_key: String,
    /// In OpenSSH's form.
    pub private_key: String,
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterKey({})", self.public_key)
    }
}

/// Asks what a cluster would be like; nothing is changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterSolve {
    /// For a new cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<ClusterAsk>,
    /// For a cluster that stands: its name, and what is to be different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// What it was before the last change, as `rollback` makes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// What a cluster would be like, or why there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterPreview {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<LayoutGroup>,
    /// What the change amounts to: `CLUSTER_CREATE`, `CLUSTER_EXPAND`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Numbers of the machines that would be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<u32>,
    /// Numbers of the machines that would be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<u32>,
    /// How many tasks of each name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, u32>,
    /// What is done, in an order that would do: in each stage, how many machines get what. Tasks do not wait for stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Vec<PlanStep>>,
    /// The longest way through the tasks.
    #[serde(default)]
    pub levels: u32,
    /// Of an hour, where the hardware types say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Machines that stand cannot all be kept.
    #[serde(default)]
    pub anew: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsolvable: Option<Unsolvable>,
}

/// Alike tasks of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlanStep {
    /// `CREATE`, `INSTALL`, …
    pub name: String,
    /// Empty for what is done to the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// On how many machines.
    pub count: u32,
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LayoutGroup {
    pub count: u32,
    pub services: Vec<String>,
    pub hardwaretype: String,
    pub imagetype: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Unsolvable {
    pub reason: String,
    /// Demands that cannot all be met, one sentence each.
    #[serde(default)]
    pub conflicts: Vec<String>,
}

/// Whoever carries out tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Provisioner {
    pub id: ProvisionerId,
    pub name: Name,
    /// Whether it was heard in time.
    pub live: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Timestamp>,
    pub enrolled_at: Timestamp,
    /// Tasks it does at once, and those it does now.
    #[serde(default)]
    pub capacity: u32,
    #[serde(default)]
    pub tasks: u32,
    /// Its workers by the name of their tenant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workers: BTreeMap<String, u32>,
}
