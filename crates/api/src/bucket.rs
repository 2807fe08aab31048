//! Buckets as REST shows them. Their objects travel by S3.

use model::{Bytes, Name, Timestamp};
use serde::{Deserialize, Serialize};

/// A bucket and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Bucket {
    pub name: String,
    pub tenant: Name,
    pub created_at: Timestamp,
    /// `off`, `enabled` or `suspended`.
    pub versioning: String,
    /// Whether its policy or its list of rights lets anyone in.
    pub public: bool,
    /// Objects that a listing shows.
    pub objects: u64,
    /// All versions, delete markers counted.
    pub versions: u64,
    /// Bytes of all versions.
    pub bytes: Bytes,
    /// Bytes of uploads that are not complete.
    pub upload_bytes: Bytes,
    /// The most bytes it may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Bytes>,
}

/// The most a bucket may hold; absent means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BucketQuota {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
}

/// Credentials for S3 that end by themselves.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct S3Session {
    pub endpoint: String,
    pub region: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    pub session_token: String,
    pub expires_at: Timestamp,
}

/// How the object store fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ObjectStore {
    pub endpoint: String,
    pub buckets: u64,
    pub objects: u64,
    pub bytes: Bytes,
}
