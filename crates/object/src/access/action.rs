//! What may be asked of the store, under the names that policies use.

use crate::identity::Rights;
use crate::record::Permission;

/// What an action is asked of, and whose rule answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The account itself.
    Service,
    /// A bucket.
    Bucket,
    /// A key, under the rule of its bucket: uploads, deletes, locks.
    Key,
    /// An object, under its own rule and that of its owner.
    Object,
}

macro_rules! actions {
    ($($name:ident: $rights:ident, $target:ident, $grant:expr;)*) => {
        /// An action of a policy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action { $($name),* }

        impl Action {
            #[cfg(test)]
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// As policies name it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => concat!("s3:", stringify!($name))),* }
            }

            /// What a user needs in its own account.
            pub const fn rights(self) -> Rights {
                match self { $(Self::$name => Rights::$rights),* }
            }

            pub const fn target(self) -> Target {
                match self { $(Self::$name => Target::$target),* }
            }

            /// The permission of an ACL that includes it; the ACL is the target's.
            pub const fn grant(self) -> Option<Permission> {
                match self { $(Self::$name => $grant),* }
            }
        }
    };
}

const READ: Option<Permission> = Some(Permission::Read);
const WRITE: Option<Permission> = Some(Permission::Write);
const READ_ACP: Option<Permission> = Some(Permission::ReadAcp);
const WRITE_ACP: Option<Permission> = Some(Permission::WriteAcp);

actions! {
    ListAllMyBuckets: Read, Service, None;
    CreateBucket: Write, Service, None;
    DeleteBucket: Write, Bucket, None;
    ListBucket: Read, Bucket, READ;
    ListBucketVersions: Read, Bucket, READ;
    ListBucketMultipartUploads: Read, Bucket, READ;
    GetBucketLocation: Read, Bucket, None;
    GetBucketAcl: Read, Bucket, READ_ACP;
    PutBucketAcl: Manage, Bucket, WRITE_ACP;
    GetBucketPolicy: Read, Bucket, None;
    PutBucketPolicy: Manage, Bucket, None;
    DeleteBucketPolicy: Manage, Bucket, None;
    GetBucketPolicyStatus: Read, Bucket, None;
    GetBucketPublicAccessBlock: Read, Bucket, None;
    PutBucketPublicAccessBlock: Manage, Bucket, None;
    GetBucketOwnershipControls: Read, Bucket, None;
    PutBucketOwnershipControls: Manage, Bucket, None;
    GetBucketCORS: Read, Bucket, None;
    PutBucketCORS: Write, Bucket, None;
    GetLifecycleConfiguration: Read, Bucket, None;
    PutLifecycleConfiguration: Write, Bucket, None;
    GetBucketTagging: Read, Bucket, None;
    PutBucketTagging: Write, Bucket, None;
    GetBucketVersioning: Read, Bucket, None;
    PutBucketVersioning: Write, Bucket, None;
    GetBucketWebsite: Read, Bucket, None;
    PutBucketWebsite: Write, Bucket, None;
    DeleteBucketWebsite: Write, Bucket, None;
    GetBucketLogging: Read, Bucket, None;
    PutBucketLogging: Write, Bucket, None;
    GetBucketNotification: Read, Bucket, None;
    PutBucketNotification: Write, Bucket, None;
    GetEncryptionConfiguration: Read, Bucket, None;
    PutEncryptionConfiguration: Write, Bucket, None;
    GetBucketObjectLockConfiguration: Read, Bucket, None;
    PutBucketObjectLockConfiguration: Manage, Bucket, None;
    GetBucketRequestPayment: Read, Bucket, None;
    PutBucketRequestPayment: Write, Bucket, None;
    GetAccelerateConfiguration: Read, Bucket, None;
    PutAccelerateConfiguration: Write, Bucket, None;
    GetReplicationConfiguration: Read, Bucket, None;
    PutReplicationConfiguration: Write, Bucket, None;
    GetAnalyticsConfiguration: Read, Bucket, None;
    PutAnalyticsConfiguration: Write, Bucket, None;
    GetInventoryConfiguration: Read, Bucket, None;
    PutInventoryConfiguration: Write, Bucket, None;
    GetMetricsConfiguration: Read, Bucket, None;
    PutMetricsConfiguration: Write, Bucket, None;
    GetIntelligentTieringConfiguration: Read, Bucket, None;
    PutIntelligentTieringConfiguration: Write, Bucket, None;
    PutObject: Write, Key, WRITE;
    DeleteObject: Write, Key, WRITE;
    DeleteObjectVersion: Write, Key, None;
    AbortMultipartUpload: Write, Key, WRITE;
    ListMultipartUploadParts: Read, Key, WRITE;
    PutObjectRetention: Write, Key, None;
    PutObjectLegalHold: Write, Key, None;
    BypassGovernanceRetention: Manage, Key, None;
    RestoreObject: Write, Key, None;
    GetObject: Read, Object, READ;
    GetObjectVersion: Read, Object, READ;
    GetObjectAttributes: Read, Object, READ;
    GetObjectVersionAttributes: Read, Object, READ;
    GetObjectTorrent: Read, Object, READ;
    GetObjectAcl: Read, Object, READ_ACP;
    GetObjectVersionAcl: Read, Object, READ_ACP;
    PutObjectAcl: Manage, Object, WRITE_ACP;
    PutObjectVersionAcl: Manage, Object, WRITE_ACP;
    GetObjectTagging: Read, Object, None;
    GetObjectVersionTagging: Read, Object, None;
    PutObjectTagging: Write, Object, None;
    PutObjectVersionTagging: Write, Object, None;
    DeleteObjectTagging: Write, Object, None;
    DeleteObjectVersionTagging: Write, Object, None;
    GetObjectRetention: Read, Object, None;
    GetObjectLegalHold: Read, Object, None;
}

