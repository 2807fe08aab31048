//! How many machines carry a service.
//!
//! ```text
//! {"min": 1, "max": 9}                   from 1 to 9
//! {"min": 1, "stepSize": 2}              1, 3, 5, …
//! {"ratio": "1:10"}                      one for every ten machines of the cluster, begun tens count
//! {"ratio": {"worker": "1:10"}}          one for every ten machines that carry `worker`
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{Other, lenient};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantities {
    #[serde(deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Only `min`, `min + step`, `min + 2 · step` … are allowed.
    #[serde(
        rename = "stepSize",
        alias = "stepsize",
        alias = "step",
        deserialize_with = "lenient::count",
        skip_serializing_if = "Option::is_none"
    )]
    pub step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<RatioTo>,
    #[serde(flatten)]
    pub other: Other,
}

/// `part` of one thing for every `whole` of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    pub part: u32,
    pub whole: u32,
}

/// What a ratio refers to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RatioTo {
    /// The machines of the cluster.
    Machines(Ratio),
    /// The machines that carry the named services; each ratio holds.
    Services(BTreeMap<String, Ratio>),
}

impl Ratio {
    /// How many go with `of`: begun wholes count.
    pub fn apply(self, of: u32) -> u32 {
        let parts = u64::from(of) * u64::from(self.part);
        u32::try_from(parts.div_ceil(u64::from(self.whole))).unwrap_or(u32::MAX)
    }

    fn read(value: &Value) -> Result<Self, String> {
        let wrong = || format!("{value} is no ratio; write it as \"1:10\", with whole numbers of 1 or more");
        let number = |value: &Value| match value {
            Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let (part, whole) = match value {
            Value::String(text) => {
                let (part, whole) = text.split_once(':').ok_or_else(wrong)?;
                (part.trim().parse().ok(), whole.trim().parse().ok())
            }
            Value::Array(pair) if pair.len() == 2 => (number(&pair[0]), number(&pair[1])),
            _ => return Err(wrong()),
        };
        match (part, whole) {
            (Some(part), Some(whole)) if part > 0 && whole > 0 => Ok(Self { part, whole }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.part, self.whole)
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RatioTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::Object(members) => {
                let read = |(name, value): (&String, &Value)| Ok((name.clone(), Ratio::read(value)?));
                members.iter().map(read).collect::<Result<_, _>>().map(Self::Services)
            }
            other => Ratio::read(other).map(Self::Machines),
        }
        .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn begun_wholes_count() {
        let ratio = Ratio { part: 1, whole: 10 };
        let counts: Vec<u32> = [0, 1, 10, 11, 100].map(|of| ratio.apply(of)).into();
        assert_eq!(counts, [0, 1, 1, 2, 10]);
        assert_eq!(Ratio { part: 3, whole: 2 }.apply(3), 5);
    }

    #[test]
    fn every_way_of_writing_quantities() {
        let read = |value| serde_json::from_value::<Quantities>(value);
        assert_eq!(read(json!({"min": "1", "max": 3})).unwrap().min, Some(1));
        assert_eq!(read(json!({"stepSize": "2"})).unwrap().step, Some(2));
        let ten = Ratio { part: 1, whole: 10 };
        assert_eq!(read(json!({"ratio": "1:10"})).unwrap().ratio, Some(RatioTo::Machines(ten)));
        assert_eq!(read(json!({"ratio": [1, "10"]})).unwrap().ratio, Some(RatioTo::Machines(ten)));
        let to = RatioTo::Services([("worker".to_owned(), ten)].into());
        assert_eq!(read(json!({"ratio": {"worker": "1:10"}})).unwrap().ratio, Some(to));
        for bad in [
            json!({"ratio": "1"}),
            json!({"ratio": "0:3"}),
            json!({"ratio": 3}),
            json!({"min": -1}),
            json!({"max": "x"}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
