//! Where on the earth, how near to places, and how near to other workloads.
//!
//! What a candidate is by itself (its name, its place, its measured ways) is a part of the shape and kept with it.
//! How near it is to instances that are placed already is looked at with every decision.

use std::collections::HashMap;

use model::workload::LABEL;
use model::{Area, ChildId, LatencyTerm, Leg};

use crate::choose::Scratch;
use crate::fleet::{Fleet, Level};
use crate::reason::Reason;
use crate::score::{FEASIBLE, NEVER, ONE};
use crate::slot::Slot;
use crate::tally::{Tally, label_key};
use crate::want::Want;

/// A preferred circle of a small radius draws at least this far.
const DRAW_KM_MIN: f64 = 50.0;
/// A preference of this weight counts as much as all that scoring looks at.
const WEIGHT_ONE: i32 = 100;

/// What is demanded of a candidate beside its kind and its room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Near {
    /// Only where the candidates are nodes.
    node: Option<String>,
    area: Option<Area>,
    /// Places with the longest way in microseconds.
    places: Vec<(String, u32)>,
}

impl Near {
    pub fn new(want: &Want, level: Level) -> Option<Box<Self>> {
        let constraints = &want.constraints;
        if constraints.node.is_none() && constraints.area.is_none() && constraints.latency.is_empty() {
            return None;
        }
        let demand = |term: &&LatencyTerm| term.required;
        let place = |term: &LatencyTerm| Some((term.place.clone()?, max_us(term)));
        let near = Self {
            node: constraints.node.clone().filter(|_| level == Level::Nodes),
            area: constraints.area.as_ref().filter(|term| term.required).map(model::AreaTerm::area),
            places: constraints.latency.iter().filter(demand).filter_map(place).collect(),
        };
        let nothing = near.node.is_none() && near.area.is_none() && near.places.is_empty();
        (!nothing).then(|| Box::new(near))
    }

    pub fn suits(&self, slot: &Slot) -> bool {
        self.reason(slot).is_none()
    }

    /// What of it a slot does not meet.
    pub fn reason(&self, slot: &Slot) -> Option<Reason> {
        let facts = slot.facts.as_ref()?;
        if let Some(node) = self.node.as_ref().filter(|node| facts.name.as_str() != node.as_str()) {
            return Some(Reason::Node(node.clone()));
        }
        if let Some(area) = &self.area {
            match &facts.area {
                None => return Some(Reason::PlaceUnknown),
                Some(here) if !here.touches(area) => {
                    let km = here.distance_km(area) - f64::from(here.radius_km);
                    return Some(Reason::Outside { km: km.max(0.0) as u32, radius_km: area.radius_km });
                }
                Some(_) => {}
            }
        }
        self.places.iter().find_map(|(place, max_us)| match facts.legs.get(place) {
            None => Some(Reason::Unmeasured(place.clone())),
            // The nearest node of an aggregate may do; its zone knows which.
            Some(leg) if leg.min_us > *max_us => {
                Some(Reason::Far { from: place.clone(), us: leg.min_us, max_us: *max_us })
            }
            Some(_) => None,
        })
    }
}

fn max_us(term: &LatencyTerm) -> u32 {
    term.max_ms.saturating_mul(1000)
}

/// The shortest of the longest ways from instances of a workload to each place.
type Ways<'a> = HashMap<&'a str, u32>;

impl Fleet {
    /// True when nearness asks nothing that depends on the decision.
    pub(crate) fn is_anywhere(&self, want: &Want) -> bool {
        let constraints = &want.constraints;
        constraints.prefer.is_empty()
            && constraints.area.as_ref().is_none_or(|term| term.required)
            && constraints.latency.iter().all(|term| term.required && term.workload.is_none())
    }

    /// Takes out slots that are too far from a workload, and adds what is preferred; tells the most that can be added.
    pub(crate) fn bend_near(&self, want: &Want, scratch: &mut Scratch) -> i64 {
        let mut most = 0;
        for term in &want.constraints.latency {
            match (&term.workload, term.required) {
                (Some(_), true) => self.each_far(want, term, |at| scratch.totals[at] = NEVER),
                (Some(_), false) => {
                    most += i64::from(ONE);
                    let mut near = vec![true; self.slots.len()];
                    self.each_far(want, term, |at| near[at] = false);
                    self.add(scratch, |at| if near[at] { ONE } else { 0 });
                }
                (None, false) => {
                    most += i64::from(ONE);
                    let place = term.place.as_deref().unwrap_or_default();
                    let leg =
                        |at: usize| self.slots[at].facts.as_ref().and_then(|facts| facts.legs.get(place));
                    let near = |at: usize| leg(at).is_some_and(|leg| leg.min_us <= max_us(term));
                    self.add(scratch, |at| if near(at) { ONE } else { 0 });
                }
                (None, true) => {}
            }
        }
        if let Some(term) = want.constraints.area.as_ref().filter(|term| !term.required) {
            most += i64::from(ONE);
            let area = term.area();
            self.add(scratch, |at| {
                self.slots[at].facts.as_ref().map_or(0, |facts| nearness(facts.area, &area))
            });
        }
        for wish in &want.constraints.prefer {
            let bonus = ONE / WEIGHT_ONE * i32::try_from(wish.weight).unwrap_or(WEIGHT_ONE).min(WEIGHT_ONE);
            most += i64::from(bonus);
            self.add(scratch, |at| if self.is_preferred(wish, &self.slots[at]) { bonus } else { 0 });
        }
        most
    }

