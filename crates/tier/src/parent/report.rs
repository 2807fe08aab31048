//! What a parent can say: of one instance, of its children, and of itself as one large child.

use std::collections::{BTreeMap, BTreeSet};

use model::exchange::NodeReport;
use model::resources::GPU_WHOLE_MILLI;
use model::{
    ChildId, Explanation, Facts, GpuDevice, InstanceId, Leg, Name, ObservedInstance, Phase, PlaceMode,
    Resources, Run, Timestamp,
};

use super::Parent;
use super::drain::LEFT_LISTED_MAX;

/// GPUs of an aggregate. Equal ones travel as one, so that many are few words.
const AGGREGATE_GPUS_MAX: usize = 1 << 16;
/// Values of one label; of a label with more the parent only knows that the child may have any.
const AGGREGATE_LABEL_VALUES_MAX: usize = 64;
const AGGREGATE_LEGS_MAX: usize = 64;
/// The leg from a node to its zone.
const LEG_ZONE: &str = "zone";
/// The leg from a node, over its zone, to root.
const LEG_ROOT: &str = "root";

/// A child as its parent sees it.
pub type ChildStatus = NodeReport;

impl Parent {
    pub(crate) fn child_name(&self, child: &ChildId) -> String {
        match self.children.get(child).and_then(|state| state.facts.as_ref()) {
            Some(facts) => facts.name.to_string(),
            None => child.to_string(),
        }
    }

    pub fn explanation(&self, id: &InstanceId) -> Option<&Explanation> {
        self.wants.get(id)?.explanation.as_deref()
    }

    /// Whether a wanted removal is done everywhere.
    pub fn gone(&self, id: &InstanceId) -> bool {
        self.wants.get(id).is_none_or(|held| held.gone)
    }

    /// How an instance is, under the generation that came from above. Nothing when there is no news of it yet.
    pub fn view(&self, id: &InstanceId) -> Option<ObservedInstance> {
        let held = self.wants.get(id)?;
        let mut view = match (&held.seen, &held.place) {
            (Some(seen), _) => seen.clone(),
            (None, Some(place)) if self.is_away(held) => {
                ObservedInstance::new(id.clone(), place.generation, Phase::Lost)
            }
            (None, Some(_)) => return None,
            // A zone that has not decided yet has nothing to tell; root knows that it waits.
            (None, None) if self.undecided_yet(held) => return None,
            (None, None) => ObservedInstance::new(id.clone(), held.last, Phase::Pending),
        };
        // Numbers of events start again on every new place; the place's own number goes in front of them.
        if !self.config.children_are_zones {
            let place = view.generation.minor << 32;
            view.events.iter_mut().for_each(|event| event.seq += place);
        }
        view.generation = held.assignment.generation;
        // Root keeps its own reasons beside the zone's; a zone sends its reasons up with the view.
        if !self.config.children_are_zones {
            view.explanation = held.explanation.clone();
        }
        if !self.config.children_are_zones {
            view.handed_up = held.handed_up;
            view.moving = held.moving();
        }
        if held.gone {
            view.phase = Phase::Gone;
        } else if held.place.is_none() {
            view.phase = if held.over() {
                Phase::Exited
            } else if held.assignment.run == Run::Stopped {
                Phase::Stopped
            } else {
                Phase::Pending
            };
            // Events and exit codes of the old place stay in the history; what is shown is the present.
            view.node = None;
            view.address = None;
        } else if let Some(why) = &held.leaving {
            view.message = Some(why.clone());
        } else if let super::Rest::Waking(why) = &held.rest
            && held.assignment.run == Run::Running
        {
            view.phase = Phase::Pending;
            view.message = Some(why.clone());
            view.refused = held.starts_elsewhere();
        } else if held.over() {
            // It ended where it was; whether that place answers says nothing of it.
        } else if self.is_away(held) && (view.phase != Phase::Stopped || held.assignment.run == Run::Running)
        {
            let name = held.place.as_ref().map(|place| self.child_name(&place.child)).unwrap_or_default();
            view.phase = Phase::Lost;
            view.message = Some(format!("{name} does not answer; it waits for it"));
        }
        Some(view)
    }

    /// Whether it is placed on a child that is lost.
    fn is_away(&self, held: &super::Held) -> bool {
        let place = held.place.as_ref().and_then(|place| self.children.get(&place.child));
        place.is_some_and(|state| !state.alive)
    }

