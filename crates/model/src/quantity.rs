//! Amounts of CPU and bytes, as people write them and as we count them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, shown};

/// CPU in thousandths of a core. Written `0.5`, `2` or `500m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, utoipa::ToSchema)]
#[schema(value_type = String, example = "0.5")]
pub struct Cpu(pub u64);

/// A number of bytes. Written `64MiB`, `1GB`, `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, utoipa::ToSchema)]
#[schema(value_type = String, example = "64MiB")]
pub struct Bytes(pub u64);

/// A million cores: more than anyone has, and far from overflow when summed.
const CPU_MAX_MILLI: u64 = 1_000_000_000;
/// An exbibyte, far from overflow when summed.
const BYTES_MAX: u64 = 1 << 60;

const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Cpu {
    pub const fn milli(self) -> u64 {
        self.0
    }
}

impl Bytes {
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

/// Reads a plain decimal number, scaled by `scale`, without floats. What is
/// finer than one unit of the result is cut off.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| (1..=19).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let scale = u128::from(scale);
    let whole = whole.parse::<u128>().ok()? * scale;
    let part = fraction.parse::<u128>().ok()? * scale / 10u128.pow(fraction.len() as u32);
    u64::try_from(whole + part).ok()
}

/// Whether `text` is a decimal number with more than three digits after the point.
fn finer_than_milli(text: &str) -> bool {
    text.split_once('.').is_some_and(|(_, fraction)| fraction.trim_end_matches('0').len() > 3)
}

impl FromStr for Cpu {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let milli = match text.strip_suffix('m') {
            Some(m) => decimal(m, 1),
            None if finer_than_milli(text) => None,
            None => decimal(text, 1000),
        };
        match milli {
            Some(m) if m <= CPU_MAX_MILLI => Ok(Self(m)),
            _ => Err(Error::invalid(format!(
                "'{}' is not an amount of CPU: write cores such as 0.5 or 2, or thousandths such as 500m",
                shown(text)
            ))),
        }
    }
}

impl FromStr for Bytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|n| (n, *unit)))
            .unwrap_or((text, 1));
        match decimal(number.trim_end(), unit) {
            Some(bytes) if bytes <= BYTES_MAX => Ok(Self(bytes)),
            _ => Err(Error::invalid(format!(
                "'{}' is not a size: write bytes with a unit, such as 64MiB, 2GiB or 500MB",
                shown(text)
            ))),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            _ => {
                let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
                f.write_str(text.trim_end_matches('0'))
            }
        }
    }
}

impl fmt::Display for Bytes {
    /// Exact where a binary unit divides it, else plain bytes: what is shown reads back the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, unit) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

macro_rules! text_or_number {
    ($name:ident, $what:literal) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

text_or_number!(Cpu, "an amount of CPU such as 0.5 or \"500m\"");
text_or_number!(Bytes, "a size such as \"64MiB\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_reads_as_people_write_it() {
        for (text, milli) in [("0.5", 500), ("2", 2000), ("500m", 500), ("0.001", 1), ("1.25", 1250)] {
            assert_eq!(text.parse::<Cpu>().expect(text), Cpu(milli));
        }
        for bad in ["", "-1", "1e3", ".5", "1.", "x", "0.0001", "99999999999999999999", "0x1"] {
            assert!(bad.parse::<Cpu>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_read_as_people_write_them() {
        for (text, bytes) in
            [("64MiB", 64 << 20), ("1GB", 1_000_000_000), ("4096", 4096), ("1.5GiB", 3 << 29), ("7B", 7)]
        {
            assert_eq!(text.parse::<Bytes>().expect(text), Bytes(bytes));
        }
        for bad in ["", "MiB", "-1MiB", "1 2", "1e9", "9999TiB9", "16777216TiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_reads_back(cpu in 0..CPU_MAX_MILLI, bytes in 0..BYTES_MAX) {
            proptest::prop_assert_eq!(Cpu(cpu).to_string().parse::<Cpu>().expect("cpu"), Cpu(cpu));
            proptest::prop_assert_eq!(Bytes(bytes).to_string().parse::<Bytes>().expect("bytes"), Bytes(bytes));
        }
    }
}
