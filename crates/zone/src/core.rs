//! A zone with no I/O: a child of root and a parent of nodes.
//!
//! The owner calls in with messages and the time. Whatever must survive is
//! handed out as ledger writes, and takes effect towards the nodes only after
//! the owner says it is kept.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use model::constraint::{Labels, labels_validate};
use model::exchange::{Ack, NodeReport, Revision};
use model::{
    Assignment, ChildId, Desired, Digest, Error, Facts, Generation, InstanceId, LossPolicy, Name, Observed,
    ObservedInstance, Outcome, Phase, PlaceMode, Result, Run, Timestamp, counted,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tier::inbox::Refused;
use tier::kept::{self, ASSIGNMENT, DESIRED_AT};
use tier::ledger::{Ledger, Write};
use tier::{Child, Decision, Inbox, Intern, Parent, ParentConfig, Place, Resting};

use crate::book::MEMBER;
use crate::stuck::UnderWay;

/// Decisions handed out at once, so that one ledger commit stays small.
pub const DECISIONS_MAX: usize = 512;

/// That an instance has a node is told to root after so long, unless the node says more of it before.
const PLACED_TOLD_AFTER_MS: i64 = 1_000;

const PLACE: &str = "place/";
/// Instances that are stopped or ended, with what was last seen of them.
const REST: &str = "rest/";
const MODE: &str = "mode/";
/// Beside a mode: also what would rather wait for its node moves.
const FORCE: &str = "force/";
const LABEL: &str = "label/";
/// Nodes that are never let in again, with the name each had.
const REMOVED: &str = "removed/";
/// See [`Parent::minor_floor`].
const MINOR_FLOOR: &str = "minor-floor";

/// Where an instance was put, as the ledger keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptPlace {
    pub child: ChildId,
    pub generation: Generation,
}

/// Everything the ledger holds for a zone.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    pub desired_at: Option<Revision>,
    pub assignments: BTreeMap<InstanceId, Assignment>,
    pub places: BTreeMap<InstanceId, KeptPlace>,
    pub resting: BTreeMap<InstanceId, Resting>,
    pub modes: BTreeMap<ChildId, PlaceMode>,
    pub forced: BTreeMap<ChildId, bool>,
    pub labels: BTreeMap<ChildId, Labels>,
    pub removed: BTreeMap<ChildId, String>,
    pub minor_floor: u64,
    /// Who joined, with the name under which it did, where that was noted.
    pub members: BTreeMap<ChildId, Option<Name>>,
}

impl Kept {
    pub fn read(ledger: &Ledger) -> Result<Self> {
        let mut intern = Intern::default();
        let assignments = ledger
            .list::<Assignment>(ASSIGNMENT)?
            .into_iter()
            .map(|(_, mut item)| {
                intern.share(&mut item);
                (item.id.clone(), item)
            })
            .collect();
        let mut places = BTreeMap::new();
        for (id, place) in ledger.list::<KeptPlace>(PLACE)? {
            places.insert(id.parse()?, place);
        }
        let mut resting = BTreeMap::new();
        for (id, rest) in ledger.list::<Resting>(REST)? {
            resting.insert(id.parse()?, rest);
        }
        Ok(Self {
            desired_at: ledger.get::<Option<Revision>>(DESIRED_AT)?.flatten(),
            assignments,
            places,
            resting,
            modes: by_child(ledger, MODE)?,
            forced: by_child(ledger, FORCE)?,
            labels: by_child(ledger, LABEL)?,
            removed: by_child(ledger, REMOVED)?,
            minor_floor: ledger.get::<u64>(MINOR_FLOOR)?.unwrap_or(0),
            members: by_child(ledger, MEMBER)?,
        })
    }

    /// Where an instance is. A place on a node that was removed stays written down only for its generation: the next one
    /// must be above it, also after a restart.
    fn place(&self, id: &InstanceId) -> Option<&KeptPlace> {
        self.places.get(id).filter(|place| !self.removed.contains_key(&place.child))
    }

