//! Why a want goes where it goes: every candidate with its score or the reason it lost.
//!
//! Built on demand, from the same numbers that decide.

use model::explain::{OthersByReason, VERDICTS_MAX};
use model::{Explanation, Outcome, Timestamp, Verdict};

use crate::choose::{Bent, DOMAIN_NONE, Scratch};
use crate::fleet::Fleet;
use crate::reason::Reason;
use crate::score::FEASIBLE;
use crate::shape::ShapeKey;
use crate::tally::label_key;
use crate::want::Want;

/// Of the listed candidates, those that would do may take this many places when others were rejected.
const ABLE_MAX: usize = VERDICTS_MAX * 3 / 4;

impl Fleet {
    /// What [`Fleet::place`] would decide now, and why; to be asked before the want is reserved.
    pub fn explain(&mut self, want: &Want, by: &str, at: Timestamp) -> Explanation {
        let key = ShapeKey::new(want, self.level, &self.models);
        self.with_scores(key, |fleet, scratch, key, scores| {
            let bent = fleet.bend(want, scores, scratch);
            let mut explanation =
                Explanation { at, by: by.to_owned(), chosen: None, verdicts: Vec::new(), others: Vec::new() };
            let rejected = fleet.slots_known().filter(|&at| scratch.totals[at] <= FEASIBLE).count();
            fleet.explain_able(&bent, scratch, rejected, &mut explanation);
            fleet.explain_rejected(want, key, &bent, scratch, &mut explanation);
            explanation.others.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
            explanation
        })
    }

    /// One sentence for a want that found no place, with the reasons counted.
    pub fn nowhere_message(&mut self, want: &Want) -> String {
        if self.is_empty() {
            return "there is no candidate to place it on".to_owned();
        }
        let key = ShapeKey::new(want, self.level, &self.models);
        let mut reasons: Vec<(Reason, u64)> = Vec::new();
        let count = self.len();
        self.with_scores(key, |fleet, scratch, key, scores| {
            let bent = fleet.bend(want, scores, scratch);
            for at in fleet.slots_known() {
                if scratch.totals[at] <= FEASIBLE {
                    tally(&mut reasons, fleet.reason(want, key, &bent, scratch, at));
                }
            }
        });
        let mut reasons = counted(reasons);
        reasons.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        let reasons: Vec<String> = reasons.iter().map(|by| format!("{} {}", by.count, by.reason)).collect();
        format!("no place among {count}: {}", reasons.join("; "))
    }

