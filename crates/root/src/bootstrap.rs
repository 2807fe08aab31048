//! The first start: a tenant, an operator and all its credentials.

use std::path::Path;

use link::Ca;
use model::{Error, Name, Quota, Result, Role, TenantId, TokenId, UserId};
use serde::{Deserialize, Serialize};
use store::{CommitError, Txn};

use crate::auth::{MasterKey, hash_hex, secret_new, token_secret};
use crate::cloud::Cloud;
use crate::history::{self, Actor, Line};
use crate::ops::key;
use crate::state::State;
use crate::tables::{KeyRecord, SecretRecord, TenantRecord, TokenRecord, UserRecord, decode, encode, kind};

/// The record that holds the CA of all root servers.
const CA: &str = "ca";

#[derive(Serialize, Deserialize)]
struct CaFiles {
    key: String,
    cert: String,
}

/// The CA that all root servers share: in the store, sealed under the master key. The first server puts it
/// there, made new or as `dir` has it from the time when it was the only one.
pub async fn ca_shared(state: &State, master: &MasterKey, dir: &Path) -> Result<Ca> {
    let context = format!("{}/{CA}", kind::SECRET);
    loop {
        if let Some(record) = state.store().get(kind::SECRET, CA).await? {
            let record: SecretRecord = decode(&record.body)?;
            let files = master.unseal(&context, &record.sealed).map_err(|_| {
                Error::invalid("the master key of this server is not the one of this cloud")
                    .hint("copy master.key from a server that runs, or name the right file as key_file")
            })?;
            let files: CaFiles = serde_json::from_slice(&files)
                .map_err(|error| Error::internal("the CA in the store cannot be read").because(error))?;
            return Ca::from_pem(&files.key, &files.cert);
        }
        let (key, cert) = match Ca::read(dir)? {
            Some(files) => files,
            None => Ca::make()?,
        };
        let files = serde_json::to_vec(&CaFiles { key, cert }).expect("plain data");
        let record = SecretRecord { sealed: master.seal(&context, &files) };
        match state.try_commit(Txn::new().insert(kind::SECRET, CA, None, None, encode(&record))).await {
            // Another server was quicker, or this one: what is in the store counts.
            Ok(_) | Err(CommitError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The operators' tenant.
pub const MAIN: &str = "main";
pub const ADMIN: &str = "admin";

/// The addresses that go into the credentials file.
#[derive(Debug, Clone)]
pub struct Endpoints {
    pub endpoint: String,
    pub s3_endpoint: String,
    pub ec2_endpoint: String,
}

/// `admin.json`, key by key.
#[derive(Clone, Serialize, Deserialize)]
pub struct AdminCredentials {
    pub endpoint: String,
    pub s3_endpoint: String,
    pub ec2_endpoint: String,
    pub user: String,
    pub password: String,
    pub token: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    pub tenant: String,
}

/// What is new, beside the records that hold it.
struct Fresh {
    password: String,
    password_hash: String,
    token: String,
    token_record: TokenRecord,
    secret_key: String,
    key_record: KeyRecord,
}

async fn fresh(cloud: &Cloud, user: &UserId, tenant: &TenantId) -> Result<Fresh> {
    let password = secret_new();
    let token = token_secret();
    let token_record = TokenRecord {
        id: TokenId::from_random(rand::random()),
        user: user.clone(),
        tenant: tenant.clone(),
        name: name(ADMIN),
        role: Role::Operator,
        hash: hash_hex(token.as_bytes()),
        created_at: cloud.now(),
        expires_at: None,
    };
    let (key_record, secret_key) = key::record_new(cloud, user, tenant);
    let password_hash = cloud.passwords.hash(password.clone()).await?;
    Ok(Fresh { password, password_hash, token, token_record, secret_key, key_record })
}

impl Fresh {
    fn insert(&self, txn: Txn) -> Txn {
        let tenant = Some(self.token_record.tenant.as_str());
        txn.insert(kind::TOKEN, &self.token_record.id, tenant, None, encode(&self.token_record)).insert(
            kind::KEY,
            &self.key_record.id,
            tenant,
            None,
            encode(&self.key_record),
        )
    }

    fn credentials(self, endpoints: Endpoints) -> AdminCredentials {
        AdminCredentials {
            endpoint: endpoints.endpoint,
            s3_endpoint: endpoints.s3_endpoint,
            ec2_endpoint: endpoints.ec2_endpoint,
            user: ADMIN.to_owned(),
            password: self.password,
            token: self.token,
            access_key_id: self.key_record.id.to_string(),
            secret_access_key: self.secret_key,
            tenant: MAIN.to_owned(),
        }
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a legal name")
}

/// Makes the tenant `main` and the operator `admin`. `None` when they are there already.
pub async fn bootstrap(cloud: &Cloud, endpoints: Endpoints) -> Result<Option<AdminCredentials>> {
    bootstrap_kept(cloud, endpoints, |_| Ok(())).await
}

/// The same, with `keep` called before the credentials become true: a start that is cut short
/// must not leave an operator whose password nobody knows.
pub async fn bootstrap_kept(
    cloud: &Cloud,
    endpoints: Endpoints,
    keep: impl FnOnce(&AdminCredentials) -> Result<()>,
) -> Result<Option<AdminCredentials>> {
    if !cloud.state.snapshot().tenants.is_empty() {
        return Ok(None);
    }
    let now = cloud.now();
    let tenant = TenantRecord {
        id: TenantId::from_random(rand::random()),
        name: name(MAIN),
        quota: Quota::default(),
        created_at: now,
    };
    let id = UserId::from_random(rand::random());
    let fresh = fresh(cloud, &id, &tenant.id).await?;
    let user = UserRecord {
        id,
        tenant: tenant.id.clone(),
        name: name(ADMIN),
        role: Role::Operator,
        password_hash: fresh.password_hash.clone(),
        email: None,
        created_at: now,
    };
    let txn = Txn::new().insert(kind::TENANT, &tenant.id, None, Some(MAIN), encode(&tenant)).insert(
        kind::USER,
        &user.id,
        Some(tenant.id.as_str()),
        Some(ADMIN),
        encode(&user),
    );
    let txn = journal(fresh.insert(txn), cloud, &user, "user.create", "the first operator");
    let credentials = fresh.credentials(endpoints);
    keep(&credentials)?;
    match cloud.state.commit(txn).await {
        Ok(_) => Ok(Some(credentials)),
        // Another server made them at the same time.
        Err(error) if error.kind == model::ErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

/// New credentials for `admin`, for whoever owns the data folder and lost the old ones. All old ones end.
pub async fn admin_renew(cloud: &Cloud, endpoints: Endpoints) -> Result<AdminCredentials> {
    let snapshot = cloud.state.snapshot();
    let user = snapshot
        .tenant_by_name(MAIN)
        .and_then(|tenant| snapshot.user_by_name(&tenant.id, &name(ADMIN)))
        .ok_or_else(|| Error::not_found("user 'admin' in the tenant 'main'"))?;
    let fresh = fresh(cloud, &user.id, &user.tenant).await?;
    let mut new = UserRecord::clone(user);
    new.password_hash = fresh.password_hash.clone();
    new.role = Role::Operator;
    let mut txn = Txn::new().update(kind::USER, &user.id, user.version, encode(&new));
    for token in snapshot.tokens.values().filter(|token| token.user == user.id) {
        txn = txn.delete(kind::TOKEN, &token.id, None);
    }
    for session in snapshot.sessions.values().filter(|session| session.user == user.id) {
        txn = txn.delete(kind::SESSION, &session.id, None);
    }
    for old in snapshot.keys.values().filter(|old| old.user == user.id) {
        txn = txn.delete(kind::KEY, &old.id, None);
    }
    let txn = journal(fresh.insert(txn), cloud, &new, "user.renew", "new credentials on this machine");
    cloud.state.commit(txn).await?;
    Ok(fresh.credentials(endpoints))
}

fn journal(txn: Txn, cloud: &Cloud, user: &UserRecord, what: &str, message: &str) -> Txn {
    let line = Line {
        tenant: Some(&user.tenant),
        what,
        kind: kind::USER,
        id: user.id.as_str(),
        name: user.name.as_str(),
        message: message.to_owned(),
    };
    history::journal(txn, cloud.now(), &Actor::root(), line)
}
