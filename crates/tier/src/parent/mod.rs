//! The parent half: children with their leases, what is wanted, where it is
//! placed, and what is known of it.
//!
//! One wanted instance moves like this; every arrow is a method here.
//!
//! ```text
//!   want ─▶ waiting ── decide ─▶ deciding ── confirm ─▶ placed ── folded observations
//!             ▲  ▲                   │ reject              │
//!             │  └───────────────────┘                     │
//!             └──────────── child lost, or it refused ─────┘
//!   unwant: dropped everywhere; the child drops it because it is no longer desired
//! ```

mod children;
mod decide;
mod drain;
mod heal;
mod report;
mod rest;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::constraint::Labels;
use model::exchange::{Remaining, Revision};
use model::{
    Area, Assignment, ChildId, Desired, Explanation, Facts, Generation, InstanceId, LossPolicy, Name,
    ObservedInstance, PlaceMode, Run, Timestamp, WorkloadId,
};
use placement::{Fleet, Level, Policy, Want};

use crate::inbox::Inbox;
use crate::outbox::{Outbox, PAGE_BYTES_MAX};
use crate::shelf::Shelf;

pub use children::Fold;
pub use decide::Decision;
pub use report::ChildStatus;
pub(crate) use rest::Rest;
pub use rest::Resting;

/// How long silence is borne. A killed node process comes back within a second under its supervisor, so its
/// instances only move when it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leases {
    /// A child that was not heard for so long is lost.
    pub lease_ms: i64,
    /// A child whose connection ended is lost after so long, if that is sooner.
    pub gone_grace_ms: i64,
    /// A child that refused an instance is not asked again for so long; after each further refusal twice as long.
    pub avoid_ms: i64,
}

/// A child that said that it stops and will be back is waited for so long: a restart or an upgrade of its process.
pub const STOP_GRACE_MS: i64 = 30_000;
/// The longest pause after which a child that refused an instance is asked again.
pub(crate) const AVOID_MAX_MS: i64 = 60_000;
/// The same where the child does not have the node that the instance is pinned to. That changes only with the child's
/// members, and then it is asked at once.
pub(crate) const AVOID_FOREIGN_MS: i64 = 3_600_000;

impl Leases {
    /// Of nodes at their zone. The broker tells the end of a connection at once.
    pub const NODES: Self = Self { lease_ms: 12_000, gone_grace_ms: 1_500, avoid_ms: 5_000 };
    /// Of zones at root. A zone goes on without root, so its end of a connection says little.
    pub const ZONES: Self = Self { lease_ms: 15_000, gone_grace_ms: 15_000, avoid_ms: 5_000 };
}

#[derive(Debug, Clone)]
pub struct ParentConfig {
    /// Who decides, for explanations: `root`, or the zone's name.
    pub by: String,
    /// Larger than in every earlier life of this parent.
    pub epoch: u64,
    pub policy: Policy,
    pub leases: Leases,
    /// Desired sets go down in pages of about this size.
    pub page_bytes: usize,
    /// Whether the zone constraint speaks of this parent's children.
    pub children_are_zones: bool,
    /// Where children are that do not say it themselves.
    pub area: Option<Area>,
}

impl ParentConfig {
    pub fn over_nodes(by: &str, epoch: u64) -> Self {
        Self {
            by: by.to_owned(),
            epoch,
            policy: Policy::Default,
            leases: Leases::NODES,
            page_bytes: PAGE_BYTES_MAX,
            children_are_zones: false,
            area: None,
        }
    }

    pub fn over_zones(epoch: u64) -> Self {
        Self { leases: Leases::ZONES, children_are_zones: true, ..Self::over_nodes("root", epoch) }
    }
}

/// Where an instance is, and which decision put it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub child: ChildId,
    pub generation: Generation,
}

/// A child that refused an instance.
#[derive(Debug)]
pub(crate) struct Avoided {
    pub child: ChildId,
    /// It is not asked before.
    pub until: Timestamp,
    /// In the words of the child.
    pub why: String,
}