    fn slots_known(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.slots.len()).filter(|&at| self.ranks[at] != u32::MAX)
    }

    fn name(&self, at: usize) -> String {
        let known = self.slots[at].facts.as_ref().map(|facts| facts.name.to_string());
        known.unwrap_or_else(|| {
            let id = self.ids.iter().find(|(_, slot)| **slot as usize == at);
            id.map_or_else(String::new, |(id, _)| id.to_string())
        })
    }

    /// Lists the candidates that would do, best first.
    fn explain_able(&self, bent: &Bent, scratch: &Scratch, rejected: usize, into: &mut Explanation) {
        let able = self.slots_known().filter(|&at| scratch.totals[at] > FEASIBLE);
        let mut able: Vec<_> = able
            .map(|at| {
                let crowd = bent.crowd(scratch, at);
                (crowd, std::cmp::Reverse(scratch.totals[at]), self.ranks[at], at)
            })
            .collect();
        let most =
            if rejected == 0 { VERDICTS_MAX } else { ABLE_MAX.max(VERDICTS_MAX.saturating_sub(rejected)) };
        if able.len() > most {
            able.select_nth_unstable(most);
            into.others.push(OthersByReason {
                reason: "would do, scored lower".to_owned(),
                count: (able.len() - most) as u64,
            });
            able.truncate(most);
        }
        able.sort_unstable();
        let Some(&(fewest, ..)) = able.first() else { return };
        let points = |crowd, total| bent.points(total, crowd, fewest);
        let winner = points(fewest, able[0].1.0);
        for (place, &(crowd, std::cmp::Reverse(total), _, at)) in able.iter().enumerate() {
            let score = points(crowd, total);
            let outcome = match place {
                0 => Outcome::Chosen { score },
                _ => Outcome::Beaten { score, by: winner - score },
            };
            into.verdicts.push(Verdict { candidate: self.name(at), outcome });
        }
        into.chosen = into.verdicts.first().map(|verdict| verdict.candidate.clone());
    }

    fn explain_rejected(
        &self,
        want: &Want,
        key: &ShapeKey,
        bent: &Bent,
        scratch: &Scratch,
        into: &mut Explanation,
    ) {
        let mut rejected: Vec<usize> =
            self.slots_known().filter(|&at| scratch.totals[at] <= FEASIBLE).collect();
        rejected.sort_unstable_by_key(|&at| self.ranks[at]);
        let mut rest = Vec::new();
        for at in rejected {
            let reason = self.reason(want, key, bent, scratch, at);
            if into.verdicts.len() < VERDICTS_MAX {
                let outcome = Outcome::Rejected { reason: reason.to_string() };
                into.verdicts.push(Verdict { candidate: self.name(at), outcome });
            } else {
                tally(&mut rest, reason);
            }
        }
        into.others.extend(counted(rest));
    }

    /// Why a slot that will not do will not do.
    fn reason(&self, want: &Want, key: &ShapeKey, bent: &Bent, scratch: &Scratch, at: usize) -> Reason {
        let slot = &self.slots[at];
        let avoided = || {
            let own = |(child, _): &&(_, _)| self.ids.get(child) == Some(&(at as u32));
            want.avoid.iter().find(own).map(|(_, why)| Reason::Refused(why.clone()))
        };
        Reason::unsuited(key, slot)
            .or_else(avoided)
            .or_else(|| Reason::room(key, want, slot))
            .or_else(|| self.reason_near(want, at))
            .or_else(|| self.reason_neighbours(want, at))
            .unwrap_or_else(|| match bent.spreading.as_ref().and_then(|spreading| spreading.by) {
                Some(label) if scratch.is_outside(label, at) => Reason::NoDomain(label.to_owned()),
                _ => Reason::Skew {
                    count: bent.crowd(scratch, at),
                    emptiest: bent.emptiest,
                    max: bent.spreading.as_ref().and_then(|spreading| spreading.hard).unwrap_or(0),
                },
            })
    }

    fn reason_neighbours(&self, want: &Want, at: usize) -> Option<Reason> {
        let scope = want.scope();
        let holds = |label: &str, value: &str| {
            self.carriers.get(&label_key(scope, label, value)).is_some_and(|tally| tally.at(at as u32) > 0)
        };
        for term in want.constraints.affinity.iter().filter(|term| self.is_demand(term)) {
            let (label, value) = (term.label.clone(), term.value.clone());
            match (term.anti, holds(&label, &value)) {
                (true, true) => return Some(Reason::Away { label, value }),
                (false, false) if !self.is_first(want, term) => return Some(Reason::Near { label, value }),
                _ => {}
            }
        }
        let repels = |label: &str, value: &str| {
            let tally = self.repellers.get(&label_key(scope, label, value));
            tally.is_some_and(|tally| tally.at(at as u32) > 0)
        };
        let carried = want.labels.iter().find(|(label, value)| repels(label, value));
        let (label, value) = carried.filter(|_| self.level == crate::fleet::Level::Nodes)?;
        Some(Reason::Repelled { label: label.clone(), value: value.clone() })
    }
}

impl Scratch {
    fn is_outside(&self, label: &str, at: usize) -> bool {
        self.domain(label, at) == DOMAIN_NONE
    }
}

/// Counts reasons that differ in what is free only as one; sentences are made once at the end.
fn tally(counts: &mut Vec<(Reason, u64)>, reason: Reason) {
    match counts.iter_mut().find(|(known, _)| known.is_like(&reason)) {
        Some((_, count)) => *count += 1,
        None => counts.push((reason, 1)),
    }
}

fn counted(counts: Vec<(Reason, u64)>) -> Vec<OthersByReason> {
    counts.into_iter().map(|(reason, count)| OthersByReason { reason: reason.kind(), count }).collect()
}
