//! The operations of S3. One line each here; the work is in the modules.
//!
//! What is not here answers `NotImplemented`.

mod acl;
mod attributes;
mod bucket;
mod copy;
mod delete;
mod list;
mod lock;
mod multipart;
mod object;
mod policy;
mod setting;
mod shape;
mod tag;

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::http::document::known;
use crate::service::Service;

type Req<T> = S3Request<T>;
type Answer<T> = S3Result<S3Response<T>>;

#[async_trait]
impl S3 for Service {
    async fn create_bucket(&self, req: Req<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        bucket::create_bucket(self, req).await
    }

    async fn delete_bucket(&self, req: Req<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        bucket::delete_bucket(self, req).await
    }

    async fn head_bucket(&self, req: Req<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        bucket::head_bucket(self, req).await
    }

    async fn list_buckets(&self, req: Req<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        bucket::list_buckets(self, req).await
    }

    async fn get_bucket_location(&self, req: Req<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        bucket::get_bucket_location(self, req).await
    }

    async fn put_object(&self, req: Req<PutObjectInput>) -> Answer<PutObjectOutput> {
        object::put_object(self, req).await
    }

    async fn get_object(&self, req: Req<GetObjectInput>) -> Answer<GetObjectOutput> {
        object::get_object(self, req).await
    }

    async fn head_object(&self, req: Req<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        object::head_object(self, req).await
    }

    async fn get_object_attributes(
        &self,
        req: Req<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        attributes::get_object_attributes(self, req).await
    }

    async fn copy_object(&self, req: Req<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        copy::copy_object(self, req).await
    }

    async fn delete_object(&self, req: Req<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        delete::delete_object(self, req).await
    }

    async fn delete_objects(&self, req: Req<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        delete::delete_objects(self, known(req)?).await
    }

    async fn list_objects(&self, req: Req<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        list::list_objects(self, req).await
    }

    async fn list_objects_v2(&self, req: Req<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        list::list_objects_v2(self, req).await
    }

    async fn list_object_versions(
        &self,
        req: Req<ListObjectVersionsInput>,
    ) -> Answer<ListObjectVersionsOutput> {
        list::list_object_versions(self, req).await
    }

    async fn create_multipart_upload(
        &self,
        req: Req<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        multipart::create_multipart_upload(self, req).await
    }

    async fn upload_part(&self, req: Req<UploadPartInput>) -> Answer<UploadPartOutput> {
        multipart::upload_part(self, req).await
    }

    async fn upload_part_copy(&self, req: Req<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        multipart::upload_part_copy(self, req).await
    }

    async fn complete_multipart_upload(
        &self,
        req: Req<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        multipart::complete_multipart_upload(self, req).await
    }

    async fn abort_multipart_upload(
        &self,
        req: Req<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        multipart::abort_multipart_upload(self, req).await
    }

    async fn list_multipart_uploads(
        &self,
        req: Req<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        multipart::list_multipart_uploads(self, req).await
    }

    async fn list_parts(&self, req: Req<ListPartsInput>) -> Answer<ListPartsOutput> {
        multipart::list_parts(self, req).await
    }

    async fn get_object_lock_configuration(
        &self,
        req: Req<GetObjectLockConfigurationInput>,
    ) -> Answer<GetObjectLockConfigurationOutput> {
        lock::get_object_lock_configuration(self, req).await
    }

    async fn put_object_lock_configuration(
        &self,
        req: Req<PutObjectLockConfigurationInput>,
    ) -> Answer<PutObjectLockConfigurationOutput> {
        lock::put_object_lock_configuration(self, known(req)?).await
    }

    async fn get_object_retention(
        &self,
        req: Req<GetObjectRetentionInput>,
    ) -> Answer<GetObjectRetentionOutput> {
        lock::get_object_retention(self, req).await
    }

    async fn put_object_retention(
        &self,
        req: Req<PutObjectRetentionInput>,
    ) -> Answer<PutObjectRetentionOutput> {
        lock::put_object_retention(self, known(req)?).await
    }

    async fn get_object_legal_hold(
        &self,
        req: Req<GetObjectLegalHoldInput>,
    ) -> Answer<GetObjectLegalHoldOutput> {
        lock::get_object_legal_hold(self, req).await
    }

    async fn put_object_legal_hold(
        &self,
        req: Req<PutObjectLegalHoldInput>,
    ) -> Answer<PutObjectLegalHoldOutput> {
        lock::put_object_legal_hold(self, known(req)?).await
    }

