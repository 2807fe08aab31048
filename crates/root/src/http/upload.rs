//! Bodies that are larger than memory: read as they come, refused early, drained when they are refused.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures::TryStreamExt;
use model::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

/// An upload that stands still this long is broken off.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
/// The most of a refused upload that is still read, and for how long.
const DRAIN_BYTES_MAX: u64 = 256 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

pub fn reader(body: Body) -> impl AsyncRead + Send + Unpin {
    let stream = tokio_stream::StreamExt::timeout(body.into_data_stream(), CHUNK_TIMEOUT)
        .map_err(std::io::Error::other)
        .and_then(|chunk| std::future::ready(chunk.map_err(std::io::Error::other)));
    StreamReader::new(Box::pin(stream))
}

/// Reads and drops what is left of a refused upload: a client that still sends when the connection
/// is closed sees a broken connection instead of the answer.
pub async fn drain(upload: impl AsyncRead) {
    let rest = upload.take(DRAIN_BYTES_MAX);
    tokio::pin!(rest);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Refuses before the upload what says itself that it is too large.
pub fn length_check(headers: &HeaderMap, what: &str, limit: u64) -> Result<()> {
    let length =
        headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit) {
        let limit = model::Bytes(limit);
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the {what} is larger than the limit of {limit}"),
        ));
    }
    Ok(())
}
