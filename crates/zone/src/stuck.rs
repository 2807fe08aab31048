//! Transitions that take too long: seen, told, and healed.
//!
//! ```text
//!  under way ── too long ──▶ stuck: told to its node again ── much too long ──▶ placed elsewhere
//! ```
//! Only what could not begin is placed elsewhere. What stops or goes stays where it is until its node
//! has done it: elsewhere there is nothing to stop.

use std::collections::HashMap;

use model::{ChildId, Generation, InstanceId, Phase, Timestamp};

/// An instance between two settled phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderWay {
    pub id: InstanceId,
    pub node: ChildId,
    pub generation: Generation,
    pub phase: Phase,
    /// Another node may have it: its policy allows that, and its node is not the only one.
    pub movable: bool,
}

/// What to do about a stuck one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    TellAgain(InstanceId),
    PlaceAgain(InstanceId),
}

/// One that is stuck, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    pub id: InstanceId,
    pub node: ChildId,
    pub phase: Phase,
    pub for_ms: i64,
}

struct Watched {
    at: UnderWay,
    since: Timestamp,
    told: bool,
}

/// Since when each is under way.
#[derive(Default)]
pub struct Transitions(HashMap<InstanceId, Watched>);

/// How long a phase may take before it counts as stuck, and before another node is tried.
const fn limits_ms(phase: Phase) -> Option<(i64, i64)> {
    match phase {
        // The node has not even picked it up.
        Phase::Placed => Some((30_000, 120_000)),
        // A large image may be on its way.
        Phase::Creating => Some((300_000, 1_800_000)),
        Phase::Stopping | Phase::Deleting => Some((90_000, i64::MAX)),
        _ => None,
    }
}

impl Transitions {
    /// Compares what is under way with the last look.
    pub fn look(&mut self, under_way: Vec<UnderWay>, now: Timestamp) -> Vec<Remedy> {
        let mut before = std::mem::take(&mut self.0);
        let mut remedies = Vec::new();
        for at in under_way {
            let Some((long_ms, longer_ms)) = limits_ms(at.phase) else { continue };
            let mut watched = match before.remove(&at.id) {
                Some(watched) if watched.at == at => watched,
                _ => Watched { at, since: now, told: false },
            };
            let for_ms = now.ms_since(watched.since);
            if for_ms >= longer_ms && watched.at.movable {
                remedies.push(Remedy::PlaceAgain(watched.at.id.clone()));
            } else if for_ms >= long_ms && !watched.told {
                watched.told = true;
                remedies.push(Remedy::TellAgain(watched.at.id.clone()));
            }
            self.0.insert(watched.at.id.clone(), watched);
        }
        remedies
    }

    /// Those that take too long, the longest first.
    pub fn stuck(&self, now: Timestamp) -> Vec<Stuck> {
        let stuck = |watched: &Watched| {
            let (long_ms, _) = limits_ms(watched.at.phase)?;
            let for_ms = now.ms_since(watched.since);
            let at = &watched.at;
            let stuck = Stuck { id: at.id.clone(), node: at.node.clone(), phase: at.phase, for_ms };
            (for_ms >= long_ms).then_some(stuck)
        };
        let mut all: Vec<Stuck> = self.0.values().filter_map(stuck).collect();
        all.sort_by(|a, b| b.for_ms.cmp(&a.for_ms).then(a.id.cmp(&b.id)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under_way(phase: Phase, minor: u64, movable: bool) -> UnderWay {
        let generation = Generation { major: 1, minor };
        UnderWay { id: InstanceId::from_random(1), node: "a".into(), generation, phase, movable }
    }

    #[test]
    fn it_is_told_again_once_and_then_placed_elsewhere() {
        let id = InstanceId::from_random(1);
        let mut transitions = Transitions::default();
        let mut look = |at: UnderWay, ms: i64| {
            let now = Timestamp(0).plus_ms(ms);
            let remedies = transitions.look(vec![at], now);
            (remedies, transitions.stuck(now).len())
        };
        let placed = under_way(Phase::Placed, 1, true);
        assert_eq!(look(placed.clone(), 0), (vec![], 0));
        assert_eq!(look(placed.clone(), 31_000), (vec![Remedy::TellAgain(id.clone())], 1));
        assert_eq!(look(placed.clone(), 61_000), (vec![], 1));
        assert_eq!(look(placed, 121_000), (vec![Remedy::PlaceAgain(id.clone())], 1));
        // Under a new generation it starts to count anew; one that may not move stays.
        assert_eq!(look(under_way(Phase::Placed, 2, false), 122_000), (vec![], 0));
        assert_eq!(
            look(under_way(Phase::Placed, 2, false), 400_000),
            (vec![Remedy::TellAgain(id.clone())], 1)
        );
        // What goes away is never placed elsewhere.
        assert_eq!(look(under_way(Phase::Deleting, 2, true), 500_000), (vec![], 0));
        assert_eq!(look(under_way(Phase::Deleting, 2, true), 600_000), (vec![Remedy::TellAgain(id)], 1));
        assert_eq!(look(under_way(Phase::Deleting, 2, true), i64::MAX / 4000), (vec![], 1));
        assert_eq!(look(under_way(Phase::Running, 2, true), 700_000), (vec![], 0));
    }
}