    async fn get_bucket_acl(&self, req: Req<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
        acl::get_bucket_acl(self, req).await
    }

    async fn put_bucket_acl(&self, req: Req<PutBucketAclInput>) -> Answer<PutBucketAclOutput> {
        acl::put_bucket_acl(self, known(req)?).await
    }

    async fn get_object_acl(&self, req: Req<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
        acl::get_object_acl(self, req).await
    }

    async fn put_object_acl(&self, req: Req<PutObjectAclInput>) -> Answer<PutObjectAclOutput> {
        acl::put_object_acl(self, known(req)?).await
    }

    async fn get_bucket_policy(&self, req: Req<GetBucketPolicyInput>) -> Answer<GetBucketPolicyOutput> {
        policy::get_bucket_policy(self, req).await
    }

    async fn put_bucket_policy(&self, req: Req<PutBucketPolicyInput>) -> Answer<PutBucketPolicyOutput> {
        policy::put_bucket_policy(self, req).await
    }

    async fn delete_bucket_policy(
        &self,
        req: Req<DeleteBucketPolicyInput>,
    ) -> Answer<DeleteBucketPolicyOutput> {
        policy::delete_bucket_policy(self, req).await
    }

    async fn get_bucket_policy_status(
        &self,
        req: Req<GetBucketPolicyStatusInput>,
    ) -> Answer<GetBucketPolicyStatusOutput> {
        policy::get_bucket_policy_status(self, req).await
    }

    async fn get_public_access_block(
        &self,
        req: Req<GetPublicAccessBlockInput>,
    ) -> Answer<GetPublicAccessBlockOutput> {
        policy::get_public_access_block(self, req).await
    }

    async fn put_public_access_block(
        &self,
        req: Req<PutPublicAccessBlockInput>,
    ) -> Answer<PutPublicAccessBlockOutput> {
        policy::put_public_access_block(self, known(req)?).await
    }

    async fn delete_public_access_block(
        &self,
        req: Req<DeletePublicAccessBlockInput>,
    ) -> Answer<DeletePublicAccessBlockOutput> {
        policy::delete_public_access_block(self, req).await
    }

    async fn get_bucket_ownership_controls(
        &self,
        req: Req<GetBucketOwnershipControlsInput>,
    ) -> Answer<GetBucketOwnershipControlsOutput> {
        policy::get_bucket_ownership_controls(self, req).await
    }

    async fn put_bucket_ownership_controls(
        &self,
        req: Req<PutBucketOwnershipControlsInput>,
    ) -> Answer<PutBucketOwnershipControlsOutput> {
        policy::put_bucket_ownership_controls(self, known(req)?).await
    }

    async fn delete_bucket_ownership_controls(
        &self,
        req: Req<DeleteBucketOwnershipControlsInput>,
    ) -> Answer<DeleteBucketOwnershipControlsOutput> {
        policy::delete_bucket_ownership_controls(self, req).await
    }

    async fn get_bucket_cors(&self, req: Req<GetBucketCorsInput>) -> Answer<GetBucketCorsOutput> {
        setting::get_bucket_cors(self, req).await
    }

    async fn put_bucket_cors(&self, req: Req<PutBucketCorsInput>) -> Answer<PutBucketCorsOutput> {
        setting::put_bucket_cors(self, known(req)?).await
    }

    async fn delete_bucket_cors(&self, req: Req<DeleteBucketCorsInput>) -> Answer<DeleteBucketCorsOutput> {
        setting::delete_bucket_cors(self, req).await
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        req: Req<GetBucketLifecycleConfigurationInput>,
    ) -> Answer<GetBucketLifecycleConfigurationOutput> {
        setting::get_bucket_lifecycle_configuration(self, req).await
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        req: Req<PutBucketLifecycleConfigurationInput>,
    ) -> Answer<PutBucketLifecycleConfigurationOutput> {
        setting::put_bucket_lifecycle_configuration(self, known(req)?).await
    }

    async fn delete_bucket_lifecycle(
        &self,
        req: Req<DeleteBucketLifecycleInput>,
    ) -> Answer<DeleteBucketLifecycleOutput> {
        setting::delete_bucket_lifecycle(self, req).await
    }

    async fn get_bucket_website(&self, req: Req<GetBucketWebsiteInput>) -> Answer<GetBucketWebsiteOutput> {
        setting::get_bucket_website(self, req).await
    }

    async fn put_bucket_website(&self, req: Req<PutBucketWebsiteInput>) -> Answer<PutBucketWebsiteOutput> {
        setting::put_bucket_website(self, known(req)?).await
    }

