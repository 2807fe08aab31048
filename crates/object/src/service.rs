//! What every operation needs.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use s3s::{S3Error, S3Request, s3_error};

use crate::access::policy::Policy;
use crate::claim::Claims;
use crate::config::Config;
use crate::engine::{Engine, Tx, View};
use crate::fault::{Fault, Result};
use crate::identity::{Account, Identity, Principal};
use crate::metrics::Metrics;
use crate::record::{Bucket, key};

/// The store as S3 sees it. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub engine: Engine,
    pub identity: Arc<dyn Identity>,
    pub config: Arc<Config>,
    pub metrics: Arc<Metrics>,
    pub claims: Arc<Claims>,
}

/// Who asks; put into the request's extensions by the access check, which has let it pass.
#[derive(Debug, Clone)]
pub struct Caller {
    /// `None` is anonymous.
    pub principal: Option<Principal>,
    /// The address of the connection, not of a header.
    pub address: Option<std::net::IpAddr>,
    /// The version of TLS that it came over.
    pub tls: Option<&'static str>,
    /// The region that was asked: ours.
    pub region: Arc<str>,
    /// Of temporary credentials: what they were narrowed to.
    pub narrowed: Option<Arc<Policy>>,
}

impl Caller {
    pub fn of<T>(req: &S3Request<T>) -> Result<&Self, S3Error> {
        req.extensions.get::<Self>().ok_or_else(|| s3_error!(AccessDenied))
    }

    /// The account, or `AccessDenied` for anonymous.
    pub fn account(&self) -> Result<&Account> {
        let principal = self.principal.as_ref();
        principal.map(|principal| &principal.account).ok_or_else(|| s3s::S3ErrorCode::AccessDenied.into())
    }
}

/// Reads records: the same for views and changes.
pub trait Records {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Calls `each` with keys and values of a range in order until it answers `false`.
    fn each(&self, range: Range<Vec<u8>>, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// The bucket, or `NoSuchBucket`.
    fn bucket(&self, name: &str) -> Result<Bucket> {
        self.bucket_shared(name).map(|bucket| Bucket::clone(&bucket))
    }

    /// The same for those who only look at it.
    fn bucket_shared(&self, name: &str) -> Result<Arc<Bucket>> {
        let bytes = self.record(&key::bucket(name))?.ok_or_else(|| {
            Fault::new(s3s::S3ErrorCode::NoSuchBucket, "The specified bucket does not exist")
        })?;
        Ok(bucket_decode(bytes).map_err(|error| crate::engine::EngineError::Index(error.to_string()))?)
    }
}

impl Records for View {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(key)?)
    }

    fn each(&self, range: Range<Vec<u8>>, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(self.scan(range, each)?)
    }
}

impl Records for Tx<'_> {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(key)?)
    }

    fn each(&self, range: Range<Vec<u8>>, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(self.scan(range, each)?)
    }
}

thread_local! {
    /// The bucket that was read last, beside the bytes it was read from: a request reads its bucket several times, and
    /// so do most requests one after the other.
    static LAST: RefCell<Option<(Vec<u8>, Arc<Bucket>)>> = const { RefCell::new(None) };
}

fn bucket_decode(bytes: Vec<u8>) -> Result<Arc<Bucket>, serde_json::Error> {
    LAST.with_borrow_mut(|last| match last {
        Some((known, bucket)) if *known == bytes => Ok(bucket.clone()),
        _ => {
            let bucket: Arc<Bucket> = Arc::new(serde_json::from_slice(&bytes)?);
            *last = Some((bytes, bucket.clone()));
            Ok(bucket)
        }
    })
}

/// Puts the bucket's record back after a change of its settings.
pub fn put_bucket(tx: &mut Tx<'_>, bucket: &Bucket) {
    tx.put(key::bucket(&bucket.name), serde_json::to_vec(bucket).expect("a bucket encodes"));
}
