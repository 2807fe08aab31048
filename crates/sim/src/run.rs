//! One seed: users and faults for a while, then calm, then everything must be as it was asked for.

use model::{
    Arch, Bytes, Cpu, ImageId, ImageManifest, InstanceId, InstanceSpec, LossPolicy, Platform, Run, Spread,
    TenantId, Timestamp, WorkloadId,
};
use rand::Rng;
use root::tables::{InstanceRecord, Owner};

use crate::check::Wishes;
use crate::world::{Event, ROOT, Weather, World};

const STORM_MS: i64 = 60_000;
const CALM_MS: i64 = 90_000;
const INSTANCES_MAX: usize = 40;
const TICK_MS: i64 = 500;
/// Small, so that sets travel in several pages.
const PAGE_BYTES: usize = 2_048;

pub fn seed(seed: u64, trace: bool) -> Result<(), String> {
    let mut world = World::new(seed, 3, 4, PAGE_BYTES);
    world.trace = trace;
    let mut wishes = Wishes::new();
    world.weather = Weather {
        loss: [0.0, 0.02, 0.2][world.between(0, 2) as usize],
        repeat: [0.0, 0.05][world.between(0, 1) as usize],
        delay_max_ms: [5, 50, 800][world.between(0, 2) as usize],
        disk_max_ms: [4, 60][world.between(0, 1) as usize],
    };
    world.after_ms(10, Event::User);
    world.after_ms(1_000, Event::Fault);
    world.after_ms(2_000, Event::Operator);
    let storm_ends = world.now.plus_ms(STORM_MS);
    world.run_until(storm_ends, &mut wishes, true)?;
    world.calm();
    let calm_ends = world.now.plus_ms(CALM_MS);
    world.run_until(calm_ends, &mut wishes, false)?;
    match world.unconverged(&wishes) {
        Some(what) => Err(format!("not converged: {what}")),
        None => Ok(()),
    }
}

