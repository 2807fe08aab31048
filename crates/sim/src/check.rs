//! What must hold, whatever happens.

use std::collections::BTreeMap;

use model::{Generation, InstanceId, LossPolicy, Phase, Run};

use crate::node::Node;
use crate::world::{Actor, World, child_id};

#[derive(Debug, Default)]
pub struct Checks {
    /// Which host ever held an instance under a generation.
    holders: BTreeMap<(InstanceId, Generation), Actor>,
    violation: Option<String>,
}

impl Checks {
    /// No instance is in two places under the same generation.
    pub fn holds(&mut self, id: &InstanceId, generation: Generation, host: Actor) {
        let holder = *self.holders.entry((id.clone(), generation)).or_insert(host);
        if holder != host && self.violation.is_none() {
            self.violation =
                Some(format!("{id} under generation {generation} is on hosts {holder} and {host}"));
        }
    }

    pub fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }
}

/// What a user was told is so: the last acknowledged wish for every instance.
pub type Wishes = BTreeMap<InstanceId, Run>;

impl World {
    fn waits_for_room(&self, id: &InstanceId) -> bool {
        let seen = self.root.statuses.get(id).and_then(|status| status.observed.as_ref());
        seen.is_some_and(|seen| {
            let why = seen.message.as_deref().unwrap_or_default();
            seen.phase == Phase::Pending && why.starts_with("waits for room on")
        })
    }

    /// Nothing acknowledged is lost and everything has converged; or what has not.
    pub fn unconverged(&self, wishes: &Wishes) -> Option<String> {
        for (id, run) in wishes {
            let holders: Vec<Actor> = self
                .nodes
                .iter()
                .filter(|node| node.exists && node.containers.contains_key(id))
                .map(|node| node.actor)
                .collect();
            let phase = self.root.statuses.get(id).map(|status| status.phase);
            let known = self.root.records.contains_key(id);
            let waits = self.root.records.get(id).is_some_and(|record| record.spec.lost == LossPolicy::Wait);
            let lost = self.nodes.iter().any(|node| !node.exists);
            let fine = match run {
                // Its host is lost for good, and it was asked to wait for it; nobody knows whether it stopped there.
                Run::Running | Run::Stopped if waits && lost && phase == Some(Phase::Lost) => {
                    holders.is_empty()
                }
                // It was stopped, and others took its room meanwhile; it begins nowhere else.
                Run::Running if waits && self.waits_for_room(id) => holders.is_empty(),
                Run::Running => holders.len() == 1 && phase == Some(Phase::Running),
                Run::Stopped => holders.is_empty() && phase == Some(Phase::Stopped),
                Run::Gone => holders.is_empty() && !known,
            };
            if !fine {
                return Some(format!(
                    "{id} should be {run:?}: on hosts {holders:?}, known {known}, phase {phase:?}"
                ));
            }
        }
        // A zone that died before it kept the removal does not know of it; the operator was told no such thing.
        let kept = |node: &&Node| {
            let core = self.zones[node.zone - 1].core.as_ref();
            core.is_some_and(|core| core.node_removed(&child_id(node.actor, false)))
        };
        if let Some(node) = self.nodes.iter().filter(kept).find(|node| !node.containers.is_empty()) {
            return Some(format!("host {} was removed and still holds something", node.actor));
        }
        self.nodes.iter().filter(|node| node.exists).find_map(|node| {
            let id = node.containers.keys().find(|id| !wishes.contains_key(*id))?;
            Some(format!("{id} on host {} was never asked for", node.actor))
        })
    }
}
