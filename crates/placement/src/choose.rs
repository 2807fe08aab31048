//! One decision: the scores of a shape, bent by who is where, and the best of them.

use std::collections::HashMap;

use model::{Affinity, ChildId, Spread};

use crate::fleet::{Fleet, Level};
use crate::score::{FEASIBLE, NEVER, NO_ROOM, ONE};
use crate::shape::ShapeKey;
use crate::slot::Slot;
use crate::tally::{Tally, group_key, label_key};
use crate::want::Want;

/// The label that means the zone itself where the candidates are zones.
const ZONE_LABEL: &str = "zone";
/// Label keys whose domains are kept; users bring the keys, so there is an end to it.
const DOMAIN_KEYS_MAX: usize = 64;
/// The domain of slots that do not carry the label.
pub(crate) const DOMAIN_NONE: u32 = 0;
/// Bands of the shown score, one for each instance of the group more than the emptiest domain has.
const BANDS: i64 = 10;

/// Where an instance goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub child: ChildId,
    /// 0 to 1000, higher is better; only scores of one decision compare.
    pub score: i64,
    /// Which GPUs of the child, by their place in its list.
    pub gpus: Vec<usize>,
}

/// No candidate will do. [`Fleet::explain`] says why of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("none of {candidates} candidates will do")]
pub struct Nowhere {
    pub candidates: usize,
}

/// Buffers that decisions reuse, and the domains of labels that spread asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    pub totals: Vec<i32>,
    set_aside: Vec<(u32, i32)>,
    marks: Vec<bool>,
    domains: HashMap<String, Domains>,
}

impl Scratch {
    /// Labels of candidates changed; domains are made again when next asked for.
    pub fn domains_forget(&mut self) {
        self.domains.clear();
    }

    /// The domain of a slot by a label that was asked for in this decision.
    pub fn domain(&self, key: &str, at: usize) -> u32 {
        self.domains[key].of[at]
    }

    fn domains(&mut self, key: &str, slots: &[Slot]) {
        if self.domains.get(key).is_some_and(|domains| domains.of.len() == slots.len()) {
            return;
        }
        if self.domains.len() >= DOMAIN_KEYS_MAX {
            self.domains.clear();
        }
        self.domains.insert(key.to_owned(), Domains::new(key, slots));
    }
}

/// The domain of every slot by one label. An aggregate with several values is one domain of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Domains {
    pub of: Vec<u32>,
    count: usize,
}

impl Domains {
    fn new(key: &str, slots: &[Slot]) -> Self {
        let mut numbers: HashMap<&[String], u32> = HashMap::new();
        let mut of = Vec::with_capacity(slots.len());
        for slot in slots {
            of.push(match slot.facts.as_ref().and_then(|facts| facts.labels.get(key)) {
                Some(values) if !values.is_empty() => {
                    let next = numbers.len() as u32 + 1;
                    *numbers.entry(values.as_slice()).or_insert(next)
                }
                _ => DOMAIN_NONE,
            });
        }
        Self { of, count: numbers.len() + 1 }
    }

    pub fn counts(&self, tally: Option<&Tally>) -> Vec<u32> {
        let mut counts = vec![0; self.count];
        for (slot, count) in tally.into_iter().flat_map(Tally::iter) {
            counts[self.of[slot] as usize] += count;
        }
        // Slots outside of every domain come last.
        counts[DOMAIN_NONE as usize] = u32::MAX;
        counts
    }
}

/// How a want is spread at this level.
pub(crate) struct Spreading<'a> {
    pub tally: Option<&'a Tally>,
    /// Each slot is its own domain when absent.
    pub by: Option<&'a str>,
    /// The skew that may not be exceeded.
    pub hard: Option<u32>,
}

impl<'a> Spreading<'a> {
    fn new(fleet: &'a Fleet, want: &'a Want) -> Option<Self> {
        let Spread { group, by, max_skew } = want.constraints.spread.as_ref()?;
        let tally = fleet.groups.get(&group_key(want.scope(), group));
        let (by, hard) = match (fleet.level, by.as_deref()) {
            (Level::Zones, Some(ZONE_LABEL)) => (None, *max_skew),
            // Nodes and their labels are counted by the zone; up here it can only be a wish.
            (Level::Zones, by) => (by, None),
            (Level::Nodes, Some(ZONE_LABEL)) => return None,
            (Level::Nodes, by) => (by, *max_skew),
        };
        Some(Self { tally, by, hard })
    }

    pub fn at(&self, slot: usize) -> u32 {
        self.tally.map_or(0, |tally| tally.at(slot as u32))
    }
}

/// What is left to know after the scores are bent.
pub(crate) struct Bent<'a> {
    pub spreading: Option<Spreading<'a>>,
    /// How many of the group each domain holds, when spread by a label.
    pub counts: Vec<u32>,
    /// How many the emptiest domain holds that is of the right kind.
    pub emptiest: u32,
    /// The most that wishes can add, and the most they can take away.
    wishes: i64,
    away: i64,
}

