//! Access keys: what signs S3 and EC2 requests. One's own, and for admins those of the tenant.

use api::{AccessKey, AccessKeyCreated, Page};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use model::{AccessKeyId, Error, Result, Role, shown};
use store::Txn;
use zeroize::Zeroizing;

use super::once::{Once, once};
use super::page::{Query, cut};
use super::view;
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Versioned};
use crate::tables::{KeyRecord, encode, kind};

const KEYS_PER_USER_MAX: usize = 10;

/// 40 characters, as AWS clients expect.
pub(crate) fn secret_key_new() -> String {
    STANDARD_NO_PAD.encode(rand::random::<[u8; 30]>())
}

fn context(id: &AccessKeyId) -> String {
    format!("key/{id}")
}

pub(crate) fn record_new(
    cloud: &Cloud,
    caller_user: &model::UserId,
    tenant: &model::TenantId,
) -> (KeyRecord, String) {
    let id = AccessKeyId::from_random(rand::random());
    let secret = secret_key_new();
    let record = KeyRecord {
        sealed_secret: cloud.master.seal(&context(&id), secret.as_bytes()),
        id,
        user: caller_user.clone(),
        tenant: tenant.clone(),
        created_at: cloud.now(),
    };
    (record, secret)
}

/// The secret is shown once.
pub async fn create(cloud: &Cloud, caller: &Caller, key: Option<&Once>) -> Result<AccessKeyCreated> {
    once(cloud, key, async || {
        let snapshot = cloud.state.snapshot();
        let user = &caller.principal.user;
        if snapshot.keys.values().filter(|key| key.user == *user).count() >= KEYS_PER_USER_MAX {
            return Err(Error::conflict(format!("a user may have {KEYS_PER_USER_MAX} access keys"))
                .hint("delete one that is not used"));
        }
        let owner = snapshot.users.get(user).ok_or_else(|| Error::not_found("such user"))?;
        let (record, secret) = record_new(cloud, user, &caller.principal.tenant);
        let encoded = encode(&record);
        let row = Versioned { version: 0, value: record.into() };
        let mut answer = AccessKeyCreated { key: view::key(&snapshot, &row), secret_access_key: secret };
        let mut txn = Txn::new().insert(kind::KEY, &row.id, Some(row.tenant.as_str()), None, encoded);
        if let Some(key) = key {
            txn = key.record(txn, cloud, caller, &answer);
        }
        txn = txn.check(kind::USER, user, Some(owner.version));
        txn = journal(txn, cloud, caller, &row, "create");
        answer.key.version = cloud.state.commit(txn).await?.versions[0];
        Ok(answer)
    })
    .await
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, row: &KeyRecord, verb: &str) -> Txn {
    let line = Line {
        tenant: Some(&row.tenant),
        what: &format!("key.{verb}"),
        kind: kind::KEY,
        id: &row.id.0,
        name: &row.id.0,
        message: String::new(),
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

fn visible(caller: &Caller, row: &KeyRecord) -> bool {
    row.tenant == caller.tenant && (row.user == caller.principal.user || caller.principal.role >= Role::Admin)
}

pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<AccessKey>> {
    let snapshot = cloud.state.snapshot();
    let after = query.after.as_deref().unwrap_or("");
    let mut items: Vec<AccessKey> = snapshot
        .keys
        .values()
        .filter(|row: &&Row<KeyRecord>| row.id.0.as_str() > after && visible(caller, row))
        .take(query.limit + 1)
        .map(|row| view::key(&snapshot, row))
        .collect();
    let next = cut(&mut items, query.limit, |key| key.id.to_string());
    Ok(Page { items, next, seq: snapshot.seq })
}

pub async fn delete(cloud: &Cloud, caller: &Caller, id: &str) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = snapshot
        .keys
        .get(&AccessKeyId(id.to_owned()))
        .filter(|row| visible(caller, row))
        .ok_or_else(|| Error::not_found(format!("access key '{}'", shown(id))))?;
    let txn = Txn::new().delete(kind::KEY, &row.id, Some(row.version));
    cloud.state.commit(journal(txn, cloud, caller, row, "delete")).await.map(drop)
}

/// The owner and the secret in clear, for checking a signature.
pub fn secret(cloud: &Cloud, id: &AccessKeyId) -> Result<(model::UserId, Zeroizing<Vec<u8>>)> {
    let snapshot = cloud.state.snapshot();
    let row = snapshot.keys.get(id).ok_or_else(|| Error::not_found("such access key"))?;
    Ok((row.user.clone(), cloud.master.unseal(&context(id), &row.sealed_secret)?))
}
