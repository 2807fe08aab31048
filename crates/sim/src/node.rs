//! A node in the simulation: the real child half, and containers that outlive its process.

use std::collections::BTreeMap;

use model::exchange::Revision;
use model::{
    Arch, Assignment, Bytes, Cpu, Facts, Generation, InstanceId, ObservedInstance, Phase, Resources, Run,
    RuntimeKind, Timestamp,
};
use tier::inbox::Changed;
use tier::{Child, Inbox};

use crate::world::{Actor, Event, Message, Reporting, World};

pub const NODE_CPU_MILLI: u64 = 8_000;

/// A container on the host, whoever watches it.
#[derive(Debug)]
pub struct Container {
    pub generation: Generation,
    pub running: bool,
    token: u64,
}

type Disk = (Option<Revision>, BTreeMap<InstanceId, Assignment>);

/// The disk as it was at some time, with the epoch that stood on it.
type Copy = (Disk, u64);

/// One write on its way to the disk: what changed.
struct Pending {
    at: Option<Revision>,
    upserts: Vec<Assignment>,
    removes: Vec<InstanceId>,
}

pub struct Node {
    page_bytes: usize,
    pub actor: Actor,
    pub zone: Actor,
    pub life: u64,
    pub child: Option<Child>,
    /// False once the host is lost for good.
    pub exists: bool,
    /// True once its zone lets it in no more.
    pub removed: bool,
    disk: Disk,
    epoch: u64,
    copy: Copy,
    pending: BTreeMap<u64, Pending>,
    writes: u64,
    pub containers: BTreeMap<InstanceId, Container>,
    reporting: Reporting,
}

impl Node {
    pub fn new(actor: Actor, zone: Actor, page_bytes: usize) -> Self {
        Self {
            page_bytes,
            actor,
            zone,
            life: 0,
            child: None,
            exists: true,
            removed: false,
            disk: Disk::default(),
            epoch: 0,
            copy: Copy::default(),
            pending: BTreeMap::new(),
            writes: 0,
            containers: BTreeMap::new(),
            reporting: Reporting::default(),
        }
    }

    pub fn start(&mut self, now: Timestamp) {
        self.life += 1;
        self.epoch = now.epoch().max(self.epoch + 1);
        let (at, kept) = self.disk.clone();
        let child = Child::new(self.epoch, facts(self.actor), Inbox::restore(at, kept.into_values()));
        self.child = Some(child.paged(self.page_bytes));
        self.pending.clear();
        self.reporting = Reporting::default();
    }

    /// The process dies; its containers go on.
    pub fn kill(&mut self) {
        self.child = None;
        self.pending.clear();
    }

    pub fn copy_take(&mut self) {
        self.copy = (self.disk.clone(), self.epoch);
    }

    /// The disk is as it was when the copy was taken; empty if none ever was.
    pub fn copy_restore(&mut self) {
        self.kill();
        (self.disk, self.epoch) = self.copy.clone();
    }

    /// The host dies with everything on it but its disk.
    pub fn crash(&mut self) {
        self.kill();
        self.containers.clear();
    }
}

