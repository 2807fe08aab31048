//! Instances as users ask for and see them.

use model::exchange::Health;
use model::{Explanation, Generation, ImageId, InstanceId, InstanceSpec, Name, Phase, Run, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceCreate {
    /// Unique in the tenant.
    pub name: Name,
    pub spec: InstanceSpec,
}

/// What was asked for, what was decided and what is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Instance {
    pub id: InstanceId,
    pub name: Name,
    /// Name of the tenant.
    pub tenant: Name,
    /// Give it as `If-Match` to change only what you saw.
    pub version: i64,
    pub spec: InstanceSpec,
    /// Name of the workload that keeps it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Name>,
    pub run: Run,
    /// Restarts that users asked for.
    pub restart_count: u64,
    pub image_id: ImageId,
    pub created_at: Timestamp,
    pub created_by: String,
    pub phase: Phase,
    /// Why it is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the zone that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<std::net::IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Times its process was started again by its policy.
    #[serde(default)]
    pub restarts: u64,
    #[serde(default)]
    pub generation: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
}

/// Why an instance is where it is, or why it is nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceWhy {
    pub name: Name,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How root chose the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Explanation>,
    /// How the zone chose the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Explanation>,
}