    /// Applies writes as the ledger would; for a simulated disk.
    pub fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            let value = write.value.as_deref();
            if write.key == DESIRED_AT {
                self.desired_at = value.and_then(parse::<Option<Revision>>);
            } else if write.key == MINOR_FLOOR {
                self.minor_floor = value.map_or(0, parse::<u64>);
            } else if let Some(id) = write.key.strip_prefix(ASSIGNMENT) {
                let id: InstanceId = id.parse().expect("ids in writes are ids");
                self.assignments.remove(&id);
                self.assignments.extend(value.map(|v| (id, parse::<Assignment>(v))));
            } else if let Some(id) = write.key.strip_prefix(PLACE) {
                let id: InstanceId = id.parse().expect("ids in writes are ids");
                self.places.remove(&id);
                self.places.extend(value.map(|v| (id, parse::<KeptPlace>(v))));
            } else if let Some(id) = write.key.strip_prefix(REST) {
                let id: InstanceId = id.parse().expect("ids in writes are ids");
                self.resting.remove(&id);
                self.resting.extend(value.map(|v| (id, parse::<Resting>(v))));
            } else if let Some(id) = write.key.strip_prefix(MODE) {
                put(&mut self.modes, id, value);
            } else if let Some(id) = write.key.strip_prefix(FORCE) {
                put(&mut self.forced, id, value);
            } else if let Some(id) = write.key.strip_prefix(LABEL) {
                put(&mut self.labels, id, value);
            } else if let Some(id) = write.key.strip_prefix(REMOVED) {
                put(&mut self.removed, id, value);
            }
        }
    }
}

fn by_child<T: DeserializeOwned>(ledger: &Ledger, prefix: &str) -> Result<BTreeMap<ChildId, T>> {
    let found = ledger.list::<T>(prefix)?;
    Ok(found.into_iter().map(|(id, value)| (ChildId::from(id.as_str()), value)).collect())
}

fn put<T: DeserializeOwned>(map: &mut BTreeMap<ChildId, T>, id: &str, value: Option<&[u8]>) {
    map.remove(&ChildId::from(id));
    map.extend(value.map(|value| (ChildId::from(id), parse::<T>(value))));
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).expect("what was written reads back")
}

/// What a step decided; to be kept, then confirmed with [`Core::committed`].
#[derive(Debug, Default)]
pub struct Step {
    pub writes: Vec<Write>,
    pub decisions: Vec<Decision>,
}

/// An operator's order about a node. It holds once it is kept, so that one that cannot be changes nothing.
#[derive(Debug, Clone)]
pub enum Order {
    Mode { node: ChildId, mode: PlaceMode, force: bool },
    Label { node: ChildId, labels: Labels },
    Remove { node: ChildId, name: String },
}

/// An order with what is to be kept for it; [`Core::ordered`] puts it in force.
pub type Ordered = (Order, Vec<Write>);

pub struct Core {
    name: Name,
    version: String,
    child: Child,
    parent: Parent,
    touched: BTreeSet<InstanceId>,
    /// Instances that were just given to a node, and from when on root is told of that.
    placed: VecDeque<(Timestamp, InstanceId)>,
    removed: BTreeMap<ChildId, String>,
    /// Its nodes of before were heard or are lost: what fits nowhere now is for root to place.
    settled: bool,
    /// What would have been handed up before that.
    held_back: BTreeSet<InstanceId>,
    /// The measured way to root, there and back.
    up_us: Option<u32>,
}

impl Core {
    pub fn new(name: Name, version: &str, config: ParentConfig, kept: Kept, now: Timestamp) -> Self {
        let (epoch, page_bytes) = (config.epoch, config.page_bytes);
        let mut parent = Parent::new(config);
        parent.minor_floor_raise(kept.minor_floor);
        for place in kept.places.keys().filter_map(|id| kept.place(id)) {
            parent.child_add(place.child.clone(), None, now);
        }
        for (node, mode) in &kept.modes {
            parent.child_add(node.clone(), None, now);
            parent.mode_set(node, *mode, kept.forced.get(node).copied().unwrap_or(false));
        }
        for (node, labels) in &kept.labels {
            parent.child_add(node.clone(), None, now);
            parent.labels_set(node, labels.clone());
        }
        members_add(&mut parent, &kept, now);
        for assignment in kept.assignments.values() {
            restore(&mut parent, assignment, &kept);
        }
        let facts = parent.aggregate(name.clone(), version, None);
        // What has no place has no node that would speak of it: root hears at once how it is.
        let touched = kept.assignments.keys().filter(|id| kept.place(id).is_none()).cloned().collect();
        let inbox = Inbox::restore(kept.desired_at, kept.assignments.into_values());
        let child = Child::new(epoch, facts, inbox).paged(page_bytes);
        let (version, removed) = (version.to_owned(), kept.removed);
        let placed = VecDeque::new();
        let settled = !parent.awaits_children();
        let held_back = BTreeSet::new();
        let mut core =
            Self { name, version, child, parent, touched, placed, removed, settled, held_back, up_us: None };
        core.refresh();
        core
    }

