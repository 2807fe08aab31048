//! The snapshot: candidates and what is reserved on them, kept up to date one change at a time.

use std::collections::{BTreeMap, HashMap};

use model::{ChildId, InstanceId, Resources};

use crate::candidate::Candidate;
use crate::choose::{Nowhere, Scratch};
use crate::gpu::Models;
use crate::held::Held;
use crate::mix::{Mix, Seen};
use crate::reason::Reason;
use crate::score::{Judge, Scale};
use crate::shape::{Changes, ShapeKey, Shapes};
use crate::slot::{Slot, resources};
use crate::tally::Tallies;
use crate::want::Want;

/// What the candidates are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Zones: a zone constraint names one of them; what is asked of a node can only be a wish here.
    Zones,
    /// Nodes: a zone constraint has done its work further up.
    Nodes,
}

/// How slots that will do are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// The one that is left with least.
    BestFit,
    /// The one whose GPUs stay most useful to the usual mix of tasks; best fit where that says nothing.
    #[default]
    Default,
}

/// Candidates, reservations and every index over them.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(crate) level: Level,
    policy: Policy,
    pub(crate) slots: Vec<Slot>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) ids: HashMap<ChildId, u32>,
    vacant: Vec<u32>,
    /// Boxed, so that the map grows without moving much.
    pub(crate) held: HashMap<InstanceId, Box<Held>>,
    /// How many instances there are of each priority.
    pub(crate) priorities: BTreeMap<i32, u64>,
    /// Instances by spread group.
    pub(crate) groups: Tallies,
    /// Instances by the labels they carry.
    pub(crate) carriers: Tallies,
    /// Instances by the labels they demand to be kept away from.
    pub(crate) repellers: Tallies,
    pub(crate) models: Models,
    seen: Seen,
    mix: Mix,
    scale: Scale,
    pub(crate) changes: Changes,
    pub(crate) shapes: Shapes,
    pub(crate) scratch: Scratch,
    /// Grows when every score changes at once.
    epoch: u64,
    /// Candidates came, went or changed size since ranks and scale were made.
    stale: bool,
}

impl Fleet {
    pub fn new(level: Level, policy: Policy) -> Self {
        Self {
            level,
            policy,
            slots: Vec::new(),
            ranks: Vec::new(),
            ids: HashMap::new(),
            vacant: Vec::new(),
            held: HashMap::new(),
            priorities: BTreeMap::new(),
            groups: Tallies::default(),
            carriers: Tallies::default(),
            repellers: Tallies::default(),
            models: Models::default(),
            seen: Seen::default(),
            mix: Mix::default(),
            scale: Scale::default(),
            changes: Changes::default(),
            shapes: Shapes::default(),
            scratch: Scratch::default(),
            epoch: 0,
            stale: false,
        }
    }

    /// Adds a candidate or takes over what it says of itself now. Cheap when nothing changed.
    pub fn upsert(&mut self, candidate: Candidate) {
        let at = self.slot_of(&candidate.id);
        let slot = &mut self.slots[at as usize];
        if slot.facts.as_ref() == Some(&candidate) {
            return;
        }
        let before = slot.facts.as_ref();
        if before.map(|facts| &facts.labels) != Some(&candidate.labels) {
            self.scratch.domains_forget();
        }
        self.stale |=
            before.is_none_or(|f| f.capacity != candidate.capacity || f.gpus.len() != candidate.gpus.len());
        slot.update(candidate, &mut self.models);
        let held = std::mem::take(&mut slot.held);
        for held in held.iter().map(|id| &self.held[id]) {
            slot.gpus_take(held.task.as_ref(), &held.gpus, 1);
        }
        slot.held = held;
        self.touch(at);
    }

    /// Forgets a candidate with what was reserved on it, and says what that was.
    pub fn remove(&mut self, child: &ChildId) -> Vec<InstanceId> {
        let Some(&at) = self.ids.get(child) else { return Vec::new() };
        let mut lost: Vec<InstanceId> = self.slots[at as usize].held.iter().cloned().collect();
        lost.sort();
        lost.iter().for_each(|id| {
            self.release(id);
        });
        self.ids.remove(child);
        self.slots[at as usize] = Slot::new();
        self.vacant.push(at);
        self.stale = true;
        self.scratch.domains_forget();
        self.touch(at);
        lost
    }

