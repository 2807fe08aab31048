//! Simulated time, network and processes: one heap of events, one source of chance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use model::exchange::{Ack, Revision};
use model::{ChildId, Desired, InstanceId, Observed, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::check::Checks;
use crate::node::Node;
use crate::root::Root;
use crate::zone::Zone;

/// Who is there. Root is 0, then zones, then nodes.
pub type Actor = usize;
pub const ROOT: Actor = 0;

#[derive(Debug, Clone)]
pub enum Message {
    /// A child says what it has and asks for what is newer; a sign of life too.
    Poll {
        have: Option<Revision>,
    },
    Desired(Box<Desired>),
    Observed {
        request: u64,
        observed: Box<Observed>,
    },
    Ack {
        request: u64,
        ack: Ack,
    },
    /// A parent removed the child that asked.
    Removed,
}

#[derive(Debug)]
pub enum Event {
    Deliver {
        from: Actor,
        to: Actor,
        message: Message,
    },
    /// A process looks at its own clock; only for the life it was set in.
    Tick {
        actor: Actor,
        life: u64,
    },
    /// A disk write of a process is durable.
    Durable {
        actor: Actor,
        life: u64,
        write: u64,
    },
    /// A container start of a node is done.
    Started {
        actor: Actor,
        id: InstanceId,
        token: u64,
    },
    Restart {
        actor: Actor,
    },
    Fault,
    User,
    /// Somebody cordons, drains, opens or removes a node.
    Operator,
    Heal {
        a: Actor,
        b: Actor,
    },
}

/// A child's side of the exchange: one report under way at a time, and what the parent acknowledged.
#[derive(Debug, Default)]
pub struct Reporting {
    pub acked: Option<Revision>,
    request: u64,
    under_way: Option<(Timestamp, model::Facts)>,
    epoch: Option<u64>,
}

/// A report without an answer is given up after this.
const REPORT_WAIT_MS: i64 = 2_000;

impl Reporting {
    pub fn idle(&self, now: Timestamp) -> bool {
        self.under_way.as_ref().is_none_or(|(sent, _)| now.ms_since(*sent) >= REPORT_WAIT_MS)
    }

    pub fn sent(&mut self, now: Timestamp, facts: model::Facts) -> u64 {
        self.request += 1;
        self.under_way = Some((now, facts));
        self.request
    }

    /// The facts that the parent now knows, if this answers the report under way.
    pub fn answered(&mut self, request: u64, ack: Ack) -> Option<model::Facts> {
        if request != self.request {
            return None;
        }
        let (_, facts) = self.under_way.take()?;
        self.acked = ack.have;
        Some(facts)
    }

    /// A parent in a new life knows only what it kept.
    pub fn heard(&mut self, epoch: u64) {
        if self.epoch.replace(epoch) != Some(epoch) {
            self.acked = None;
            self.under_way = None;
            self.request += 1;
        }
    }
}

/// How unkind the network and the disks are.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub loss: f64,
    pub repeat: f64,
    pub delay_max_ms: i64,
    pub disk_max_ms: i64,
}

impl Weather {
    pub const FAIR: Self = Self { loss: 0.0, repeat: 0.0, delay_max_ms: 3, disk_max_ms: 4 };
}

pub struct World {
    pub now: Timestamp,
    pub rng: StdRng,
    pub weather: Weather,
    pub root: Root,
    pub zones: Vec<Zone>,
    pub nodes: Vec<Node>,
    pub checks: Checks,
    pub cut: BTreeSet<(Actor, Actor)>,
    pub trace: bool,
    heap: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, Event>,
    seq: u64,
    /// When the disk of an actor is done with what it was given; writes keep their order.
    disks: BTreeMap<Actor, Timestamp>,
    pub messages: u64,
    /// How far the clock of an actor is off.
    pub clocks: BTreeMap<Actor, i64>,
    /// Processes that stand still, and until when.
    pub frozen: BTreeMap<Actor, Timestamp>,
}

