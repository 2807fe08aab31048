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
    /// Where instances on the store's own machine reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_inside: Option<String>,
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
    /// Where the bytes of large objects lie, if that is another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Bytes of large objects in that store.
    #[serde(default)]
    pub gateway_bytes: Bytes,
    /// `ok`, `away` (the store behind this one does not answer), `damaged`, `full` (nothing more can be put) or `stopped` (nothing changes until this server is restarted).
    pub state: String,
    /// Bytes of small objects, which live in the journal.
    pub packed_bytes: Bytes,
    /// Bytes of large objects, each a file.
    pub file_bytes: Bytes,
    /// Bytes of the journal that hold no object.
    pub dead_bytes: Bytes,
    /// Room on the disk, and how much of it is kept for deletes.
    pub free_bytes: Bytes,
    pub reserve_bytes: Bytes,
    /// Pieces of objects that do not match their checksums.
    pub damaged: u64,
    /// Length of the queue of events for webhooks, and from where on events are dropped.
    pub outbox: u64,
    pub outbox_max: u64,
    pub scrub: Scrub,
}

/// The reading of everything that is kept: the pass that runs, or the last one since this server started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Scrub {
    pub running: bool,
    pub bytes: Bytes,
    /// All there is to read.
    pub bytes_all: Bytes,
    /// Pieces that it found damaged.
    pub damaged: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the last complete pass ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// How fast to read; absent is as fast as it goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubStart {
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bytes>,
}

/// A version of an object whose bytes do not match their checksums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DamagedObject {
    pub bucket: String,
    pub key: String,
    pub version_id: String,
    pub bytes: Bytes,
}
