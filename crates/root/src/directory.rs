//! Who signs S3 requests: the cloud's tenants, users and access keys as the object store asks for them.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use model::{AccessKeyId, Role, TenantId, UserId};
use object::identity::{Account, Identity, Key, Principal, Rights};
use zeroize::Zeroizing;

use crate::cloud::{Cloud, Shared};
use crate::ops::key;
use crate::tables::{TenantRecord, UserRecord};

/// The directory of a cloud. The cloud holds the store and the store holds this, so it does not hold the cloud.
pub struct Directory {
    cloud: Weak<Cloud>,
    root_key: [u8; 32],
}

impl Directory {
    pub fn new(cloud: &Shared) -> Self {
        Self { cloud: Arc::downgrade(cloud), root_key: cloud.master.derive("object store") }
    }
}

fn account(tenant: &TenantRecord) -> Account {
    Account { id: tenant.id.as_str().into(), name: tenant.name.as_str().into() }
}

/// Viewers read, members write, admins also set policies.
pub fn rights(role: Role) -> Rights {
    match role {
        Role::Viewer => Rights::Read,
        Role::Member => Rights::Write,
        Role::Admin | Role::Operator => Rights::Manage,
    }
}

/// What a user is to the object store.
pub fn principal(tenant: &TenantRecord, user: &UserRecord, role: Role) -> Principal {
    Principal {
        account: account(tenant),
        user: user.name.as_str().into(),
        rights: rights(role),
        operator: role == Role::Operator,
        session: None,
    }
}

#[async_trait]
impl Identity for Directory {
    async fn key(&self, id: &str) -> Option<Key> {
        let cloud = self.cloud.upgrade()?;
        let snapshot = cloud.state.snapshot();
        // Sessions that REST gave out name a user. Nobody knows a secret to sign as one.
        let (user, secret) = match id.parse::<UserId>() {
            Ok(user) => {
                (user, Zeroizing::new(rand::random::<[u8; 32]>().map(|byte| b'a' + byte % 26).to_vec()))
            }
            Err(_) => key::secret(&cloud, &AccessKeyId(id.to_owned())).ok()?,
        };
        let user = snapshot.users.get(&user)?;
        let tenant = snapshot.tenants.get(&user.tenant)?;
        let secret = Zeroizing::new(String::from_utf8(secret.to_vec()).ok()?);
        Some(Key { secret, principal: principal(tenant, user, user.role) })
    }

    async fn account(&self, id: &str) -> Option<Account> {
        let id: TenantId = id.parse().ok()?;
        self.cloud.upgrade()?.state.snapshot().tenants.get(&id).map(|tenant| account(tenant))
    }

    async fn account_by_email(&self, email: &str) -> Option<Account> {
        let snapshot = self.cloud.upgrade()?.state.snapshot();
        let user = snapshot.users.values().find(|user| user.email.as_deref() == Some(email))?;
        snapshot.tenants.get(&user.tenant).map(|tenant| account(tenant))
    }

    async fn user_exists(&self, account: &str, name: &str) -> bool {
        let Some(cloud) = self.cloud.upgrade() else { return false };
        let snapshot = cloud.state.snapshot();
        snapshot.users.values().any(|user| user.tenant.as_str() == account && user.name.as_str() == name)
    }

    async fn quota(&self, account: &str) -> Option<u64> {
        let id: TenantId = account.parse().ok()?;
        let snapshot = self.cloud.upgrade()?.state.snapshot();
        snapshot.tenants.get(&id)?.quota.object_bytes.map(|most| most.0)
    }

    fn root_key(&self) -> [u8; 32] {
        self.root_key
    }
}
