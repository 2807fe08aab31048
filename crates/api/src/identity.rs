//! Tenants, users, tokens, access keys and quotas.

use model::{AccessKeyId, Bytes, Cpu, Name, Quota, Role, TenantId, Timestamp, TokenId, UserId};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Name of the tenant; `main` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    pub user: Name,
    pub password: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LoginDone {
    /// Send it as `Authorization: Bearer …`.
    pub token: String,
    pub expires_at: Timestamp,
    pub whoami: Whoami,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Whoami {
    pub user: Name,
    pub user_id: UserId,
    pub tenant: Name,
    pub tenant_id: TenantId,
    /// What these credentials may do; a token may be narrower than its user.
    pub role: Role,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    pub current: String,
    pub new: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantCreate {
    pub name: Name,
    #[serde(default)]
    pub quota: Quota,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tenant {
    pub id: TenantId,
    pub name: Name,
    pub version: i64,
    pub quota: Quota,
    pub usage: Usage,
    pub created_at: Timestamp,
}

/// What a tenant has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = TenantUsage)]
pub struct Usage {
    pub instances: u64,
    pub cpu: Cpu,
    pub memory: Bytes,
    /// Objects in buckets; absent where the server that answers does not run the object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Bytes in buckets, those of all versions and of open uploads among them, as the quota counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_bytes: Option<Bytes>,
    /// Clusters that are made or being made.
    #[serde(default)]
    pub clusters: u64,
    /// Machines of all clusters together, as the quota counts them.
    #[serde(default)]
    pub cluster_machines: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QuotaReport {
    pub tenant: Name,
    pub quota: Quota,
    pub usage: Usage,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    pub name: Name,
    pub role: Role,
    pub password: String,
    /// By which others may name the user's tenant when they share buckets; unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserUpdate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct User {
    pub id: UserId,
    pub name: Name,
    pub tenant: Name,
    pub version: i64,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    pub name: Name,
    /// The most the token may do; the caller's own role when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Seconds until it ends; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Token {
    pub id: TokenId,
    pub name: Name,
    /// Name of the user it acts for.
    pub user: Name,
    pub role: Role,
    pub version: i64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The only time the secret is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenCreated {
    pub token: Token,
    pub secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessKey {
    pub id: AccessKeyId,
    pub user: Name,
    pub version: i64,
    pub created_at: Timestamp,
}

/// The only time the secret is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessKeyCreated {
    pub key: AccessKey,
    pub secret_access_key: String,
}
