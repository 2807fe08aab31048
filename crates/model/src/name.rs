//! Names that people give to things.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, shown};

/// Longest name, so that it fits one DNS label.
pub const NAME_MAX: usize = 63;

/// 1 to 63 of `a-z`, `0-9` and `-`, beginning with a letter or digit and not ending with `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", example = "web-1")]
pub struct Name(std::sync::Arc<str>);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let bytes = text.as_bytes();
        let fits = (1..=NAME_MAX).contains(&bytes.len())
            && bytes.iter().all(|b| legal(*b))
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-';
        if fits {
            return Ok(Self(text.into()));
        }
        Err(Error::invalid(format!(
            "'{}' is not a name: use 1 to {NAME_MAX} lower-case letters, digits and '-', not beginning or ending with '-'",
            shown(text)
        ))
        .at("name"))
    }
}

crate::text::as_text!(Name);

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.to_string()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "web-1", "0x", &"a".repeat(63)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ü", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
