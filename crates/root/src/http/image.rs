//! Handlers of images. An upload goes to disk as it comes.

use std::time::Duration;

use api::ImagePull;
use axum::body::Body as RawBody;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures::TryStreamExt;
use model::{Error, ErrorKind, Name, Result};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use super::extract::{Body, Item, Pairs, Seen};
use super::reply::{Reply, created, done, ok, versioned};
use crate::cloud::{Caller, Shared};
use crate::ops::image;
use crate::ops::page::Query;

/// An upload that stands still this long is broken off.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
/// The most of a refused upload that is still read, and for how long.
const DRAIN_BYTES_MAX: u64 = 256 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn import(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    headers: HeaderMap,
    body: RawBody,
) -> Reply {
    pairs.only(&["public"])?;
    let name: Name = name.parse()?;
    let limit = cloud.config.image_upload_max_bytes;
    length_check(&headers, limit)?;
    let stream = tokio_stream::StreamExt::timeout(body.into_data_stream(), CHUNK_TIMEOUT)
        .map_err(std::io::Error::other)
        .and_then(|chunk| std::future::ready(chunk.map_err(std::io::Error::other)));
    let public = pairs.flag("public")?;
    let mut upload = StreamReader::new(Box::pin(stream));
    let made = match image::import(&cloud, &caller, name, public, &mut upload).await {
        Ok(made) => made,
        Err(error) => {
            drain(upload).await;
            return Err(error.into());
        }
    };
    created(made.version, &format!("/v1/images/{}", made.name), made)
}

/// Reads and drops what is left of a refused upload: a client that still sends when the connection
/// is closed sees a broken connection instead of the answer.
async fn drain(upload: impl AsyncRead) {
    let rest = upload.take(DRAIN_BYTES_MAX);
    tokio::pin!(rest);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Refuses before the upload what says itself that it is too large.
fn length_check(headers: &HeaderMap, limit: u64) -> Result<()> {
    let length =
        headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit) {
        let limit = model::Bytes(limit);
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the image is larger than the limit of {limit}"),
        ));
    }
    Ok(())
}

pub async fn pull(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    body: Body<ImagePull>,
) -> Reply {
    let made = image::pull(&cloud, &caller, name.parse().map_err(super::reply::Failure)?, body.value).await?;
    created(made.version, &format!("/v1/images/{}", made.name), made)
}

pub async fn list(State(cloud): State<Shared>, caller: Caller, pairs: Pairs) -> Reply {
    ok(image::list(&cloud, &caller, &Query::parse(&pairs.0, image::FILTERS)?)?)
}

pub async fn get(State(cloud): State<Shared>, caller: Caller, Item(name): Item) -> Reply {
    let found = image::get(&cloud, &caller, &name)?;
    versioned(found.version, found)
}

pub async fn delete(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    Seen(seen): Seen,
) -> Reply {
    image::delete(&cloud, &caller, &name, seen).await?;
    done()
}
