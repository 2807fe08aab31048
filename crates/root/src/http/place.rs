//! Handlers of zones, nodes, enrolment and history.

use api::{EnrolmentCreate, PlaceModeSet};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::extract::{Body, Item, Pairs};
use super::reply::{Reply, ok};
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::{event, node, zone};

pub async fn zone_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(zone::list(&cloud, &caller, &Query::parse(&pairs.0, zone::FILTERS)?)?)
}

pub async fn zone_get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(zone::get(&cloud, &caller, &name)?)
}

pub async fn node_list(State(cloud): State<Shared>, pairs: Pairs) -> Reply {
    ok(node::list(&cloud, &Query::parse(&pairs.0, node::FILTERS)?).await?)
}

pub async fn node_get(State(cloud): State<Shared>, Item(name): Item, pairs: Pairs) -> Reply {
    pairs.only(&["zone"])?;
    ok(node::get(&cloud, &name, pairs.get("zone")).await?)
}

pub async fn node_mode(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    body: Body<PlaceModeSet>,
) -> Reply {
    pairs.only(&["zone"])?;
    ok(node::mode(&cloud, &caller, &name, pairs.get("zone"), body.value).await?)
}

pub async fn enrolment_create(
    State(cloud): State<Shared>,
    caller: Caller,
    body: Body<EnrolmentCreate>,
) -> Reply {
    let made = zone::enroll(&cloud, &caller, body.value).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

pub async fn event_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(event::list(&cloud, &caller, &Query::parse(&pairs.0, event::FILTERS)?).await?)
}
