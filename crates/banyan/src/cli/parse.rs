//! Readers of option values that clap does not have.

use std::time::Duration;

use model::Role;

/// `90s`, `5m`, `2h`, `500ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    match number.parse::<u64>() {
        Ok(number) if milliseconds > 0 && number < 1_000_000_000 => {
            Ok(Duration::from_millis(number * milliseconds))
        }
        _ => Err(format!("'{text}' is not a time: write a number with ms, s, m, h or d, such as 90s or 5m")),
    }
}

/// `key=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE")),
    }
}

/// `KEY=VALUE`, or `KEY` alone to take the value from our own environment.
pub fn variable(text: &str) -> Result<(String, String), String> {
    if text.contains('=') {
        return pair(text);
    }
    match std::env::var(text) {
        Ok(value) if !text.is_empty() => Ok((text.to_owned(), value)),
        _ => Err(format!("'{text}' is not KEY=VALUE, and no variable of that name is set here")),
    }
}

pub fn role(text: &str) -> Result<Role, String> {
    serde_json::from_value(text.into()).map_err(|_| "write viewer, member, admin or operator".to_owned())
}

/// Any type of the model that reads itself from text.
pub fn quantity<T: std::str::FromStr<Err = model::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: model::Error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in [("90s", 90_000), ("5m", 300_000), ("7", 7_000), ("20ms", 20), ("1d", 86_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1s", "1.5s", "1w", "99999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs_may_hold_further_equal_signs() {
        assert_eq!(pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(pair("=x").is_err() && pair("x").is_err());
        assert!(variable("SURELY_NOT_SET_ANYWHERE").is_err());
    }
}