    async fn delete_bucket_website(
        &self,
        req: Req<DeleteBucketWebsiteInput>,
    ) -> Answer<DeleteBucketWebsiteOutput> {
        setting::delete_bucket_website(self, req).await
    }

    async fn get_bucket_logging(&self, req: Req<GetBucketLoggingInput>) -> Answer<GetBucketLoggingOutput> {
        setting::get_bucket_logging(self, req).await
    }

    async fn put_bucket_logging(&self, req: Req<PutBucketLoggingInput>) -> Answer<PutBucketLoggingOutput> {
        setting::put_bucket_logging(self, known(req)?).await
    }

    async fn get_bucket_notification_configuration(
        &self,
        req: Req<GetBucketNotificationConfigurationInput>,
    ) -> Answer<GetBucketNotificationConfigurationOutput> {
        setting::get_bucket_notification_configuration(self, req).await
    }

    async fn put_bucket_notification_configuration(
        &self,
        req: Req<PutBucketNotificationConfigurationInput>,
    ) -> Answer<PutBucketNotificationConfigurationOutput> {
        setting::put_bucket_notification_configuration(self, known(req)?).await
    }

    async fn get_bucket_encryption(
        &self,
        req: Req<GetBucketEncryptionInput>,
    ) -> Answer<GetBucketEncryptionOutput> {
        setting::get_bucket_encryption(self, req).await
    }

    async fn put_bucket_encryption(
        &self,
        req: Req<PutBucketEncryptionInput>,
    ) -> Answer<PutBucketEncryptionOutput> {
        setting::put_bucket_encryption(self, known(req)?).await
    }

    async fn delete_bucket_encryption(
        &self,
        req: Req<DeleteBucketEncryptionInput>,
    ) -> Answer<DeleteBucketEncryptionOutput> {
        setting::delete_bucket_encryption(self, req).await
    }

    async fn get_bucket_versioning(
        &self,
        req: Req<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        setting::get_bucket_versioning(self, req).await
    }

    async fn put_bucket_versioning(
        &self,
        req: Req<PutBucketVersioningInput>,
    ) -> Answer<PutBucketVersioningOutput> {
        setting::put_bucket_versioning(self, known(req)?).await
    }

    async fn get_bucket_request_payment(
        &self,
        req: Req<GetBucketRequestPaymentInput>,
    ) -> Answer<GetBucketRequestPaymentOutput> {
        setting::get_bucket_request_payment(self, req).await
    }

    async fn put_bucket_request_payment(
        &self,
        req: Req<PutBucketRequestPaymentInput>,
    ) -> Answer<PutBucketRequestPaymentOutput> {
        setting::put_bucket_request_payment(self, known(req)?).await
    }

    async fn get_bucket_accelerate_configuration(
        &self,
        req: Req<GetBucketAccelerateConfigurationInput>,
    ) -> Answer<GetBucketAccelerateConfigurationOutput> {
        setting::get_bucket_accelerate_configuration(self, req).await
    }

    async fn put_bucket_accelerate_configuration(
        &self,
        req: Req<PutBucketAccelerateConfigurationInput>,
    ) -> Answer<PutBucketAccelerateConfigurationOutput> {
        setting::put_bucket_accelerate_configuration(self, known(req)?).await
    }

    async fn get_bucket_tagging(&self, req: Req<GetBucketTaggingInput>) -> Answer<GetBucketTaggingOutput> {
        tag::get_bucket_tagging(self, req).await
    }

    async fn put_bucket_tagging(&self, req: Req<PutBucketTaggingInput>) -> Answer<PutBucketTaggingOutput> {
        tag::put_bucket_tagging(self, known(req)?).await
    }

    async fn delete_bucket_tagging(
        &self,
        req: Req<DeleteBucketTaggingInput>,
    ) -> Answer<DeleteBucketTaggingOutput> {
        tag::delete_bucket_tagging(self, req).await
    }

    async fn get_object_tagging(&self, req: Req<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
        tag::get_object_tagging(self, req).await
    }

    async fn put_object_tagging(&self, req: Req<PutObjectTaggingInput>) -> Answer<PutObjectTaggingOutput> {
        tag::put_object_tagging(self, known(req)?).await
    }

    async fn delete_object_tagging(
        &self,
        req: Req<DeleteObjectTaggingInput>,
    ) -> Answer<DeleteObjectTaggingOutput> {
        tag::delete_object_tagging(self, req).await
    }
}
