//! The link over MQTT 5.
//!
//! ```text
//!  banyan/v1/<child>/desired    parent -> child   retained, always the whole set
//!  banyan/v1/<child>/call       parent -> child
//!  banyan/v1/<child>/observed   child -> parent   retained, always the whole set
//!  banyan/v1/<child>/beat       child -> parent   which connection speaks, and what it got
//!  banyan/v1/<child>/gone       child -> parent   last will, with the connection that ended
//! ```
//!
//! The parent is a client of the broker like everybody else, so that an external broker can take the
//! place of the embedded one ([`broker`]). A client may touch the topics of its own name alone.

mod broker;
mod child;
mod client;
mod parent;

pub use broker::{Broker, BrokerConfig};
pub use child::mqtt_uplink;
pub use parent::{MqttParent, MqttParentConfig};

use model::exchange::Revision;
use model::{ChildId, Pulse};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "banyan/v1/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Desired,
    Call,
    Observed,
    Beat,
    Gone,
}

impl Leaf {
    const ALL: [Self; 5] = [Self::Desired, Self::Call, Self::Observed, Self::Beat, Self::Gone];

    const fn word(self) -> &'static str {
        match self {
            Self::Desired => "desired",
            Self::Call => "call",
            Self::Observed => "observed",
            Self::Beat => "beat",
            Self::Gone => "gone",
        }
    }

    /// Whether it is the child that publishes here; otherwise it is the parent.
    const fn upwards(self) -> bool {
        matches!(self, Self::Observed | Self::Beat | Self::Gone)
    }
}

pub(crate) fn topic(child: &str, leaf: Leaf) -> String {
    format!("{PREFIX}{child}/{}", leaf.word())
}

/// The child and the leaf of a topic of ours. A filter's `+` reads as a child of that name.
pub(crate) fn topic_parse(topic: &str) -> Option<(&str, Leaf)> {
    let (child, word) = topic.strip_prefix(PREFIX)?.split_once('/')?;
    let leaf = Leaf::ALL.into_iter().find(|leaf| leaf.word() == word)?;
    (!child.is_empty()).then_some((child, leaf))
}

/// A sign of life. `conn` names the connection, so that the will of an older one is not mistaken for this one's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beat {
    pub conn: u64,
    /// The last desired set that this connection brought.
    pub got: Option<Revision>,
    #[serde(default)]
    pub pulse: Pulse,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub conn: u64,
}

/// Splits `host:port`.
fn address_parse(address: &str) -> model::Result<(String, u16)> {
    let wrong =
        || model::Error::invalid(format!("'{address}' is not the address of a broker: expected host:port"));
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong());
    }
    Ok((host.to_owned(), port.parse().map_err(|_| wrong())?))
}

fn child_of(topic: &str) -> Option<(ChildId, Leaf)> {
    topic_parse(topic).map(|(child, leaf)| (ChildId::from(child), leaf))
}
