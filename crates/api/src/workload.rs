//! Workloads and apps as users ask for and see them.

use model::workload::WorkloadPhase;
use model::{AppId, Name, Timestamp, WorkloadId, WorkloadSpec};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadCreate {
    /// Unique in the tenant; at most 56 characters.
    pub name: Name,
    /// Name of the app it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Name>,
    pub spec: WorkloadSpec,
}

/// Replaces the spec. A changed template is a new revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadUpdate {
    pub spec: WorkloadSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadScale {
    pub replicas: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRollback {
    /// The revision to go back to; when absent, the last of which all instances were once available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// What was asked for and what is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Workload {
    pub id: WorkloadId,
    pub name: Name,
    /// Name of the tenant.
    pub tenant: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Name>,
    /// Give it as `If-Match` to change only what you saw.
    pub version: i64,
    pub spec: WorkloadSpec,
    /// Counts the templates it had.
    pub revision: u64,
    pub created_at: Timestamp,
    pub created_by: String,
    pub status: WorkloadStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkloadStatus {
    pub phase: WorkloadPhase,
    /// Why it is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Instances that should be there now.
    pub wanted: u32,
    /// Instances there are.
    pub instances: u32,
    /// Those of the newest revision.
    pub updated: u32,
    /// Those that run, and are healthy where they have a check.
    pub available: u32,
    /// Of the current or last run: instances that ended well, and badly.
    #[serde(default)]
    pub succeeded: u32,
    #[serde(default)]
    pub failed: u32,
    /// When the next run of a cron workload begins, and when the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Timestamp>,
    /// What the autoscaler last saw, in hundredths of what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
}

/// One template that a workload has or had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkloadRevision {
    pub revision: u64,
    pub created_at: Timestamp,
    pub created_by: String,
    pub instance: model::InstanceSpec,
    /// Instances of this revision there are now.
    pub instances: u32,
    /// All its instances were once available, so a rollback may choose it.
    #[serde(default)]
    pub complete: bool,
    /// What differs from the revision before it, field by field.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Why it was given up, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Why a workload is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkloadWhy {
    pub workload: Workload,
    /// Revisions that were given up, newest first.
    pub given_up: Vec<WorkloadRevision>,
    /// How many of its instances are not well.
    pub unwell: u32,
    /// The first of those, with every place that was looked at and why it was not chosen.
    pub instances: Vec<crate::InstanceWhy>,
}

/// A named group of workloads, made, changed and deleted as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppCreate {
    /// Unique in the tenant.
    pub name: Name,
    #[serde(default)]
    pub description: String,
    /// The names of workloads are unique in the tenant, not only in the app.
    #[serde(default)]
    pub workloads: Vec<AppWorkload>,
}

/// Replaces an app: workloads that are not named are deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppUpdate {
    #[serde(default)]
    pub description: String,
    pub workloads: Vec<AppWorkload>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppWorkload {
    pub name: Name,
    pub spec: WorkloadSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct App {
    pub id: AppId,
    pub name: Name,
    pub tenant: Name,
    pub version: i64,
    #[serde(default)]
    pub description: String,
    pub created_at: Timestamp,
    pub created_by: String,
    /// Whether it is being deleted.
    #[serde(default)]
    pub deleting: bool,
    pub workloads: Vec<AppMember>,
}

/// A workload of an app, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AppMember {
    pub name: Name,
    pub phase: WorkloadPhase,
    pub wanted: u32,
    pub available: u32,
}
