//! Whether orders would be taken, asked before they are given.

use model::Name;
use serde::{Deserialize, Serialize};

use crate::{AppCreate, InstanceCreate, WorkloadCreate};

/// Orders that are going to be given together. Nothing is changed by asking.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = OrderCheck)]
pub struct Check {
    /// Images that will be there by then.
    pub images: Vec<Name>,
    pub instances: Vec<InstanceCreate>,
    /// New or changed; also of apps that are asked for here.
    pub workloads: Vec<WorkloadCreate>,
    /// New or changed.
    pub apps: Vec<AppCreate>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckReport {
    pub faults: Vec<CheckFault>,
}

/// What stands in the way of one order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckFault {
    pub kind: CheckKind,
    pub name: Name,
    /// True: the order would be refused. False: it would be taken, and wait for what is missing.
    pub refused: bool,
    /// The field as a dotted path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    Instance,
    Workload,
    App,
}
