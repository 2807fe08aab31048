//! Handlers of buckets.

use api::{BucketQuota, ScrubStart};
use axum::extract::State;

use super::extract::{Body, Item, Pairs};
use super::reply::{Reply, ok};
use crate::cloud::{Caller, Shared};
use crate::ops::bucket;
use crate::ops::page::Query;

pub async fn bucket_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(bucket::list(&cloud, &caller, &Query::parse(&pairs.0, bucket::FILTERS)?).await?)
}

pub async fn bucket_get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(bucket::get(&cloud, &caller, &name)?)
}

pub async fn bucket_quota_set(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    body: Body<BucketQuota>,
) -> Reply {
    ok(bucket::quota_set(&cloud, &caller, &name, body.value).await?)
}

pub async fn s3_session(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    pairs.only(&["duration_s"])?;
    ok(bucket::session(&cloud, &caller, pairs.number("duration_s")?)?)
}

pub async fn object_store(State(cloud): State<Shared>) -> Reply {
    ok(bucket::store(&cloud)?)
}

pub async fn object_store_scrub(
    State(cloud): State<Shared>,
    caller: Caller,
    body: Body<ScrubStart>,
) -> Reply {
    ok(bucket::scrub(&cloud, &caller, body.value).await?)
}

pub async fn object_store_damage(State(cloud): State<Shared>) -> Reply {
    ok(bucket::damage(&cloud).await?)
}