impl Bent<'_> {
    /// How many of the group are in the domain of a slot.
    pub fn crowd(&self, scratch: &Scratch, slot: usize) -> u32 {
        match &self.spreading {
            None => 0,
            Some(Spreading { by: Some(key), .. }) => self.counts[scratch.domain(key, slot) as usize],
            Some(spreading) => spreading.at(slot),
        }
    }

    /// The score as people see it; `fewest` is the smallest crowd among slots that will do.
    pub fn points(&self, total: i32, crowd: u32, fewest: u32) -> i64 {
        let points = (i64::from(total) + self.away) * 1000 / (i64::from(ONE) + self.wishes);
        let points = points.clamp(0, 1000);
        match self.spreading {
            None => points,
            Some(_) => {
                let band = BANDS - 1 - i64::from(crowd - fewest).min(BANDS - 1);
                band * (1000 / BANDS) + points / BANDS
            }
        }
    }
}

impl Fleet {
    /// Finds the best place for `want` as things are. Nothing is reserved.
    pub fn place(&mut self, want: &Want) -> Result<Choice, Nowhere> {
        let key = ShapeKey::new(want, self.level, &self.models);
        self.with_scores(key, |fleet, scratch, key, scores| {
            let (at, score) = if fleet.is_plain(want) {
                let at = fleet.best(scores).ok_or_else(|| fleet.nowhere())?;
                (at, i64::from(scores[at]) * 1000 / i64::from(ONE))
            } else {
                let bent = fleet.bend(want, scores, scratch);
                let at = fleet.pick(&bent, scratch).ok_or_else(|| fleet.nowhere())?;
                (at, bent.points(scratch.totals[at], 0, 0))
            };
            let child = fleet.slots[at].facts.as_ref().map(|facts| facts.id.clone());
            let child = child.expect("only a slot with facts has a score");
            Ok(Choice { child, score, gpus: fleet.devices(key, at as u32) })
        })
    }

    /// True when nothing but its shape decides about a want.
    fn is_plain(&self, want: &Want) -> bool {
        let alone = || {
            want.labels
                .iter()
                .all(|(label, value)| self.repellers.get(&label_key(want.scope(), label, value)).is_none())
        };
        want.avoid.is_empty()
            && want.constraints.spread.is_none()
            && want.constraints.affinity.is_empty()
            && self.is_anywhere(want)
            && (self.repellers.is_empty() || alone())
    }

    /// Fills `scratch.totals` with the scores plus what neighbours and refusals do to them.
    pub(crate) fn bend<'a>(&'a self, want: &'a Want, scores: &[i32], scratch: &mut Scratch) -> Bent<'a> {
        scratch.totals.clear();
        scratch.totals.extend_from_slice(scores);
        let (mut wishes, mut away) = (0, 0);
        for term in &want.constraints.affinity {
            if self.is_demand(term) {
                continue;
            }
            wishes += i64::from(ONE);
            away += if term.anti { i64::from(ONE) } else { 0 };
            let step = if term.anti { -ONE } else { ONE };
            self.each_carrier(want, term, |at| {
                if scratch.totals[at] > FEASIBLE {
                    scratch.totals[at] += step;
                }
            });
        }
        wishes += self.bend_near(want, scratch);
        for term in want.constraints.affinity.iter().filter(|term| self.is_demand(term)) {
            self.demand(want, term, scratch);
        }
        self.repel(want, &mut scratch.totals);
        for at in want.avoid.iter().filter_map(|(child, _)| self.ids.get(child)) {
            scratch.totals[*at as usize] = NEVER;
        }
        let mut bent =
            Bent { spreading: Spreading::new(self, want), counts: Vec::new(), emptiest: 0, wishes, away };
        self.spread(&mut bent, scores, scratch);
        bent
    }

    /// Keeping away from instances is up to the zone, which knows its nodes.
    pub(crate) fn is_demand(&self, term: &Affinity) -> bool {
        term.required && !(term.anti && self.level == Level::Zones)
    }

    fn each_carrier(&self, want: &Want, term: &Affinity, mut then: impl FnMut(usize)) {
        if let Some(tally) = self.carriers.get(&label_key(want.scope(), &term.label, &term.value)) {
            tally.iter().for_each(|(at, _)| then(at));
        }
    }

    /// The first of its kind has nobody to be near to, and may go anywhere.
    pub(crate) fn is_first(&self, want: &Want, term: &Affinity) -> bool {
        want.labels.get(&term.label) == Some(&term.value)
            && self.carriers.get(&label_key(want.scope(), &term.label, &term.value)).is_none()
    }

    fn demand(&self, want: &Want, term: &Affinity, scratch: &mut Scratch) {
        if term.anti {
            return self.each_carrier(want, term, |at| scratch.totals[at] = NEVER);
        }
        if self.is_first(want, term) {
            return;
        }
        let Scratch { totals, marks, .. } = scratch;
        marks.clear();
        marks.resize(totals.len(), false);
        self.each_carrier(want, term, |at| marks[at] = true);
        for (total, near) in totals.iter_mut().zip(marks.iter()) {
            if !near {
                *total = NEVER;
            }
        }
    }

