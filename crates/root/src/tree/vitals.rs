//! The latest pulses of the zones: how far their clocks are off, and when their certificates end.

use std::collections::HashMap;

use model::exchange::NodeReport;
use model::{ChildId, Pulse, Timestamp};

/// The clock's offset is the largest of so many: a message that was long on the way looks like a late clock.
const OFFSETS: usize = 3;

struct Seen {
    pulse: Pulse,
    offsets_ms: [i64; OFFSETS],
    count: usize,
}

/// That two processes had one identity is worth a look for so long.
const TWINS_FRESH_MS: i64 = 10 * 60 * 1000;

#[derive(Default)]
pub struct Vitals {
    seen: HashMap<ChildId, Seen>,
    /// When two processes last spoke with one identity.
    twins: HashMap<ChildId, Timestamp>,
}

impl Vitals {
    pub fn twins_note(&mut self, zone: &ChildId, now: Timestamp) {
        self.twins.insert(zone.clone(), now);
    }

    pub fn twins(&self, zone: &ChildId, now: Timestamp) -> bool {
        self.twins.get(zone).is_some_and(|at| now.ms_since(*at) < TWINS_FRESH_MS)
    }

    pub fn take(&mut self, zone: &ChildId, pulse: &Pulse, now: Timestamp) {
        let offset = pulse.at.ms_since(now);
        let seen = self.seen.entry(zone.clone()).or_insert_with(|| Seen {
            pulse: pulse.clone(),
            offsets_ms: [offset; OFFSETS],
            count: 0,
        });
        seen.offsets_ms[seen.count % OFFSETS] = offset;
        seen.count += 1;
        seen.pulse = pulse.clone();
    }

    /// Adds to a report what the zone said of itself.
    pub fn fill(&self, report: &mut NodeReport) {
        let Some(seen) = self.seen.get(&ChildId::from(report.id.as_str())) else { return };
        report.clock_ahead_ms = seen.offsets_ms.iter().copied().max().unwrap_or(0);
        report.certificate_until = seen.pulse.certificate_until;
        report.certificate_from = seen.pulse.certificate_from;
        report.usage = seen.pulse.usage.clone();
    }

    pub fn forget(&mut self, zone: &ChildId) {
        self.seen.remove(zone);
        self.twins.remove(zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_long_on_the_way_is_no_late_clock() {
        let (mut vitals, zone, now) = (Vitals::default(), ChildId::from("z-1"), Timestamp(1_000_000_000));
        for late_ms in [30, 5_000, 20] {
            let pulse = Pulse { at: now.plus_ms(-late_ms), ..Pulse::default() };
            vitals.take(&zone, &pulse, now);
        }
        let mut report = NodeReport {
            id: "z-1".into(),
            facts: model::Facts::new("z".parse().expect("a name"), "0"),
            alive: true,
            restarting: false,
            last_seen: now,
            reserved: model::Resources::ZERO,
            instances: 0,
            resting: 0,
            version: 0,
            mode: model::PlaceMode::Open,
            left: None,
            remaining: Vec::new(),
            usage: None,
            clock_ahead_ms: 0,
            certificate_until: None,
            certificate_from: None,
        };
        vitals.fill(&mut report);
        assert_eq!(report.clock_ahead_ms, -20);
        for _ in 0..OFFSETS {
            vitals.take(&zone, &Pulse { at: now.plus_ms(60_000), ..Pulse::default() }, now);
        }
        vitals.fill(&mut report);
        assert_eq!(report.clock_ahead_ms, 60_000);
    }
}
