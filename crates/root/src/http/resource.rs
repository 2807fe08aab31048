//! Handlers of files that plugins use. An upload goes to disk as it comes.

use axum::body::Body as RawBody;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::IntoResponse;
use model::{Error, Result, shown};
use tokio_util::io::ReaderStream;

use super::extract::{Pairs, Seen};
use super::reply::{Failure, Reply, created, done, ok};
use super::upload;
use crate::cloud::{Caller, Shared};
use crate::ops::page::Query;
use crate::ops::resource::{self, Address, SIZE_MAX, Upload};

/// The address of a file.
pub struct At(Address);

/// The address of one version of a file.
pub struct VersionAt(Address, u32);

async fn parts_of<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<(Address, Option<String>)> {
    let bad = || Error::invalid("the address cannot be read");
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| bad())?;
    let mut values = params.iter().map(|(_, value)| value.to_owned());
    let mut next = || values.next().ok_or_else(bad);
    let (kind, plugin, resource_type, name) = (next()?, next()?, next()?, next()?);
    Ok((Address { kind, plugin, resource_type, name }, values.next()))
}

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        Ok(Self(parts_of(parts, state).await?.0))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for VersionAt {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let (address, number) = parts_of(parts, state).await?;
        let text = number.unwrap_or_default();
        let missing = || {
            Error::not_found(format!("version '{}' of the file '{}'", shown(&text), shown(&address.path())))
        };
        let number = text.parse().map_err(|_| missing())?;
        Ok(Self(address, number))
    }
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(resource::list(&cloud, &caller, &Query::parse(&pairs.0, resource::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, At(address): At) -> Reply {
    ok(resource::get(&cloud, &caller, &address)?)
}

pub async fn upload(
    State(cloud): State<Shared>,
    caller: Caller,
    At(address): At,
    pairs: Pairs,
    headers: HeaderMap,
    body: RawBody,
) -> Reply {
    pairs.only(&["stage", "sync"])?;
    let options = Upload { stage: pairs.flag("stage")?, sync: pairs.flag("sync")? };
    upload::length_check(&headers, "file", SIZE_MAX)?;
    let mut body = upload::reader(body);
    match resource::upload(&cloud, &caller, &address, options, &mut body).await {
        Ok(made) => {
            let version = made.versions.first().map_or(0, |newest| newest.version);
            created(version, &format!("/v1/resources/{}", made.path()), made)
        }
        Err(error) => {
            upload::drain(body).await;
            Err(error.into())
        }
    }
}

pub async fn stage(State(cloud): State<Shared>, caller: Caller, VersionAt(at, number): VersionAt) -> Reply {
    ok(resource::stage(&cloud, &caller, &at, number).await?)
}

pub async fn recall(State(cloud): State<Shared>, caller: Caller, VersionAt(at, number): VersionAt) -> Reply {
    ok(resource::recall(&cloud, &caller, &at, number).await?)
}

pub async fn sync(State(cloud): State<Shared>, caller: Caller) -> Reply {
    ok(resource::sync(&cloud, &caller).await?)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    VersionAt(at, number): VersionAt,
    Seen(seen): Seen,
) -> Reply {
    resource::delete(&cloud, &caller, &at, number, seen).await?;
    done()
}

pub async fn download(
    State(cloud): State<Shared>,
    caller: Caller,
    VersionAt(at, number): VersionAt,
) -> Reply {
    let source = resource::download(&cloud, &caller, &at, number).await?;
    let headers =
        [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, source.len.to_string())];
    Ok((headers, RawBody::from_stream(ReaderStream::new(source.reader))).into_response())
}
