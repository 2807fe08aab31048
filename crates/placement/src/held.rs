//! An instance that takes room: what must be given back when it goes, and nothing more.
//!
//! There is one for each instance of a fleet, so it is small and has its keys ready made.

use crate::mix::Task;
use crate::shape::ShapeKey;
use crate::slot::Amounts;
use crate::tally::{group_key, label_key};
use crate::want::Want;

#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub slot: u32,
    pub priority: i32,
    pub need: Amounts,
    pub task: Option<Task>,
    /// Places in the slot's list of GPUs.
    pub gpus: Box<[usize]>,
    pub group: Option<Box<str>>,
    /// Keys of the labels it carries.
    pub carries: Box<[Box<str>]>,
    /// Keys of the labels it demands to be kept away from.
    pub repels: Box<[Box<str>]>,
}

impl Held {
    pub fn new(slot: u32, want: &Want, key: &ShapeKey, gpus: &[usize]) -> Self {
        let scope = want.scope();
        let constraints = &want.constraints;
        let demands = constraints.affinity.iter().filter(|term| term.anti && term.required);
        let boxed = |label: &str, value: &str| label_key(scope, label, value).into_boxed_str();
        Self {
            slot,
            priority: want.priority,
            need: key.need,
            task: key.task(),
            gpus: gpus.into(),
            group: constraints.spread.as_ref().map(|spread| group_key(scope, &spread.group).into_boxed_str()),
            carries: want.labels.iter().map(|(label, value)| boxed(label, value)).collect(),
            repels: demands.map(|term| boxed(&term.label, &term.value)).collect(),
        }
    }
}
