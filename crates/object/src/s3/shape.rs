//! Our terms as the types of S3.

use s3s::dto::{ETag, Owner, Timestamp};

use crate::identity::Account;

/// A time in milliseconds since 1970.
pub fn time(millis: i64) -> Timestamp {
    let nanos = i128::from(millis) * 1_000_000;
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(time::OffsetDateTime::UNIX_EPOCH).into()
}

/// A time of S3 in milliseconds since 1970.
pub fn millis(time: &Timestamp) -> i64 {
    let nanos = time::OffsetDateTime::from(time.clone()).unix_timestamp_nanos();
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

pub fn owner(account: &Account) -> Owner {
    Owner { display_name: Some(account.name.to_string()), id: Some(account.id.to_string()) }
}

pub fn etag(value: &str) -> ETag {
    ETag::Strong(value.to_owned())
}

/// A size as S3 counts it.
pub fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
