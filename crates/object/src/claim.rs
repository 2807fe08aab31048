//! What uploads under way claim, so that quotas bound what lies on the disk and not only what has a name.
//!
//! Bytes count from the moment they are announced, or come where nobody announced them, until they have a name and are
//! part of the usage. The change that gives them one checks the quota once more.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;
use crate::fault::Result;
use crate::record::{Bucket, Part, Usage, Versioning, key};
use crate::service::{Records, Service};
use crate::version::{self, quota_exceeded};

/// What is under way in all buckets.
#[derive(Default)]
pub struct Claims(Mutex<Held>);

#[derive(Default)]
struct Held {
    buckets: HashMap<u32, u64>,
    accounts: HashMap<Arc<str>, u64>,
    /// Where something stands that an upload under way replaces. Only one of them may count on its bytes.
    replaced: HashSet<Vec<u8>>,
}

/// What one upload claims. Free again when it is dropped.
pub struct Claim {
    claims: Arc<Claims>,
    engine: Engine,
    bucket: u32,
    account: Arc<str>,
    /// Of the bucket and of its owner.
    limits: [Option<u64>; 2],
    replaces: Option<Vec<u8>>,
    /// The bytes that go when these have come.
    freed: u64,
    bytes: u64,
    held: u64,
}

impl Claims {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn of(&self, bucket: u32, account: &str) -> [u64; 2] {
        let bucket = self.buckets.get(&bucket).copied();
        [bucket.unwrap_or_default(), self.accounts.get(account).copied().unwrap_or_default()]
    }

    fn set(&mut self, bucket: u32, account: &Arc<str>, [in_bucket, in_account]: [u64; 2]) {
        match in_bucket {
            0 => drop(self.buckets.remove(&bucket)),
            bytes => drop(self.buckets.insert(bucket, bytes)),
        }
        match in_account {
            0 => drop(self.accounts.remove(account)),
            bytes => drop(self.accounts.insert(account.clone(), bytes)),
        }
    }
}

impl Claim {
    /// Of something that replaces nothing.
    pub async fn of(service: &Service, bucket: &Bucket) -> Self {
        let quota = service.identity.quota(&bucket.owner.id).await;
        Self {
            claims: service.claims.clone(),
            engine: service.engine.clone(),
            bucket: bucket.id,
            account: bucket.owner.id.clone(),
            limits: [bucket.quota, quota],
            replaces: None,
            freed: 0,
            bytes: 0,
            held: 0,
        }
    }

    /// Of an object, which may replace one.
    pub async fn of_object(service: &Service, bucket: &Bucket, object: &str) -> Result<Self> {
        let claim = Self::of(service, bucket).await;
        if !claim.is_bounded() || bucket.versioning == Versioning::Enabled {
            return Ok(claim);
        }
        let old = version::lookup(&service.engine.read()?, bucket.id, object, Some(version::NULL))?;
        Ok(claim.replacing(key::current(bucket.id, object), old.map_or(0, |old| old.head.size)))
    }

    /// Of a part, which may replace one of its number.
    pub async fn of_part(service: &Service, bucket: &Bucket, upload: &str, number: u16) -> Result<Self> {
        let claim = Self::of(service, bucket).await;
        if !claim.is_bounded() {
            return Ok(claim);
        }
        let place = key::part(bucket.id, upload, number);
        let old = service.engine.read()?.record(&place)?.and_then(|bytes| Part::decode(&bytes));
        Ok(claim.replacing(place, old.map_or(0, |old| old.size)))
    }

    fn is_bounded(&self) -> bool {
        self.limits.iter().any(Option::is_some)
    }

    fn replacing(mut self, place: Vec<u8>, bytes: u64) -> Self {
        if bytes > 0 && self.claims.held().replaced.insert(place.clone()) {
            (self.replaces, self.freed) = (Some(place), bytes);
        }
        self
    }

    /// Claims more; `QuotaExceeded` if there is no room for it.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        let more = self.bytes.saturating_sub(self.freed).saturating_sub(self.held);
        if more == 0 || !self.is_bounded() {
            return Ok(());
        }
        let mut held = self.claims.held();
        let view = self.engine.read()?;
        let used =
            [version::usage(&view, self.bucket)?, version::account_usage(&view, &self.account)?].map(all);
        let mut sums = held.of(self.bucket, &self.account);
        for ((sum, used), limit) in sums.iter_mut().zip(used).zip(self.limits) {
            *sum = sum.saturating_add(more);
            if limit.is_some_and(|limit| used.saturating_add(*sum) > limit) {
                return Err(quota_exceeded());
            }
        }
        held.set(self.bucket, &self.account, sums);
        self.held += more;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        if let Some(place) = &self.replaces {
            held.replaced.remove(place);
        }
        if self.held > 0 {
            let sums = held.of(self.bucket, &self.account).map(|sum| sum.saturating_sub(self.held));
            held.set(self.bucket, &self.account, sums);
        }
    }
}

fn all(usage: Usage) -> u64 {
    usage.bytes.saturating_add(usage.upload_bytes)
}
