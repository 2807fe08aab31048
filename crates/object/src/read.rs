//! The bytes of a version as a stream.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3ErrorCode, StdError, dto};

use crate::engine::{BlobId, Engine, EngineError, SealKey};
use crate::fault::{Fault, Result};
use crate::record::Version;

/// What part of an object is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub range: Range<u64>,
    /// Whether it was asked for by a range or a part number, so that the answer says which it is.
    pub partial: bool,
    /// The part with this number among all parts, if that was asked for.
    pub part: Option<usize>,
}

/// By `Range` or by part number; not by both.
pub fn slice(version: &Version, range: Option<&dto::Range>, part: Option<i32>) -> Result<Slice> {
    let size = version.head.size;
    match (range, part) {
        (Some(_), Some(_)) => Err(Fault::new(
            S3ErrorCode::InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter",
        )),
        (None, None) => Ok(Slice { range: 0..size, partial: false, part: None }),
        (Some(range), None) => {
            let range = range.check(size).ok().filter(|range| !range.is_empty());
            let range = range.ok_or_else(|| {
                Fault::new(S3ErrorCode::InvalidRange, "The requested range is not satisfiable")
            })?;
            Ok(Slice { range, partial: true, part: None })
        }
        (None, Some(number)) => by_part(version, number),
    }
}

/// An object that did not come in parts is its own first part.
fn by_part(version: &Version, number: i32) -> Result<Slice> {
    if !(1..=10_000).contains(&number) {
        return Err(Fault::new(
            S3ErrorCode::InvalidArgument,
            "Part number must be an integer between 1 and 10000, inclusive",
        ));
    }
    let no_part = || {
        Fault::new(
            S3ErrorCode::InvalidPart,
            "The requested part number is not one of the parts of the object",
        )
    };
    if !version.multipart {
        let whole = Slice { range: 0..version.head.size, partial: version.head.size > 0, part: None };
        return if number == 1 { Ok(whole) } else { Err(no_part()) };
    }
    let mut start = 0;
    for (index, blob) in version.blobs.iter().enumerate() {
        if i32::from(blob.part) == number {
            return Ok(Slice { range: start..start + blob.size, partial: true, part: Some(index) });
        }
        start += blob.size;
    }
    Err(no_part())
}

/// The bytes of a version's range. The first blob is opened at once; the others are kept until their turn.
pub async fn bytes(
    engine: &Engine,
    version: &Version,
    range: Range<u64>,
    key: Option<&SealKey>,
) -> Result<BoxStream<'static, Result<Bytes, EngineError>>> {
    let mut pieces = pieces(version, range).into_iter();
    let Some((id, range)) = pieces.next() else { return Ok(stream::empty().boxed()) };
    let pin = (pieces.len() > 0).then(|| engine.pin());
    let first = engine.fetch(id, range, key).await?;
    let Some(pin) = pin else { return Ok(first) };
    let (engine, key) = (engine.clone(), key.cloned());
    let later = stream::iter(pieces)
        .then(move |(id, range)| {
            let (engine, key) = (engine.clone(), key.clone());
            async move { engine.fetch(id, range, key.as_ref()).await }
        })
        .try_flatten();
    // Once everything has been read, the pin goes.
    let end = stream::once(async move {
        drop(pin);
        None
    });
    Ok(first.chain(later).map(Some).chain(end).filter_map(std::future::ready).boxed())
}

/// Waits for the first bytes, so that damage among them is an error and not an answer that breaks off.
pub async fn begun(
    mut stream: BoxStream<'static, Result<Bytes, EngineError>>,
) -> Result<BoxStream<'static, Result<Bytes, EngineError>>> {
    let Some(first) = stream.next().await.transpose()? else { return Ok(stream) };
    Ok(stream::once(std::future::ready(Ok(first))).chain(stream).boxed())
}

/// Which bytes of which blobs a range is made of.
fn pieces(version: &Version, range: Range<u64>) -> Vec<(BlobId, Range<u64>)> {
    let mut start = 0;
    let mut pieces = Vec::new();
    for blob in &version.blobs {
        let end = start + blob.size;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            pieces.push((blob.id, from - start..to - start));
        }
        start = end;
    }
    pieces
}

