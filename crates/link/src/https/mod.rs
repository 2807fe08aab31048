//! The link over HTTPS: pushes, long polls, streams and blobs, all under mutual TLS.

mod child;
mod client;
mod dispatch;
mod parent;
mod peer;
mod roster;
mod routes;
mod socket;

pub use child::https_uplink;
pub use client::Parents;
pub(crate) use client::{ParentClient, answer_read, unreachable_parent};
pub use dispatch::TaskClient;
pub use parent::{HttpsParent, HttpsParentConfig};
pub use peer::PeerClient;

use model::Desired;
use model::exchange::{Call, Revision};
use serde::{Deserialize, Serialize};

pub(crate) const PATH_ENROLL: &str = "/link/v1/enroll";
pub(crate) const PATH_ISSUE: &str = "/link/v1/issue";
pub(crate) const PATH_OBSERVED: &str = "/link/v1/observed";
pub(crate) const PATH_DESIRED: &str = "/link/v1/desired";
pub(crate) const PATH_STANDING: &str = "/link/v1/standing";
pub(crate) const PATH_BEAT: &str = "/link/v1/beat";
pub(crate) const PATH_STREAM: &str = "/link/v1/stream";
pub(crate) const PATH_BLOB: &str = "/link/v1/blob";
/// Names the connection of a child that exchanges over HTTPS, as a number; see [`crate::turns`].
pub(crate) const HEADER_CONN: &str = "banyan-conn";
pub(crate) const PATH_PEER_ASK: &str = "/link/v1/peer/ask";
pub(crate) const PATH_PEER_TELL: &str = "/link/v1/peer/tell";
pub(crate) const PATH_PEER_BLOB: &str = "/link/v1/peer/blob";
pub(crate) const PATH_TASKS: &str = "/link/v1/tasks";
pub(crate) const PATH_TASK_DONE: &str = "/link/v1/tasks/done";
pub(crate) const PATH_RESOURCE: &str = "/link/v1/resource";

/// What a child says when it asks for what is desired.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Poll {
    pub have: Option<Revision>,
}

/// What a poll brings; a poll that brings nothing is answered with 204.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Polled {
    #[serde(default)]
    pub desired: Option<Desired>,
    #[serde(default)]
    pub calls: Vec<Call>,
}
