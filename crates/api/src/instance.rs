//! Instances as users ask for and see them.

use model::exchange::Health;
use model::{
    Explanation, Generation, ImageId, InstanceId, InstanceSpec, Name, Outcome, Phase, Run, Timestamp,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceCreate {
    /// Unique in the tenant.
    pub name: Name,
    pub spec: InstanceSpec,
}

/// What was asked for, what was decided and what is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Instance {
    pub id: InstanceId,
    pub name: Name,
    /// Name of the tenant.
    pub tenant: Name,
    /// Give it as `If-Match` to change only what you saw.
    pub version: i64,
    pub spec: InstanceSpec,
    /// Name of the workload that keeps it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Name>,
    pub run: Run,
    /// Restarts that users asked for.
    pub restart_count: u64,
    pub image_id: ImageId,
    pub created_at: Timestamp,
    pub created_by: String,
    pub phase: Phase,
    /// Why it is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the zone that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<std::net::IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Times its process was started again by its policy.
    #[serde(default)]
    pub restarts: u64,
    #[serde(default)]
    pub generation: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
}

/// Why an instance is where it is, or why it is nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InstanceWhy {
    pub name: Name,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How root chose the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Explanation>,
    /// How the zone chose the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Explanation>,
}

/// Places that one sentence names.
const PLACES_SHOWN: usize = 3;

impl InstanceWhy {
    /// Why it has no place, if it waits for one.
    pub fn placeless(&self) -> Option<String> {
        let is_waiting = matches!(self.phase, Phase::Pending | Phase::Placed);
        let found = [&self.zone, &self.root].into_iter().flatten().find(|found| found.chosen.is_none());
        let found = found.filter(|_| is_waiting)?;
        let rejected = found.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
            Outcome::Rejected { reason } => Some(format!("{}: {reason}", verdict.candidate)),
            _ => None,
        });
        let others = found.others.iter().map(|others| format!("{} more: {}", others.count, others.reason));
        let all: Vec<String> = rejected.take(PLACES_SHOWN).chain(others.take(PLACES_SHOWN)).collect();
        let what = if self.zone.as_ref().is_some_and(|zone| zone.chosen.is_none()) { "node" } else { "zone" };
        Some(match all.is_empty() {
            true => format!("no {what} can hold it"),
            false => format!("no {what} can hold it ({})", all.join("; ")),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_instance_without_a_place_says_why() {
        let why = |phase: &str, chosen: Option<&str>| -> Option<String> {
            let why: InstanceWhy = serde_json::from_value(serde_json::json!({
                "name": "web", "phase": phase,
                "root": {"at": "2026-01-01T00:00:00Z", "by": "root", "chosen": chosen, "verdicts": [
                    {"candidate": "near", "outcome": {"rejected": {"reason": "only 250m CPU are free"}}}]}
            }))
            .unwrap();
            why.placeless()
        };
        assert_eq!(why("pending", None).unwrap(), "no zone can hold it (near: only 250m CPU are free)");
        assert_eq!(why("pending", Some("near")), None);
        assert_eq!(why("running", None), None);
    }
}
