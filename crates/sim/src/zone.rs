//! A zone in the simulation: the real core over a simulated ledger.

use std::collections::BTreeMap;

use model::Timestamp;
use model::exchange::Revision;
use tier::ledger::Write;
use tier::{Decision, ParentConfig};
use zone::core::{Core, Kept};

use crate::root::LEASES;
use crate::world::{Actor, Message, ROOT, Reporting, World, actor_of, child_id};

pub struct Zone {
    page_bytes: usize,
    pub actor: Actor,
    pub life: u64,
    epoch: u64,
    pub core: Option<Core>,
    /// The disk: the last durable write of every key.
    disk: BTreeMap<String, Write>,
    pending: BTreeMap<u64, (Vec<Write>, Vec<Decision>)>,
    writes: u64,
    deciding: bool,
    reporting: Reporting,
    /// What this zone has, as its waiting poll at root says; root's memory.
    pub waiting: Option<Option<Revision>>,
    /// The polls of its nodes that wait here.
    node_waiting: BTreeMap<Actor, Option<Revision>>,
}

impl Zone {
    pub fn new(actor: Actor, page_bytes: usize) -> Self {
        Self {
            page_bytes,
            actor,
            life: 0,
            epoch: 0,
            core: None,
            disk: BTreeMap::new(),
            pending: BTreeMap::new(),
            writes: 0,
            deciding: false,
            reporting: Reporting::default(),
            waiting: None,
            node_waiting: BTreeMap::new(),
        }
    }

    pub fn start(&mut self, now: Timestamp) {
        self.life += 1;
        self.epoch = now.epoch().max(self.epoch + 1);
        let mut kept = Kept::default();
        let writes: Vec<Write> = self.disk.values().cloned().collect();
        kept.apply(&writes);
        let name = format!("zone-{}", self.actor);
        let config = ParentConfig {
            leases: LEASES,
            page_bytes: self.page_bytes,
            ..ParentConfig::over_nodes(&name, self.epoch)
        };
        self.core = Some(Core::new(name.parse().expect("a name"), "sim", config, kept, now));
        self.pending.clear();
        self.deciding = false;
        self.reporting = Reporting::default();
        self.node_waiting.clear();
    }

    pub fn kill(&mut self) {
        self.core = None;
        self.pending.clear();
    }
}

impl World {
    pub fn zone_step(&mut self, actor: Actor) {
        let now = self.clock(actor);
        let zone = self.zone(actor);
        let Some(core) = zone.core.as_mut() else { return };
        if !zone.deciding {
            let step = core.step(now);
            if !step.writes.is_empty() {
                zone.deciding = !step.decisions.is_empty();
                self.zone_write(actor, step.writes, step.decisions);
            }
        }
        self.zone_tell(actor);
        self.zone_report(actor);
    }

    pub fn zone_write(&mut self, actor: Actor, writes: Vec<Write>, decisions: Vec<Decision>) {
        decisions.iter().for_each(|decision| self.say_decided(actor, decision));
        let zone = self.zone(actor);
        zone.writes += 1;
        let (write, life) = (zone.writes, zone.life);
        zone.pending.insert(write, (writes, decisions));
        self.write(actor, life, write);
    }

    fn zone_tell(&mut self, actor: Actor) {
        let zone = self.zone(actor);
        let Some(core) = zone.core.as_mut() else { return };
        let mut out = Vec::new();
        for node in core.told_take() {
            let to = actor_of(&node);
            let Some(have) = zone.node_waiting.get(&to).copied() else { continue };
            if let Some(desired) = core.node_desired(&node, have) {
                zone.node_waiting.remove(&to);
                out.push((to, desired));
            }
        }
        for (to, desired) in out {
            self.send(actor, to, Message::Desired(Box::new(desired)));
        }
    }

    fn zone_report(&mut self, actor: Actor) {
        let now = self.now;
        let zone = self.zone(actor);
        let Some(core) = zone.core.as_mut() else { return };
        if !zone.reporting.idle(now) {
            return;
        }
        if let Some(observed) = core.report(zone.reporting.acked) {
            let request = zone.reporting.sent(now, observed.facts.clone());
            self.send(actor, ROOT, Message::Observed { request, observed: Box::new(observed) });
        }
    }

    pub fn zone_durable(&mut self, actor: Actor, write: u64) {
        let now = self.clock(actor);
        let zone = self.zone(actor);
        let Some((writes, decisions)) = zone.pending.remove(&write) else { return };
        for write in writes {
            match write.value {
                Some(_) => drop(zone.disk.insert(write.key.clone(), write)),
                None => drop(zone.disk.remove(&write.key)),
            }
        }
        let Some(core) = zone.core.as_mut() else { return };
        if !decisions.is_empty() {
            zone.deciding = false;
            core.committed(&decisions, now);
        }
        self.zone_step(actor);
    }

    pub fn zone_message(&mut self, actor: Actor, from: Actor, message: Message) {
        let now = self.clock(actor);
        let zone = self.zone(actor);
        let Some(core) = zone.core.as_mut() else { return };
        match message {
            Message::Desired(desired) if from == ROOT => {
                zone.reporting.heard(desired.at.epoch);
                if let Ok(writes) = core.desired(*desired) {
                    self.zone_write(actor, writes, Vec::new());
                }
                self.zone_poll(actor);
                self.zone_step(actor);
            }
            Message::Ack { request, ack } if from == ROOT => {
                if let Some(facts) = zone.reporting.answered(request, ack) {
                    core.told(facts);
                    self.zone_report(actor);
                }
            }
            Message::Poll { have } => {
                let node = child_id(from, false);
                if core.node_removed(&node) {
                    return self.send(actor, from, Message::Removed);
                }
                core.node_heard(&node, now);
                match core.node_desired(&node, have) {
                    Some(desired) => {
                        zone.node_waiting.remove(&from);
                        self.send(actor, from, Message::Desired(Box::new(desired)));
                    }
                    None => drop(zone.node_waiting.insert(from, have)),
                }
            }
            Message::Observed { request, observed } => {
                let ack = core.node_observed(&child_id(from, false), *observed, now);
                self.send(actor, from, Message::Ack { request, ack });
                self.zone_step(actor);
            }
            Message::Desired(_) | Message::Ack { .. } | Message::Removed => {}
        }
    }

    pub fn zone_poll(&mut self, actor: Actor) {
        let Some(core) = self.zone(actor).core.as_ref() else { return };
        let have = core.have();
        self.send(actor, ROOT, Message::Poll { have });
    }
}
