//! One candidate as the fleet counts with it: its facts compiled, less what is reserved on it.

use std::collections::HashSet;

use model::{InstanceId, Resources};

use crate::candidate::Candidate;
use crate::gpu::{Gpu, Models};
use crate::mix::Task;

/// CPU in thousandths, memory and disk in bytes; signed, because a child may shrink under what it holds.
pub(crate) type Amounts = [i64; 3];

pub(crate) fn amounts(resources: &Resources) -> Amounts {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX / 2);
    [signed(resources.cpu.0), signed(resources.memory.0), signed(resources.disk.0)]
}

pub(crate) fn resources(amounts: &Amounts) -> Resources {
    let [cpu, memory, disk] = amounts.map(|amount| u64::try_from(amount).unwrap_or(0));
    Resources { cpu: model::Cpu(cpu), memory: model::Bytes(memory), disk: model::Bytes(disk) }
}

pub(crate) fn fits(need: &Amounts, room: &Amounts) -> bool {
    need[0] <= room[0] && need[1] <= room[1] && need[2] <= room[2]
}

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// Absent when instances are known to be on a child that has not spoken yet.
    pub facts: Option<Candidate>,
    pub alive: bool,
    pub archs: u8,
    pub runtimes: u8,
    pub capacity: Amounts,
    pub used: Amounts,
    pub largest: Option<Amounts>,
    pub gpus: Vec<Gpu>,
    pub held: HashSet<InstanceId>,
    /// Expected GPU waste as it is now; see `mix`. Kept beside the state it follows from.
    pub waste: i64,
    /// Number of the last change, for shapes to see what is new to them.
    pub changed: u64,
}

impl Slot {
    pub fn new() -> Self {
        Self {
            facts: None,
            alive: true,
            archs: 0,
            runtimes: 0,
            capacity: [0; 3],
            used: [0; 3],
            largest: None,
            gpus: Vec::new(),
            held: HashSet::new(),
            waste: 0,
            changed: 0,
        }
    }

    /// Takes over new facts. GPUs come back whole; the caller takes what is held off again.
    pub fn update(&mut self, facts: Candidate, models: &mut Models) {
        self.archs = facts.archs.iter().fold(0, |bits, arch| bits | 1 << *arch as u8);
        self.runtimes = facts.runtimes.iter().fold(0, |bits, runtime| bits | 1 << *runtime as u8);
        self.capacity = amounts(&facts.capacity);
        self.largest = facts.largest.as_ref().map(amounts);
        self.gpus = facts
            .gpus
            .iter()
            .map(|gpu| Gpu {
                model: models.bit(&gpu.model),
                free_milli: i32::try_from(gpu.free_milli).unwrap_or(i32::MAX),
            })
            .collect();
        self.facts = Some(facts);
    }

    /// Takes (`sign` 1) or gives back (-1) a task's part of some devices. A device that is no longer there is passed over.
    pub fn gpus_take(&mut self, task: Option<&Task>, devices: &[usize], sign: i32) {
        let Some(task) = task else { return };
        for device in devices {
            if let Some(gpu) = self.gpus.get_mut(*device) {
                gpu.free_milli -= sign * task.ask.milli;
            }
        }
    }

    pub fn usable(&self) -> bool {
        self.alive && self.facts.as_ref().is_some_and(|facts| !facts.cordoned)
    }

    pub fn free(&self) -> Amounts {
        std::array::from_fn(|at| self.capacity[at] - self.used[at])
    }

    pub fn gpu_free(&self) -> i64 {
        self.gpus.iter().map(|gpu| i64::from(gpu.free_milli.max(0))).sum()
    }

    /// Whether it has the label, or may have it.
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        self.facts.as_ref().is_some_and(|facts| {
            let listed = facts.labels.get(key).is_some_and(|values| values.iter().any(|held| held == value));
            listed || facts.labels_cut.contains(key)
        })
    }
}