fn facts(actor: Actor) -> Facts {
    Facts {
        name: format!("node-{actor}").parse().expect("a name"),
        version: "sim".to_owned(),
        nodes: 1,
        archs: vec![Arch::Amd64],
        runtimes: vec![RuntimeKind::Container],
        labels: BTreeMap::from([("rack".to_owned(), vec![format!("r{}", actor % 4)])]),
        capacity: Resources { cpu: Cpu(NODE_CPU_MILLI), memory: Bytes::gib(32), disk: Bytes::gib(100) },
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

impl World {
    pub fn node_message(&mut self, actor: Actor, message: Message) {
        let node = self.node(actor);
        let Some(child) = node.child.as_mut() else { return };
        match message {
            Message::Desired(desired) => {
                node.reporting.heard(desired.at.epoch);
                match child.desired(*desired) {
                    Ok(changed) if !changed.is_empty() => self.node_keep(actor, changed),
                    _ => self.node_poll(actor),
                }
            }
            Message::Removed => {
                let changed = child.desired_clear();
                if !changed.is_empty() {
                    self.node_keep(actor, changed);
                }
            }
            Message::Ack { request, ack } => {
                if let Some(facts) = node.reporting.answered(request, ack) {
                    child.told(facts);
                    self.node_report(actor);
                }
            }
            Message::Poll { .. } | Message::Observed { .. } => {}
        }
    }

    fn node_keep(&mut self, actor: Actor, changed: Changed) {
        let node = self.node(actor);
        let Some(child) = node.child.as_ref() else { return };
        let upserts = changed.upserted.iter().filter_map(|id| child.assignment(id)).cloned().collect();
        node.writes += 1;
        let pending = Pending { at: child.have_kept(), upserts, removes: changed.removed };
        node.pending.insert(node.writes, pending);
        let (life, write) = (node.life, node.writes);
        self.write(actor, life, write);
    }

    /// The desired set is on the disk: act on it.
    pub fn node_durable(&mut self, actor: Actor, write: u64) {
        let node = self.node(actor);
        let Some(pending) = node.pending.remove(&write) else { return };
        let mut changed: Vec<InstanceId> = pending.removes.clone();
        node.disk.0 = pending.at;
        for id in &pending.removes {
            node.disk.1.remove(id);
        }
        for assignment in pending.upserts {
            changed.push(assignment.id.clone());
            node.disk.1.insert(assignment.id.clone(), assignment);
        }
        self.node_act(actor, &changed);
        self.node_poll(actor);
    }

    /// A process that starts looks at everything that its disk has and its host runs.
    pub fn node_begin(&mut self, actor: Actor) {
        let node = self.node(actor);
        let mut ids: Vec<InstanceId> = node.disk.1.keys().cloned().collect();
        ids.extend(node.containers.keys().filter(|id| !node.disk.1.contains_key(*id)).cloned());
        self.node_act(actor, &ids);
    }

    pub fn node_poll(&mut self, actor: Actor) {
        let node = self.node(actor);
        let (zone, Some(child)) = (node.zone, node.child.as_ref()) else { return };
        let have = child.have();
        self.send(actor, zone, Message::Poll { have });
    }

    /// Makes what is on the disk true for these instances, and says how they are.
    fn node_act(&mut self, actor: Actor, ids: &[InstanceId]) {
        for id in ids {
            let node = self.node(actor);
            if node.child.is_none() {
                return;
            }
            let wanted = node.disk.1.get(id).filter(|assignment| assignment.run == Run::Running);
            let Some(generation) = wanted.map(|assignment| assignment.generation) else {
                node.containers.remove(id);
                continue;
            };
            match node.containers.get_mut(id) {
                Some(container) => container.generation = container.generation.max(generation),
                None => {
                    let token = self.between(0, i64::MAX - 1) as u64;
                    let container = Container { generation, running: false, token };
                    self.node(actor).containers.insert(id.clone(), container);
                    let took = self.between(15, 80);
                    self.after_ms(took, Event::Started { actor, id: id.clone(), token });
                }
            }
            let generation = self.node(actor).containers[id].generation;
            self.say(|| format!("{actor} holds {id} under {generation}"));
            self.checks.holds(id, generation, actor);
        }
        self.node_observe(actor, ids);
    }

    pub fn node_started(&mut self, actor: Actor, id: &InstanceId, token: u64) {
        let node = self.node(actor);
        if let Some(container) = node.containers.get_mut(id).filter(|c| c.token == token) {
            container.running = true;
        }
        self.node_observe(actor, std::slice::from_ref(id));
    }

    fn node_observe(&mut self, actor: Actor, ids: &[InstanceId]) {
        let node = self.node(actor);
        let Some(child) = node.child.as_mut() else { return };
        for id in ids {
            let Some(assignment) = node.disk.1.get(id) else {
                child.forget(id);
                continue;
            };
            let phase = match (assignment.run, node.containers.get(id)) {
                (Run::Gone, _) => Phase::Gone,
                (Run::Stopped, _) => Phase::Stopped,
                (Run::Running, Some(container)) if container.running => Phase::Running,
                (Run::Running, _) => Phase::Creating,
            };
            let mut seen = ObservedInstance::new(id.clone(), assignment.generation, phase);
            seen.node = Some(child.facts().name.clone());
            child.observe(seen);
        }
        self.node_report(actor);
    }

    pub fn node_report(&mut self, actor: Actor) {
        let now = self.now;
        let node = self.node(actor);
        let zone = node.zone;
        let Some(child) = node.child.as_mut() else { return };
        if !node.reporting.idle(now) {
            return;
        }
        if let Some(observed) = child.report(node.reporting.acked) {
            let request = node.reporting.sent(now, observed.facts.clone());
            self.send(actor, zone, Message::Observed { request, observed: Box::new(observed) });
        }
    }
}
