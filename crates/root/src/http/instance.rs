//! Handlers of instances.

use api::InstanceCreate;
use axum::extract::State;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, accepted, created, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::{instance, instance_ask};

pub async fn create(State(cloud): State<Shared>, caller: Caller, body: Body<InstanceCreate>) -> Reply {
    let once = body.once(&caller, "instance")?;
    let made = instance::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/instances/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    let query = Query::parse(&pairs.0, instance::FILTERS)?;
    ok(instance::list(&cloud, &caller, &query)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = instance::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = instance::delete(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn stop(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = instance::stop(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn start(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = instance::start(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn restart(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = instance::restart(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn stats(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(instance_ask::stats(&cloud, &caller, &name).await?)
}

pub async fn why(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(instance::why(&cloud, &caller, &name)?)
}
