//! What is found due among many versions, and when a bucket is looked at again.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Range;

use s3s::dto::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus, LifecycleRule,
    NoncurrentVersionExpiration,
};

use super::*;
use crate::engine::{Engine, EngineConfig};
use crate::identity::{Account, Identity, Key};
use crate::metrics::Metrics;
use crate::record::{Acl, Hold, Versioning};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

struct Records(BTreeMap<Vec<u8>, Vec<u8>>);

impl crate::service::Records for Records {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn each(&self, range: Range<Vec<u8>>, mut each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for (key, value) in self.0.range(range) {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
}

fn owner() -> Account {
    Account { id: "o".into(), name: "o".into() }
}

fn bucket() -> Bucket {
    Bucket {
        id: 1,
        name: "b".into(),
        owner: owner(),
        created: 0,
        versioning: Versioning::Enabled,
        acl: Acl::private(&owner()),
        policy: None,
        location: None,
        settings: Default::default(),
        quota: None,
    }
}

fn version(seq: u64, modified: i64) -> Version {
    let mut version = Version::empty(owner());
    version.head.seq = seq;
    version.head.modified = modified;
    version
}

fn after_days(days: i32, kept: Option<i32>) -> BucketLifecycleConfiguration {
    let rule = LifecycleRule {
        id: None,
        status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
        noncurrent_version_expiration: Some(NoncurrentVersionExpiration {
            noncurrent_days: Some(days),
            newer_noncurrent_versions: kept,
        }),
        abort_incomplete_multipart_upload: None,
        expiration: None,
        filter: None,
        noncurrent_version_transitions: None,
        prefix: None,
        transitions: None,
    };
    BucketLifecycleConfiguration { rules: vec![rule] }
}

/// Versions 1 to `count`, one each minute; the last one is the newest.
fn written(count: u64) -> (Records, Version) {
    let at = |seq: u64| seq as i64 * 60_000;
    let past = (1..count).map(|seq| (key::past(1, "k", seq), version(seq, at(seq)).encode()));
    (Records(past.collect()), version(count, at(count)))
}

fn found(count: u64, rules: &BucketLifecycleConfiguration, now: i64, most: usize) -> Vec<u64> {
    let (records, current) = written(count);
    let rules = Rules { rules, day: Duration::from_secs(60) };
    let steps = steps(&records, &bucket(), "k", &current, &rules, now, most).unwrap();
    steps.into_iter().map(|step| step.seq).collect()
}

#[test]
fn old_versions_are_found_behind_very_many_newer_ones() {
    // A version is older from the minute of the next one on, and goes ten minutes later.
    let now = 12 * 60_000;
    assert_eq!(found(5000, &after_days(10, None), now, DUE_MAX), [1]);
    assert_eq!(found(5000, &after_days(10, None), now + 120_000, DUE_MAX), [1, 2, 3]);
    let kept = found(5000, &after_days(1, Some(4990)), i64::MAX / 2, DUE_MAX);
    assert_eq!(kept, (1..=9).collect::<Vec<u64>>());
}

#[test]
fn the_oldest_go_first_where_not_all_fit() {
    assert_eq!(found(100, &after_days(1, None), i64::MAX / 2, 3), [1, 2, 3]);
    let steps = |count: u64| (0..count).map(|seq| Step { seq, since: Some(0) }).collect::<Vec<_>>();
    let cut = batches(vec![("a".into(), steps(1500)), ("b".into(), steps(700)), ("c".into(), steps(0))]);
    let sizes: Vec<Vec<usize>> =
        cut.iter().map(|batch| batch.iter().map(|(_, steps)| steps.len()).collect()).collect();
    assert_eq!(sizes, [vec![1000], vec![500, 500], vec![200]]);
}

#[test]
fn locked_versions_stay() {
    let (mut records, current) = written(4);
    let mut locked = version(2, 120_000);
    locked.hold = Hold::On;
    records.0.insert(key::past(1, "k", 2), locked.encode());
    let rules = after_days(1, None);
    let rules = Rules { rules: &rules, day: Duration::from_secs(60) };
    let steps = steps(&records, &bucket(), "k", &current, &rules, i64::MAX / 2, DUE_MAX).unwrap();
    assert_eq!(steps.into_iter().map(|step| step.seq).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_bucket_is_looked_at_once_in_a_day_and_after_a_change() {
    let rules = after_days(1, None);
    let done = Done { at: 5 * DAY_MS + 1000, rules: rules.clone() };
    assert!(done.rests(&rules, 5 * DAY_MS + 2000, DAY));
    assert!(done.rests(&rules, 6 * DAY_MS - 1, DAY));
    assert!(!done.rests(&rules, 6 * DAY_MS, DAY), "what is due, is due at midnight");
    assert!(!done.rests(&after_days(2, None), 5 * DAY_MS + 2000, DAY));
    let short = Duration::from_secs(10);
    assert!(done.rests(&rules, done.at + 999, short));
    assert!(!done.rests(&rules, done.at + 1000, short));
    assert!(!done.rests(&rules, done.at - 1, short), "the clock was set");
}

struct Nobody;

#[async_trait::async_trait]
impl Identity for Nobody {
    async fn key(&self, _: &str) -> Option<Key> {
        None
    }

    async fn account(&self, _: &str) -> Option<Account> {
        None
    }

    async fn account_by_email(&self, _: &str) -> Option<Account> {
        None
    }

    async fn user_exists(&self, _: &str, _: &str) -> bool {
        false
    }

    async fn quota(&self, _: &str) -> Option<u64> {
        None
    }

    fn root_key(&self) -> [u8; 32] {
        [0; 32]
    }
}

fn begun(number: usize, started: i64) -> Upload {
    Upload {
        id: format!("{number:032}"),
        key: format!("k{number:06}"),
        started,
        initiator: owner(),
        owner: owner(),
        storage_class: None,
        headers: Vec::new(),
        metadata: Vec::new(),
        tags: Vec::new(),
        acl: None,
        seal: None,
        retention: None,
        hold: Hold::Unset,
        checksum: None,
    }
}

/// One look is enough, and those that are not due hide none of those that are.
#[tokio::test]
async fn all_uploads_that_are_due_end_in_one_look() {
    const COUNT: usize = 2 * PAGE + 100;
    let data = tempfile::tempdir().unwrap();
    let service = Service {
        engine: Engine::open(EngineConfig::new(data.path().to_owned())).unwrap(),
        identity: std::sync::Arc::new(Nobody),
        config: std::sync::Arc::new(crate::Config::new(
            data.path().to_owned(),
            "127.0.0.1:0".parse().unwrap(),
        )),
        metrics: std::sync::Arc::new(Metrics::new()),
        claims: Default::default(),
    };
    let mut rules = after_days(1, None);
    rules.rules[0].noncurrent_version_expiration = None;
    rules.rules[0].abort_incomplete_multipart_upload =
        Some(AbortIncompleteMultipartUpload { days_after_initiation: Some(1) });
    let mut bucket = bucket();
    bucket.settings.lifecycle = Some(rules);
    let (kept, late) = (bucket.clone(), now());
    let fills = move |tx: &mut Tx<'_>| -> Result<()> {
        crate::service::put_bucket(tx, &kept);
        for number in 0..COUNT {
            let upload = begun(number, if number % 100 == 0 { late } else { 0 });
            tx.put(key::upload(1, &upload.key, &upload.id), upload.encode());
        }
        Ok(())
    };
    service.engine.write(fills).await.unwrap();
    whole(&service, &bucket, &CancellationToken::new()).await.unwrap();
    let mut left = Vec::new();
    let view = service.engine.read().unwrap();
    view.scan(key::of_bucket(Space::Upload, 1), |_, value| {
        left.push(Upload::decode(value).unwrap().started);
        true
    })
    .unwrap();
    assert_eq!(left, vec![late; COUNT / 100]);
}
