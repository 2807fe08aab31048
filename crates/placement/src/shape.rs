//! What a want needs of a candidate by itself, compiled, with the score of every slot.
//!
//! Wants of one shape share the scores. They are brought up to date when the
//! shape is next asked for, and then only for slots that changed meanwhile.

use std::collections::{HashMap, VecDeque};

use model::constraint::Labels;
use model::{Arch, RuntimeKind};

use crate::fleet::Level;
use crate::gpu::{Ask, Models};
use crate::mix::Task;
use crate::near::Near;
use crate::score::{Judge, NEVER, NO_ROOM};
use crate::slot::{Amounts, Slot, amounts, fits};
use crate::want::Want;

/// Scores kept over all shapes (4 bytes each); the shape unused for longest goes first.
const SCORES_MAX: usize = 8 << 20;
const SHAPES_MIN: usize = 64;
/// Changes remembered one by one; a shape further behind looks at every slot's number.
const CHANGES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShapeKey {
    pub need: Amounts,
    pub ask: Option<Ask>,
    pub runtime: RuntimeKind,
    pub arch: Option<Arch>,
    pub labels: Labels,
    /// Only where the candidates are zones.
    pub zone: Option<String>,
    pub near: Option<Box<Near>>,
}

impl ShapeKey {
    pub fn new(want: &Want, level: Level, models: &Models) -> Self {
        Self {
            need: amounts(&want.resources),
            ask: want.gpu.as_ref().and_then(|ask| Ask::new(ask, models)),
            runtime: want.runtime,
            arch: want.constraints.arch,
            labels: want.constraints.node_labels.clone(),
            zone: want.constraints.zone.clone().filter(|_| level == Level::Zones),
            near: Near::new(want, level),
        }
    }

    pub fn task(&self) -> Option<Task> {
        self.ask.map(|ask| Task { need: self.need, ask })
    }

    /// Whether the slot is of the right kind, whatever room it has.
    pub fn suits(&self, slot: &Slot) -> bool {
        slot.usable()
            && slot.runtimes & 1 << self.runtime as u8 != 0
            && self.arch.is_none_or(|arch| slot.archs & 1 << arch as u8 != 0)
            && self.zone.as_deref().is_none_or(|zone| is_called(slot, zone))
            && self.labels.iter().all(|(key, value)| slot.has_label(key, value))
            && self.near.as_ref().is_none_or(|near| near.suits(slot))
    }

    pub fn has_room(&self, slot: &Slot) -> bool {
        fits(&self.need, &slot.free())
            && slot.largest.as_ref().is_none_or(|largest| fits(&self.need, largest))
            && self.ask.is_none_or(|ask| ask.available(&slot.gpus) >= ask.count)
    }

    fn score(&self, slot: &Slot, judge: &Judge) -> i32 {
        if !self.suits(slot) {
            NEVER
        } else if !self.has_room(slot) {
            NO_ROOM
        } else {
            judge.score(slot, &self.need, self.ask.as_ref(), None)
        }
    }
}

pub(crate) fn is_called(slot: &Slot, zone: &str) -> bool {
    slot.facts.as_ref().is_some_and(|facts| facts.name.as_str() == zone || facts.id.as_str() == zone)
}

/// Which slots changed last, numbered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    recent: VecDeque<u32>,
    pub last: u64,
}

impl Changes {
    pub fn mark(&mut self, at: u32, slot: &mut Slot) {
        self.last += 1;
        slot.changed = self.last;
        if self.recent.len() == CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub key: ShapeKey,
    pub scores: Vec<i32>,
    seen: u64,
    epoch: u64,
    used: u64,
}

impl Shape {
    fn refresh(&mut self, slots: &[Slot], changes: &Changes, judge: &Judge, epoch: u64) {
        let behind = changes.last - self.seen;
        if self.epoch != epoch {
            self.scores.clear();
            self.scores.extend(slots.iter().map(|slot| self.key.score(slot, judge)));
        } else if behind > 0 {
            self.scores.resize(slots.len(), NEVER);
            if behind <= changes.recent.len() as u64 {
                let start = changes.recent.len() - behind as usize;
                for (number, &at) in (self.seen + 1..).zip(changes.recent.range(start..)) {
                    let slot = &slots[at as usize];
                    // A slot that changed again stands further on in the list.
                    if slot.changed == number {
                        self.scores[at as usize] = self.key.score(slot, judge);
                    }
                }
            } else {
                for (at, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.changed > self.seen) {
                    self.scores[at] = self.key.score(slot, judge);
                }
            }
        }
        self.seen = changes.last;
        self.epoch = epoch;
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    list: Vec<Shape>,
    position: HashMap<ShapeKey, usize>,
    clock: u64,
}

impl Shapes {
    /// The shape with scores as of now.
    pub fn get(
        &mut self,
        key: ShapeKey,
        slots: &[Slot],
        changes: &Changes,
        judge: &Judge,
        epoch: u64,
    ) -> &Shape {
        self.clock += 1;
        let at = match self.position.get(&key) {
            Some(&at) => at,
            None => self.insert(key, slots.len()),
        };
        let shape = &mut self.list[at];
        shape.used = self.clock;
        shape.refresh(slots, changes, judge, epoch);
        shape
    }

    fn insert(&mut self, key: ShapeKey, slots: usize) -> usize {
        let most = (SCORES_MAX / slots.max(1)).max(SHAPES_MIN);
        let shape =
            Shape { key: key.clone(), scores: Vec::new(), seen: 0, epoch: u64::MAX, used: self.clock };
        if self.list.len() < most {
            self.list.push(shape);
            self.position.insert(key, self.list.len() - 1);
            return self.list.len() - 1;
        }
        let oldest = (0..self.list.len()).min_by_key(|&at| self.list[at].used).unwrap_or(0);
        self.position.remove(&self.list[oldest].key);
        self.position.insert(key, oldest);
        self.list[oldest] = shape;
        oldest
    }
}
