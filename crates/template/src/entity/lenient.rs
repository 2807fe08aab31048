//! Values as people wrote them: `"1"` for 1, `"true"` for true, `null` for nothing.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde_json::Value;

/// Drops members that are `null`, at any depth: they mean the same as absent ones.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// A whole number, which may be written as a string.
pub fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(Count).map(Some)
}

struct Count;

impl Visitor<'_> for Count {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 0 or more")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::custom(format!("{number} is not a whole number of 0 or more")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // Coopr's own exports write 3.0 for 3.
        let whole = number >= 0.0 && number.fract() == 0.0 && number < 9e15;
        if whole {
            Ok(number as u64)
        } else {
            Err(E::custom(format!("{number} is not a whole number of 0 or more")))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let wrong = || E::custom(format!("'{}' is not a whole number of 0 or more", model::shown(text)));
        text.trim().parse().map_err(|_| wrong())
    }
}

/// A truth value, which may be written as a string.
pub fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    deserializer.deserialize_any(Truth)
}

struct Truth;

impl Visitor<'_> for Truth {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(E::custom(format!("'{}' is neither true nor false", model::shown(text)))),
        }
    }
}
