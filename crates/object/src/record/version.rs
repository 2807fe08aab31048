//! One version of an object, or a delete marker.

use serde::{Deserialize, Serialize};

use super::bucket::Acl;
use crate::engine::BlobId;
use crate::identity::Account;
use crate::record::packed;

/// The first fields are what listings show; `Head` reads only those.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub head: Head,
    /// Where the bytes are, in order. Empty for markers and empty objects.
    pub blobs: Vec<Blob>,
    /// Whether it came by a multipart upload; then `blobs` are its parts.
    pub multipart: bool,
    /// The upload that made it, so that a repeated completion is known. Copies have none.
    pub upload: Option<String>,
    /// Content-Type and the other system headers, lower-case names, as given.
    pub headers: Vec<(String, String)>,
    /// `x-amz-meta-` names without the prefix, lower case.
    pub metadata: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    pub acl: Option<Acl>,
    pub seal: Option<Seal>,
    pub retention: Option<Retention>,
    pub hold: Hold,
    pub checksum: Option<Checksum>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Counts up over the whole store; orders the versions of a key and makes their ids.
    pub seq: u64,
    /// The version that S3 calls `null`: written while versioning was off or suspended.
    pub null: bool,
    pub marker: bool,
    pub size: u64,
    /// Milliseconds since 1970.
    pub modified: i64,
    /// Without quotes.
    pub etag: String,
    pub storage_class: Option<String>,
    pub owner: Account,
    /// Name of the checksum algorithm, for listings, and whether it is of the full object.
    pub checksum: Option<(String, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    pub id: BlobId,
    pub size: u64,
    /// Of a part: its number in the upload and its checksum in base64.
    pub part: u16,
    pub checksum: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// As in `x-amz-checksum-algorithm`: CRC32, CRC32C, CRC64NVME, SHA1, SHA256.
    pub algorithm: String,
    /// Base64; a composite one ends in `-N`.
    pub value: String,
    pub full: bool,
}

/// How the bytes are encrypted at rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seal {
    /// By a data key that is wrapped under the store's key. `kms` holds a key id if KMS was asked for.
    Store { wrapped: Vec<u8>, kms: Option<String> },
    /// By the customer's key; kept are only the MD5 that S3 shows and a salted proof.
    Customer { md5: String, salt: Vec<u8>, proof: Vec<u8> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    pub compliance: bool,
    /// Milliseconds since 1970.
    pub until: i64,
}

/// A legal hold: never set, on, or off again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Hold {
    #[default]
    Unset,
    On,
    Off,
}

impl Version {
    /// An object without bytes, on no terms.
    pub fn empty(owner: Account) -> Self {
        let head = Head {
            seq: 0,
            null: false,
            marker: false,
            size: 0,
            modified: 0,
            etag: String::new(),
            storage_class: None,
            owner,
            checksum: None,
        };
        Self {
            head,
            blobs: Vec::new(),
            multipart: false,
            upload: None,
            headers: Vec::new(),
            metadata: Vec::new(),
            tags: Vec::new(),
            acl: None,
            seal: None,
            retention: None,
            hold: Hold::Unset,
            checksum: None,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        packed::encode(self)
    }

    /// `None` if the bytes are not a record of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        packed::decode(bytes)
    }
}

impl Head {
    /// Reads the head alone.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        packed::decode_begin(bytes)
    }

    /// Reads whether it is a delete marker, and nothing else.
    pub fn is_marker(bytes: &[u8]) -> Option<bool> {
        let (_, _, marker) = packed::decode_begin::<(u64, bool, bool)>(bytes)?;
        Some(marker)
    }

    /// As clients see it.
    pub fn version_id(&self) -> String {
        if self.null { "null".into() } else { version_id(self.seq) }
    }
}

/// 32 characters, opaque to clients.
pub fn version_id(seq: u64) -> String {
    format!("{seq:016x}{:016x}", seq.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The number behind an id that we gave.
pub fn version_seq(id: &str) -> Option<u64> {
    let seq = u64::from_str_radix(id.get(..16)?, 16).ok()?;
    (version_id(seq) == id).then_some(seq)
}
