//! Changes as a watch tells them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WatchKind {
    Instance,
    Image,
    Zone,
    Workload,
    App,
    Cluster,
}

impl WatchKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Image => "image",
            Self::Zone => "zone",
            Self::Workload => "workload",
            Self::App => "app",
            Self::Cluster => "cluster",
        }
    }
}

/// One change. `object` is the thing after the change, in the shape its `GET` gives, or absent when it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WatchEvent {
    /// Also the event's id on the wire; a watch resumes after it.
    pub seq: i64,
    pub kind: WatchKind,
    pub id: String,
    pub name: String,
    pub deleted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub object: Option<Value>,
}