/// Wraps a stream for an answer of known length.
pub fn body(stream: BoxStream<'static, Result<Bytes, EngineError>>, length: u64) -> dto::StreamingBlob {
    let stream = stream.map_err(|error| {
        tracing::error!(%error, "an answer breaks off");
        StdError::from(error)
    });
    dto::StreamingBlob::new(Body { stream: Mutex::new(stream.boxed()), left: Some(length) })
}

/// Wraps a stream of unknown length.
pub fn shared(stream: BoxStream<'static, Result<Bytes, StdError>>) -> dto::StreamingBlob {
    dto::StreamingBlob::new(Body { stream: Mutex::new(stream), left: None })
}

/// Bodies must be `Sync`; the lock is never contended since it is only reached by `&mut`.
struct Body {
    stream: Mutex<BoxStream<'static, Result<Bytes, StdError>>>,
    left: Option<u64>,
}

impl Stream for Body {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.stream.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let polled = stream.poll_next_unpin(context);
        if let (Poll::Ready(Some(Ok(bytes))), Some(left)) = (&polled, &mut self.left) {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        polled
    }
}

impl ByteStream for Body {
    fn remaining_length(&self) -> RemainingLength {
        let left = self.left.and_then(|left| usize::try_from(left).ok());
        left.map_or_else(RemainingLength::unknown, RemainingLength::new_exact)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::record::Blob;

    fn version(sizes: &[u64], multipart: bool) -> Version {
        let owner = crate::identity::Account { id: "o".into(), name: "o".into() };
        let blobs = sizes.iter().zip(1..).map(|(size, part)| Blob {
            id: BlobId(u64::from(part)),
            size: *size,
            part,
            checksum: None,
        });
        let mut version = Version::empty(owner);
        version.head.size = sizes.iter().sum();
        version.blobs = blobs.collect();
        version.multipart = multipart;
        version
    }

    #[test]
    fn ranges_are_cut_to_the_object() {
        let version = version(&[10], false);
        let check = |header: &str, expected: Option<Range<u64>>| {
            let range = dto::Range::parse(header).unwrap();
            let slice = slice(&version, Some(&range), None).ok();
            assert_eq!(slice.map(|slice| slice.range), expected, "{header}");
        };
        check("bytes=0-3", Some(0..4));
        check("bytes=4-", Some(4..10));
        check("bytes=-3", Some(7..10));
        check("bytes=-30", Some(0..10));
        check("bytes=5-100", Some(5..10));
        check("bytes=10-12", None);
        check("bytes=-0", None);
        let empty = dto::Range::parse("bytes=-3").unwrap();
        assert!(slice(&self::version(&[], false), Some(&empty), None).is_err());
    }

    #[test]
    fn parts_are_found_by_number() {
        let parts = version(&[5, 7, 1], true);
        let second = Slice { range: 5..12, partial: true, part: Some(1) };
        assert_eq!(slice(&parts, None, Some(2)).unwrap(), second);
        assert!(slice(&parts, None, Some(4)).is_err());
        assert!(slice(&parts, None, Some(0)).is_err());
        let whole = version(&[5], false);
        assert_eq!(slice(&whole, None, Some(1)).unwrap().range, 0..5);
        assert!(slice(&whole, None, Some(2)).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_range(
            sizes in prop::collection::vec(1_u64..50, 0..8),
            start in 0_u64..400,
            length in 0_u64..400,
        ) {
            let version = version(&sizes, true);
            let size = version.head.size;
            let range = start.min(size)..(start + length).min(size);
            let mut at = 0;
            let all: Vec<(u64, u64)> = sizes.iter().zip(1..).flat_map(|(size, id)| {
                (0..*size).map(move |offset| (id, offset))
            }).collect();
            let mut found = Vec::new();
            for (id, piece) in pieces(&version, range.clone()) {
                at += piece.end - piece.start;
                found.extend(piece.map(|offset| (id.0, offset)));
            }
            prop_assert_eq!(at, range.end - range.start);
            let wanted = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            prop_assert_eq!(&found[..], &all[wanted]);
        }
    }
}