impl World {
    pub fn run_until(&mut self, until: Timestamp, wishes: &mut Wishes, storm: bool) -> Result<(), String> {
        while let Some(event) = self.next(until) {
            self.handle(event, wishes, storm);
            if let Some(violation) = self.checks.violation() {
                return Err(violation.clone());
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event, wishes: &mut Wishes, storm: bool) {
        let process = match &event {
            Event::Deliver { to, .. } => Some(*to),
            Event::Tick { actor, .. } | Event::Durable { actor, .. } => Some(*actor),
            _ => None,
        };
        if let Some(ms) = process.and_then(|actor| self.held_up(actor)) {
            return self.after_ms(ms, event);
        }
        match event {
            Event::Deliver { from, to, message } => match to {
                ROOT => self.root_message(from, message),
                zone if self.is_zone(zone) => self.zone_message(zone, from, message),
                node => self.node_message(node, message),
            },
            Event::Tick { actor, life } => self.tick(actor, life),
            Event::Durable { actor, life, write } => self.durable(actor, life, write),
            Event::Started { actor, id, token } => self.node_started(actor, &id, token),
            Event::Restart { actor } if !self.up(actor) => self.start(actor),
            Event::Restart { .. } => {}
            Event::Heal { a, b } => {
                self.cut.remove(&(a, b));
                self.cut.remove(&(b, a));
            }
            Event::Fault if storm => {
                self.fault();
                let next = self.between(200, 4_000);
                self.after_ms(next, Event::Fault);
            }
            Event::User if storm => {
                self.user(wishes);
                let next = self.between(20, 2_500);
                self.after_ms(next, Event::User);
            }
            Event::Operator if storm => {
                self.operate();
                let next = self.between(500, 8_000);
                self.after_ms(next, Event::Operator);
            }
            Event::Fault | Event::User | Event::Operator => {}
        }
    }

    fn life(&self, actor: usize) -> u64 {
        match actor {
            ROOT => self.root.life,
            zone if self.is_zone(zone) => self.zones[zone - 1].life,
            node => self.nodes[node - 1 - self.zones.len()].life,
        }
    }

    fn tick(&mut self, actor: usize, life: u64) {
        if self.life(actor) != life || !self.up(actor) {
            return;
        }
        match actor {
            ROOT => self.root_step(),
            zone if self.is_zone(zone) => {
                self.zone_poll(zone);
                self.zone_step(zone);
            }
            node => {
                self.node_poll(node);
                self.node_report(node);
            }
        }
        self.after_ms(TICK_MS, Event::Tick { actor, life });
    }

    fn durable(&mut self, actor: usize, life: u64, write: u64) {
        if self.life(actor) != life || !self.up(actor) {
            return;
        }
        match actor {
            ROOT => self.root_durable(write),
            zone if self.is_zone(zone) => self.zone_durable(zone, write),
            node => self.node_durable(node, write),
        }
    }

    /// A user makes, stops, starts or deletes something, if root answers.
    fn user(&mut self, wishes: &mut Wishes) {
        if self.root.core.is_none() {
            return;
        }
        let alive: Vec<InstanceId> =
            wishes.iter().filter(|(_, run)| **run != Run::Gone).map(|(id, _)| id.clone()).collect();
        let make = alive.len() < 4 || (wishes.len() < INSTANCES_MAX && self.chance(0.5));
        if make {
            let record = self.record();
            wishes.insert(record.id.clone(), Run::Running);
            self.say(|| format!("create {}", record.id));
            self.root.accept(record);
        } else {
            let which = self.between(0, alive.len() as i64 - 1) as usize;
            let run = [Run::Running, Run::Stopped, Run::Gone][self.between(0, 2) as usize];
            let Some(mut record) = self.root.records.get(&alive[which]).cloned() else { return };
            record.run = run;
            self.say(|| format!("{run:?} {}", record.id));
            wishes.insert(record.id.clone(), run);
            self.root.accept(record);
        }
        self.root_step();
    }

    pub fn record(&mut self) -> InstanceRecord {
        let id = InstanceId::from_random(self.rng.random());
        let mut spec = InstanceSpec::new("busybox");
        spec.cpu = Cpu(self.between(1, 20) as u64 * 100);
        spec.memory = Bytes::mib(self.between(1, 40) as u64 * 16);
        if self.chance(0.3) {
            spec.constraints.spread = Some(Spread { group: "web".to_owned(), by: None, max_skew: None });
        }
        if self.chance(0.1) {
            spec.lost = LossPolicy::Wait;
        }
        if self.chance(0.3) {
            spec.priority = [5, 10][self.between(0, 1) as usize];
        }
        let owner = self.chance(0.3).then(|| {
            let workload = WorkloadId::from_random(self.between(1, 3) as u128);
            Owner { workload, revision: 1, run: None, restart: 0, counted: false }
        });
        let image = ImageManifest {
            id: ImageId::from_random(1),
            platform: Platform { arch: Arch::Amd64 },
            layers: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: Default::default(),
            user: None,
            workdir: None,
        };
        InstanceRecord {
            name: format!("sim-{}", &id.as_str()[2..]).parse().expect("a name"),
            id,
            tenant: TenantId::from_random(1),
            spec: spec.into(),
            image: image.into(),
            owner,
            run: Run::Running,
            restart_count: 0,
            created_at: self.now,
            created_by: "sim".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    /// Enough seeds to catch a mistake; `make sim` runs many more.
    #[test]
    fn a_few_dozen_seeds_hold() {
        for seed in 1..=48 {
            if let Err(violation) = super::seed(seed, false) {
                panic!("seed {seed}: {violation}");
            }
        }
    }

    #[test]
    fn a_seed_replays_the_same_run() {
        let trail = |seed| {
            let mut world = crate::world::World::new(seed, 2, 2, super::PAGE_BYTES);
            world.weather.delay_max_ms = 40;
            world.after_ms(10, crate::world::Event::User);
            world.after_ms(20, crate::world::Event::Fault);
            let until = world.now.plus_ms(20_000);
            let mut wishes = Default::default();
            world.run_until(until, &mut wishes, true).expect("no violation");
            (
                world.messages,
                format!(
                    "{:?}",
                    world.root.statuses.values().map(|s| (&s.id, s.phase, s.generation)).collect::<Vec<_>>()
                ),
            )
        };
        assert_eq!(trail(7), trail(7));
    }
}
