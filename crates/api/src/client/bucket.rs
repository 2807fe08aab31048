//! Buckets.

use model::Result;
use reqwest::Method;

use super::{Client, ListQuery, segment};
use crate::{Bucket, BucketQuota, DamagedObject, ObjectStore, Page, S3Session, ScrubStart};

impl Client {
    pub async fn bucket_list(&self, query: &ListQuery) -> Result<Page<Bucket>> {
        self.list("/v1/buckets", query).await
    }

    pub async fn bucket_get(&self, name: &str) -> Result<Bucket> {
        self.get(&format!("/v1/buckets/{}", segment(name))).await
    }

    pub async fn bucket_quota_set(&self, name: &str, quota: &BucketQuota) -> Result<Bucket> {
        let path = format!("/v1/buckets/{}/quota", segment(name));
        self.json(self.request(Method::PUT, &path).json(quota)).await
    }

    /// Credentials with which the caller may speak S3 for a while.
    pub async fn s3_session(&self) -> Result<S3Session> {
        self.json(self.request(Method::POST, "/v1/s3/session")).await
    }

    /// The same for so many seconds.
    pub async fn s3_session_for(&self, seconds: u64) -> Result<S3Session> {
        let query = [("duration_s", seconds)];
        self.json(self.request(Method::POST, "/v1/s3/session").query(&query)).await
    }

    pub async fn object_store(&self) -> Result<ObjectStore> {
        self.get("/v1/object-store").await
    }

    /// Begins to read everything that is kept.
    pub async fn object_store_scrub(&self, start: &ScrubStart) -> Result<ObjectStore> {
        self.json(self.request(Method::POST, "/v1/object-store/scrub").json(start)).await
    }

    pub async fn object_store_damage(&self) -> Result<Vec<DamagedObject>> {
        self.get("/v1/object-store/damage").await
    }
}
