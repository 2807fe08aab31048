//! Times as the store keeps them (milliseconds since 1970) and as S3 says them.

use s3s::dto::Timestamp;
use time::OffsetDateTime;

const NANOS_PER_MILLI: i128 = 1_000_000;

pub fn timestamp(millis: i64) -> Timestamp {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * NANOS_PER_MILLI);
    moment.unwrap_or(OffsetDateTime::UNIX_EPOCH).into()
}

pub fn millis(timestamp: &Timestamp) -> i64 {
    let moment: OffsetDateTime = timestamp.clone().into();
    (moment.unix_timestamp_nanos() / NANOS_PER_MILLI) as i64
}
