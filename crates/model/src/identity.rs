//! Who may do how much.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Cpu};

/// What a user may do. Each role may do what the later ones may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads the things of its tenant.
    Viewer,
    /// Makes and changes things of its tenant.
    Member,
    /// Also manages the users and keys of its tenant.
    Admin,
    /// Runs the cloud: tenants, zones, nodes, everything.
    Operator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Operator => "operator",
        })
    }
}

/// The most a tenant may have at once; absent means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Bytes in buckets, all versions counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u64>,
    /// Machines of all clusters together; what is being made counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_machines: Option<u64>,
}