    // ---- towards root -------------------------------------------------

    pub fn have(&self) -> Option<Revision> {
        self.child.have()
    }

    /// Takes root's desired set and says what to keep of it.
    pub fn desired(&mut self, set: Desired) -> Result<Vec<Write>, Refused> {
        let changed = self.child.desired(set)?;
        let mut writes = kept::writes(&self.child, &changed);
        for id in changed.upserted {
            let Some(assignment) = self.child.assignment(&id).cloned() else { continue };
            self.parent.want(assignment);
            self.touched.insert(id);
        }
        writes.extend(self.unwant(changed.removed));
        self.refresh();
        Ok(writes)
    }

    /// Root removed this zone and has given away what it held: its nodes are to drop all of it.
    pub fn desired_drop(&mut self) -> Vec<Write> {
        let changed = self.child.desired_clear();
        let mut writes = kept::writes(&self.child, &changed);
        writes.extend(self.unwant(changed.removed));
        writes
    }

    fn unwant(&mut self, ids: Vec<InstanceId>) -> Vec<Write> {
        let rest = |id: &&InstanceId| self.parent.resting(id).is_some();
        let mut writes: Vec<Write> =
            ids.iter().filter(rest).map(|id| Write::delete(format!("{REST}{id}"))).collect();
        for id in &ids {
            self.parent.unwant(id);
            self.child.forget(id);
            self.touched.remove(id);
        }
        writes.extend(ids.iter().map(|id| Write::delete(format!("{PLACE}{id}"))));
        // With every removal, for it may have risen by one that could not be kept.
        if !ids.is_empty() {
            writes.push(Write::put(MINOR_FLOOR.to_owned(), &self.parent.minor_floor()));
        }
        writes
    }

    /// The layers of all images that instances of this zone are made from.
    pub fn digests(&self) -> HashSet<Digest> {
        let layers = |held: &Assignment| {
            held.image.layers.iter().map(|layer| layer.digest.clone()).collect::<Vec<_>>()
        };
        self.child.assignments().flat_map(layers).collect()
    }

    /// The latest set could not be kept: go back to what the ledger has, so that it is asked for again. What is
    /// wanted goes back too: a set that comes later need not name what only the lost one had.
    pub fn desired_restore(&mut self, kept: Kept) {
        let unknown: Vec<InstanceId> =
            self.parent.ids().filter(|id| !kept.assignments.contains_key(id)).cloned().collect();
        for id in unknown {
            self.parent.unwant(&id);
            self.child.forget(&id);
            self.touched.remove(&id);
        }
        for assignment in kept.assignments.values() {
            let id = assignment.id.clone();
            if self.parent.wanted(&id) {
                self.parent.want(assignment.clone());
            } else {
                restore(&mut self.parent, assignment, &kept);
            }
            self.touched.insert(id);
        }
        self.child.desired_restore(Inbox::restore(kept.desired_at, kept.assignments.into_values()));
        self.refresh();
    }

    /// What to tell root, which acknowledged `acked`.
    pub fn report(&mut self, acked: Option<Revision>) -> Option<Observed> {
        let facts = self.parent.aggregate(self.name.clone(), &self.version, self.up_us);
        self.child.facts_set(facts);
        self.child.report(acked)
    }

    pub fn told(&mut self, facts: Facts) {
        self.child.told(facts);
    }

    pub fn page_halve(&mut self) -> Option<usize> {
        self.child.page_halve()
    }

    pub fn page_restore(&mut self) {
        self.child.page_restore();
    }

