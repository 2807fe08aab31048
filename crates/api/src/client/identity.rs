//! Who acts: login, tenants, users, tokens, access keys, quotas.

use model::{Quota, Result};
use reqwest::Method;

use super::{Client, ListQuery, if_match, segment};
use crate::{
    AccessKey, AccessKeyCreated, Login, LoginDone, Page, PasswordChange, QuotaReport, Tenant, TenantCreate,
    Token, TokenCreate, TokenCreated, User, UserCreate, UserUpdate, Whoami,
};

impl Client {
    pub async fn login(&self, body: &Login) -> Result<LoginDone> {
        self.post("/v1/login", body).await
    }

    pub async fn logout(&self) -> Result<()> {
        self.send(self.request(Method::POST, "/v1/logout")).await.map(drop)
    }

    pub async fn whoami(&self) -> Result<Whoami> {
        self.get("/v1/whoami").await
    }

    pub async fn password_change(&self, body: &PasswordChange) -> Result<()> {
        self.send(self.request(Method::POST, "/v1/password").json(body)).await.map(drop)
    }

    pub async fn tenant_create(&self, body: &TenantCreate) -> Result<Tenant> {
        self.create("/v1/tenants", body, None).await
    }

    pub async fn tenant_list(&self, query: &ListQuery) -> Result<Page<Tenant>> {
        self.list("/v1/tenants", query).await
    }

    pub async fn tenant_get(&self, name: &str) -> Result<Tenant> {
        self.get(&format!("/v1/tenants/{}", segment(name))).await
    }

    pub async fn tenant_delete(&self, name: &str, version: Option<i64>) -> Result<()> {
        self.delete(&format!("/v1/tenants/{}", segment(name)), version).await
    }

    /// Replaces the quota of a tenant.
    pub async fn quota_set(&self, tenant: &str, quota: &Quota, version: Option<i64>) -> Result<Tenant> {
        let path = format!("/v1/tenants/{}/quota", segment(tenant));
        self.json(self.request(Method::PUT, &path).headers(if_match(version)).json(quota)).await
    }

    /// Quota and use of the caller's tenant.
    pub async fn quota(&self) -> Result<QuotaReport> {
        self.get("/v1/quota").await
    }

    pub async fn user_create(&self, body: &UserCreate) -> Result<User> {
        self.create("/v1/users", body, None).await
    }

    pub async fn user_list(&self, query: &ListQuery) -> Result<Page<User>> {
        self.list("/v1/users", query).await
    }

    pub async fn user_get(&self, name: &str) -> Result<User> {
        self.get(&format!("/v1/users/{}", segment(name))).await
    }

    pub async fn user_update(&self, name: &str, body: &UserUpdate, version: Option<i64>) -> Result<User> {
        let path = format!("/v1/users/{}", segment(name));
        self.json(self.request(Method::PATCH, &path).headers(if_match(version)).json(body)).await
    }

    pub async fn user_delete(&self, name: &str, version: Option<i64>) -> Result<()> {
        self.delete(&format!("/v1/users/{}", segment(name)), version).await
    }

    pub async fn token_create(&self, body: &TokenCreate) -> Result<TokenCreated> {
        self.create("/v1/tokens", body, None).await
    }

    pub async fn token_list(&self, query: &ListQuery) -> Result<Page<Token>> {
        self.list("/v1/tokens", query).await
    }

    /// By id.
    pub async fn token_delete(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/tokens/{}", segment(id)), None).await
    }

    pub async fn key_create(&self) -> Result<AccessKeyCreated> {
        self.json(self.request(Method::POST, "/v1/keys")).await
    }

    pub async fn key_list(&self, query: &ListQuery) -> Result<Page<AccessKey>> {
        self.list("/v1/keys", query).await
    }

    pub async fn key_delete(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/keys/{}", segment(id)), None).await
    }
}
