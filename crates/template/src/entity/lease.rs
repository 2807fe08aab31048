//! How long a cluster may live: `7d`, `12h`, or milliseconds.

use std::fmt;

use model::{Error, Result};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// A span of time in milliseconds, written as a number of them or as `<n>s|m|h|d`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeaseTime(pub u64);

/// The terms of a lease. 0 means: never ends (`initial`), no limit (`max`), any step (`step`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub initial: LeaseTime,
    pub max: LeaseTime,
    pub step: LeaseTime,
}

impl LeaseTime {
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let shown = model::shown(text);
            Error::invalid(format!(
                "'{shown}' is no length of a lease; write it as 90s, 5m, 10h, 7d or in milliseconds"
            ))
        };
        let (digits, unit) = match text.char_indices().last() {
            Some((at, 's')) => (&text[..at], 1_000),
            Some((at, 'm')) => (&text[..at], 60_000),
            Some((at, 'h')) => (&text[..at], 3_600_000),
            Some((at, 'd')) => (&text[..at], 86_400_000),
            _ => (text, 1),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for LeaseTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl Visitor<'_> for Seen {
            type Value = LeaseTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as 7d, or milliseconds")
            }

            fn visit_u64<E: serde::de::Error>(self, ms: u64) -> Result<LeaseTime, E> {
                Ok(LeaseTime(ms))
            }

            fn visit_i64<E: serde::de::Error>(self, ms: i64) -> Result<LeaseTime, E> {
                u64::try_from(ms)
                    .map(LeaseTime)
                    .map_err(|_| E::custom("a lease cannot be shorter than nothing"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LeaseTime, E> {
                LeaseTime::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Seen)
    }
}

/// A length in the largest unit that shows it whole.
fn span(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let fits = units.into_iter().find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    fits.map_or_else(|| format!("{ms} ms"), |(length, unit)| format!("{}{unit}", ms / length))
}

impl fmt::Display for LeaseTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&span(self.0))
    }
}

impl Lease {
    /// The lease that a new cluster gets: what was asked for, or the template's own. 0 never ends.
    pub fn granted(&self, asked_ms: Option<u64>) -> Result<u64> {
        let initial = self.initial.0;
        match asked_ms {
            None => Ok(initial),
            Some(asked) if initial == 0 => Ok(asked),
            Some(0) => Err(Error::invalid(format!(
                "the template allows {} at first, not a lease without end",
                span(initial)
            ))),
            Some(asked) if asked > initial => {
                let (allowed, asked) = (span(initial), span(asked));
                Err(Error::invalid(format!("the template allows {allowed} at first, not {asked}")))
            }
            Some(asked) => Ok(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_too_long_is_refused_in_units_that_people_use() {
        let lease = Lease { initial: LeaseTime(7_200_000), ..Lease::default() };
        let refused = lease.granted(Some(90_000_000)).unwrap_err();
        assert_eq!(refused.message, "the template allows 2h at first, not 25h");
        assert_eq!(LeaseTime(5_400_000).to_string(), "90m");
        assert_eq!((span(1_500), span(604_800_000)), ("1500 ms".to_owned(), "7d".to_owned()));
    }

    #[test]
    fn lengths_are_read_with_and_without_units() {
        for (text, ms) in [("7d", 604_800_000), ("3s", 3_000), ("5m", 300_000), ("10h", 36_000_000), ("0", 0)]
        {
            assert_eq!(LeaseTime::parse(text).unwrap().0, ms, "{text}");
        }
        for text in ["-15s", "1v", "soon", "", "s", "99999999999999999999d"] {
            assert!(LeaseTime::parse(text).is_err(), "{text}");
        }
        let lease: Lease = serde_json::from_value(serde_json::json!({"initial": 123, "step": "1"})).unwrap();
        assert_eq!(lease, Lease { initial: LeaseTime(123), max: LeaseTime(0), step: LeaseTime(1) });
    }

    #[test]
    fn the_first_lease_is_at_most_the_templates() {
        let lease = |initial| Lease { initial: LeaseTime(initial), ..Lease::default() };
        let cases = [
            (0, Some(200), Some(200)),
            (0, Some(0), Some(0)),
            (0, None, Some(0)),
            (10_000, Some(20_000), None),
            (10_000, Some(10_000), Some(10_000)),
            (10_000, Some(500), Some(500)),
            (10_000, Some(0), None),
            (10_000, None, Some(10_000)),
        ];
        for (initial, asked, granted) in cases {
            assert_eq!(lease(initial).granted(asked).ok(), granted, "{initial} {asked:?}");
        }
    }
}
