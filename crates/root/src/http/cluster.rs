//! Handlers of clusters.

use api::{
    ClusterConfigure, ClusterCreate, ClusterLease, ClusterRepair, ClusterResize, ClusterServiceOrder,
    ClusterServices, ClusterSolve, ClusterUpgrade,
};
use axum::extract::State;

use super::extract::{Body, Item, Pair, Pairs, Seen};
use super::reply::{Reply, accepted, created, done, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::cluster::{self, Switch, look};
use crate::ops::page::Query;

pub async fn create(State(cloud): State<Shared>, caller: Caller, body: Body<ClusterCreate>) -> Reply {
    let once = body.once(&caller, "cluster")?;
    let made = cluster::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/clusters/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(cluster::list(&cloud, &caller, &Query::parse(&pairs.0, cluster::FILTERS)?)?)
}

pub async fn solve(State(cloud): State<Shared>, caller: Caller, body: Body<ClusterSolve>) -> Reply {
    ok(look::solve(&cloud, &caller, body.value).await?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = cluster::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    Seen(seen): Seen,
) -> Reply {
    pairs.only(&["force"])?;
    let found = cluster::delete(&cloud, &caller, &name, pairs.flag("force")?, seen).await?;
    accepted(found.version, found)
}

pub async fn expand(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterResize>,
) -> Reply {
    let found = cluster::resize(&cloud, &caller, &name, body.value, true, seen).await?;
    accepted(found.version, found)
}

pub async fn shrink(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterResize>,
) -> Reply {
    let found = cluster::resize(&cloud, &caller, &name, body.value, false, seen).await?;
    accepted(found.version, found)
}

pub async fn services(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterServices>,
) -> Reply {
    let found = cluster::services(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn configure(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterConfigure>,
) -> Reply {
    let found = cluster::configure(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn start(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterServiceOrder>,
) -> Reply {
    let found = cluster::switch(&cloud, &caller, &name, Switch::Start, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn stop(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterServiceOrder>,
) -> Reply {
    let found = cluster::switch(&cloud, &caller, &name, Switch::Stop, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn restart(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterServiceOrder>,
) -> Reply {
    let found = cluster::switch(&cloud, &caller, &name, Switch::Restart, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn upgrade(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterUpgrade>,
) -> Reply {
    let found = cluster::upgrade(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn rollback(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = cluster::rollback(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn repair(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterRepair>,
) -> Reply {
    let found = cluster::repair(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn check(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = cluster::check(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn lease(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<ClusterLease>,
) -> Reply {
    let found = cluster::lease(&cloud, &caller, &name, body.value, seen).await?;
    accepted(found.version, found)
}

pub async fn abort(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = cluster::abort(&cloud, &caller, &name, seen).await?;
    accepted(found.version, found)
}

pub async fn pause(State(cloud): State<Shared>, caller: Caller, Item(name): Item, Seen(seen): Seen) -> Reply {
    let found = cluster::pause(&cloud, &caller, &name, true, seen).await?;
    accepted(found.version, found)
}

pub async fn resume(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    let found = cluster::pause(&cloud, &caller, &name, false, seen).await?;
    accepted(found.version, found)
}

pub async fn nodes(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(look::nodes(&cloud, &caller, &name).await?)
}

pub async fn node_log(State(cloud): State<Shared>, caller: Caller, Pair(name, num): Pair) -> Reply {
    ok(look::log(&cloud, &caller, &name, &num).await?)
}

pub async fn jobs(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(look::jobs(&cloud, &caller, &name)?)
}

pub async fn job(State(cloud): State<Shared>, caller: Caller, Pair(name, id): Pair) -> Reply {
    ok(look::job(&cloud, &caller, &name, &id).await?)
}

pub async fn key(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    ok(look::key(&cloud, &caller, &name).await?)
}

pub async fn provisioner_list(State(cloud): State<Shared>) -> Reply {
    ok(look::provisioners(&cloud))
}

pub async fn provisioner_remove(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    look::provisioner_remove(&cloud, &caller, &name).await?;
    done()
}
