//! Who signs a request. The cloud's identity implements [`Identity`].

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// An owner of buckets and objects: a tenant. `id` is what S3 calls the canonical user id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Account {
    pub id: Arc<str>,
    pub name: Arc<str>,
}

/// What a user may do in the buckets of its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    Read,
    Write,
    /// Also policies, ACLs and locks' bypass.
    Manage,
}

/// Who a request speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub account: Account,
    pub user: Arc<str>,
    pub rights: Rights,
    /// Runs the cloud: sees every bucket in REST, but has no rights in S3 beyond its account's.
    pub operator: bool,
    /// Of temporary credentials: the role that was assumed, as `role/session`.
    pub session: Option<Arc<str>>,
}

/// A long-lived access key.
#[derive(Clone)]
pub struct Key {
    pub secret: zeroize::Zeroizing<String>,
    pub principal: Principal,
}

/// What the store asks of the cloud. Answers come from memory and are quick.
#[async_trait]
pub trait Identity: Send + Sync + 'static {
    /// The key with this id, if it may sign now.
    async fn key(&self, id: &str) -> Option<Key>;
    /// The account with this canonical id.
    async fn account(&self, id: &str) -> Option<Account>;
    /// The account of the user with this e-mail address.
    async fn account_by_email(&self, email: &str) -> Option<Account>;
    /// Whether such a user exists in the account (for policies that name users).
    async fn user_exists(&self, account: &str, user: &str) -> bool;
    /// The most bytes the account may keep; `None` is no limit.
    async fn quota(&self, account: &str) -> Option<u64>;
    /// Secret material for sealing (SSE-S3 keys, session tokens): 32 bytes that last.
    fn root_key(&self) -> [u8; 32];
}