    /// Turns what is newly known of instances into what root is told.
    fn refresh(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            let Some(mut view) = self.parent.view(&id) else { continue };
            if self.parent.stuck(&id) {
                view.refused = true;
                let nowhere = self.parent.explanation(&id).map(nowhere);
                let why = [view.message.take(), nowhere].into_iter().flatten().collect::<Vec<_>>();
                view.message = Some(why.join("; "));
            }
            if !self.settled && (view.refused || view.handed_up) {
                (view.refused, view.handed_up) = (false, false);
                self.held_back.insert(id);
            }
            self.child.observe(view);
        }
    }

    // ---- towards nodes ------------------------------------------------

    /// Whether a node may speak here: one that was removed never may again.
    pub fn admits(&self, node: &ChildId) -> bool {
        !self.node_removed(node)
    }

    pub fn node_removed(&self, node: &ChildId) -> bool {
        self.removed.contains_key(node)
    }

    pub fn node_heard(&mut self, node: &ChildId, now: Timestamp) {
        if !self.admits(node) {
            return;
        }
        self.parent.child_add(node.clone(), None, now);
        self.parent.heard(node, now);
    }

    /// It stops and will be back.
    pub fn node_leaving(&mut self, node: &ChildId, now: Timestamp) {
        self.parent.leaving(node, now);
    }

    /// Nothing can be heard of these nodes, nor of those that were not heard yet.
    pub fn nodes_spare(&mut self, nodes: &[ChildId], now: Timestamp) {
        self.parent.spare(nodes, now);
    }

    pub fn node_lost(&mut self, node: &ChildId, now: Timestamp) {
        self.parent.link_lost(node, now);
    }

    pub fn node_observed(&mut self, node: &ChildId, observed: Observed, now: Timestamp) -> Ack {
        if !self.admits(node) {
            return Ack { have: None };
        }
        self.parent.child_add(node.clone(), None, now);
        let (ack, fold) = self.parent.observed(node, observed, now);
        self.touched.extend(fold.changed);
        self.refresh();
        ack
    }

    pub fn node_desired(&mut self, node: &ChildId, have: Option<Revision>) -> Option<Desired> {
        self.parent.desired(node, have)
    }

    pub fn node_desired_page(
        &mut self,
        node: &ChildId,
        have: Option<Revision>,
        bytes: usize,
    ) -> Option<Desired> {
        self.parent.desired_within(node, have, bytes)
    }

    pub fn node_desired_whole(&self, node: &ChildId) -> Option<Desired> {
        self.parent.desired_whole(node)
    }

    /// What is to be kept so that a node takes what `mode` says; with `force` also what would rather wait for it moves
    /// when it empties.
    pub fn node_mode(&self, name: &str, mode: PlaceMode, force: bool) -> Result<Ordered> {
        let node = self.node_find(name)?;
        let force = force && mode.empties();
        let kept = |prefix: &str, value: Option<Write>| {
            value.unwrap_or_else(|| Write::delete(format!("{prefix}{node}")))
        };
        let kept_mode = (mode != PlaceMode::Open).then(|| Write::put(format!("{MODE}{node}"), &mode));
        let kept_force = force.then(|| Write::put(format!("{FORCE}{node}"), &true));
        let writes = vec![kept(MODE, kept_mode), kept(FORCE, kept_force)];
        Ok((Order::Mode { node, mode, force }, writes))
    }

    /// What is to be kept so that a node has these labels beside those that it says itself.
    pub fn node_label(&self, name: &str, set: &Labels, unset: &[String]) -> Result<Ordered> {
        let node = self.node_find(name)?;
        let mut labels = self.parent.labels(&node).cloned().unwrap_or_default();
        labels.extend(set.clone());
        unset.iter().for_each(|key| drop(labels.remove(key)));
        labels_validate(&labels)?;
        let key = format!("{LABEL}{node}");
        let write = if labels.is_empty() { Write::delete(key) } else { Write::put(key, &labels) };
        Ok((Order::Label { node, labels }, vec![write]))
    }

    /// What is to be kept so that a node is forgotten and let in never again. One that lives and holds instances
    /// needs `force`.
    pub fn node_remove(&self, name: &str, force: bool) -> Result<Ordered> {
        let node = self.node_find(name)?;
        let held = self.parent.child_holds(&node).saturating_sub(self.parent.child_rests(&node));
        if held > 0 && self.parent.child_alive(&node) && !force && !self.parent.child_drained(&node) {
            return Err(Error::conflict(format!(
                "node '{name}' lives and holds {}",
                counted(held, "instance")
            ))
            .hint("drain it first, or remove it with force"));
        }
        let mut writes: Vec<Write> =
            [MODE, FORCE, LABEL].map(|prefix| Write::delete(format!("{prefix}{node}"))).into();
        writes.push(Write::put(format!("{REMOVED}{node}"), &name));
        Ok((Order::Remove { node, name: name.to_owned() }, writes))
    }

    /// The order is kept: it holds from now on.
    pub fn ordered(&mut self, order: Order) {
        match order {
            Order::Mode { node, mode, force } => drop(self.parent.mode_set(&node, mode, force)),
            Order::Label { node, labels } => drop(self.parent.labels_set(&node, labels)),
            Order::Remove { node, name } => {
                let fold = self.parent.child_remove(&node);
                self.removed.insert(node, name);
                self.touched.extend(fold.changed);
                self.refresh();
            }
        }
    }

    fn node_find(&self, name: &str) -> Result<ChildId> {
        self.parent.child_by_name(name).ok_or_else(|| Error::not_found(format!("node '{name}'")))
    }

    /// The measured way to root, there and back.
    pub fn up_us_set(&mut self, us: u32) {
        self.up_us = Some(us);
    }

    pub fn node_of(&self, id: &InstanceId) -> Option<ChildId> {
        self.parent.child_of(id).cloned()
    }

    /// Whether a node of this name lives here.
    pub fn node_lives(&self, name: &str) -> bool {
        self.parent.child_lives(name)
    }

    pub fn node_named(&self, name: &str) -> Option<ChildId> {
        self.parent.child_by_name(name)
    }

    /// Refuses when somebody saw a node in another version than it has.
    pub fn node_seen(&self, name: &str, seen: Option<i64>) -> Result<()> {
        let (Some(seen), Some(node)) = (seen, self.parent.child_by_name(name)) else { return Ok(()) };
        match self.parent.child_version(&node) {
            Some(now) if now != seen => {
                let text = format!("the node is at version {now}, not {seen}");
                Err(Error::new(model::ErrorKind::VersionMismatch, text))
            }
            _ => Ok(()),
        }
    }

    pub fn node_known(&self, node: &ChildId) -> bool {
        self.parent.child_known(node)
    }

    pub fn node_alive(&self, node: &ChildId) -> bool {
        self.parent.child_alive(node)
    }

    pub fn nodes(&self) -> Vec<NodeReport> {
        self.parent.reports()
    }

    /// What is between two settled phases on a node that is heard.
    pub fn under_way(&self) -> Vec<UnderWay> {
        let under_way = |(held, place, phase): (&Assignment, &Place, Phase)| UnderWay {
            id: held.id.clone(),
            node: place.child.clone(),
            generation: place.generation,
            phase,
            movable: held.spec.lost == LossPolicy::Replace && held.spec.constraints.node.is_none(),
        };
        self.parent.under_way().map(under_way).collect()
    }

    pub fn tell_again(&mut self, id: &InstanceId, now: Timestamp) {
        if self.parent.tell_again(id, now) {
            self.touched.insert(id.clone());
            self.refresh();
        }
    }

    /// Takes an instance that should run off a node that does not bring it up.
    pub fn place_again(&mut self, id: &InstanceId, now: Timestamp) {
        let wanted = self.child.assignment(id).is_some_and(|held| held.run == Run::Running);
        if wanted && self.parent.take_off(id, "its node did not bring it up in time", now) {
            self.touched.insert(id.clone());
            self.refresh();
        }
    }

    /// The nodes whose desired set changed since the last call.
    pub fn told_take(&mut self) -> BTreeSet<ChildId> {
        self.parent.told_take()
    }

    // ---- time -----------------------------------------------------------

    pub fn next_deadline(&self) -> Option<Timestamp> {
        let placed = self.placed.front().map(|(at, _)| *at);
        [self.parent.next_deadline(), placed].into_iter().flatten().min()
    }

    /// Lets leases lapse and places what waits.
    pub fn step(&mut self, now: Timestamp) -> Step {
        let fold = self.parent.expire(now);
        self.touched.extend(fold.changed);
        let decisions = self.parent.decide(now, DECISIONS_MAX);
        self.touched.extend(self.parent.news_take());
        if !self.settled && !self.parent.awaits_children() && !self.parent.undecided(now) {
            self.settled = true;
            self.touched.append(&mut self.held_back);
        }
        while let Some((_, id)) = self.placed.pop_front_if(|(at, _)| *at <= now) {
            self.touched.insert(id);
        }
        let mut step = Step::default();
        for decision in decisions {
            match &decision.place {
                Some(place) => {
                    let kept = KeptPlace { child: place.child.clone(), generation: place.generation };
                    step.writes.push(Write::put(format!("{PLACE}{}", decision.id), &kept));
                    step.decisions.push(decision);
                }
                None => drop(self.touched.insert(decision.id)),
            }
        }
        for id in self.parent.rested_take() {
            let (key, rest) = (format!("{REST}{id}"), self.parent.resting(&id));
            step.writes
                .push(rest.map_or_else(|| Write::delete(key.clone()), |rest| Write::put(key.clone(), &rest)));
        }
        self.refresh();
        step
    }

    /// The decisions are kept: the nodes may hear of them.
    pub fn committed(&mut self, decisions: &[Decision], now: Timestamp) {
        let told_at = now.plus_ms(PLACED_TOLD_AFTER_MS);
        for decision in decisions {
            self.parent.confirm(decision);
            self.placed.push_back((told_at, decision.id.clone()));
        }
    }

    /// The decisions could not be kept: they are made again later.
    pub fn rejected(&mut self, decisions: &[Decision]) {
        decisions.iter().for_each(|decision| self.parent.reject(decision));
    }

    /// Whether another step would do something at once.
    pub fn undecided(&self, now: Timestamp) -> bool {
        self.parent.undecided(now)
    }

    pub fn observed_get(&self, id: &InstanceId) -> Option<&ObservedInstance> {
        self.child.observed_get(id)
    }
}

