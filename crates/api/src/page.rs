//! One page of a list.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Page<T: utoipa::ToSchema> {
    pub items: Vec<T>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The point of the change feed this page shows; give it as `since` to a watch.
    #[serde(default)]
    pub seq: i64,
}
