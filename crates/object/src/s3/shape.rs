//! Our terms as the types of S3.

use s3s::dto::ETag;

pub fn etag(value: &str) -> ETag {
    ETag::Strong(value.to_owned())
}

/// A size as S3 counts it.
pub fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
