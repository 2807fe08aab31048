//! What the kernel and the disks of the hosts hold of instances, whatever anybody says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use model::Generation;
use serde::Deserialize;

use crate::host::{BRIDGE, Host, Kind};
use crate::sweep::{cgroup_roots, group_pids, names};

/// What one node has of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Processes of the container, as this machine numbers them.
    pub pids: Vec<u32>,
    /// From the record on the node's disk.
    pub generation: Option<Generation>,
    pub folder: bool,
    pub cgroup: bool,
    pub namespace: bool,
}

impl Held {
    pub fn runs(&self) -> bool {
        !self.pids.is_empty()
    }

    /// For people: the parts that are there.
    pub fn parts(&self) -> String {
        let parts = [
            (self.runs(), "a running container"),
            (self.folder, "a folder"),
            (self.cgroup, "a cgroup"),
            (self.namespace, "a network namespace"),
        ];
        let there: Vec<&str> = parts.into_iter().filter_map(|(there, name)| there.then_some(name)).collect();
        there.join(", ")
    }
}

/// By host, then by the id of the instance.
pub type Reality = BTreeMap<String, BTreeMap<String, Held>>;

#[derive(Deserialize)]
struct Record {
    assignment: Assigned,
}

#[derive(Deserialize)]
struct Assigned {
    generation: Generation,
}

/// Looks at one node.
pub fn look(host: &Host) -> BTreeMap<String, Held> {
    let mut found: BTreeMap<String, Held> = BTreeMap::new();
    let instances = host.data_seen().join("engine/instances");
    for id in names(&instances) {
        let record = std::fs::read(instances.join(&id).join("record.json")).ok();
        let record: Option<Record> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let held = found.entry(id).or_default();
        held.folder = true;
        held.generation = record.map(|record| record.assignment.generation);
    }
    for root in cgroup_roots() {
        let parent = root.join(host.cgroup());
        for id in names(&parent).into_iter().filter(|name| parent.join(name).is_dir()) {
            let held = found.entry(id.clone()).or_default();
            held.cgroup = true;
            held.pids.extend(group_pids(&parent.join(id)));
        }
    }
    if let Some(init) = host.init() {
        let folder = format!("/proc/{init}/root/run/netns");
        let prefix = format!("{BRIDGE}-");
        for name in names(Path::new(&folder)) {
            if let Some(id) = name.strip_prefix(&prefix) {
                found.entry(id.to_owned()).or_default().namespace = true;
            }
        }
    }
    for held in found.values_mut() {
        held.pids = std::mem::take(&mut held.pids).into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    }
    found
}

/// Mounts of instances in the host's own table; there should be none, a shim has them for itself.
pub fn mounts(host: &Host) -> Vec<String> {
    let Some(init) = host.init() else { return Vec::new() };
    let inside = format!("{}/engine/", host.data().display());
    let table = std::fs::read_to_string(format!("/proc/{init}/mountinfo")).unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with(&inside)).map(str::to_owned).collect()
}

/// Looks at all nodes.
pub fn look_all<'a>(hosts: impl Iterator<Item = &'a Host>) -> Reality {
    hosts.filter(|host| host.kind() == Kind::Node).map(|host| (host.name().to_owned(), look(host))).collect()
}

/// Instances that run on two hosts under one generation, which must never be.
pub fn twins(reality: &Reality) -> Vec<String> {
    let mut seen: BTreeMap<(&str, Generation), &str> = BTreeMap::new();
    let mut found = Vec::new();
    for (host, instances) in reality {
        for (id, held) in instances.iter().filter(|(_, held)| held.runs()) {
            let Some(generation) = held.generation else { continue };
            if let Some(other) = seen.insert((id, generation), host) {
                found.push(format!("{id} runs on {other} and on {host} under generation {generation}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_two_that_run_under_one_generation() {
        let held = |minor, pids: &[u32]| Held {
            pids: pids.to_vec(),
            generation: Some(Generation { major: 1, minor }),
            ..Held::default()
        };
        let on = |host: &str, held| (host.to_owned(), BTreeMap::from([("i-1".to_owned(), held)]));
        let two = |a, b| Reality::from([on("e1", a), on("e2", b)]);
        assert!(twins(&two(held(1, &[7]), held(2, &[8]))).is_empty(), "the older one is on its way out");
        assert!(twins(&two(held(1, &[7]), held(1, &[]))).is_empty(), "only one runs");
        assert_eq!(twins(&two(held(1, &[7]), held(1, &[8]))).len(), 1);
    }
}