    fn add(&self, scratch: &mut Scratch, bonus: impl Fn(usize) -> i32) {
        for (at, total) in scratch.totals.iter_mut().enumerate().filter(|(_, total)| **total > FEASIBLE) {
            *total += bonus(at);
        }
    }

    fn is_preferred(&self, wish: &model::Preference, slot: &Slot) -> bool {
        let Some(facts) = slot.facts.as_ref() else { return false };
        let called = |name: &str, id: &ChildId| facts.name.as_str() == name || id.as_str() == name;
        match (&wish.zone, &wish.node, &wish.label, &wish.value) {
            (Some(zone), ..) => self.level == Level::Zones && called(zone, &facts.id),
            (_, Some(node), ..) => self.level == Level::Nodes && called(node, &facts.id),
            (_, _, Some(label), Some(value)) => slot.has_label(label, value),
            _ => false,
        }
    }

    /// Calls with every slot whose way to the nearest instance of a workload is too long or not known.
    fn each_far(&self, want: &Want, term: &LatencyTerm, mut then: impl FnMut(usize)) {
        let Some(tally) = self.workload(want, term) else {
            if self.needs_one(want, term) {
                (0..self.slots.len()).for_each(then);
            }
            return;
        };
        let ways = self.ways(tally);
        for (at, slot) in self.slots.iter().enumerate() {
            let way = way(&ways, slot);
            if tally.at(at as u32) == 0 && way.is_none_or(|us| us > max_us(term)) {
                then(at);
            }
        }
    }

    fn workload<'a>(&'a self, want: &Want, term: &LatencyTerm) -> Option<&'a Tally> {
        let name = term.workload.as_deref()?;
        self.carriers.get(&label_key(want.scope(), LABEL, name))
    }

    /// A zone that holds none of the workload was chosen for its ways. Further up there must be one, unless this is it.
    fn needs_one(&self, want: &Want, term: &LatencyTerm) -> bool {
        self.level == Level::Zones && want.labels.get(LABEL) != term.workload.as_ref()
    }

    fn ways(&self, tally: &Tally) -> Ways<'_> {
        let mut ways = Ways::new();
        for facts in tally.iter().filter_map(|(at, _)| self.slots[at].facts.as_ref()) {
            for (place, leg) in &facts.legs {
                let known = ways.entry(place.as_str()).or_insert(u32::MAX);
                *known = leg.max_us.min(*known);
            }
        }
        ways
    }

    /// Why a slot is too far from a workload.
    pub(crate) fn reason_near(&self, want: &Want, at: usize) -> Option<Reason> {
        for term in want.constraints.latency.iter().filter(|term| term.required) {
            let Some(workload) = term.workload.clone() else { continue };
            let Some(tally) = self.workload(want, term) else {
                if self.needs_one(want, term) {
                    return Some(Reason::NoneOf(workload));
                }
                continue;
            };
            if tally.at(at as u32) > 0 {
                continue;
            }
            match way(&self.ways(tally), &self.slots[at]) {
                None => return Some(Reason::Unmeasured(workload)),
                Some(us) if us > max_us(term) => {
                    return Some(Reason::Far { from: workload, us, max_us: max_us(term) });
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// The way between a slot and a workload is at most the sum of their ways to a common place.
fn way(ways: &Ways, slot: &Slot) -> Option<u32> {
    let legs = &slot.facts.as_ref()?.legs;
    let sum = |(place, leg): (&String, &Leg)| Some(ways.get(place.as_str())?.saturating_add(leg.max_us));
    legs.iter().filter_map(sum).min()
}

/// The whole bonus within the circle, half of it a radius away from it, and so on.
fn nearness(here: Option<Area>, wanted: &Area) -> i32 {
    let Some(here) = here else { return 0 };
    let km = (here.distance_km(wanted) - f64::from(wanted.radius_km)).max(0.0);
    (f64::from(ONE) / (1.0 + km / f64::from(wanted.radius_km).max(DRAW_KM_MIN))) as i32
}