    fn undecided_yet(&self, held: &super::Held) -> bool {
        !self.config.children_are_zones
            && !held.gone
            && held.assignment.run == Run::Running
            && !self.stuck.contains(&held.assignment.id)
    }

    /// Whether it looks for a child and none fits.
    pub fn stuck(&self, id: &InstanceId) -> bool {
        self.stuck.contains(id) && self.place_of(id).is_none()
    }

    /// Whether a child that is known from before is still to be heard; until its lease lapses it may come.
    pub fn awaits_children(&self) -> bool {
        self.children.values().any(|state| state.alive && !state.heard)
    }

    pub fn child_of(&self, id: &InstanceId) -> Option<&ChildId> {
        Some(&self.wants.get(id)?.place.as_ref()?.child)
    }

    pub fn child_alive(&self, child: &ChildId) -> bool {
        self.children.get(child).is_some_and(|state| state.alive)
    }

    /// Whether it spoke to this parent and its lease has not lapsed since.
    pub fn child_connected(&self, child: &ChildId) -> bool {
        self.children.get(child).is_some_and(|state| state.alive && state.heard)
    }

    /// How many instances are placed on a child.
    pub fn child_holds(&self, child: &ChildId) -> u64 {
        self.placed_count.get(child).copied().unwrap_or(0)
    }

    pub fn child_by_name(&self, name: &str) -> Option<ChildId> {
        if let Some(id) = self.children.keys().find(|id| id.as_str() == name) {
            return Some(id.clone());
        }
        // One that came back as somebody new has the name of the one that is lost.
        let found = self.children.iter().filter(|(_, state)| state.is_called(name));
        let found = found.max_by_key(|(_, state)| state.alive);
        let unheard = || self.children.iter().find(|(_, state)| self.unheard(state) == Some(name));
        found.or_else(unheard).map(|(id, _)| id.clone())
    }

    /// The name by which instances are pinned to a child that has not said yet who it is.
    fn unheard<'a>(&self, state: &'a super::ChildState) -> Option<&'a str> {
        // What is pinned in a zone is pinned to a node of it.
        if state.facts.is_some() || self.config.children_are_zones {
            return None;
        }
        let joined_as = state.joined_as.as_ref().map(Name::as_str);
        joined_as.or_else(|| state.outbox.iter().find_map(|held| held.spec.constraints.node.as_deref()))
    }

    /// What stands for the facts of a child that was lost before it said who it is, because this parent began anew
    /// meanwhile. It stands for no node, and is told of so that it can be removed.
    fn facts_unheard(&self, id: &ChildId, state: &super::ChildState) -> Option<Facts> {
        if state.alive || self.config.children_are_zones {
            return None;
        }
        let name = self.unheard(state).unwrap_or(id.as_str()).parse().ok()?;
        Some(Facts { nodes: 0, ..Facts::new(name, "") })
    }

    /// Whether a child of this name lives, and is not about to come back as somebody else.
    pub fn child_lives(&self, name: &str) -> bool {
        self.children.values().any(|state| state.alive && !state.leaving && state.is_called(name))
    }

    pub fn child_ids(&self) -> impl Iterator<Item = &ChildId> {
        self.children.keys()
    }

    /// All children that have said who they are, or are lost.
    pub fn reports(&self) -> Vec<ChildStatus> {
        let report = |(id, state): (&ChildId, &super::ChildState)| {
            let mut facts = self.facts_of(state).or_else(|| self.facts_unheard(id, state))?;
            facts.cordoned |= state.mode != PlaceMode::Open;
            Some(NodeReport {
                id: id.to_string(),
                version: state.version(),
                facts,
                alive: state.alive,
                restarting: state.leaving,
                last_seen: state.last_seen,
                reserved: self.fleet.reserved(id),
                instances: self.placed_count.get(id).copied().unwrap_or(0),
                resting: self.child_rests(id),
                mode: state.mode,
                left: self.left_sentence(&state.left),
                remaining: state.left.iter().take(LEFT_LISTED_MAX).cloned().collect(),
                usage: None,
                clock_ahead_ms: 0,
                certificate_until: None,
                certificate_from: None,
            })
        };
        self.children.iter().filter_map(report).collect()
    }

    /// This parent as if it were one large child: sums, unions and the largest free slots, and no names of its
    /// own children. `up_us` is the measured way from here to the parent above.
    pub fn aggregate(&self, name: Name, version: &str, up_us: Option<u32>) -> Facts {
        let mut total = Facts { nodes: 0, members: self.members, ..Facts::new(name, version) };
        let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let (mut archs, mut runtimes) = (BTreeSet::new(), BTreeSet::new());
        let (mut open, mut free, mut largest) = (false, Resources::ZERO, Resources::ZERO);
        for (id, state) in &self.children {
            let Some(facts) = state.facts.as_ref().filter(|_| state.alive) else { continue };
            total.nodes += facts.nodes;
            total.capacity = total.capacity.plus(facts.capacity);
            if state.mode != PlaceMode::Open || facts.cordoned || state.leaving {
                continue;
            }
            open = true;
            archs.extend(facts.archs.iter().copied());
            runtimes.extend(facts.runtimes.iter().copied());
            for (key, values) in facts.labels.iter().filter(|(key, _)| !state.labels.contains_key(*key)) {
                label_values(&mut labels, key, values);
            }
            for (key, value) in &state.labels {
                label_values(&mut labels, key, std::slice::from_ref(value));
            }
            let here = self.fleet.free(id);
            free = free.plus(here);
            largest = largest.max(here);
            total.gpus.extend(facts.gpus.iter().cloned());
            legs_add(&mut total.legs, facts, up_us);
            total.area = match (total.area, facts.area.or(self.config.area)) {
                (Some(whole), Some(area)) => Some(whole.hull(&area)),
                (whole, area) => whole.or(area),
            };
        }
        total.area = total.area.or(self.config.area);
        total.cordoned = total.nodes > 0 && !open;
        total.archs = archs.into_iter().collect();
        total.runtimes = runtimes.into_iter().collect();
        for (key, values) in labels {
            if values.len() > AGGREGATE_LABEL_VALUES_MAX {
                total.labels_cut.insert(key.clone());
            }
            total.labels.insert(key, values.into_iter().take(AGGREGATE_LABEL_VALUES_MAX).collect());
        }
        total.gpus = gpus_bounded(total.gpus);
        total.largest = Some(largest);
        total.free = Some(free);
        total
    }

    /// Differs when the mode or the labels that operators gave to a child do.
    pub fn child_version(&self, child: &ChildId) -> Option<i64> {
        Some(self.children.get(child)?.version())
    }

    /// When anything was last heard of a child, since this parent began.
    pub fn child_last_seen(&self, child: &ChildId) -> Option<Timestamp> {
        self.children.get(child).filter(|state| state.heard).map(|state| state.last_seen)
    }
}

