//! What happens when a host, a process or a link of a real cloud fails: real hosts, real containers.
#![allow(clippy::unwrap_used)]

mod install;
mod link;
mod near;
mod node;
mod rest;
mod roots;
mod zone;

use std::time::Duration;

use api::Instance;
use bed::{Bed, NodeSettings};
use model::{InstanceSpec, Phase};

/// More than any lease and back-off, on a machine that does other things as well.
pub const WAIT: Duration = Duration::from_secs(90);

/// A container that runs until it is told to end.
pub fn sleeper() -> InstanceSpec {
    let mut spec = InstanceSpec::new("busybox");
    // As its first process it would not hear a signal by itself.
    spec.command =
        ["sh", "-c", "trap exit TERM; while :; do sleep 1 & wait $!; done"].map(str::to_owned).to_vec();
    spec.memory = model::Bytes::mib(16);
    spec.cpu = model::Cpu(50);
    spec
}

/// A root and a zone with some nodes.
pub fn small(nodes: &[&str]) -> Bed {
    let mut bed = Bed::new().unwrap();
    bed.root("root", None).unwrap();
    bed.zone("east").unwrap();
    for node in nodes {
        bed.node("east", node, &NodeSettings::default()).unwrap();
    }
    bed
}

/// Waits until the API says this of an instance.
pub fn seen(bed: &Bed, name: &str, what: &str, holds: impl Fn(&Instance) -> bool) -> Instance {
    bed.until(&format!("{name}: {what}"), WAIT, || bed.instance(name).ok().filter(|seen| holds(seen)))
        .unwrap()
}

/// Makes an instance and waits until it runs.
pub fn run(bed: &Bed, name: &str, spec: InstanceSpec) -> Instance {
    bed.create(name, spec).unwrap();
    seen(bed, name, "it runs", |seen| seen.phase == Phase::Running)
}

/// Everything is as it was promised.
pub fn calm(bed: &Bed) {
    bed.settle(WAIT).unwrap();
}
