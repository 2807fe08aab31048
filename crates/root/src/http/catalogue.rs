//! Handlers of the catalogue.

use api::CatalogueWrite;
use axum::extract::State;

use super::extract::{Body, Pair, Pairs, Seen};
use super::reply::{Reply, done, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::catalogue;
use crate::ops::page::Query;

pub async fn export(State(cloud): State<Shared>, caller: Caller) -> Reply {
    ok(catalogue::export(&cloud, &caller))
}

pub async fn write(State(cloud): State<Shared>, caller: Caller, body: Body<CatalogueWrite>) -> Reply {
    ok(catalogue::write(&cloud, &caller, body.value).await?)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(catalogue::list(&cloud, &caller, &Query::parse(&pairs.0, catalogue::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Pair(kind, name): Pair, pairs: Pairs) -> Reply {
    pairs.only(&["number"])?;
    let found = catalogue::get(&cloud, &caller, &kind, &name, pairs.number("number")?).await?;
    versioned(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Pair(kind, name): Pair,
    Seen(seen): Seen,
) -> Reply {
    catalogue::delete(&cloud, &caller, &kind, &name, seen).await?;
    done()
}
