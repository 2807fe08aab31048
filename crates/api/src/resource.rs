//! Files that plugins use on machines (scripts, archives, keys), as users see them.

use model::{Digest, Timestamp};
use serde::{Deserialize, Serialize};

/// What a version is to provisioners. A sync makes the staged one active and the recalled one inactive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResourceStatus {
    /// Only kept.
    Inactive,
    /// Active after the next sync.
    Staged,
    /// Provisioners have it, and keep it.
    Active,
    /// Provisioners have it until the next sync.
    Recalled,
}

impl ResourceStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Staged => "staged",
            Self::Active => "active",
            Self::Recalled => "recalled",
        }
    }
}

impl std::fmt::Display for ResourceStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A file that a plugin uses, with all of its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resource {
    /// `automatortypes` or `providertypes`.
    pub kind: String,
    /// Name of the plugin, such as `shell`.
    pub plugin: String,
    /// One of the plugin's types of files, such as `scripts`.
    #[serde(rename = "type")]
    pub resource_type: String,
    pub name: String,
    /// `file` or `archive`.
    pub format: String,
    /// Whether it is kept sealed and never shown again.
    pub secret: bool,
    /// Newest first.
    pub versions: Vec<ResourceVersion>,
}

impl Resource {
    /// `KIND/PLUGIN/TYPE/NAME`, by which it is asked for.
    pub fn path(&self) -> String {
        format!("{}/{}/{}/{}", self.kind, self.plugin, self.resource_type, self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceVersion {
    /// Counts uploads from 1.
    pub number: u32,
    /// For `If-Match`.
    pub version: i64,
    pub status: ResourceStatus,
    pub size_bytes: u64,
    /// Of the content; not shown of secret ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// What a sync changed, as `KIND/PLUGIN/TYPE/NAME@NUMBER`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceSync {
    /// Provisioners get these.
    pub activated: Vec<String>,
    /// Provisioners lose these.
    pub recalled: Vec<String>,
}
