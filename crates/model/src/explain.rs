//! Why something was placed where it is, or nowhere.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Most candidates kept one by one; the rest are counted by reason.
pub const VERDICTS_MAX: usize = 64;

/// One decision of one level of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explanation {
    pub at: Timestamp,
    /// Who decided: `root` or the zone's name.
    pub by: String,
    /// The name of the chosen child.
    pub chosen: Option<String>,
    pub verdicts: Vec<Verdict>,
    /// Candidates that are not listed above, counted by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OthersByReason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OthersByReason {
    pub reason: String,
    pub count: u64,
}

/// What became of one candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Verdict {
    pub candidate: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It won, with this score (higher is better, 0 to 1000).
    Chosen { score: i64 },
    /// It would do; another was better.
    Beaten { score: i64, by: i64 },
    /// It cannot hold the instance, and why.
    Rejected { reason: String },
}
