//! A bucket and its settings. Settings are kept as S3 gave them.

use s3s::dto;
use serde::{Deserialize, Serialize};

use crate::identity::Account;
use crate::record::packed;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bucket {
    /// Never used again, so that keys of a deleted bucket's objects cannot come back.
    pub id: u32,
    pub name: String,
    pub owner: Account,
    /// Milliseconds since 1970.
    pub created: i64,
    #[serde(default)]
    pub versioning: Versioning,
    pub acl: Acl,
    /// As given, checked when it was set.
    #[serde(default)]
    pub policy: Option<String>,
    #[serde(default)]
    pub location: Option<String>,
    #[serde(default)]
    pub settings: Settings,
    /// The most bytes in this bucket.
    #[serde(default)]
    pub quota: Option<u64>,
}

/// The sub-resources of a bucket, absent until someone sets them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub cors: Option<dto::CORSConfiguration>,
    pub lifecycle: Option<dto::BucketLifecycleConfiguration>,
    pub tags: Option<Vec<dto::Tag>>,
    pub website: Option<dto::WebsiteConfiguration>,
    #[serde(with = "super::as_xml")]
    pub logging: Option<dto::BucketLoggingStatus>,
    pub notification: Option<dto::NotificationConfiguration>,
    /// Whether its webhooks were set up from another machine, so that they may not be on the store's own.
    pub notification_far: bool,
    pub encryption: Option<dto::ServerSideEncryptionConfiguration>,
    pub public_access: Option<dto::PublicAccessBlockConfiguration>,
    /// BucketOwnerEnforced, BucketOwnerPreferred or ObjectWriter.
    pub ownership: Option<String>,
    pub lock: Option<dto::ObjectLockConfiguration>,
    pub payer: Option<dto::RequestPaymentConfiguration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Versioning {
    #[default]
    Off,
    Enabled,
    Suspended,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    pub owner: Account,
    pub grants: Vec<Grant>,
}

impl Acl {
    /// All rights to the owner and none to others.
    pub fn private(owner: &Account) -> Self {
        let grant = Grant { to: Grantee::Account(owner.clone()), permission: Permission::FullControl };
        Self { owner: owner.clone(), grants: vec![grant] }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub to: Grantee,
    pub permission: Permission,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grantee {
    Account(Account),
    AllUsers,
    AuthenticatedUsers,
    LogDelivery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    FullControl,
    Read,
    Write,
    ReadAcp,
    WriteAcp,
}

/// How much a bucket or an account holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Keys whose newest version is not a delete marker.
    pub objects: u64,
    /// All versions, delete markers among them: a bucket without any is empty.
    pub versions: u64,
    /// Of all versions.
    pub bytes: u64,
    /// Of the parts of open uploads.
    pub upload_bytes: u64,
}

impl Usage {
    pub fn encode(&self) -> Vec<u8> {
        packed::encode(self)
    }

    /// `None` if the bytes are not a record of this format.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        packed::decode(bytes)
    }
}
