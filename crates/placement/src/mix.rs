//! The mix of GPU tasks a fleet sees, and how much of a node's free GPU is waste to it.
//!
//! After "Beware of Fragmentation" (USENIX ATC'23): free GPU is waste to a task
//! when the task cannot run on the node at all, or when the device has less left
//! than the task needs. Placing where the expected waste grows least keeps GPUs
//! usable for what usually comes next. The mix is learnt from what is held.

use std::collections::HashMap;

use crate::gpu::{Ask, Gpu};
use crate::slot::{Amounts, fits};

/// Kinds of task that are looked at; the rarest beyond that do not matter to the expectation.
const TASKS_MAX: usize = 96;
/// Weight of a kind of task by its size. Small asks count for more than they are, because they are
/// what gaps can still be used for; chosen on the openb trace, where 0 (the published method) allocates a third of a per cent less.
const SIZE_POWER: f64 = -1.5;
/// Nothing is learnt from fewer than this.
const LEARN_MIN: u32 = 4;
/// The weights of a mix add up to this. Whole numbers, so that the order of adding does not matter.
pub(crate) const WEIGHTS_SUM: f64 = (1 << 24) as f64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub need: Amounts,
    pub ask: Ask,
}

/// How often each kind of GPU task is held at this moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    tasks: HashMap<Task, u32>,
    total: u32,
    learnt: u32,
}

impl Seen {
    pub fn add(&mut self, task: Task) {
        *self.tasks.entry(task).or_default() += 1;
        self.total += 1;
    }

    pub fn take(&mut self, task: Task) {
        if let Some(count) = self.tasks.get_mut(&task) {
            *count -= 1;
            if *count == 0 {
                self.tasks.remove(&task);
            }
            self.total -= 1;
        }
    }

    /// True when so much came or went since the last time that the mix may be another.
    pub fn is_news(&self) -> bool {
        let learnt = self.learnt.max(LEARN_MIN);
        self.total >= 2 * learnt || self.total < self.learnt / 2
    }

    pub fn learn(&mut self) -> Mix {
        self.learnt = self.total;
        if self.total < LEARN_MIN {
            return Mix::default();
        }
        let mut tasks: Vec<(Task, u32)> = self.tasks.iter().map(|(task, count)| (*task, *count)).collect();
        tasks.sort_by_key(|(task, count)| {
            (std::cmp::Reverse(*count), task.need, task.ask.count, task.ask.milli, task.ask.models)
        });
        tasks.truncate(TASKS_MAX);
        Mix::new(&tasks)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Mix {
    classes: Vec<Class>,
}

/// Tasks that ask alike for GPUs, so that the devices are walked once for all of them.
#[derive(Debug, Clone)]
struct Class {
    ask: Ask,
    tasks: Vec<(Amounts, i64)>,
}

impl Mix {
    fn new(tasks: &[(Task, u32)]) -> Self {
        let weight =
            |task: &Task, count: u32| f64::from(count) * (task.ask.total_milli() as f64).powf(SIZE_POWER);
        let total: f64 = tasks.iter().map(|(task, count)| weight(task, *count)).sum();
        let mut classes: Vec<Class> = Vec::new();
        for (task, count) in tasks {
            let weighted = (task.need, (weight(task, *count) / total * WEIGHTS_SUM).round() as i64);
            match classes.iter_mut().find(|class| class.ask == task.ask) {
                Some(class) => class.tasks.push(weighted),
                None => classes.push(Class { ask: task.ask, tasks: vec![weighted] }),
            }
        }
        Self { classes }
    }

    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Expected waste of a node, in thousandths of a GPU times [`WEIGHTS_SUM`].
    pub fn waste(&self, free: &Amounts, gpus: &[Gpu]) -> i64 {
        let all: i64 = gpus.iter().map(|gpu| i64::from(gpu.free_milli.max(0))).sum();
        if all == 0 {
            return 0;
        }
        let mut waste = 0;
        for Class { ask, tasks } in &self.classes {
            let (mut usable, mut useful) = (0, 0);
            for gpu in gpus {
                if ask.takes(gpu) {
                    usable += 1;
                    useful += i64::from(gpu.free_milli);
                }
            }
            let usable = usable >= ask.count;
            for (need, weight) in tasks {
                let runs = usable && fits(need, free);
                waste += weight * if runs { all - useful } else { all };
            }
        }
        waste
    }
}
