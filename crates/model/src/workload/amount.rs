//! How many instances, as a count or as a share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::REPLICAS_MAX;
use crate::error::{Error, Result, shown};

/// A number of instances, or hundredths of the wanted number. Written `2` or `25%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Count(u32),
    Percent(u32),
}

impl Amount {
    /// Of `whole`, rounded up.
    pub fn of_up(self, whole: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (u64::from(whole) * u64::from(percent)).div_ceil(100) as u32,
        }
    }

    /// Of `whole`, rounded down.
    pub fn of_down(self, whole: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (u64::from(whole) * u64::from(percent) / 100) as u32,
        }
    }
}

impl Amount {
    pub(super) const fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Amount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{}' is not a number of instances: write a number such as 2, or a share such as 25%",
                shown(text)
            ))
        };
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
            None => match text.parse() {
                Ok(count) if count <= REPLICAS_MAX => Ok(Self::Count(count)),
                _ => Err(wrong()),
            },
        }
    }
}

impl utoipa::PartialSchema for Amount {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        <String as utoipa::PartialSchema>::schema()
    }
}

impl utoipa::ToSchema for Amount {}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of instances such as 2, or a share such as \"25%\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Amount, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> std::result::Result<Amount, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