impl Action {
    /// What an operation of the API asks for; `versioned` says whether it names a version.
    /// `None`: nothing beyond what the operation checks itself, or an operation that we do not have.
    pub fn of(operation: &str, versioned: bool) -> Option<Self> {
        let pick = |plain, version| Some(if versioned { version } else { plain });
        match operation {
            "GetObject" | "HeadObject" | "SelectObjectContent" => {
                pick(Self::GetObject, Self::GetObjectVersion)
            }
            "GetObjectAttributes" => pick(Self::GetObjectAttributes, Self::GetObjectVersionAttributes),
            "GetObjectAcl" => pick(Self::GetObjectAcl, Self::GetObjectVersionAcl),
            "PutObjectAcl" => pick(Self::PutObjectAcl, Self::PutObjectVersionAcl),
            "GetObjectTagging" => pick(Self::GetObjectTagging, Self::GetObjectVersionTagging),
            "PutObjectTagging" => pick(Self::PutObjectTagging, Self::PutObjectVersionTagging),
            "DeleteObjectTagging" => pick(Self::DeleteObjectTagging, Self::DeleteObjectVersionTagging),
            "DeleteObject" => pick(Self::DeleteObject, Self::DeleteObjectVersion),
            "GetObjectRetention" => Some(Self::GetObjectRetention),
            "PutObjectRetention" => Some(Self::PutObjectRetention),
            "GetObjectLegalHold" => Some(Self::GetObjectLegalHold),
            "PutObjectLegalHold" => Some(Self::PutObjectLegalHold),
            "GetObjectTorrent" => Some(Self::GetObjectTorrent),
            "RestoreObject" => Some(Self::RestoreObject),
            "PutObject"
            | "PostObject"
            | "CopyObject"
            | "CreateMultipartUpload"
            | "UploadPart"
            | "UploadPartCopy"
            | "CompleteMultipartUpload" => Some(Self::PutObject),
            "AbortMultipartUpload" => Some(Self::AbortMultipartUpload),
            "ListParts" => Some(Self::ListMultipartUploadParts),
            _ => Self::of_bucket(operation),
        }
    }

    fn of_bucket(operation: &str) -> Option<Self> {
        Some(match operation {
            "ListBuckets" | "ListDirectoryBuckets" => Self::ListAllMyBuckets,
            "CreateBucket" => Self::CreateBucket,
            "DeleteBucket" => Self::DeleteBucket,
            "HeadBucket" | "ListObjects" | "ListObjectsV2" => Self::ListBucket,
            "ListObjectVersions" => Self::ListBucketVersions,
            "ListMultipartUploads" => Self::ListBucketMultipartUploads,
            "GetBucketLocation" => Self::GetBucketLocation,
            "GetBucketAcl" => Self::GetBucketAcl,
            "PutBucketAcl" => Self::PutBucketAcl,
            "GetBucketPolicy" => Self::GetBucketPolicy,
            "PutBucketPolicy" => Self::PutBucketPolicy,
            "DeleteBucketPolicy" => Self::DeleteBucketPolicy,
            "GetBucketPolicyStatus" => Self::GetBucketPolicyStatus,
            "GetPublicAccessBlock" => Self::GetBucketPublicAccessBlock,
            "PutPublicAccessBlock" | "DeletePublicAccessBlock" => Self::PutBucketPublicAccessBlock,
            "GetBucketOwnershipControls" => Self::GetBucketOwnershipControls,
            "PutBucketOwnershipControls" | "DeleteBucketOwnershipControls" => {
                Self::PutBucketOwnershipControls
            }
            "GetBucketCors" => Self::GetBucketCORS,
            "PutBucketCors" | "DeleteBucketCors" => Self::PutBucketCORS,
            "GetBucketLifecycleConfiguration" => Self::GetLifecycleConfiguration,
            "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => Self::PutLifecycleConfiguration,
            "GetBucketTagging" => Self::GetBucketTagging,
            "PutBucketTagging" | "DeleteBucketTagging" => Self::PutBucketTagging,
            "GetBucketVersioning" => Self::GetBucketVersioning,
            "PutBucketVersioning" => Self::PutBucketVersioning,
            "GetBucketWebsite" => Self::GetBucketWebsite,
            "PutBucketWebsite" => Self::PutBucketWebsite,
            "DeleteBucketWebsite" => Self::DeleteBucketWebsite,
            _ => return Self::of_setting(operation),
        })
    }

