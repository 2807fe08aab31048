//! Limits attempts, such as of passwords, with a fixed amount of memory.
//!
//! Keys are hashed into a fixed table of buckets. Two keys may share one; that only makes the limit stricter.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use model::{Error, ErrorKind, Result, Timestamp};

const BUCKETS: usize = 4096;

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Attempts spent, in thousandths; falls with time.
    spent_milli: u64,
    at: Timestamp,
}

pub struct RateLimit {
    burst: u64,
    /// One attempt comes back after this time.
    refill_ms: u64,
    hasher: RandomState,
    buckets: Mutex<Box<[Bucket]>>,
}

impl RateLimit {
    pub fn new(burst: u64, refill_ms: u64) -> Self {
        Self {
            burst,
            refill_ms,
            hasher: RandomState::new(),
            buckets: Mutex::new(vec![Bucket::default(); BUCKETS].into()),
        }
    }

    /// Counts an attempt, or says how long to wait.
    pub fn attempt(&self, key: &str, now: Timestamp) -> Result<()> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = &mut buckets[self.index(key)];
        let passed_ms = u64::try_from(now.ms_since(bucket.at)).unwrap_or(0);
        bucket.spent_milli =
            bucket.spent_milli.saturating_sub(passed_ms.saturating_mul(1000) / self.refill_ms);
        bucket.at = now;
        if bucket.spent_milli + 1000 > self.burst * 1000 {
            let wait_s = (self.refill_ms / 1000).max(1);
            return Err(Error::new(ErrorKind::RateLimited, "too many attempts")
                .hint(format!("wait {wait_s} seconds and try again")));
        }
        bucket.spent_milli += 1000;
        Ok(())
    }

    /// A success gives the attempt back.
    pub fn refund(&self, key: &str) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = &mut buckets[self.index(key)];
        bucket.spent_milli = bucket.spent_milli.saturating_sub(1000);
    }

    fn index(&self, key: &str) -> usize {
        self.hasher.hash_one(key) as usize % BUCKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_then_time_must_pass() {
        let limit = RateLimit::new(3, 1000);
        let start = Timestamp(1_000_000_000);
        for _ in 0..3 {
            assert!(limit.attempt("a", start).is_ok());
        }
        assert!(limit.attempt("a", start).is_err());
        assert!(limit.attempt("a", start.plus_ms(500)).is_err());
        assert!(limit.attempt("a", start.plus_ms(1500)).is_ok());
        limit.refund("a");
        assert!(limit.attempt("a", start.plus_ms(1500)).is_ok());
    }
}
