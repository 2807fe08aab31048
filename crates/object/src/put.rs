//! Takes the bytes of a request: onto the disk and through the hashes at once.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::HeaderMap;
use s3s::{S3ErrorCode, StdError, TrailingHeaders};

use crate::checksum::{self, Algorithm, Asked};
use crate::claim::Claim;
use crate::engine::{BlobWriter, Engine, SealKey, Written};
use crate::fault::{Fault, Result};
use crate::hash::Hashes;
use crate::record;

/// The most bytes of one request, as S3 has it.
pub const SIZE_MAX: u64 = 5 << 30;

/// Bytes to be taken, and what was promised about them.
pub struct Source<S> {
    pub stream: S,
    pub length: Option<u64>,
    pub md5: Option<[u8; 16]>,
    pub checksum: Asked,
    pub trailers: Option<TrailingHeaders>,
    /// Where the bytes are counted until they have a name.
    pub claim: Claim,
}

/// The checksum of bodies that ask for none.
pub const DEFAULT: Asked = Asked { algorithm: Algorithm::Crc64Nvme, value: None, trailer: false };

impl<S> Source<S> {
    /// Of a request: `length` is its `Content-Length`, unless its body is chunked by the client.
    pub fn of(
        stream: S,
        headers: &HeaderMap,
        length: Option<i64>,
        trailers: Option<TrailingHeaders>,
        claim: Claim,
    ) -> Result<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let decoded = text("x-amz-decoded-content-length").and_then(|value| value.trim().parse().ok());
        Ok(Self {
            stream,
            length: decoded.or_else(|| length.and_then(|length| u64::try_from(length).ok())),
            md5: text("content-md5").map(checksum::content_md5).transpose()?,
            checksum: Asked::from(headers)?.unwrap_or(DEFAULT),
            trailers,
            claim,
        })
    }
}

/// Bytes that were taken and are what was promised.
pub struct Taken {
    /// `None` if there were no bytes.
    pub written: Option<Written>,
    pub size: u64,
    pub md5: [u8; 16],
    pub checksum: record::Checksum,
    /// To be kept until the bytes have a name.
    pub claim: Claim,
}

impl Taken {
    pub fn etag(&self) -> String {
        hex::encode(self.md5)
    }
}

/// Takes all bytes and checks them. On an error nothing is left behind.
pub async fn take<S>(engine: &Engine, mut source: Source<S>, seal: Option<&SealKey>) -> Result<Taken>
where
    S: Stream<Item = Result<Bytes, StdError>> + Unpin,
{
    if source.length.is_some_and(|length| length > SIZE_MAX) {
        return Err(too_large());
    }
    if let Some(length) = source.length {
        source.claim.grow(length)?;
    }
    let mut hashes = Hashes::start(source.checksum.algorithm, source.length);
    let mut writer: Option<BlobWriter> = None;
    let mut size: u64 = 0;
    while let Some(piece) = source.stream.next().await.transpose().map_err(broken)? {
        size += piece.len() as u64;
        if size > source.length.unwrap_or(SIZE_MAX) {
            return Err(if source.length.is_some() { incomplete() } else { too_large() });
        }
        if piece.is_empty() {
            continue;
        }
        if source.length.is_none() {
            source.claim.grow(piece.len() as u64)?;
        }
        hashes.update(piece.clone()).await?;
        writer.get_or_insert_with(|| engine.blob(source.length, seal)).write(piece).await?;
    }
    if source.length.is_some_and(|length| length != size) {
        return Err(incomplete());
    }
    // What is wrong is found before the disk is asked to keep it.
    let (md5, value) = hashes.finish().await?;
    let expected = expected(&source.checksum, source.trailers.as_ref())?;
    if source.md5.is_some_and(|given| given != md5) || expected.is_some_and(|given| given != value) {
        return Err(bad_digest());
    }
    let written = match writer {
        Some(writer) => Some(writer.finish().await?),
        None => None,
    };
    let algorithm = source.checksum.algorithm.name().to_owned();
    let checksum = record::Checksum { algorithm, value, full: true };
    Ok(Taken { written, size, md5, checksum, claim: source.claim })
}

/// The value the body must have, from its header or its trailer.
fn expected(asked: &Asked, trailers: Option<&TrailingHeaders>) -> Result<Option<String>> {
    if !asked.trailer {
        return Ok(asked.value.clone());
    }
    let header = asked.algorithm.header();
    let value = trailers.and_then(|trailers| {
        trailers.read(|map| map.get(header).and_then(|value| value.to_str().ok()).map(str::to_owned))
    });
    value.flatten().map(Some).ok_or_else(|| {
        Fault::new(S3ErrorCode::InvalidRequest, "The trailer that the request announced did not come.")
    })
}

fn too_large() -> Fault {
    Fault::new(S3ErrorCode::EntityTooLarge, "Your proposed upload exceeds the maximum allowed object size.")
}

fn incomplete() -> Fault {
    Fault::new(
        S3ErrorCode::IncompleteBody,
        "You did not provide the number of bytes specified by the Content-Length HTTP header",
    )
}

fn bad_digest() -> Fault {
    Fault::new(
        S3ErrorCode::BadDigest,
        "The Content-MD5 or checksum value that you specified did not match what the server received.",
    )
}

/// Why a body ended early. The library gives its errors no public type, so their text is asked.
fn broken(error: StdError) -> Fault {
    let error = match error.downcast::<Fault>() {
        Ok(fault) => return *fault,
        Err(error) => error,
    };
    if let Some(fault) = error.downcast_ref::<crate::engine::EngineError>() {
        tracing::error!(error = %fault, "the bytes to copy cannot be read");
        return Fault::new(S3ErrorCode::InternalError, "We encountered an internal error. Please try again.");
    }
    let text = error.to_string();
    let says = |word| text.contains(word);
    if says("SignatureMismatch") {
        let message = "The signature of a chunk does not match what was calculated from it.";
        Fault::new(S3ErrorCode::SignatureDoesNotMatch, message)
    } else if says("Sha256Mismatch") {
        let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        Fault::new(S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()), message)
    } else if says("FormatError") || says("TooLarge") || says("TooManyTrailerHeaders") {
        Fault::new(S3ErrorCode::InvalidRequest, "The chunks of the body are not well formed.")
    } else {
        incomplete()
    }
}
