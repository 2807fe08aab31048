//! Where nothing fits: which instances of a lower priority would have to go.

use model::{ChildId, InstanceId};

use crate::fleet::{Fleet, Level};
use crate::held::Held;
use crate::score::NO_ROOM;
use crate::shape::ShapeKey;
use crate::slot::Slot;
use crate::want::Want;

/// Children looked at closely for one want; more would cost more than they find.
const LOOKS_MAX: usize = 512;

/// The child with the fewest, and of those the lowest, that have to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub child: ChildId,
    pub others: Vec<InstanceId>,
}

/// One slot as a way: how many that stay otherwise must go, the highest priority among them, and who.
type Found = (usize, i32, u32, Vec<InstanceId>);

impl Fleet {
    /// Who would have to go for `want` to fit on one child; nothing when that would not help either. `may_go` says
    /// of an instance whether it goes already, and nothing when it must not be touched.
    pub fn give_way(&mut self, want: &Want, may_go: impl Fn(&InstanceId) -> Option<bool>) -> Option<Way> {
        let lower = self.priorities.range(..want.priority).next().is_some();
        if !lower {
            return None;
        }
        let key = ShapeKey::new(want, self.level, &self.models);
        self.with_scores(key, |fleet, scratch, key, scores| {
            fleet.bend(want, scores, scratch);
            let full = (0..fleet.slots.len()).filter(|&at| scratch.totals[at] == NO_ROOM);
            let ways = full.take(LOOKS_MAX).filter_map(|at| fleet.way(at, want, key, &may_go));
            let (_, _, rank, others) =
                ways.min_by_key(|(count, highest, rank, _)| (*count, *highest, *rank))?;
            let at = fleet.ranks.iter().position(|known| *known == rank)?;
            let child = fleet.slots[at].facts.as_ref()?.id.clone();
            Some(Way { child, others })
        })
    }

    fn way(
        &self,
        at: usize,
        want: &Want,
        key: &ShapeKey,
        may_go: &impl Fn(&InstanceId) -> Option<bool>,
    ) -> Option<Found> {
        let mut slot = self.slots[at].clone();
        if self.level == Level::Zones {
            // What its nodes have free is known to the zone alone.
            slot.largest = None;
        }
        let mut going: Vec<(bool, i32, i64, &InstanceId, &Held)> = Vec::new();
        for id in &slot.held {
            let held: &Held = &self.held[id];
            if let Some(gone) = may_go(id)
                && (gone || held.priority < want.priority)
            {
                going.push((!gone, held.priority, -held.need[0], id, held));
            }
        }
        // Those that go already, then the lowest, then the largest.
        going.sort_by(|a, b| (a.0, a.1, a.2, a.3).cmp(&(b.0, b.1, b.2, b.3)));
        let mut slot = Slot { held: Default::default(), ..slot.clone() };
        let mut taken = Vec::new();
        let mut next = going.into_iter();
        while !key.has_room(&slot) {
            let one = next.next()?;
            slot.give_back(one.4);
            taken.push(one);
        }
        // Whoever turns out not to be needed stays, the highest first.
        for place in (0..taken.len()).rev() {
            if !taken[place].0 {
                continue;
            }
            slot.take_again(taken[place].4);
            match key.has_room(&slot) {
                true => drop(taken.remove(place)),
                false => slot.give_back(taken[place].4),
            }
        }
        let highest = taken.iter().filter(|one| one.0).map(|one| one.1).max().unwrap_or(i32::MIN);
        let count = taken.iter().filter(|one| one.0).count();
        Some((count, highest, self.ranks[at], taken.into_iter().map(|one| one.3.clone()).collect()))
    }
}

impl Slot {
    fn give_back(&mut self, held: &Held) {
        self.used.iter_mut().zip(held.need).for_each(|(used, need)| *used -= need);
        self.gpus_take(held.task.as_ref(), &held.gpus, -1);
    }

    fn take_again(&mut self, held: &Held) {
        self.used.iter_mut().zip(held.need).for_each(|(used, need)| *used += need);
        self.gpus_take(held.task.as_ref(), &held.gpus, 1);
    }
}
