//! A parent over children, step by step, on a clock that stands still.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Arch, Assignment, Bytes, ChildId, Cpu, Facts, Generation, ImageId, ImageManifest, InstanceId,
    InstanceSpec, Observed, ObservedInstance, Phase, Platform, Resources, Run, RuntimeKind, TenantId,
    Timestamp,
};
use tier::{Child, Inbox, Leases, Parent, ParentConfig};

pub const START: Timestamp = Timestamp(1_000_000_000);
pub const LEASE_MS: i64 = 10_000;
pub const AVOID_MS: i64 = 5_000;

pub fn parent() -> Parent {
    let leases = Leases { lease_ms: LEASE_MS, gone_grace_ms: LEASE_MS / 2, avoid_ms: AVOID_MS };
    Parent::new(ParentConfig { leases, ..ParentConfig::over_nodes("zone", 1) })
}

pub fn facts(name: &str, cores: u64) -> Facts {
    Facts {
        name: name.parse().expect("a name"),
        version: String::new(),
        nodes: 1,
        archs: vec![Arch::Amd64],
        runtimes: vec![RuntimeKind::Container],
        labels: BTreeMap::new(),
        capacity: Resources { cpu: Cpu(cores * 1000), memory: Bytes::gib(8), disk: Bytes::gib(8) },
        largest: None,
        gpus: Vec::new(),
        cordoned: false,
        free: None,
        area: None,
        legs: std::collections::BTreeMap::new(),
        members: 0,
        labels_cut: Default::default(),
    }
}

pub fn assignment(number: u128, run: Run) -> Assignment {
    Assignment {
        id: InstanceId::from_random(number),
        tenant: TenantId::from_random(1),
        name: format!("i-{number}").parse().expect("a name"),
        generation: Generation { major: 1, minor: 0 },
        run,
        restart_count: 0,
        spec: InstanceSpec { cpu: Cpu(1000), ..InstanceSpec::new("busybox") }.into(),
        group: None,
        image: std::sync::Arc::new(ImageManifest {
            id: ImageId::from_random(1),
            platform: Platform { arch: Arch::Amd64 },
            layers: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: BTreeMap::new(),
            user: None,
            workdir: None,
        }),
    }
}

/// A child and its side of the exchange.
pub struct Peer {
    pub id: ChildId,
    pub child: Child,
}

impl Peer {
    pub fn join(parent: &mut Parent, name: &str, cores: u64) -> Self {
        let id = ChildId::from(name);
        parent.child_add(id.clone(), None, START);
        let mut peer = Self { id, child: Child::new(1, facts(name, cores), Inbox::default()) };
        peer.report(parent, START);
        peer
    }

    pub fn report(&mut self, parent: &mut Parent, now: Timestamp) {
        let observed: Observed = self.child.report_whole();
        parent.observed(&self.id, observed, now);
    }

    /// Takes what it should hold and says that every instance is in `phase`.
    pub fn follow(&mut self, parent: &mut Parent, phase: Phase, now: Timestamp) {
        if let Some(desired) = parent.desired(&self.id, self.child.have()) {
            self.child.desired(desired).expect("applies");
        }
        let held: Vec<_> = self.child.assignments().map(|a| (a.id.clone(), a.generation, a.run)).collect();
        for (id, generation, run) in held {
            let phase = if run == Run::Gone { Phase::Gone } else { phase };
            self.child.observe(ObservedInstance::new(id, generation, phase));
        }
        for id in self.child.observed_ids() {
            if self.child.assignment(&id).is_none() {
                self.child.forget(&id);
            }
        }
        self.report(parent, now);
    }

    pub fn holds(&self) -> usize {
        self.child.assignments().count()
    }
}

/// The same instance asked for in another way.
pub fn with(mut assignment: Assignment, change: impl FnOnce(&mut InstanceSpec)) -> Assignment {
    change(Arc::make_mut(&mut assignment.spec));
    assignment
}

pub fn decide(parent: &mut Parent, now: Timestamp) {
    for decision in parent.decide(now, 100) {
        parent.confirm(&decision);
    }
}
