//! Root in the simulation: the real core over a simulated store.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{InstanceId, Phase, Timestamp, ZoneId};
use root::tables::{InstanceRecord, StatusRecord};
use root::tree::core::{Core, Folded};
use tier::{Decision, Leases, ParentConfig};

use crate::world::{Message, ROOT, World, actor_of, child_id};

pub const LEASES: Leases = Leases { lease_ms: 10_000, gone_grace_ms: 5_000, avoid_ms: 5_000 };
const BATCH: usize = 256;

/// One commit on its way to the disk.
pub struct Pending {
    decided: Vec<(Decision, Arc<StatusRecord>)>,
    folded: Vec<Folded>,
}

pub struct Root {
    page_bytes: usize,
    pub life: u64,
    epoch: u64,
    pub core: Option<Core>,
    zones: usize,
    /// The store: what survives.
    pub records: BTreeMap<InstanceId, InstanceRecord>,
    pub statuses: BTreeMap<InstanceId, Arc<StatusRecord>>,
    pub pending: BTreeMap<u64, Pending>,
    writes: u64,
    busy: bool,
    /// How many statuses say that it runs.
    pub running: usize,
}

impl Root {
    pub fn new(zones: usize, page_bytes: usize) -> Self {
        Self {
            page_bytes,
            life: 0,
            epoch: 0,
            core: None,
            zones,
            records: BTreeMap::new(),
            statuses: BTreeMap::new(),
            pending: BTreeMap::new(),
            writes: 0,
            busy: false,
            running: 0,
        }
    }

    fn status_keep(&mut self, status: Arc<StatusRecord>) {
        let runs = usize::from(status.phase == Phase::Running);
        let before = self.statuses.insert(status.id.clone(), status);
        let ran = usize::from(before.is_some_and(|before| before.phase == Phase::Running));
        self.running = self.running + runs - ran;
    }

    fn status_drop(&mut self, id: &InstanceId) {
        let before = self.statuses.remove(id);
        self.running -= usize::from(before.is_some_and(|before| before.phase == Phase::Running));
    }

    pub fn start(&mut self, now: Timestamp) {
        self.life += 1;
        self.epoch = now.epoch().max(self.epoch + 1);
        let config = ParentConfig {
            leases: LEASES,
            page_bytes: self.page_bytes,
            ..ParentConfig::over_zones(self.epoch)
        };
        let mut core = Core::new(config);
        for zone in 1..=self.zones {
            core.zone_add(&ZoneId::from_random(zone as u128), None, now);
        }
        for (id, record) in &self.records {
            core.restore(record, self.statuses.get(id).cloned());
        }
        self.core = Some(core);
        self.busy = false;
        self.pending.clear();
    }

    pub fn kill(&mut self) {
        self.core = None;
        self.pending.clear();
    }

    /// A durable write of a user's wish, acknowledged at once: the API answers after the commit.
    pub fn accept(&mut self, record: InstanceRecord) {
        if let Some(core) = &mut self.core {
            core.take(&record);
        }
        self.records.insert(record.id.clone(), record);
    }
}

impl World {
    /// Decides, folds, and lets zones hear what changed.
    pub fn root_step(&mut self) {
        let now = self.clock(ROOT);
        let Some(core) = self.root.core.as_mut() else { return };
        if !self.root.busy {
            let decided = core.decide(now, now, BATCH);
            let folded = core.fold(now, BATCH);
            if !decided.is_empty() || !folded.is_empty() {
                self.root.busy = true;
                decided.iter().for_each(|(decision, _)| self.say_decided(ROOT, decision));
                self.root_write(Pending { decided, folded });
            }
        }
        self.root_tell();
    }

    fn root_write(&mut self, pending: Pending) {
        self.root.writes += 1;
        let write = self.root.writes;
        self.root.pending.insert(write, pending);
        let life = self.root.life;
        self.write(ROOT, life, write);
    }

    fn root_tell(&mut self) {
        let Some(core) = self.root.core.as_mut() else { return };
        for zone in core.told_take() {
            let to = actor_of(&zone);
            self.root_answer(to);
        }
    }

    /// Answers the poll that a zone has waiting, if there is something newer.
    fn root_answer(&mut self, to: usize) {
        let Some(have) = self.zones[to - 1].waiting else { return };
        let Some(core) = self.root.core.as_mut() else { return };
        if let Some(desired) = core.zone_desired(&child_id(to, true), have) {
            self.zones[to - 1].waiting = None;
            self.send(ROOT, to, Message::Desired(Box::new(desired)));
        }
    }

    pub fn root_durable(&mut self, write: u64) {
        let Some(pending) = self.root.pending.remove(&write) else { return };
        let Some(mut core) = self.root.core.take() else { return };
        self.root.busy = false;
        for (decision, status) in pending.decided {
            if self.root.records.contains_key(&decision.id) {
                self.root.status_keep(status.clone());
                core.committed(&decision, status);
            } else {
                core.rejected(&decision);
            }
        }
        for item in pending.folded {
            let id = &item.status.id;
            if item.gone {
                self.root.records.remove(id);
                self.root.status_drop(id);
            } else {
                self.root.status_keep(item.status.clone());
            }
            core.folded(&item);
        }
        self.root.core = Some(core);
        self.root_step();
    }

    pub fn root_message(&mut self, from: usize, message: Message) {
        let now = self.clock(ROOT);
        let zone = child_id(from, true);
        let Some(core) = self.root.core.as_mut() else { return };
        match message {
            Message::Poll { have } => {
                core.zone_heard(&zone, now);
                self.zones[from - 1].waiting = Some(have);
                self.root_answer(from);
            }
            Message::Observed { request, observed } => {
                let (ack, _) = core.zone_observed(&zone, *observed, now);
                self.send(ROOT, from, Message::Ack { request, ack });
                self.root_step();
            }
            Message::Desired(_) | Message::Ack { .. } | Message::Removed => {}
        }
    }
}
