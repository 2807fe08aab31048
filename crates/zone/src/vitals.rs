//! The latest pulse of every node, and what can be read from it: how far its clock is off, and
//! whether it found things that nobody asked for.

use std::collections::HashMap;

use model::exchange::NodeReport;
use model::{ChildId, Pulse, Timestamp, Usage};

use crate::health::Mended;

/// The clock's offset is the largest of so many: a message that was long on the way looks like a late clock.
const OFFSETS: usize = 3;

#[derive(Debug, Clone)]
struct Seen {
    pulse: Pulse,
    offsets_ms: [i64; OFFSETS],
    count: usize,
    orphans_at: Option<Timestamp>,
    mended_at: Option<Timestamp>,
}

/// That two processes had one identity is worth a look for so long.
const TWINS_FRESH_MS: i64 = 10 * 60 * 1000;

#[derive(Debug, Default)]
pub struct Vitals {
    seen: HashMap<ChildId, Seen>,
    /// When two processes last spoke with one identity.
    twins: HashMap<ChildId, Timestamp>,
}

impl Vitals {
    pub fn twins_note(&mut self, node: &ChildId, now: Timestamp) {
        self.twins.insert(node.clone(), now);
    }

    pub fn twins(&self, node: &ChildId, now: Timestamp) -> bool {
        self.twins.get(node).is_some_and(|at| now.ms_since(*at) < TWINS_FRESH_MS)
    }

    pub fn take(&mut self, node: &ChildId, pulse: &Pulse, now: Timestamp) {
        let offset = pulse.at.ms_since(now);
        match self.seen.get_mut(node) {
            Some(seen) => {
                if pulse.orphans_removed > seen.pulse.orphans_removed {
                    seen.orphans_at = Some(now);
                }
                if pulse.network_mended > seen.pulse.network_mended {
                    seen.mended_at = Some(now);
                }
                seen.offsets_ms[seen.count % OFFSETS] = offset;
                seen.count += 1;
                seen.pulse = pulse.clone();
            }
            None => {
                let orphans_at = (pulse.orphans_removed > 0).then_some(now);
                let mended_at = (pulse.network_mended > 0).then_some(now);
                let (pulse, offsets_ms) = (pulse.clone(), [offset; OFFSETS]);
                let seen = Seen { pulse, offsets_ms, count: 1, orphans_at, mended_at };
                self.seen.insert(node.clone(), seen);
            }
        }
    }

    pub fn retain(&mut self, known: impl Fn(&ChildId) -> bool) {
        self.seen.retain(|node, _| known(node));
        self.twins.retain(|node, _| known(node));
    }

    /// What the nodes that are asked for use, as far as they said.
    pub fn usages(&self, alive: impl Fn(&ChildId) -> bool) -> Vec<(ChildId, Usage)> {
        let usage = |(node, seen): (&ChildId, &Seen)| Some((node.clone(), seen.pulse.usage.clone()?));
        self.seen.iter().filter(|(node, _)| alive(node)).filter_map(usage).collect()
    }

    /// Adds to a report what the node said of itself.
    pub fn fill(&self, report: &mut NodeReport) {
        let Some(seen) = self.seen.get(&ChildId::from(report.id.as_str())) else { return };
        report.usage = seen.pulse.usage.clone();
        report.clock_ahead_ms = seen.offsets_ms.iter().copied().max().unwrap_or(0);
        report.certificate_until = seen.pulse.certificate_until;
        report.certificate_from = seen.pulse.certificate_from;
    }

    /// When a node last put its network back, and why it cannot.
    pub fn network(&self, node: &ChildId) -> Mended {
        self.seen.get(node).map_or((None, None), |seen| (seen.mended_at, seen.pulse.network_trouble.clone()))
    }

    /// How many orphans a node removed, and when that last grew.
    pub fn orphans(&self, node: &ChildId) -> (u64, Option<Timestamp>) {
        self.seen.get(node).map_or((0, None), |seen| (seen.pulse.orphans_removed, seen.orphans_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_that_was_late_is_no_late_clock_and_a_jump_is_seen() {
        let mut vitals = Vitals::default();
        let node = ChildId::from("a");
        let now = Timestamp(1_800_000_000_000_000);
        let ahead = |vitals: &Vitals| vitals.seen[&node].offsets_ms.iter().copied().max();
        for late_ms in [5, 9_000, 6] {
            let pulse = Pulse { at: now.plus_ms(-late_ms), ..Pulse::default() };
            vitals.take(&node, &pulse, now);
        }
        assert_eq!(ahead(&vitals), Some(-5));
        for _ in 0..OFFSETS {
            let pulse = Pulse { at: now.plus_ms(-60_000), orphans_removed: 2, ..Pulse::default() };
            vitals.take(&node, &pulse, now);
        }
        assert_eq!(ahead(&vitals), Some(-60_000));
        assert_eq!(vitals.orphans(&node), (2, Some(now)));
    }
}
