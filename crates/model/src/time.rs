//! A point in time, in microseconds since 1970, written as RFC 3339.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, utoipa::ToSchema)]
#[schema(value_type = String, format = "date-time", example = "2026-01-01T00:00:00Z")]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0 + ms * 1000)
    }

    /// Milliseconds from `earlier` to here; negative when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> i64 {
        (self.0 - earlier.0) / 1000
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{}us", self.0),
        }
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
}