/// All that joined and were not removed may come: one without an instance, too, has room for what is asked for. Several
/// of one name are one machine that joined again; which of them is the present one is not known, so they are waited for
/// only where they hold something.
fn members_add(parent: &mut Parent, kept: &Kept, now: Timestamp) {
    let mut names: BTreeMap<&Name, u32> = BTreeMap::new();
    kept.members.values().flatten().for_each(|name| *names.entry(name).or_default() += 1);
    for (node, name) in kept.members.iter().filter(|(node, _)| !kept.removed.contains_key(*node)) {
        let alone = name.as_ref().is_none_or(|name| names.get(name) == Some(&1));
        if alone {
            parent.child_add(node.clone(), None, now);
        }
        if let Some(name) = name {
            parent.child_name_note(node, name);
        }
    }
}

/// Puts back an instance with the place that was kept of it, and its rest.
fn restore(parent: &mut Parent, assignment: &Assignment, kept: &Kept) {
    let last = kept.places.get(&assignment.id).map_or(assignment.generation, |place| place.generation);
    let place =
        kept.place(&assignment.id).map(|p| Place { child: p.child.clone(), generation: p.generation });
    parent.restore(assignment.clone(), place, last);
    if let Some(rest) = kept.resting.get(&assignment.id) {
        parent.restore_rest(&assignment.id, rest.clone());
    }
}

/// Why no node fits, in one line.
fn nowhere(explanation: &model::Explanation) -> String {
    let mut reasons: Vec<String> = explanation
        .verdicts
        .iter()
        .filter_map(|verdict| match &verdict.outcome {
            Outcome::Rejected { reason } => Some(format!("{}: {reason}", verdict.candidate)),
            _ => None,
        })
        .take(3)
        .collect();
    if reasons.is_empty() {
        reasons.push("it has no node".to_owned());
    }
    format!("no node of {} fits ({})", explanation.by, reasons.join("; "))
}

#[cfg(test)]
mod tests;
