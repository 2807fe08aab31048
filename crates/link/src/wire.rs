//! How messages are written: JSON, packed with gzip when large, and errors with their kind.
//!
//! A packed body is told from a plain one by gzip's magic number, so that both transports
//! carry the same bytes.

use std::io::{Read, Write};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{ASIDE_OVER, BODY_MAX, COMPRESS_OVER};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(crate) fn encode<T: Serialize>(value: &T, max: usize) -> Result<Bytes> {
    packed(plain(value)?, max)
}

/// As [`encode`]; what is large is packed beside the tasks that carry messages.
pub(crate) async fn encode_large<T: Serialize + Sync>(value: &T, max: usize) -> Result<Bytes> {
    let plain = plain(value)?;
    aside(plain.len(), move || packed(plain, max)).await
}

/// As [`decode`]; what is large is unpacked beside the tasks that carry messages.
pub(crate) async fn decode_large<T: DeserializeOwned + Send + 'static>(body: Bytes, max: usize) -> Result<T> {
    aside(body.len(), move || decode(&body, max)).await
}

async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if bytes <= ASIDE_OVER {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a message was not packed").because(error))?
}

fn plain<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let plain = serde_json::to_vec(value)
        .map_err(|error| Error::internal("a message cannot be written as JSON").because(error))?;
    if plain.len() > BODY_MAX {
        return Err(too_large(BODY_MAX));
    }
    Ok(plain)
}

fn packed(plain: Vec<u8>, max: usize) -> Result<Bytes> {
    let body = if plain.len() > COMPRESS_OVER { pack(&plain)? } else { plain };
    if body.len() > max {
        return Err(too_large(max));
    }
    Ok(body.into())
}

pub(crate) fn decode<T: DeserializeOwned>(body: &[u8], max: usize) -> Result<T> {
    let wrong = |error| Error::invalid("the message is not what is expected here").because(error);
    if body.len() > max {
        return Err(too_large(max));
    }
    if body.starts_with(&GZIP_MAGIC) {
        return serde_json::from_slice(&unpack(body, max)?).map_err(wrong);
    }
    serde_json::from_slice(body).map_err(wrong)
}

fn pack(plain: &[u8]) -> Result<Vec<u8>> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(plain)?;
    Ok(packer.finish()?)
}

/// Unpacks no more than `max` bytes: a small body may hold a very large one.
fn unpack(body: &[u8], max: usize) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(body)
        .take(max as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|error| Error::invalid("the packed message is damaged").because(error))?;
    if plain.len() > max {
        return Err(too_large(max));
    }
    Ok(plain)
}

pub(crate) fn too_large(max: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the message is larger than {max} bytes"))
}

/// An error on its way to the other side; the cause stays behind, in the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireError {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    /// Of a parent that does not hold the duty: the one that does, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The parent removed the child that asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        let holder = not_holder(error).and_then(|moved| moved.0.clone());
        let (message, hint) = (error.message.clone(), error.hint.clone());
        Self { kind: error.kind, message, hint, holder, removed: removed(error) }
    }
}

impl From<WireError> for Error {
    fn from(wire: WireError) -> Self {
        let mut error = Self::new(wire.kind, wire.message);
        if wire.removed {
            error = error.because(Removed);
        }
        match wire.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// The status of a parent that is not the one to talk to now.
pub(crate) const NOT_HOLDER: u16 = 421;

/// The cause of an error: another parent holds the duty, and perhaps it is known which.
#[derive(Debug)]
pub(crate) struct NotHolder(pub Option<String>);

impl std::fmt::Display for NotHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another parent holds the duty")
    }
}

impl std::error::Error for NotHolder {}

impl NotHolder {
    pub(crate) fn error(self) -> Error {
        Error::unavailable("another parent is the one to talk to now").because(self)
    }
}

pub(crate) fn not_holder(error: &Error) -> Option<&NotHolder> {
    error.source.as_ref()?.downcast_ref()
}

/// The cause of an error: the parent knew this child and removed it for good.
#[derive(Debug)]
pub(crate) struct Removed;

impl std::fmt::Display for Removed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the parent removed this child")
    }
}

impl std::error::Error for Removed {}

impl Removed {
    pub(crate) fn error(self, who: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Forbidden, format!("{who} was removed")).because(self)
    }
}

pub(crate) fn removed(error: &Error) -> bool {
    error.kind == ErrorKind::Forbidden && error.source.as_ref().is_some_and(|cause| cause.is::<Removed>())
}

impl WireError {
    /// What an answer with [`NOT_HOLDER`] says.
    pub(crate) fn moved(self) -> Error {
        NotHolder(self.holder).error()
    }
}

pub(crate) fn status_of(error: &Error) -> u16 {
    if not_holder(error).is_some() {
        return NOT_HOLDER;
    }
    match error.kind {
        ErrorKind::Invalid => 400,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::Forbidden => 403,
        ErrorKind::NotFound => 404,
        ErrorKind::Conflict => 409,
        ErrorKind::VersionMismatch => 412,
        ErrorKind::QuotaExceeded => 422,
        ErrorKind::TooLarge => 413,
        ErrorKind::RateLimited => 429,
        ErrorKind::Unavailable => 503,
        ErrorKind::OutOfSpace => 507,
        ErrorKind::Internal => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_message_is_packed_and_reads_back() {
        let text = "banyan ".repeat(10_000);
        let body = encode(&text, 1 << 20).expect("writes");
        assert!(body.len() < text.len() / 10);
        assert_eq!(decode::<String>(&body, 1 << 20).expect("reads"), text);
    }

    #[test]
    fn only_a_removal_is_read_as_one() {
        let carried = |error: &Error| {
            let text = serde_json::to_string(&WireError::from(error)).expect("writes");
            Error::from(serde_json::from_str::<WireError>(&text).expect("reads"))
        };
        assert!(removed(&carried(&Removed.error("n-1"))));
        assert!(!removed(&carried(&Error::new(ErrorKind::Forbidden, "n-1 was removed"))));
        assert!(!removed(&carried(&NotHolder(None).error())));
        assert!(!removed(&carried(&Error::unavailable("away").because(Removed))));
    }

    #[test]
    fn a_small_body_that_unpacks_to_a_large_one_is_refused() {
        let body = encode(&"0".repeat(1 << 20), 1 << 20).expect("writes");
        assert!(body.len() < 1 << 16);
        let error = decode::<String>(&body, 1 << 16).expect_err("too large");
        assert_eq!(error.kind, ErrorKind::TooLarge);
    }
}
