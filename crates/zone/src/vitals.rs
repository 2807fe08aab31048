//! The latest pulse of every node, and what can be read from it: how far its clock is off, and
//! whether it found things that nobody asked for.

use std::collections::HashMap;

use model::exchange::NodeReport;
use model::{ChildId, Pulse, Timestamp, Usage};

/// The clock's offset is the largest of so many: a message that was long on the way looks like a late clock.
const OFFSETS: usize = 3;

#[derive(Debug, Clone)]
struct Seen {
    pulse: Pulse,
    offsets_ms: [i64; OFFSETS],
    count: usize,
    orphans_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct Vitals(HashMap<ChildId, Seen>);

impl Vitals {
    pub fn take(&mut self, node: &ChildId, pulse: &Pulse, now: Timestamp) {
        let offset = pulse.at.ms_since(now);
        match self.0.get_mut(node) {
            Some(seen) => {
                if pulse.orphans_removed > seen.pulse.orphans_removed {
                    seen.orphans_at = Some(now);
                }
                seen.offsets_ms[seen.count % OFFSETS] = offset;
                seen.count += 1;
                seen.pulse = pulse.clone();
            }
            None => {
                let orphans_at = (pulse.orphans_removed > 0).then_some(now);
                let seen = Seen { pulse: pulse.clone(), offsets_ms: [offset; OFFSETS], count: 1, orphans_at };
                self.0.insert(node.clone(), seen);
            }
        }
    }

    pub fn retain(&mut self, known: impl Fn(&ChildId) -> bool) {
        self.0.retain(|node, _| known(node));
    }

    /// What the nodes that are asked for use, as far as they said.
    pub fn usages(&self, alive: impl Fn(&ChildId) -> bool) -> Vec<(ChildId, Usage)> {
        let usage = |(node, seen): (&ChildId, &Seen)| Some((node.clone(), seen.pulse.usage.clone()?));
        self.0.iter().filter(|(node, _)| alive(node)).filter_map(usage).collect()
    }

    /// Adds to a report what the node said of itself.
    pub fn fill(&self, report: &mut NodeReport) {
        let Some(seen) = self.0.get(&ChildId::from(report.id.as_str())) else { return };
        report.usage = seen.pulse.usage.clone();
        report.clock_ahead_ms = seen.offsets_ms.iter().copied().max().unwrap_or(0);
        report.certificate_until = seen.pulse.certificate_until;
    }

    /// How many orphans a node removed, and when that last grew.
    pub fn orphans(&self, node: &ChildId) -> (u64, Option<Timestamp>) {
        self.0.get(node).map_or((0, None), |seen| (seen.pulse.orphans_removed, seen.orphans_at))
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
        let ahead = |vitals: &Vitals| vitals.0[&node].offsets_ms.iter().copied().max();
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
