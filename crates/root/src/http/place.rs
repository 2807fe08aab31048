//! Handlers of zones, nodes, enrolment and history.

use api::{EnrolmentCreate, NodeLabels, PlaceModeSet, ZoneHosts};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, done, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::{enrolment, event, health, node, server, zone};

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
    let node = node::get(&cloud, &name, pairs.get("zone")).await?;
    versioned(node.version, node)
}

pub async fn node_mode(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    Seen(seen): Seen,
    body: Body<PlaceModeSet>,
) -> Reply {
    pairs.only(&["zone"])?;
    let node = node::mode(&cloud, &caller, &name, pairs.get("zone"), body.value, seen).await?;
    versioned(node.version, node)
}

pub async fn node_labels(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    Seen(seen): Seen,
    body: Body<NodeLabels>,
) -> Reply {
    pairs.only(&["zone"])?;
    let node = node::labels(&cloud, &caller, &name, pairs.get("zone"), body.value, seen).await?;
    versioned(node.version, node)
}

pub async fn node_remove(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
) -> Reply {
    pairs.only(&["zone", "force"])?;
    node::remove(&cloud, &caller, &name, pairs.get("zone"), pairs.flag("force")?).await?;
    done()
}

pub async fn node_history(State(cloud): State<Shared>, Item(name): Item, pairs: Pairs) -> Reply {
    pairs.only(&["zone", "since"])?;
    ok(node::history(&cloud, &name, pairs.get("zone"), pairs.time("since")?).await?)
}

pub async fn zone_mode(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    body: Body<PlaceModeSet>,
) -> Reply {
    ok(zone::mode(&cloud, &caller, &name, body.value).await?)
}

pub async fn zone_hosts(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    body: Body<ZoneHosts>,
) -> Reply {
    ok(zone::hosts_add(&cloud, &caller, &name, body.value).await?)
}

pub async fn zone_remove(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
) -> Reply {
    pairs.only(&["force"])?;
    zone::remove(&cloud, &caller, &name, pairs.flag("force")?).await?;
    done()
}

pub async fn zone_history(State(cloud): State<Shared>, Item(name): Item, pairs: Pairs) -> Reply {
    pairs.only(&["since"])?;
    ok(zone::history(&cloud, &name, pairs.time("since")?).await?)
}

/// The root servers of the store.
pub async fn server_list(State(cloud): State<Shared>) -> Reply {
    ok(cloud.duties.servers(cloud.now()))
}

pub async fn server_remove(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    server::remove(&cloud, &caller, &name).await?;
    done()
}

/// How the platform itself is.
pub async fn platform(State(cloud): State<Shared>) -> Reply {
    ok(health::report(&cloud).await)
}

pub async fn enrolment_create(
    State(cloud): State<Shared>,
    caller: Caller,
    body: Body<EnrolmentCreate>,
) -> Reply {
    let made = zone::enroll(&cloud, &caller, body.value).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

pub async fn enrolment_list(State(cloud): State<Shared>) -> Reply {
    ok(enrolment::list(&cloud).await?)
}

pub async fn enrolment_revoke(State(cloud): State<Shared>, caller: Caller, Item(id): Item) -> Reply {
    enrolment::revoke(&cloud, &caller, &id).await?;
    done()
}

pub async fn event_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(event::list(&cloud, &caller, &Query::parse(&pairs.0, event::FILTERS)?).await?)
}
