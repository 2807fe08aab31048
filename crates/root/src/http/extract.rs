//! What handlers take from a request; everything wrong with it becomes a sentence that names the field.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use model::{Error, ErrorKind, Result, shown};
use serde::de::DeserializeOwned;

use super::reply::Failure;
use crate::cloud::Caller;
use crate::config::JSON_BODY_MAX;
use crate::ops::once::Once;

/// Longest time a JSON body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a body that is refused is still read, so that a client that sends first and reads then
/// gets its answer instead of a broken connection.
const DRAIN_MAX: usize = 64 << 20;

/// The other end of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        // The guard puts it there; a route without a role has no caller to give.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Failure(Error::new(ErrorKind::Unauthenticated, "this needs credentials")))
    }
}

/// The parameters of the query, in order.
pub fn pairs(uri: &Uri) -> Result<Vec<(String, String)>> {
    Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map(|query| query.0)
        .map_err(|_| Error::invalid("the query of the address cannot be read"))
}

/// All query parameters.
pub struct Pairs(pub Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self(pairs(&parts.uri)?))
    }
}

impl Pairs {
    /// Refuses parameters other than `known` and `tenant`.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        match self.0.iter().find(|(name, _)| name != "tenant" && !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::invalid(format!("there is no parameter '{}' here", shown(name))).at(name))
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(Error::invalid(format!("{name} must be true or false")).at(name)),
        }
    }

    pub fn time(&self, name: &str) -> Result<Option<model::Timestamp>> {
        let parse = |text: &str| {
            serde_json::from_value(text.into()).map_err(|_| {
                Error::invalid(format!("{name} must be a time, such as 2026-01-31T12:00:00Z")).at(name)
            })
        };
        self.get(name).map(parse).transpose()
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                Error::invalid(format!("{name} must be a number, not '{}'", shown(text))).at(name)
            })
        };
        self.get(name).map(parse).transpose()
    }
}

/// The one variable part of the path.
pub struct Item(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Item {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let bad = || Failure(Error::invalid("the address cannot be read"));
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| bad())?;
        let mut values = params.iter().map(|(_, value)| value.to_owned());
        values.next().map(Self).ok_or_else(bad)
    }
}

/// The two variable parts of the path.
pub struct Pair(pub String, pub String);

impl<S: Send + Sync> FromRequestParts<S> for Pair {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let bad = || Failure(Error::invalid("the address cannot be read"));
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| bad())?;
        let mut values = params.iter().map(|(_, value)| value.to_owned());
        values.next().zip(values.next()).map(|(first, second)| Self(first, second)).ok_or_else(bad)
    }
}

/// The version the caller saw; absent or `*` means any.
pub struct Seen(pub Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for Seen {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Some(header) = parts.headers.get(IF_MATCH) else { return Ok(Self(None)) };
        let text = header.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self(None));
        }
        let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        inner.parse().map(|version| Self(Some(version))).map_err(|_| {
            Failure(
                Error::invalid("If-Match must be the version that was read, such as \"7\"").at("If-Match"),
            )
        })
    }
}

/// A JSON body, read to its end and checked.
pub struct Body<T> {
    pub value: T,
    pub bytes: Bytes,
    key: Option<String>,
}

impl<T> Body<T> {
    /// The idempotency key of the request, if it has one.
    pub fn once(&self, caller: &Caller, route: &str) -> Result<Option<Once>> {
        self.key.as_deref().map(|key| Once::new(caller, route, key, &self.bytes)).transpose()
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let key = key_of(request.headers())?;
        let bytes = body_read(request).await?;
        let value = api::read::from_slice(&bytes)?;
        Ok(Self { value, bytes, key })
    }
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        Error::invalid("the idempotency key must be printable characters").at("Idempotency-Key")
    })?;
    Ok(Some(text.to_owned()))
}

async fn body_read(request: Request) -> Result<Bytes> {
    let mut body = request.into_body();
    let read = tokio::time::timeout(BODY_TIMEOUT, async {
        let read = Limited::new(&mut body, JSON_BODY_MAX).collect().await;
        let too_large = read.as_ref().is_err_and(|error| error.downcast_ref::<LengthLimitError>().is_some());
        if too_large {
            drain(&mut body).await;
        }
        (read, too_large)
    });
    let (read, too_large) = read.await.map_err(|_| Error::invalid("the body did not arrive in time"))?;
    read.map(|body| body.to_bytes()).map_err(|_| {
        if too_large {
            return Error::new(
                ErrorKind::TooLarge,
                format!("the body is larger than {} MiB", JSON_BODY_MAX >> 20),
            );
        }
        Error::invalid("the body broke off")
    })
}

/// Reads on and keeps nothing.
async fn drain(body: &mut axum::body::Body) {
    let mut left = DRAIN_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}
