//! Handlers of login, tenants, users, tokens, keys and quotas.

use api::{Login, PasswordChange, TenantCreate, TokenCreate, UserCreate, UserUpdate};
use axum::Extension;
use axum::extract::State;
use model::Quota;

use super::extract::{Body, Item, Pairs, Peer, Seen};
use super::reply::{Reply, created, done, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::{key, quota, session, tenant, token, user};

pub async fn login(
    State(cloud): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Body<Login>,
) -> Reply {
    ok(session::login(&cloud, body.value, Some(peer.0.ip())).await?)
}

pub async fn logout(State(cloud): State<Shared>, caller: Caller) -> Reply {
    session::logout(&cloud, &caller).await?;
    done()
}

pub async fn whoami(caller: Caller) -> Reply {
    ok(session::whoami(&caller))
}

pub async fn password(State(cloud): State<Shared>, caller: Caller, body: Body<PasswordChange>) -> Reply {
    user::password_change(&cloud, &caller, body.value).await?;
    done()
}

pub async fn tenant_create(State(cloud): State<Shared>, caller: Caller, body: Body<TenantCreate>) -> Reply {
    let once = body.once(&caller, "tenant")?;
    let made = tenant::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/tenants/{}", made.name), made)
}

pub async fn tenant_list(State(cloud): State<Shared>, pairs: Pairs) -> Reply {
    ok(tenant::list(&cloud, &Query::parse(&pairs.0, tenant::FILTERS)?)?)
}

pub async fn tenant_get(State(cloud): State<Shared>, Item(name): Item) -> Reply {
    let found = tenant::get(&cloud, &name)?;
    versioned(found.version, found)
}

pub async fn tenant_delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    tenant::delete(&cloud, &caller, &name, seen).await?;
    done()
}

pub async fn quota_set(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<Quota>,
) -> Reply {
    let changed = tenant::quota_set(&cloud, &caller, &name, body.value, seen).await?;
    versioned(changed.version, changed)
}

pub async fn quota_get(State(cloud): State<Shared>, caller: Caller) -> Reply {
    ok(quota::report(&cloud, &caller)?)
}

pub async fn user_create(State(cloud): State<Shared>, caller: Caller, body: Body<UserCreate>) -> Reply {
    let once = body.once(&caller, "user")?;
    let made = user::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.version, &format!("/v1/users/{}", made.name), made)
}

pub async fn user_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(user::list(&cloud, &caller, &Query::parse(&pairs.0, user::FILTERS)?)?)
}

pub async fn user_get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = user::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn user_update(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
    body: Body<UserUpdate>,
) -> Reply {
    let changed = user::update(&cloud, &caller, &name, body.value, seen).await?;
    versioned(changed.version, changed)
}

pub async fn user_delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    user::delete(&cloud, &caller, &name, seen).await?;
    done()
}

pub async fn token_create(State(cloud): State<Shared>, caller: Caller, body: Body<TokenCreate>) -> Reply {
    let once = body.once(&caller, "token")?;
    let made = token::create(&cloud, &caller, body.value, once.as_ref()).await?;
    created(made.token.version, &format!("/v1/tokens/{}", made.token.id), made)
}

pub async fn token_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(token::list(&cloud, &caller, &Query::parse(&pairs.0, token::FILTERS)?)?)
}

pub async fn token_delete(State(cloud): State<Shared>, caller: Caller, Item(id): Item) -> Reply {
    token::delete(&cloud, &caller, &id).await?;
    done()
}

/// A key is made from nothing, so the body must be empty or an empty object.
pub async fn key_create(State(cloud): State<Shared>, caller: Caller, body: Body<Nothing>) -> Reply {
    let once = body.once(&caller, "key")?;
    let made = key::create(&cloud, &caller, once.as_ref()).await?;
    created(made.key.version, &format!("/v1/keys/{}", made.key.id), made)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

pub async fn key_list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(key::list(&cloud, &caller, &Query::parse(&pairs.0, &[])?)?)
}

pub async fn key_delete(State(cloud): State<Shared>, caller: Caller, Item(id): Item) -> Reply {
    key::delete(&cloud, &caller, &id).await?;
    done()
}