    /// Takes out slots that hold an instance which demands to be away from this one.
    fn repel(&self, want: &Want, totals: &mut [i32]) {
        if self.level == Level::Zones || self.repellers.is_empty() {
            return;
        }
        for (label, value) in &want.labels {
            if let Some(tally) = self.repellers.get(&label_key(want.scope(), label, value)) {
                tally.iter().for_each(|(at, _)| totals[at] = NEVER);
            }
        }
    }

    /// Counts the group by domain and takes out domains that would exceed the skew.
    fn spread(&self, bent: &mut Bent, scores: &[i32], scratch: &mut Scratch) {
        let Some(spreading) = &bent.spreading else { return };
        if let Some(key) = spreading.by {
            scratch.domains(key, &self.slots);
            let domains = &scratch.domains[key];
            bent.counts = domains.counts(spreading.tally);
            if let Some(skew) = spreading.hard {
                bent.emptiest = emptiest_domain(domains, &bent.counts, scores);
                let most = bent.emptiest.saturating_add(skew);
                for (total, domain) in scratch.totals.iter_mut().zip(&domains.of) {
                    if bent.counts[*domain as usize] >= most {
                        *total = NEVER;
                    }
                }
            }
        } else if let (Some(skew), Some(tally)) = (spreading.hard, spreading.tally) {
            let suitable = scores.iter().enumerate().filter(|(_, score)| **score > NEVER);
            bent.emptiest = suitable.map(|(at, _)| tally.at(at as u32)).min().unwrap_or(0);
            for (at, _) in tally.iter().filter(|(_, count)| *count >= bent.emptiest + skew) {
                scratch.totals[at] = NEVER;
            }
        }
    }

    /// The best total in the emptiest domain that has one. `scratch.totals` stays as it was for the winner.
    fn pick(&self, bent: &Bent, scratch: &mut Scratch) -> Option<usize> {
        match &bent.spreading {
            None => self.best(&scratch.totals),
            Some(Spreading { by: Some(key), .. }) => {
                self.pick_domain(&scratch.domains[*key], &bent.counts, &scratch.totals)
            }
            Some(Spreading { tally: None, .. }) => self.best(&scratch.totals),
            Some(Spreading { tally: Some(tally), .. }) => self.pick_slot(tally, scratch),
        }
    }

    /// Most often some slot holds none of the group yet, so those that do are first set aside.
    fn pick_slot(&self, tally: &Tally, scratch: &mut Scratch) -> Option<usize> {
        let Scratch { totals, set_aside, .. } = scratch;
        set_aside.clear();
        for (at, count) in tally.iter() {
            if totals[at] > FEASIBLE {
                set_aside.push((at as u32, totals[at]));
                totals[at] = NO_ROOM;
            }
            debug_assert!(count > 0, "a tally holds no empty entries");
        }
        if let Some(at) = self.best(totals) {
            return Some(at);
        }
        set_aside.iter().for_each(|&(at, total)| totals[at as usize] = total);
        let order =
            |&(at, total): &(u32, i32)| (tally.at(at), std::cmp::Reverse(total), self.ranks[at as usize]);
        set_aside.iter().min_by_key(|entry| order(entry)).map(|&(at, _)| at as usize)
    }

    fn pick_domain(&self, domains: &Domains, counts: &[u32], totals: &[i32]) -> Option<usize> {
        let mut best: Vec<(i32, u32)> = vec![(FEASIBLE, u32::MAX); counts.len()];
        for (at, (total, domain)) in totals.iter().zip(&domains.of).enumerate() {
            let (leader, leader_at) = &mut best[*domain as usize];
            if *total > *leader
                || (*total == *leader
                    && *total > FEASIBLE
                    && self.ranks[at] < self.ranks[*leader_at as usize])
            {
                (*leader, *leader_at) = (*total, at as u32);
            }
        }
        let able = best.iter().zip(counts).filter(|((_, at), _)| *at != u32::MAX);
        let order = |&(&(total, at), count): &(&(i32, u32), &u32)| {
            (*count, std::cmp::Reverse(total), self.ranks[at as usize])
        };
        able.min_by_key(order).map(|((_, at), _)| *at as usize)
    }

    /// The slot with the highest total that will do; of equals the one with the first id.
    fn best(&self, totals: &[i32]) -> Option<usize> {
        let most = totals.iter().copied().max().filter(|most| *most > FEASIBLE)?;
        let equals = totals.iter().enumerate().filter(|(_, total)| **total == most);
        equals.map(|(at, _)| at).min_by_key(|&at| self.ranks[at])
    }
}

/// The fewest of the group in any domain with a slot of the right kind.
fn emptiest_domain(domains: &Domains, counts: &[u32], scores: &[i32]) -> u32 {
    let suitable = domains.of.iter().zip(scores).filter(|(_, score)| **score > NEVER);
    let fewest = suitable.map(|(domain, _)| counts[*domain as usize]).min();
    fewest.filter(|count| *count != u32::MAX).unwrap_or(0)
}