/// One wanted instance.
#[derive(Debug)]
pub(crate) struct Held {
    /// As it came from above, with the generation of above.
    pub assignment: Assignment,
    pub place: Option<Place>,
    /// The newest generation ever given, so that the next one is newer.
    pub last: Generation,
    pub seen: Option<ObservedInstance>,
    /// Children that refused it.
    pub avoid: Vec<Avoided>,
    /// How often it was refused since it last ran.
    pub refusals: u32,
    pub explanation: Option<Arc<Explanation>>,
    pub deciding: bool,
    pub gone: bool,
    /// Why its child was told to drop it, until the child says that it has.
    pub leaving: Option<String>,
    pub rest: Rest,
    /// It should leave its child and finds no other here: whoever is above may take it elsewhere.
    pub handed_up: bool,
    /// It should leave its child for another, and whoever is above is asked whether it may.
    pub asks: bool,
    /// Its child may move it: it counts as unavailable until it runs again.
    pub may_move: bool,
}

impl Held {
    /// Whether it may be nowhere but on its node.
    pub fn pinned(&self) -> bool {
        self.assignment.spec.constraints.node.is_some()
    }

    /// Whether it stays where it is while its place does not answer: by its policy, because there is no other place for
    /// it, or because nothing of it runs.
    pub fn waits(&self) -> bool {
        let stays = self.assignment.spec.lost == LossPolicy::Wait || self.pinned() || self.asleep();
        stays && self.assignment.run != Run::Gone && self.leaving.is_none()
    }

    /// Whether a child that refused it does not even have the node that it is pinned to.
    fn foreign(&self, refusal: Option<&Explanation>) -> bool {
        let (Some(node), Some(said)) = (&self.assignment.spec.constraints.node, refusal) else {
            return false;
        };
        let other = placement::Reason::Node(node.clone()).to_string();
        let named = said.verdicts.iter().any(|verdict| verdict.candidate == *node);
        !named && said.others.iter().all(|others| others.reason == other)
    }

    /// How long a child that refused it now is not asked again.
    fn avoid_ms(&mut self, first_ms: i64, foreign: bool) -> i64 {
        let doubled = first_ms.saturating_mul(1 << self.refusals.min(16)).min(AVOID_MAX_MS);
        self.refusals = self.refusals.saturating_add(1);
        first_ms.max(if foreign { AVOID_FOREIGN_MS } else { doubled })
    }

    fn priority(&self) -> Reverse<i32> {
        Reverse(self.assignment.spec.priority)
    }
}

pub(crate) struct ChildState {
    pub facts: Option<Facts>,
    /// Its name before it said its facts, where it is known.
    pub joined_as: Option<Name>,
    pub alive: bool,
    /// Whether it spoke since this parent began; until then its lease is an advance.
    pub heard: bool,
    /// It got another lease because nobody was heard; the next time it gets none.
    pub spared: bool,
    /// It said that it stops and will be back.
    pub leaving: bool,
    /// When it counts as lost, unless it is heard before.
    pub deadline: Timestamp,
    pub last_seen: Timestamp,
    pub outbox: Outbox<Assignment>,
    pub inbox: Inbox<ObservedInstance>,
    pub mode: PlaceMode,
    /// What waits for this child moves too when it empties.
    pub force: bool,
    /// What is left on a child that empties, and why it is still there.
    pub left: Vec<Remaining>,
    /// Set by operators, beside what the child says of itself.
    pub labels: Labels,
}

