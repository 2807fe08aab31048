//! Handlers of workloads.

use api::{Check, WorkloadCreate, WorkloadRollback, WorkloadScale, WorkloadUpdate};
use axum::extract::State;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, accepted, created, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::{check as checks, workload};

pub async fn check(State(cloud): State<Shared>, caller: Caller, body: Body<Check>) -> Reply {
    ok(checks::check(&cloud, &caller, &body.value)?)
}

pub async fn create(State(cloud): State<Shared>, caller: Caller, body: Body<WorkloadCreate>) -> Reply {
    let once = body.once(&caller, "workload")?;
    let made = workload::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/workloads/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(workload::list(&cloud, &caller, &Query::parse(&pairs.0, workload::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = workload::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn update(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<WorkloadUpdate>,
) -> Reply {
    let found = workload::update(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = workload::delete(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn scale(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<WorkloadScale>,
) -> Reply {
    let found = workload::scale(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn restart(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = workload::restart(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn pause(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = workload::pause(&cloud, &caller, &name, true, seen).await?;
    accepted(found.version, found)
}

pub async fn resume(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = workload::pause(&cloud, &caller, &name, false, seen).await?;
    accepted(found.version, found)
}

pub async fn rollback(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<WorkloadRollback>,
) -> Reply {
    let found = workload::rollback(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn promote(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = workload::promote(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn run(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = workload::run(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn revisions(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(workload::revisions(&cloud, &caller, &name)?)
}

pub async fn why(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(workload::why(&cloud, &caller, &name)?)
}