impl super::ChildState {
    fn is_called(&self, name: &str) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.name.as_str() == name)
    }

    fn version(&self) -> i64 {
        let text = format!("{:?} {} {:?}", self.mode, self.force, self.labels);
        // FNV-1a; the same for the same words in every process.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Of a size that every reader of JSON can count to.
        (hash >> 12) as i64
    }
}

fn label_values(labels: &mut BTreeMap<String, BTreeSet<String>>, key: &str, values: &[String]) {
    let known = match labels.get_mut(key) {
        Some(known) => known,
        None => labels.entry(key.to_owned()).or_default(),
    };
    for value in values {
        if !known.contains(value) {
            known.insert(value.clone());
        }
    }
}

/// Adds the ways of one child. Its way to this parent means nothing further up, but is a part of the way to the
/// parent above.
fn legs_add(legs: &mut BTreeMap<String, Leg>, facts: &Facts, up_us: Option<u32>) {
    for (place, leg) in &facts.legs {
        let (place, leg) = match (place.as_str(), up_us) {
            (LEG_ZONE, Some(us)) => (
                LEG_ROOT,
                Leg { min_us: leg.min_us.saturating_add(us), max_us: leg.max_us.saturating_add(us) },
            ),
            (LEG_ZONE, None) => continue,
            (place, _) => (place, *leg),
        };
        if let Some(known) = legs.get_mut(place) {
            *known = known.with(leg);
        } else if legs.len() < AGGREGATE_LEGS_MAX {
            legs.insert(place.to_owned(), leg);
        }
    }
}

/// Whole devices first: they fit every ask. Equal ones stand side by side.
fn gpus_bounded(mut gpus: Vec<GpuDevice>) -> Vec<GpuDevice> {
    gpus.sort_by(|a, b| b.free_milli.min(GPU_WHOLE_MILLI).cmp(&a.free_milli).then(a.model.cmp(&b.model)));
    gpus.truncate(AGGREGATE_GPUS_MAX);
    gpus
}