pub struct Parent {
    pub(crate) config: ParentConfig,
    pub(crate) fleet: Fleet,
    pub(crate) children: BTreeMap<ChildId, ChildState>,
    pub(crate) wants: Shelf<Held>,
    /// To be decided at the next chance: the highest priority first, then in order of id.
    pub(crate) waiting: BTreeSet<(Reverse<i32>, InstanceId)>,
    /// No child fits; tried again when the fleet changes or an avoided child may be asked again.
    pub(crate) stuck: BTreeSet<InstanceId>,
    pub(crate) stuck_until: Option<Timestamp>,
    pub(crate) placed_count: BTreeMap<ChildId, u64>,
    /// How many of those are at rest.
    pub(crate) resting: BTreeMap<ChildId, u64>,
    /// Instances that came to rest, or no longer are, since the owner last asked.
    pub(crate) rested: BTreeSet<InstanceId>,
    /// Children whose desired set changed since they were last asked for.
    pub(crate) told: BTreeSet<ChildId>,
    /// Instances for which others give way, with those that have not gone yet. Their room is held for them.
    pub(crate) preempting: BTreeMap<InstanceId, BTreeSet<InstanceId>>,
    /// Instances that were moved off an emptying child and do not run again yet.
    pub(crate) movers: BTreeSet<InstanceId>,
    /// Instances that their child would hand to another.
    pub(crate) handed: BTreeSet<InstanceId>,
    /// Instances that their child would move, and may not yet.
    pub(crate) asking: BTreeSet<InstanceId>,
    /// How many of each workload may be unavailable when they are moved on purpose; known to root alone.
    pub(crate) limits: HashMap<WorkloadId, u32>,
    /// Instances of which something new is known, beside what reports say.
    pub(crate) news: BTreeSet<InstanceId>,
    /// When leases were last looked at.
    pub(crate) looked: Option<Timestamp>,
    /// Nobody was heard when leases lapsed, so everybody got another one.
    pub(crate) deaf: bool,
    /// Grows when children come, go, or change what they are.
    pub(crate) members: u64,
    /// No minor generation above this was given to what is forgotten. What is wanted again may be what was forgotten,
    /// under the same decision of above, and starts above it.
    minor_floor: u64,
}

