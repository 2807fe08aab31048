//! Typed ids: a short prefix that says what the thing is, and 17 hex digits.
//!
//! An id is made from a random number that the caller brings, so that a seeded
//! run makes the same ids again. Its text lies in the id itself: maps of a million
//! of them are searched without leaving for the text of each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, shown};

/// How many hex digits follow the prefix (the width AWS clients expect).
const DIGITS: usize = 17;

/// The digits as numbers, in the order of the text: searching a tree is mostly comparing.
#[inline]
fn rank(text: &[u8]) -> (u128, u8) {
    let (first, last) = text.split_at(text.len() - 1);
    let (_, digits) = first.split_last_chunk().expect("an id has more digits than that");
    (u128::from_be_bytes(*digits), last[0])
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, utoipa::ToSchema)]
        #[schema(value_type = String)]
        pub struct $name([u8; $prefix.len() + 1 + DIGITS]);

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                rank(&self.0).cmp(&rank(&other.0))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from 68 bits of the given random number.
            pub fn from_random(random: u128) -> Self {
                let digits = random & ((1 << (4 * DIGITS)) - 1);
                Self::of(&format!("{}-{:0width$x}", $prefix, digits, width = DIGITS))
            }

            fn of(text: &str) -> Self {
                Self(text.as_bytes().try_into().expect("every id of a kind has the same length"))
            }

            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).expect("an id is made from text")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.as_str()).finish()
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let digits = text.strip_prefix(concat!($prefix, "-"));
                match digits {
                    Some(d) if d.len() == DIGITS && d.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => {
                        Ok(Self::of(text))
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
                id.as_str().to_owned()
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
typed_id!(/// A cluster.
    ClusterId, "c");
typed_id!(/// A zone.
    ZoneId, "z");
typed_id!(/// A node.
    NodeId, "n");
typed_id!(/// A provisioner: carries out tasks of clusters.
    ProvisionerId, "prv");
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

impl From<&ProvisionerId> for ChildId {
    fn from(id: &ProvisionerId) -> Self {
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
    fn ids_are_ordered_as_their_text() {
        let numbers = [0, 1, 15, 16, 0xff, 1 << 63, 1 << 64, (1 << 68) - 1, 0xabc << 56];
        let ids = numbers.map(TokenId::from_random);
        for one in &ids {
            for other in &ids {
                assert_eq!(one.cmp(other), one.as_str().cmp(other.as_str()), "{one} {other}");
            }
        }
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        let zone = ZoneId::from_random(7);
        assert!(zone.as_str().parse::<InstanceId>().is_err());
        assert!("i-XYZ".parse::<InstanceId>().is_err());
    }
}
