//! The link over MQTT 5: the same exchange as over HTTPS, question and answer.
//!
//! ```text
//!  banyan/v1/<child>/up/beat        which connection speaks, what it waits for, its pulse
//!  banyan/v1/<child>/up/have        what the child has: it waits for what is newer
//!  banyan/v1/<child>/up/observed    one page of what is
//!  banyan/v1/<child>/up/gone        last will, with the connection that ended
//!
//!  banyan/v1/<child>/down/welcome   the parent heard of this connection for the first time
//!  banyan/v1/<child>/down/desired   answers one `have`: one page of what should be
//!  banyan/v1/<child>/down/ack       answers one `observed`
//!  banyan/v1/<child>/down/call      a question
//! ```
//!
//! Nothing is retained. Every message names the child's connection, and answers name what they answer, so that a
//! message which comes late or twice does nothing. A beat repeats what the child waits for; a parent that
//! missed it, or has a new life, knows it from there.
//!
//! The parent is a client of the broker like everybody else, so that an external broker can take the
//! place of the embedded one ([`broker`]). A client may touch the topics of its own name alone.

mod broker;
mod certificate;
mod child;
mod client;
mod parent;
mod worker;

pub use broker::{Broker, BrokerConfig};
pub use certificate::broker_certificate;
pub use child::mqtt_uplink;
pub use parent::{MqttParent, MqttParentConfig};

use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, Observed, Pulse};
use serde::{Deserialize, Serialize};

use crate::wire::WireError;

const PREFIX: &str = "banyan/v1/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Beat,
    Have,
    Observed,
    Gone,
    Welcome,
    Desired,
    Ack,
    Call,
}

impl Leaf {
    const ALL: [Self; 8] = [
        Self::Beat,
        Self::Have,
        Self::Observed,
        Self::Gone,
        Self::Welcome,
        Self::Desired,
        Self::Ack,
        Self::Call,
    ];

    const fn path(self) -> &'static str {
        match self {
            Self::Beat => "up/beat",
            Self::Have => "up/have",
            Self::Observed => "up/observed",
            Self::Gone => "up/gone",
            Self::Welcome => "down/welcome",
            Self::Desired => "down/desired",
            Self::Ack => "down/ack",
            Self::Call => "down/call",
        }
    }

    /// Whether it is the child that publishes here; otherwise it is the parent.
    const fn upwards(self) -> bool {
        matches!(self, Self::Beat | Self::Have | Self::Observed | Self::Gone)
    }
}

pub(crate) fn topic(child: &str, leaf: Leaf) -> String {
    format!("{PREFIX}{child}/{}", leaf.path())
}

/// The child and the leaf of a topic of ours.
pub(crate) fn topic_parse(topic: &str) -> Option<(&str, Leaf)> {
    let (child, path) = topic.strip_prefix(PREFIX)?.split_once('/')?;
    let leaf = Leaf::ALL.into_iter().find(|leaf| leaf.path() == path)?;
    (!child.is_empty() && child != "+").then_some((child, leaf))
}

/// Everything that goes down to a child.
fn filter_down(child: &str) -> String {
    format!("{PREFIX}{child}/down/+")
}

/// Everything that comes up from all children.
fn filter_up() -> String {
    format!("{PREFIX}+/up/+")
}

/// An open question for what is newer than `have`. A later one of the same connection takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub seq: u64,
    pub have: Option<Revision>,
}

/// A sign of life. `conn` names the connection, so that the will of an older one is not mistaken for this one's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beat {
    pub conn: u64,
    pub wait: Option<Wait>,
    pub pulse: Pulse,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Have {
    pub conn: u64,
    pub wait: Wait,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub conn: u64,
    pub seq: u64,
    pub observed: Observed,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub conn: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub conn: u64,
}

/// Answers the [`Wait`] or the [`Report`] of the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer<T> {
    pub conn: u64,
    pub seq: u64,
    pub result: Result<T, WireError>,
}

pub(crate) type Newer = Answer<Desired>;
pub(crate) type Acked = Answer<Ack>;

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