    /// A child that does not answer takes nothing new and keeps what it has.
    pub fn set_alive(&mut self, child: &ChildId, alive: bool) {
        if let Some(&at) = self.ids.get(child)
            && self.slots[at as usize].alive != alive
        {
            self.slots[at as usize].alive = alive;
            self.touch(at);
        }
    }

    /// Takes room for `want` on `child` if it is there, and says which GPUs it has.
    /// Room is all that is looked at; a want that is already held moves.
    pub fn reserve(&mut self, want: &Want, child: &ChildId) -> Result<Vec<usize>, Reason> {
        let before = self.take(&want.id);
        let result = self.reserve_new(want, child);
        if let (Err(_), Some(held)) = (&result, before) {
            self.put(want.id.clone(), held);
        }
        result
    }

    fn reserve_new(&mut self, want: &Want, child: &ChildId) -> Result<Vec<usize>, Reason> {
        self.settle();
        let &at = self.ids.get(child).ok_or(Reason::Unknown)?;
        let key = ShapeKey::new(want, self.level, &self.models);
        let slot = &self.slots[at as usize];
        if let Some(reason) = Reason::room(&key, want, slot) {
            return Err(reason);
        }
        let gpus = self.devices(&key, at);
        self.put(want.id.clone(), Box::new(Held::new(at, want, &key, &gpus)));
        Ok(gpus)
    }

    /// Counts `want` as being on `child` with `gpus`, whether there is room or not: for what is
    /// known to be there already. A child that has not spoken yet is counted with from now on.
    pub fn hold(&mut self, want: &Want, child: &ChildId, gpus: &[usize]) {
        self.release(&want.id);
        let at = self.slot_of(child);
        let key = ShapeKey::new(want, self.level, &self.models);
        self.put(want.id.clone(), Box::new(Held::new(at, want, &key, gpus)));
    }

    fn put(&mut self, id: InstanceId, held: Box<Held>) {
        self.count(&held, true);
        self.slots[held.slot as usize].held.insert(id.clone());
        self.held.insert(id, held);
    }

    /// Gives back what an instance takes. False when it takes nothing.
    pub fn release(&mut self, id: &InstanceId) -> bool {
        self.take(id).is_some()
    }

    fn take(&mut self, id: &InstanceId) -> Option<Box<Held>> {
        let held = self.held.remove(id)?;
        self.slots[held.slot as usize].held.remove(id);
        self.count(&held, false);
        Some(held)
    }

    /// Adds an instance to every index, or takes it off.
    fn count(&mut self, held: &Held, coming: bool) {
        let slot = &mut self.slots[held.slot as usize];
        let sign = if coming { 1 } else { -1 };
        slot.used.iter_mut().zip(held.need).for_each(|(used, need)| *used += sign * need);
        slot.gpus_take(held.task.as_ref(), &held.gpus, sign as i32);
        let tally = |tallies: &mut Tallies, key: &str| match coming {
            true => tallies.add(key, held.slot),
            false => tallies.take(key, held.slot),
        };
        held.group.iter().for_each(|key| tally(&mut self.groups, key));
        held.carries.iter().for_each(|key| tally(&mut self.carriers, key));
        held.repels.iter().for_each(|key| tally(&mut self.repellers, key));
        let count = self.priorities.entry(held.priority).or_default();
        *count = if coming { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.priorities.remove(&held.priority);
        }
        match (held.task, coming) {
            (Some(task), true) => self.seen.add(task),
            (Some(task), false) => self.seen.take(task),
            (None, _) => {}
        }
        self.touch(held.slot);
    }

    fn slot_of(&mut self, child: &ChildId) -> u32 {
        if let Some(&at) = self.ids.get(child) {
            return at;
        }
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        self.ids.insert(child.clone(), at);
        self.stale = true;
        self.touch(at);
        at
    }

    fn touch(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.waste = self.mix.waste(&slot.free(), &slot.gpus);
        self.changes.mark(at, slot);
    }