impl Parent {
    pub fn new(config: ParentConfig) -> Self {
        let level = if config.children_are_zones { Level::Zones } else { Level::Nodes };
        let fleet = Fleet::new(level, config.policy);
        // Another number than in every earlier life.
        let members = config.epoch << 32;
        Self {
            config,
            fleet,
            children: BTreeMap::new(),
            wants: Shelf::default(),
            waiting: BTreeSet::new(),
            stuck: BTreeSet::new(),
            stuck_until: None,
            placed_count: BTreeMap::new(),
            resting: BTreeMap::new(),
            rested: BTreeSet::new(),
            told: BTreeSet::new(),
            preempting: BTreeMap::new(),
            movers: BTreeSet::new(),
            handed: BTreeSet::new(),
            asking: BTreeSet::new(),
            limits: HashMap::new(),
            news: BTreeSet::new(),
            looked: None,
            deaf: false,
            members,
            minor_floor: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.wants.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    pub fn ids(&self) -> impl Iterator<Item = &InstanceId> {
        self.wants.keys()
    }

    pub fn wanted(&self, id: &InstanceId) -> bool {
        self.wants.contains_key(id)
    }

    pub fn place_of(&self, id: &InstanceId) -> Option<&Place> {
        self.wants.get(id)?.place.as_ref()
    }

    /// Says what should be held. What is placed already stays where it is and its child is told the change.
    pub fn want(&mut self, assignment: Assignment) {
        let id = assignment.id.clone();
        match self.wants.get_mut(&id) {
            Some(held) if held.assignment == assignment => return,
            Some(held) => {
                let assignment = std::mem::replace(&mut held.assignment, assignment);
                self.waiting.remove(&(Reverse(assignment.spec.priority), id.clone()));
                self.nomination_end(&id);
            }
            None => {
                let held = Held {
                    last: Generation { major: assignment.generation.major, minor: self.minor_floor },
                    assignment,
                    place: None,
                    seen: None,
                    avoid: Vec::new(),
                    refusals: 0,
                    explanation: None,
                    deciding: false,
                    gone: false,
                    leaving: None,
                    rest: Rest::Awake,
                    handed_up: false,
                    asks: false,
                    may_move: false,
                };
                self.wants.insert(id.clone(), held);
            }
        }
        self.settle(&id);
    }

    /// Puts back a wanted instance with its place, as it was kept on disk.
    pub fn restore(&mut self, assignment: Assignment, place: Option<Place>, last: Generation) {
        let id = assignment.id.clone();
        self.want(assignment);
        let Some(held) = self.wants.get_mut(&id) else { return };
        held.last = held.last.max(last);
        if let Some(place) = place {
            // While it has a place, only that place can say that it is gone.
            held.gone = false;
            self.put(&id, place, false);
        }
    }

    /// Puts back what was last known of an instance.
    pub fn restore_seen(&mut self, seen: ObservedInstance) {
        let Some(held) = self.wants.get_mut(&seen.id) else { return };
        let (run, restart_count) = (held.assignment.run, held.assignment.restart_count);
        if seen.rests(run) {
            let id = seen.id.clone();
            return self.restore_rest(&id, Resting { run, restart_count, seen });
        }
        held.seen = Some(seen);
    }

    /// See the field; for the owner to keep.
    pub const fn minor_floor(&self) -> u64 {
        self.minor_floor
    }

    pub fn minor_floor_raise(&mut self, floor: u64) {
        self.minor_floor = self.minor_floor.max(floor);
    }

    /// It is no longer wanted, wherever it is.
    pub fn unwant(&mut self, id: &InstanceId) {
        if let Some(held) = self.wants.get(id) {
            self.minor_floor_raise(held.last.minor);
        }
        self.unplace(id);
        self.queue_out(id);
        self.movers.remove(id);
        self.handed.remove(id);
        self.asking.remove(id);
        self.news.remove(id);
        self.wants.remove(id);
        self.rested.remove(id);
    }

    /// Decides what a changed want means: forward it, queue it, or call it gone.
    pub(crate) fn settle(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get_mut(id) else { return };
        match (&held.place, held.assignment.run) {
            (Some(place), _) => {
                let lost = self.children.get(&place.child).is_some_and(|state| !state.alive);
                // What is to run again does not wait for a place that is lost, unless that is its policy.
                if lost && (!held.waits() || held.starts_elsewhere()) {
                    return self.lose(id, "its place was lost");
                }
                self.rouse(id);
                self.tell_child(id);
            }
            (None, Run::Gone) => {
                held.gone = true;
                self.queue_out(id);
            }
            (None, Run::Stopped) => self.queue_out(id),
            (None, Run::Running) if held.over() => self.queue_out(id),
            (None, Run::Running) if !held.deciding && !self.preempting.contains_key(id) => {
                let key = (held.priority(), id.clone());
                self.stuck.remove(id);
                self.waiting.insert(key);
            }
            (None, Run::Running) => {}
        }
    }

    /// It waits for nothing any more.
    fn queue_out(&mut self, id: &InstanceId) {
        if let Some(held) = self.wants.get(id) {
            self.waiting.remove(&(held.priority(), id.clone()));
        }
        self.stuck.remove(id);
        self.nomination_end(id);
    }

    /// The room that is kept for an instance while others give way is free again.
    fn nomination_end(&mut self, id: &InstanceId) {
        if self.preempting.remove(id).is_some() {
            self.fleet.release(id);
        }
    }

    /// Sends the assignment to the child that holds it, under the generation of its place.
    fn tell_child(&mut self, id: &InstanceId) {
        let Some(held) = self.wants.get_mut(id) else { return };
        let Some(place) = held.place.as_mut() else { return };
        // A newer decision above, with the same child chosen here, is the same place under a newer name.
        if held.assignment.generation.major > place.generation.major {
            place.generation = Generation { major: held.assignment.generation.major, minor: 0 };
            held.last = held.last.max(place.generation);
        }
        let mut assignment = held.assignment.clone();
        assignment.generation = place.generation;
        if let Some(group) = &mut assignment.group {
            group.may_move = held.may_move;
        }
        match held.rest {
            _ if held.leaving.is_some() => assignment.run = Run::Gone,
            Rest::Waking(_) if assignment.run == Run::Running => assignment.run = Run::Stopped,
            _ => {}
        }
        let child = place.child.clone();
        if let Some(state) = self.children.get_mut(&child)
            && state.outbox.upsert(assignment)
        {
            self.told.insert(child);
        }
    }

    /// Puts an instance on its place; `reserved` when the room is taken for it already.
    pub(crate) fn put(&mut self, id: &InstanceId, place: Place, reserved: bool) {
        let Some(held) = self.wants.get_mut(id) else { return };
        held.last = held.last.max(place.generation);
        let want = (!reserved).then(|| want_of(&held.assignment, &held.avoid));
        *self.placed_count.entry(place.child.clone()).or_default() += 1;
        if let Some(want) = want {
            self.occupy(&want, &place.child);
        }
        if let Some(held) = self.wants.get_mut(id) {
            held.place = Some(place);
            held.deciding = false;
        }
        self.queue_out(id);
        self.tell_child(id);
    }

    /// What runs already is counted even where it no longer fits: facts may shrink.
    pub(crate) fn occupy(&mut self, want: &Want, child: &ChildId) {
        if self.fleet.reserve(want, child).is_err() {
            self.fleet.hold(want, child, &[]);
        }
    }

    /// Takes the instance off its child and gives its room back.
    pub(crate) fn unplace(&mut self, id: &InstanceId) -> Option<Place> {
        let held = self.wants.get_mut(id)?;
        if held.deciding {
            held.deciding = false;
            self.fleet.release(id);
        }
        let place = held.place.take()?;
        (held.leaving, held.handed_up, held.asks, held.may_move) = (None, false, false, false);
        self.handed.remove(id);
        self.asking.remove(id);
        self.fleet.release(id);
        let asleep = held.asleep();
        if let Some(count) = self.placed_count.get_mut(&place.child) {
            *count = count.saturating_sub(1);
        }
        if asleep {
            self.rest_count(&place.child, false);
        }
        if let Some(state) = self.children.get_mut(&place.child)
            && state.outbox.remove(id)
        {
            self.told.insert(place.child.clone());
        }
        self.gave_way(id);
        self.unstick();
        Some(place)
    }

    /// An instance is off its place: those it gave way to may be decided about when it was the last.
    fn gave_way(&mut self, id: &InstanceId) {
        let mut ready = Vec::new();
        for (waiting, others) in &mut self.preempting {
            if others.remove(id) && others.is_empty() {
                ready.push(waiting.clone());
            }
        }
        for id in ready {
            self.nomination_end(&id);
            self.settle(&id);
        }
    }

    /// Tells the child that holds it to drop it; it looks for another place when the child says that it has.
    pub(crate) fn leave(&mut self, id: &InstanceId, why: String) {
        let Some(held) = self.wants.get_mut(id).filter(|held| held.place.is_some()) else { return };
        held.leaving = Some(why);
        self.news.insert(id.clone());
        self.tell_child(id);
    }

    /// Something changed in the fleet: what found no place may find one now.
    pub(crate) fn unstick(&mut self) {
        for id in std::mem::take(&mut self.stuck) {
            if let Some(held) = self.wants.get(&id) {
                self.waiting.insert((held.priority(), id));
            }
        }
        self.stuck_until = None;
    }

    /// Instances of which something new is known since the last call, beside what reports and lapses said.
    pub fn news_take(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.news)
    }

    /// The children whose desired set changed since the last call.
    pub fn told_take(&mut self) -> BTreeSet<ChildId> {
        std::mem::take(&mut self.told)
    }

    /// What a child that has `have` should be told; nothing when it has everything.
    pub fn desired(&mut self, child: &ChildId, have: Option<Revision>) -> Option<Desired> {
        self.desired_within(child, have, self.config.page_bytes)
    }

    /// As [`Parent::desired`], in a page of about so many bytes and one entry at least.
    pub fn desired_within(
        &mut self,
        child: &ChildId,
        have: Option<Revision>,
        page_bytes: usize,
    ) -> Option<Desired> {
        let outbox = &mut self.children.get_mut(child)?.outbox;
        if outbox.outlive(have) {
            tracing::warn!(%child, by = %self.config.by, "it has a set of a life that is forgotten here; it is told all anew");
        }
        outbox.since_within(have, page_bytes)
    }

    pub fn desired_whole(&self, child: &ChildId) -> Option<Desired> {
        Some(self.children.get(child)?.outbox.whole())
    }
}

pub(crate) fn want_of(assignment: &Assignment, avoid: &[Avoided]) -> Want {
    let mut want = Want::from(assignment);
    want.avoid = avoid.iter().map(|avoided| (avoided.child.clone(), avoided.why.clone())).collect();
    want
}
