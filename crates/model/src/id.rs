//! Typed ids: a short prefix that says what the thing is, and 17 hex digits.
//!
//! An id is made from a random number that the caller brings, so that a seeded
//! run makes the same ids again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, shown};

/// How many hex digits follow the prefix (the width AWS clients expect).
const DIGITS: usize = 17;

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
        #[schema(value_type = String)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from 68 bits of the given random number.
            pub fn from_random(random: u128) -> Self {
                let digits = random & ((1 << (4 * DIGITS)) - 1);
                Self(format!("{}-{:0width$x}", $prefix, digits, width = DIGITS).into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let digits = text.strip_prefix(concat!($prefix, "-"));
                match digits {
                    Some(d) if d.len() == DIGITS && d.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => {
                        Ok(Self(text.into()))
                    }
                    _ => Err(Error::invalid(format!(
                        "'{}' is not an id of this kind: expected '{}-' and {} hex digits",
                        shown(text), $prefix, DIGITS
                    ))),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.to_string()
            }
        }

        crate::text::as_text!($name);
    };
}

typed_id!(/// A tenant: who pays and owns.
    TenantId, "t");
typed_id!(/// A user: who acts.
    UserId, "u");
typed_id!(/// An API token.
    TokenId, "tok");
typed_id!(/// A login session.
    SessionId, "ses");
typed_id!(/// One container, virtual machine or unikernel.
    InstanceId, "i");
typed_id!(/// Many like instances.
    WorkloadId, "w");
typed_id!(/// A named group of workloads.
    AppId, "app");
typed_id!(/// An image an instance boots from.
    ImageId, "img");
typed_id!(/// A zone.
    ZoneId, "z");
typed_id!(/// A node.
    NodeId, "n");
typed_id!(/// One line of history.
    EventId, "e");

/// The public half of an access key, in the shape AWS clients accept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "BYN0123456789ABCDEF0")]
pub struct AccessKeyId(pub String);

impl AccessKeyId {
    pub fn from_random(random: u128) -> Self {
        Self(format!("BYN{:017X}", random & ((1 << 68) - 1)))
    }
}

impl fmt::Display for AccessKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A child of a tier, whatever its kind: root's children are zones, a zone's are nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct ChildId(pub std::sync::Arc<str>);

impl ChildId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ChildId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&ZoneId> for ChildId {
    fn from(id: &ZoneId) -> Self {
        Self(id.as_str().into())
    }
}

impl From<&NodeId> for ChildId {
    fn from(id: &NodeId) -> Self {
        Self(id.as_str().into())
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = InstanceId::from_random(u128::MAX);
        assert_eq!(id.as_str(), "i-fffffffffffffffff");
        assert_eq!(id.as_str().parse::<InstanceId>().expect("parses"), id);
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        let zone = ZoneId::from_random(7);
        assert!(zone.as_str().parse::<InstanceId>().is_err());
        assert!("i-XYZ".parse::<InstanceId>().is_err());
    }
}
