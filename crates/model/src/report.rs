//! What became of a task of a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What became of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// 0 is good.
    pub status: i32,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the same may go well later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_passing: bool,
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ipaddresses: BTreeMap<String, String>,
    /// Kept with the node and given to its later tasks.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub result: Map<String, Value>,
}

impl Report {
    pub fn is_good(&self) -> bool {
        self.status == 0
    }
}
