//! Secrets of access keys, for the check of signatures.

use std::sync::Arc;

use async_trait::async_trait;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

use crate::identity::Identity;

/// Finds the secret that a request must be signed with.
pub struct Auth {
    identity: Arc<dyn Identity>,
}

impl Auth {
    pub fn new(identity: Arc<dyn Identity>) -> Self {
        Self { identity }
    }
}

#[async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let key = self.identity.key(access_key).await;
        let key = key.ok_or_else(|| {
            s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records.")
        })?;
        Ok(SecretKey::from(key.secret.as_str()))
    }
}
