//! What happened, kept for people.

use serde::{Deserialize, Serialize};

use crate::id::{EventId, TenantId};
use crate::time::Timestamp;

/// Something that happened to an instance where it runs. `seq` grows by one per instance and generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceEvent {
    pub seq: u64,
    pub at: Timestamp,
    /// A word a program can match: `pulling`, `created`, `started`, `exited`, `unhealthy`, …
    pub kind: String,
    pub message: String,
}

/// One line of the history of the cloud: who did what to what, when, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    pub id: EventId,
    pub at: Timestamp,
    pub tenant: Option<TenantId>,
    /// User name, `root`, or the name of a zone or node.
    pub who: String,
    /// The address the request came from, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `instance.create`, `instance.started`, …
    pub what: String,
    /// Kind, id and name of the thing it happened to.
    pub subject_kind: String,
    pub subject_id: String,
    pub subject_name: String,
    pub message: String,
}
