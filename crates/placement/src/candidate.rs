//! A child that may hold instances: a node, or a zone that looks like one.

use std::collections::{BTreeMap, BTreeSet};

use model::{Arch, Area, ChildId, Facts, GpuDevice, Leg, Name, Resources, RuntimeKind};

/// What a child offers. `capacity` and `gpus` are what there is when nothing of ours is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: ChildId,
    pub name: Name,
    pub archs: Vec<Arch>,
    pub runtimes: Vec<RuntimeKind>,
    /// Label values; an aggregate may hold several values of one label.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Labels of which not every value is listed: the child may have any, and decides itself.
    pub labels_cut: BTreeSet<String>,
    pub capacity: Resources,
    /// For an aggregate: the largest free amount of each resource on any one node.
    pub largest: Option<Resources>,
    pub gpus: Vec<GpuDevice>,
    pub cordoned: bool,
    /// Where on the earth it is; an aggregate is somewhere in the circle.
    pub area: Option<Area>,
    /// Measured ways to named places.
    pub legs: BTreeMap<String, Leg>,
}

impl Candidate {
    /// A candidate of the host's architecture that runs containers, without labels or GPUs.
    pub fn new(id: ChildId, name: Name, capacity: Resources) -> Self {
        Self {
            id,
            name,
            archs: vec![Arch::HOST],
            runtimes: vec![RuntimeKind::Container],
            labels: BTreeMap::new(),
            labels_cut: BTreeSet::new(),
            capacity,
            largest: None,
            gpus: Vec::new(),
            cordoned: false,
            area: None,
            legs: BTreeMap::new(),
        }
    }
}

impl From<(ChildId, &Facts)> for Candidate {
    fn from((id, facts): (ChildId, &Facts)) -> Self {
        Self {
            id,
            name: facts.name.clone(),
            archs: facts.archs.clone(),
            runtimes: facts.runtimes.clone(),
            labels: facts.labels.clone(),
            labels_cut: facts.labels_cut.clone(),
            capacity: facts.capacity,
            largest: facts.largest,
            gpus: facts.gpus.clone(),
            cordoned: facts.cordoned,
            area: facts.area,
            legs: facts.legs.clone(),
        }
    }
}
