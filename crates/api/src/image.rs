//! Images as users see them.

use model::{ImageId, ImageManifest, Name, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Image {
    pub id: ImageId,
    pub name: Name,
    /// Name of the tenant that owns it.
    pub tenant: Name,
    /// Whether every tenant may use it.
    pub public: bool,
    pub version: i64,
    /// Sum of the layers as stored.
    pub size_bytes: u64,
    /// `import`, `built-in` or a registry reference.
    pub source: String,
    pub manifest: ImageManifest,
    pub created_at: Timestamp,
}

/// Fetches an image from a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImagePull {
    /// Such as `docker.io/library/alpine:3.20`.
    pub reference: String,
    /// For operators: every tenant may use it.
    #[serde(default)]
    pub public: bool,
}