    /// Brings ranks, scale and mix up to date when enough changed to matter.
    pub(crate) fn settle(&mut self) {
        if self.stale {
            self.stale = false;
            let mut order: Vec<(&ChildId, u32)> = self.ids.iter().map(|(id, at)| (id, *at)).collect();
            order.sort();
            self.ranks = vec![u32::MAX; self.slots.len()];
            for (rank, (_, at)) in order.iter().enumerate() {
                self.ranks[*at as usize] = rank as u32;
            }
            let scale = Scale::of(self.slots.iter());
            self.epoch += u64::from(scale != self.scale);
            self.scale = scale;
        }
        if self.wastes() && self.seen.is_news() {
            self.relearn();
        }
    }

    /// Learns the mix of GPU tasks from what is held now. Happens by itself as instances come and go.
    pub fn relearn(&mut self) {
        let mix = if self.wastes() { self.seen.learn() } else { Mix::default() };
        // Slots without GPUs only change when waste begins or ceases to play a part.
        self.epoch += u64::from(self.mix.is_empty() != mix.is_empty());
        self.mix = mix;
        for at in 0..self.slots.len() {
            if !self.slots[at].gpus.is_empty() {
                self.touch(at as u32);
            }
        }
    }

    fn wastes(&self) -> bool {
        // How GPUs lie on the nodes of a zone is not known further up.
        self.policy == Policy::Default && self.level == Level::Nodes
    }

    /// Runs `then` with the scores of `key` as of now.
    pub(crate) fn with_scores<T>(
        &mut self,
        key: ShapeKey,
        then: impl FnOnce(&Self, &mut Scratch, &ShapeKey, &[i32]) -> T,
    ) -> T {
        self.settle();
        let mut shapes = std::mem::take(&mut self.shapes);
        let mut scratch = std::mem::take(&mut self.scratch);
        let shape = shapes.get(key, &self.slots, &self.changes, &self.judge(), self.epoch);
        let result = then(self, &mut scratch, &shape.key, &shape.scores);
        self.shapes = shapes;
        self.scratch = scratch;
        result
    }

    fn judge(&self) -> Judge<'_> {
        Judge { scale: &self.scale, mix: Some(&self.mix).filter(|mix| !mix.is_empty()) }
    }

    pub(crate) fn devices(&self, key: &ShapeKey, at: u32) -> Vec<usize> {
        let mut gpus = Vec::new();
        if key.ask.is_some() {
            self.judge().score(&self.slots[at as usize], &key.need, key.ask.as_ref(), Some(&mut gpus));
        }
        gpus
    }

    fn slot(&self, child: &ChildId) -> Option<&Slot> {
        self.ids.get(child).map(|&at| &self.slots[at as usize])
    }

    /// What is left on a child; nothing when it is unknown.
    pub fn free(&self, child: &ChildId) -> Resources {
        self.slot(child).map_or(Resources::ZERO, |slot| resources(&slot.free()))
    }

    /// What is given away on a child.
    pub fn reserved(&self, child: &ChildId) -> Resources {
        self.slot(child).map_or(Resources::ZERO, |slot| resources(&slot.used))
    }

    /// Thousandths that are free of each GPU of a child.
    pub fn gpus_free(&self, child: &ChildId) -> Vec<u32> {
        let free = |slot: &Slot| slot.gpus.iter().map(|gpu| gpu.free_milli.max(0) as u32).collect();
        self.slot(child).map(free).unwrap_or_default()
    }

    /// The largest free amount of each resource on any one child that takes instances.
    pub fn largest_free(&self) -> Resources {
        let usable = self.slots.iter().filter(|slot| slot.usable());
        usable.fold(Resources::ZERO, |most, slot| most.max(resources(&slot.free())))
    }

    /// Where an instance takes room, and which GPUs.
    pub fn holder(&self, id: &InstanceId) -> Option<(&Candidate, &[usize])> {
        let held = self.held.get(id)?;
        Some((self.slots[held.slot as usize].facts.as_ref()?, &held.gpus))
    }

    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.slots.iter().filter_map(|slot| slot.facts.as_ref())
    }

    /// How many candidates there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many instances take room.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn nowhere(&self) -> Nowhere {
        Nowhere { candidates: self.len() }
    }
}
