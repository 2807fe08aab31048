//! Our terms as the types of S3.

use s3s::dto::ETag;

pub fn etag(value: &str) -> ETag {
    ETag::Strong(value.to_owned())
}

/// A size as S3 counts it.
pub fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The key that a client sends along, of any input that has one.
macro_rules! customer {
    ($input:expr) => {
        crate::seal::CustomerKey::of(
            $input.sse_customer_algorithm.as_deref(),
            $input.sse_customer_key.as_deref(),
            $input.sse_customer_key_md5.as_deref(),
        )
    };
}
pub(super) use customer;