impl World {
    pub fn new(seed: u64, zones: usize, nodes_per_zone: usize, page_bytes: usize) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let start = Timestamp(1_800_000_000_000_000);
        let zone_of = |n: usize| 1 + n / nodes_per_zone.max(1);
        let mut world = Self {
            now: start,
            rng,
            weather: Weather::FAIR,
            root: Root::new(zones, page_bytes),
            zones: (0..zones).map(|n| Zone::new(1 + n, page_bytes)).collect(),
            nodes: (0..zones * nodes_per_zone)
                .map(|n| Node::new(1 + zones + n, zone_of(n), page_bytes))
                .collect(),
            checks: Checks::default(),
            cut: BTreeSet::new(),
            trace: false,
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            seq: 0,
            disks: BTreeMap::new(),
            messages: 0,
            clocks: BTreeMap::new(),
            frozen: BTreeMap::new(),
        };
        for actor in 0..=zones + world.nodes.len() {
            world.start(actor);
        }
        world
    }

    pub fn actors(&self) -> usize {
        1 + self.zones.len() + self.nodes.len()
    }

    /// The time as an actor's own clock tells it.
    pub fn clock(&self, actor: Actor) -> Timestamp {
        self.now.plus_ms(self.clocks.get(&actor).copied().unwrap_or(0))
    }

    /// Whether a process stands still; the event then comes to it when it goes on.
    pub fn held_up(&self, actor: Actor) -> Option<i64> {
        let until = self.frozen.get(&actor)?;
        (*until > self.now).then(|| until.ms_since(self.now).max(1))
    }

    pub fn parent_of(&self, actor: Actor) -> Actor {
        if actor <= self.zones.len() { ROOT } else { self.nodes[actor - 1 - self.zones.len()].zone }
    }

    pub fn zone(&mut self, actor: Actor) -> &mut Zone {
        &mut self.zones[actor - 1]
    }

    pub fn node(&mut self, actor: Actor) -> &mut Node {
        let first = 1 + self.zones.len();
        &mut self.nodes[actor - first]
    }

    pub fn is_zone(&self, actor: Actor) -> bool {
        (1..=self.zones.len()).contains(&actor)
    }

    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p)
    }

    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        self.rng.random_range(low..=high)
    }

    pub fn say_decided(&self, actor: Actor, decision: &tier::Decision) {
        let Some(place) = &decision.place else { return };
        self.say(|| {
            format!("{actor} puts {} on {} under {}", decision.id, actor_of(&place.child), place.generation)
        });
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            crate::report(&format!(
                "{:>10.3}s {}",
                (self.now.0 - 1_800_000_000_000_000) as f64 / 1e6,
                text()
            ));
        }
    }

    pub fn after_ms(&mut self, ms: i64, event: Event) {
        self.seq += 1;
        self.heap.push(Reverse((self.now.plus_ms(ms), self.seq)));
        self.events.insert(self.seq, event);
    }

    /// Tells when a write that is given to the disk now is durable.
    pub fn write(&mut self, actor: Actor, life: u64, write: u64) {
        let took = self.between(1, self.weather.disk_max_ms.max(1));
        let free = self.disks.get(&actor).copied().unwrap_or(self.now).max(self.now);
        let done = free.plus_ms(took);
        self.disks.insert(actor, done);
        self.after_ms(done.ms_since(self.now), Event::Durable { actor, life, write });
    }

    pub fn send(&mut self, from: Actor, to: Actor, message: Message) {
        if self.cut.contains(&(from, to)) || self.chance(self.weather.loss) {
            return;
        }
        self.messages += 1;
        let copies = if self.chance(self.weather.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.between(0, self.weather.delay_max_ms);
            self.after_ms(delay, Event::Deliver { from, to, message: message.clone() });
        }
    }

    /// The next event, unless it is later than `until`.
    pub fn next(&mut self, until: Timestamp) -> Option<Event> {
        let Reverse((at, seq)) = *self.heap.peek()?;
        if at > until {
            return None;
        }
        self.heap.pop();
        self.now = self.now.max(at);
        self.events.remove(&seq)
    }
}

/// The id under which an actor is known to its parent.
pub fn child_id(actor: Actor, zone: bool) -> ChildId {
    let random = actor as u128;
    match zone {
        true => ChildId::from(&model::ZoneId::from_random(random)),
        false => ChildId::from(&model::NodeId::from_random(random)),
    }
}

pub fn actor_of(child: &ChildId) -> Actor {
    let digits = child.as_str().rsplit('-').next().expect("ids have digits");
    usize::from_str_radix(digits, 16).expect("ids are hex")
}
