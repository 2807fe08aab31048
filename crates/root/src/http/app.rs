//! Handlers of apps.

use api::{AppCreate, AppUpdate};
use axum::extract::State;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, accepted, created, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::app;
use crate::ops::page::Query;

pub async fn create(State(cloud): State<Shared>, caller: Caller, body: Body<AppCreate>) -> Reply {
    let once = body.once(&caller, "app")?;
    let made = app::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/apps/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(app::list(&cloud, &caller, &Query::parse(&pairs.0, app::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = app::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn update(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<AppUpdate>,
) -> Reply {
    let found = app::update(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = app::delete(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}
