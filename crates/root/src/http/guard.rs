//! Lets a request pass when the table of routes allows it, and tells the handler who calls.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::Response;
use model::{Error, ErrorKind, Result, Role};

use super::extract::{Peer, pairs};
use super::outer::Matched;
use super::reply::Failure;
use crate::access::{Rule, Who};
use crate::auth::{Principal, authenticate};
use crate::cloud::{Caller, Cloud, Shared};

pub async fn guard(
    State((cloud, rule)): State<(Shared, Rule)>,
    mut request: Request,
    next: Next,
) -> Response {
    let matched = Matched { method: rule.verb.as_str(), route: rule.path };
    let mut response = match admit(&cloud, rule, &request) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(error) => axum::response::IntoResponse::into_response(Failure(error)),
    };
    response.extensions_mut().insert(matched);
    response
}

/// Who calls, when the rule lets them.
fn admit(cloud: &Cloud, rule: Rule, request: &Request) -> Result<Option<Caller>> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let least = match rule.who {
        Who::Anyone => return Ok(None),
        Who::OperatorOrLoopback
            if peer.is_some_and(|ip| ip.is_loopback()) && !forwarded(request.headers()) =>
        {
            return Ok(None);
        }
        Who::OperatorOrLoopback => Role::Operator,
        Who::AtLeast(role) => role,
    };
    let principal = principal(cloud, request.headers(), peer)?;
    principal.require(least)?;
    let tenant = tenant_param(request.uri())?;
    if !rule.tenant_scoped && tenant.is_some() {
        principal.require(Role::Operator)?;
    }
    Caller::new(cloud, principal, tenant.as_deref()).map(Some)
}

/// A proxy on this machine speaks for somebody who may be anywhere.
fn forwarded(headers: &HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "x-real-ip", "via"].iter().any(|name| headers.contains_key(*name))
}

fn principal(cloud: &Cloud, headers: &HeaderMap, peer: Option<std::net::IpAddr>) -> Result<Principal> {
    let missing = || {
        Error::new(ErrorKind::Unauthenticated, "this needs credentials")
            .hint("send 'Authorization: Bearer TOKEN', or log in with 'banyan login'")
    };
    let header = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    let text = header.to_str().map_err(|_| missing())?;
    let (scheme, bearer) = text.split_once(' ').ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(missing());
    }
    authenticate(&cloud.state.snapshot(), bearer.trim(), cloud.now(), peer)
}

fn tenant_param(uri: &Uri) -> Result<Option<String>> {
    // Most requests have no query at all.
    if uri.query().is_none_or(|query| !query.contains("tenant")) {
        return Ok(None);
    }
    Ok(pairs(uri)?.into_iter().rev().find(|(name, _)| name == "tenant").map(|(_, value)| value))
}
