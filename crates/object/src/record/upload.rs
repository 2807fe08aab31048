//! A multipart upload that is not complete, and its parts.

use serde::{Deserialize, Serialize};

use super::bucket::Acl;
use super::version::{Checksum, Hold, Retention, Seal};
use crate::engine::BlobId;
use crate::identity::Account;
use crate::record::packed;

/// What the version will be once the upload is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    pub id: String,
    pub key: String,
    /// Milliseconds since 1970.
    pub started: i64,
    pub initiator: Account,
    pub owner: Account,
    pub storage_class: Option<String>,
    pub headers: Vec<(String, String)>,
    pub metadata: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    pub acl: Option<Acl>,
    pub seal: Option<Seal>,
    pub retention: Option<Retention>,
    pub hold: Hold,
    /// Algorithm, and whether the checksum of the whole is asked for (else composite).
    pub checksum: Option<(String, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub number: u16,
    pub blob: Option<BlobId>,
    pub size: u64,
    pub modified: i64,
    /// MD5 in hex.
    pub etag: String,
    pub checksum: Option<Checksum>,
}

impl Upload {
    pub fn encode(&self) -> Vec<u8> {
        packed::encode(self)
    }

    /// `None` if the bytes are not a record of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        packed::decode(bytes)
    }
}

impl Part {
    pub fn encode(&self) -> Vec<u8> {
        packed::encode(self)
    }

    /// `None` if the bytes are not a record of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        packed::decode(bytes)
    }
}