    fn of_setting(operation: &str) -> Option<Self> {
        Some(match operation {
            "GetBucketLogging" => Self::GetBucketLogging,
            "PutBucketLogging" => Self::PutBucketLogging,
            "GetBucketNotificationConfiguration" => Self::GetBucketNotification,
            "PutBucketNotificationConfiguration" => Self::PutBucketNotification,
            "GetBucketEncryption" => Self::GetEncryptionConfiguration,
            "PutBucketEncryption" | "DeleteBucketEncryption" => Self::PutEncryptionConfiguration,
            "GetObjectLockConfiguration" => Self::GetBucketObjectLockConfiguration,
            "PutObjectLockConfiguration" => Self::PutBucketObjectLockConfiguration,
            "GetBucketRequestPayment" => Self::GetBucketRequestPayment,
            "PutBucketRequestPayment" => Self::PutBucketRequestPayment,
            "GetBucketAccelerateConfiguration" => Self::GetAccelerateConfiguration,
            "PutBucketAccelerateConfiguration" => Self::PutAccelerateConfiguration,
            "GetBucketReplication" => Self::GetReplicationConfiguration,
            "PutBucketReplication" | "DeleteBucketReplication" => Self::PutReplicationConfiguration,
            "GetBucketAnalyticsConfiguration" | "ListBucketAnalyticsConfigurations" => {
                Self::GetAnalyticsConfiguration
            }
            "PutBucketAnalyticsConfiguration" | "DeleteBucketAnalyticsConfiguration" => {
                Self::PutAnalyticsConfiguration
            }
            "GetBucketInventoryConfiguration" | "ListBucketInventoryConfigurations" => {
                Self::GetInventoryConfiguration
            }
            "PutBucketInventoryConfiguration" | "DeleteBucketInventoryConfiguration" => {
                Self::PutInventoryConfiguration
            }
            "GetBucketMetricsConfiguration" | "ListBucketMetricsConfigurations" => {
                Self::GetMetricsConfiguration
            }
            "PutBucketMetricsConfiguration" | "DeleteBucketMetricsConfiguration" => {
                Self::PutMetricsConfiguration
            }
            "GetBucketIntelligentTieringConfiguration" | "ListBucketIntelligentTieringConfigurations" => {
                Self::GetIntelligentTieringConfiguration
            }
            "PutBucketIntelligentTieringConfiguration" | "DeleteBucketIntelligentTieringConfiguration" => {
                Self::PutIntelligentTieringConfiguration
            }
            _ => return None,
        })
    }

    /// Whether the owner's account may do it whatever the policy denies, so that a policy cannot lock itself in.
    pub const fn frees_policy(self) -> bool {
        matches!(self, Self::GetBucketPolicy | Self::PutBucketPolicy | Self::DeleteBucketPolicy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_needs_no_more_than_reading() {
        for action in Action::ALL {
            let name = action.name().trim_start_matches("s3:");
            let reads = name.starts_with("Get") || name.starts_with("List");
            assert_eq!(reads, action.rights() == Rights::Read, "{name}");
        }
    }

    #[test]
    fn every_operation_of_ours_asks_for_something() {
        let source = include_str!("../s3/mod.rs");
        let operations = source.lines().filter_map(|line| line.trim().strip_prefix("async fn "));
        let mut seen = 0;
        for operation in operations.filter_map(|line| line.split('(').next()) {
            let words = operation.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
            let name: String = words.collect();
            let own = ["DeleteObjects"].contains(&name.as_str());
            assert_eq!(Action::of(&name, false).is_none(), own, "{name}");
            seen += 1;
        }
        assert!(seen > 50, "{seen} operations");
    }

    #[test]
    fn naming_a_version_is_another_action() {
        for operation in ["GetObject", "HeadObject", "GetObjectAcl", "DeleteObject", "GetObjectTagging"] {
            assert_ne!(Action::of(operation, false), Action::of(operation, true), "{operation}");
        }
    }
}
