//! Idempotency keys: a create with a key happens once, and repeating it gives the same answer for a day.
//!
//! The answer is inserted in the transaction of the create itself, so of two
//! creates at the same time one commits and the other finds its answer.

use model::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::Txn;

use crate::auth::hash_hex;
use crate::cloud::{Caller, Cloud};
use crate::tables::{IdempotencyRecord, decode, encode, kind};

pub const KEY_MAX: usize = 255;

/// An answer whose version the store decides.
pub trait Answer: Serialize + DeserializeOwned {
    fn version_set(&mut self, version: i64);
}

macro_rules! answers {
    ($($name:ty: $($field:ident).+),+ $(,)?) => {
        $(impl Answer for $name {
            fn version_set(&mut self, version: i64) {
                self.$($field).+ = version;
            }
        })+
    };
}

answers! {
    api::Instance: version,
    api::Workload: version,
    api::App: version,
    api::Cluster: version,
    api::Tenant: version,
    api::User: version,
    api::TokenCreated: token.version,
    api::AccessKeyCreated: key.version,
}

/// A key together with what it was used for.
#[derive(Debug, Clone)]
pub struct Once {
    id: String,
    request_hash: String,
}

impl Once {
    pub fn new(caller: &Caller, route: &str, key: &str, body: &[u8]) -> Result<Self> {
        if key.is_empty() || key.len() > KEY_MAX || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::invalid(format!(
                "an idempotency key is 1 to {KEY_MAX} printable characters without spaces"
            ))
            .at("Idempotency-Key"));
        }
        let id = hash_hex(format!("{}\n{}\n{route}\n{key}", caller.tenant, caller.principal.user).as_bytes());
        Ok(Self { id, request_hash: hash_hex(body) })
    }

    /// The answer that was given to this key before.
    pub async fn replay<T: Answer>(&self, cloud: &Cloud) -> Result<Option<T>> {
        let Some(record) = cloud.state.store().get(kind::IDEMPOTENCY, &self.id).await? else {
            return Ok(None);
        };
        let version = record.version;
        let record: IdempotencyRecord = decode(&record.body)?;
        if record.request_hash != self.request_hash {
            return Err(Error::conflict("this idempotency key was used for a request with another body")
                .at("Idempotency-Key")
                .hint("take a new key for a new request"));
        }
        let body = cloud.master.unseal(&self.id, &record.sealed_body)?;
        let mut answer: T = serde_json::from_slice(&body)
            .map_err(|error| Error::internal("a kept answer cannot be read").because(error))?;
        // A version is a place in the change feed, and the answer was written right after what it speaks of.
        answer.version_set(version - 1);
        Ok(Some(answer))
    }

    /// Whether there may be an answer, without asking the store.
    pub fn known(&self, cloud: &Cloud) -> bool {
        cloud.state.snapshot().idempotency.contains_key(&self.id)
    }

    /// Adds the answer to the transaction; must follow directly on the insert of what it speaks of.
    pub fn record<T: Answer>(&self, txn: Txn, cloud: &Cloud, caller: &Caller, answer: &T) -> Txn {
        let body = serde_json::to_vec(answer).expect("answers are plain data");
        let record = IdempotencyRecord {
            request_hash: self.request_hash.clone(),
            sealed_body: cloud.master.seal(&self.id, &body),
            at: cloud.now(),
        };
        txn.insert(kind::IDEMPOTENCY, &self.id, Some(caller.tenant.as_str()), None, encode(&record))
    }
}

fn refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Conflict | ErrorKind::VersionMismatch | ErrorKind::QuotaExceeded)
}

/// Gives the kept answer, or runs the create; a create that lost a race gives the winner's answer.
pub async fn once<T, F>(cloud: &Cloud, once: Option<&Once>, create: F) -> Result<T>
where
    T: Answer,
    F: AsyncFnOnce() -> Result<T>,
{
    let Some(key) = once else { return create().await };
    if key.known(cloud)
        && let Some(answer) = key.replay(cloud).await?
    {
        return Ok(answer);
    }
    match create().await {
        // Another server may have done it a moment ago, in which case any refusal can be its doing.
        Err(error) if refusal(error.kind) => match key.replay(cloud).await? {
            Some(answer) => Ok(answer),
            None => Err(error),
        },
        result => result,
    }
}
