//! The actions that policies may name: all that S3 knows, also those that this store does not offer.

use super::pattern;

/// Whether a pattern, such as `s3:Get*`, stands for an action that S3 knows.
pub fn is_known(pattern: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let Some((service, name)) = pattern.split_once(':') else { return false };
    let mut known = KNOWN.iter().flat_map(|line| line.split(' '));
    service.eq_ignore_ascii_case("s3")
        && !name.is_empty()
        && known.any(|known| pattern::fits(name, known, true))
}

const KNOWN: [&str; 45] = [
    "AbortMultipartUpload AssociateAccessGrantsIdentityCenter BypassGovernanceRetention CreateAccessGrant",
    "CreateAccessGrantsInstance CreateAccessGrantsLocation CreateAccessPoint CreateAccessPointForObjectLambda",
    "CreateBucket CreateBucketMetadataTableConfiguration CreateJob CreateMultiRegionAccessPoint",
    "CreateStorageLensGroup DeleteAccessGrant DeleteAccessGrantsInstance DeleteAccessGrantsInstanceResourcePolicy",
    "DeleteAccessGrantsLocation DeleteAccessPoint DeleteAccessPointForObjectLambda DeleteAccessPointPolicy",
    "DeleteAccessPointPolicyForObjectLambda DeleteBucket DeleteBucketMetadataTableConfiguration DeleteBucketPolicy",
    "DeleteBucketWebsite DeleteJobTagging DeleteMultiRegionAccessPoint DeleteObject DeleteObjectTagging",
    "DeleteObjectVersion DeleteObjectVersionTagging DeleteStorageLensConfiguration",
    "DeleteStorageLensConfigurationTagging DeleteStorageLensGroup DescribeJob",
    "DescribeMultiRegionAccessPointOperation DissociateAccessGrantsIdentityCenter GetAccelerateConfiguration",
    "GetAccessGrant GetAccessGrantsInstance GetAccessGrantsInstanceForPrefix GetAccessGrantsInstanceResourcePolicy",
    "GetAccessGrantsLocation GetAccessPoint GetAccessPointConfigurationForObjectLambda",
    "GetAccessPointForObjectLambda GetAccessPointPolicy GetAccessPointPolicyForObjectLambda",
    "GetAccessPointPolicyStatus GetAccessPointPolicyStatusForObjectLambda GetAccountPublicAccessBlock",
    "GetAnalyticsConfiguration GetBucketAbac GetBucketAcl GetBucketCORS GetBucketLocation GetBucketLogging",
    "GetBucketMetadataTableConfiguration GetBucketNotification GetBucketObjectLockConfiguration",
    "GetBucketOwnershipControls GetBucketPolicy GetBucketPolicyStatus GetBucketPublicAccessBlock",
    "GetBucketRequestPayment GetBucketTagging GetBucketVersioning GetBucketWebsite GetDataAccess",
    "GetEncryptionConfiguration GetIntelligentTieringConfiguration GetInventoryConfiguration GetJobTagging",
    "GetLifecycleConfiguration GetMetricsConfiguration GetMultiRegionAccessPoint GetMultiRegionAccessPointPolicy",
    "GetMultiRegionAccessPointPolicyStatus GetMultiRegionAccessPointRoutes GetObject GetObjectAcl",
    "GetObjectAttributes GetObjectLegalHold GetObjectRetention GetObjectTagging GetObjectTorrent GetObjectVersion",
    "GetObjectVersionAcl GetObjectVersionAttributes GetObjectVersionForReplication GetObjectVersionTagging",
    "GetObjectVersionTorrent GetReplicationConfiguration GetStorageLensConfiguration",
    "GetStorageLensConfigurationTagging GetStorageLensDashboard GetStorageLensGroup InitiateReplication",
    "ListAccessGrants ListAccessGrantsInstances ListAccessGrantsLocations ListAccessPoints",
    "ListAccessPointsForObjectLambda ListAllMyBuckets ListBucket ListBucketMultipartUploads ListBucketVersions",
    "ListCallerAccessGrants ListJobs ListMultipartUploadParts ListMultiRegionAccessPoints",
    "ListStorageLensConfigurations ListStorageLensGroups ListTagsForResource ObjectOwnerOverrideToBucketOwner",
    "PauseReplication PutAccelerateConfiguration PutAccessGrantsInstanceResourcePolicy",
    "PutAccessPointConfigurationForObjectLambda PutAccessPointPolicy PutAccessPointPolicyForObjectLambda",
    "PutAccessPointPublicAccessBlock PutAccountPublicAccessBlock PutAnalyticsConfiguration PutBucketAbac PutBucketAcl",
    "PutBucketCORS PutBucketLogging PutBucketNotification PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls PutBucketPolicy PutBucketPublicAccessBlock PutBucketRequestPayment",
    "PutBucketTagging PutBucketVersioning PutBucketWebsite PutEncryptionConfiguration",
    "PutIntelligentTieringConfiguration PutInventoryConfiguration PutJobTagging PutLifecycleConfiguration",
    "PutMetricsConfiguration PutMultiRegionAccessPointPolicy PutObject PutObjectAcl PutObjectLegalHold",
    "PutObjectRetention PutObjectTagging PutObjectVersionAcl PutObjectVersionTagging PutReplicationConfiguration",
    "PutStorageLensConfiguration PutStorageLensConfigurationTagging ReplicateDelete ReplicateObject ReplicateTags",
    "RestoreObject SubmitMultiRegionAccessPointRoutes TagResource UntagResource UpdateAccessGrantsLocation",
    "UpdateBucketMetadataInventoryTableConfiguration UpdateBucketMetadataJournalTableConfiguration UpdateJobPriority",
    "UpdateJobStatus UpdateObjectEncryption UpdateStorageLensGroup",
    // What policies write that are older, or made for stores that took S3's interface over.
    "DeleteBucketCORS DeleteBucketPublicAccessBlock DeleteLifecycleConfiguration DeleteObjectVersionAcl",
    "DeleteReplicationConfiguration GetBucketCors GetBucketLifecycle HeadBucket HeadObject ListBuckets",
    "ListMultipartUploads ListObjects ListParts PutBucketCors PutBucketEncryption PutBucketLifecycle PutBucketReplication",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Action;

    #[test]
    fn patterns_stand_for_something() {
        for known in
            ["*", "s3:*", "s3:Get*", "S3:getobject", "s3:?etObject", "s3:*Tagging", "s3:PutStorageLens*"]
        {
            assert!(is_known(known), "{known}");
        }
        for odd in
            ["s3:GetObjekt", "s3:Gett*", "s3:", "GetObject", "ec2:*", "s3:Put Object", "s3:GetObject2?"]
        {
            assert!(!is_known(odd), "{odd}");
        }
    }

    #[test]
    fn our_own_are_among_them() {
        for action in Action::ALL {
            assert!(is_known(action.name()), "{}", action.name());
        }
    }
}
