//! A point in time, in microseconds since 1970, written as RFC 3339.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, utoipa::ToSchema)]
#[schema(value_type = String, format = "date-time", example = "2026-01-01T00:00:00Z")]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// So much later, or as late as there is.
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to here; negative when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1000
    }

    /// The number of a life that begins now: what is restored from a copy of an earlier life goes on above it.
    pub fn epoch(self) -> u64 {
        (self.0 / 1000).max(0).unsigned_abs()
    }

    /// As it can be written: a time before the first or after the last year of the calendar is the first or the last
    /// that can. What is kept must be read again, whatever somebody asked for.
    fn written(self) -> jiff::Timestamp {
        let bound = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_microsecond(self.0).unwrap_or(bound)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.written())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        // Times that the calendar does not have were once written like this.
        if let Some(beyond) = text.strip_suffix("us").and_then(|number| number.parse().ok()) {
            return Ok(Self(Self(beyond).written().as_microsecond()));
        }
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(time.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_reads_back_to_the_microsecond() {
        let time = Timestamp(1_767_225_600_123_456);
        let text = serde_json::to_string(&time).expect("writes");
        assert_eq!(text, "\"2026-01-01T00:00:00.123456Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).expect("reads"), time);
    }

    #[test]
    fn every_time_reads_back_also_those_beyond_the_calendar() {
        let now = Timestamp(1_767_225_600_123_456);
        let far =
            [i64::MAX, 1_000_000_000_000_000, i64::MIN, -1_000_000_000_000_000].map(|ms| now.plus_ms(ms));
        for time in far.into_iter().chain([Timestamp(i64::MAX), Timestamp(i64::MIN)]) {
            let text = serde_json::to_string(&time).expect("writes");
            let read: Timestamp = serde_json::from_str(&text).expect("reads");
            assert_eq!(read.0 < now.0, time.0 < now.0, "{text}");
            assert_eq!(serde_json::to_string(&read).expect("writes"), text);
        }
        let old: Timestamp = serde_json::from_str("\"1001767225600123456us\"").expect("reads");
        assert!(old > now);
    }
}
