//! Random faults, random actions of users and orders of operators on a root, two zones and five nodes.

mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bed::{Bed, Fault, Held, NodeSettings};
use model::{ErrorKind, Generation, LossPolicy, PlaceMode, Run, WorkloadSpec};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::{report, sleeper};

const CALM_WAIT: Duration = Duration::from_secs(180);
const CALM_STAYS: Duration = Duration::from_secs(25);
const INSTANCES_MAX: usize = 24;
/// Hosts in trouble at once; more, and nothing would be left to watch.
const TROUBLES_MAX: usize = 3;
const ZONES: [&str; 2] = ["east", "west"];
const NODES: [(&str, &str); 5] =
    [("e1", "east"), ("e2", "east"), ("e3", "east"), ("w1", "west"), ("w2", "west")];

/// What is wrong with a host, until it is put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Killed,
    Off,
    Frozen,
    Full,
    /// Its clock is wrong.
    Clock,
}

struct Soak {
    bed: Bed,
    rng: StdRng,
    begin: Instant,
    log: File,
    /// By host: what is wrong, and until when.
    troubles: BTreeMap<String, (Trouble, Instant)>,
    /// Ways that are bad, and until when.
    ways: BTreeMap<(String, String), Instant>,
    made: u32,
    names: BTreeSet<String>,
    /// Workloads and what was asked of them; unknown when the answer was lost.
    workloads: BTreeMap<String, Option<WorkloadSpec>>,
    /// Nodes that were told to be emptied or closed, and until when; an order whose answer was lost is among them.
    orders: BTreeMap<String, Instant>,
    counts: BTreeMap<&'static str, u32>,
}

pub fn run(minutes: u64, seed: u64) -> Result<()> {
    report(&format!("soak: {minutes} minutes, seed {seed}"));
    let mut soak = Soak::start(seed)?;
    let done = soak.storm(Duration::from_secs(minutes * 60)).and_then(|()| soak.end());
    report(&format!("soak: {:?}", soak.counts));
    match done {
        Ok(()) => report(&format!("soak: passed, seed {seed}")),
        Err(error) => {
            soak.bed.logs_keep();
            return Err(error.context(format!("seed {seed}")));
        }
    }
    Ok(())
}

impl Soak {
    fn start(seed: u64) -> Result<Self> {
        let mut bed = Bed::new()?;
        bed.root("root", None)?;
        for zone in ZONES {
            bed.zone(zone)?;
        }
        for (number, (node, zone)) in NODES.iter().enumerate() {
            // One of them has no MQTT.
            bed.node(zone, node, &NodeSettings { https: number == 1, ..NodeSettings::default() })?;
        }
        let log = File::create(bed.folder().join("logs/actions.log"))?;
        Ok(Self {
            bed,
            rng: StdRng::seed_from_u64(seed),
            begin: Instant::now(),
            log,
            troubles: BTreeMap::new(),
            ways: BTreeMap::new(),
            made: 0,
            names: BTreeSet::new(),
            workloads: BTreeMap::new(),
            orders: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    fn note(&mut self, kind: &'static str, line: &str) {
        *self.counts.entry(kind).or_default() += 1;
        let line = format!("{:8.1} {kind:<10} {line}", self.begin.elapsed().as_secs_f64());
        report(&line);
        let _ = writeln!(self.log, "{line}");
    }

    fn storm(&mut self, time: Duration) -> Result<()> {
        while self.begin.elapsed() < time {
            self.put_right(Some(Instant::now()))?;
            self.nodes_open(Some(Instant::now()))?;
            match self.rng.random_range(0..100) {
                0..45 => self.user()?,
                45..50 => self.operator()?,
                50..75 => self.way_spoil()?,
                _ => self.host_trouble()?,
            }
            let twins = self.bed.twins();
            ensure!(twins.is_empty(), "{}", twins.join("; "));
            std::thread::sleep(Duration::from_millis(self.rng.random_range(100..1500)));
        }
        Ok(())
    }

    /// Everything is mended; then all must become as it was promised.
    fn end(&mut self) -> Result<()> {
        self.put_right(None)?;
        self.bed.heal()?;
        self.nodes_open(None)?;
        self.note("heal", "all faults are over");
        let healed = Instant::now();
        self.bed.settle(CALM_WAIT)?;
        self.workloads_check()?;
        self.note("calm", &format!("after {:.1} s", healed.elapsed().as_secs_f64()));
        // Longer than any lease: what was only not noticed yet shows itself.
        std::thread::sleep(CALM_STAYS);
        self.bed.settle(CALM_WAIT)?;
        let before = self.held();
        std::thread::sleep(Duration::from_secs(1));
        let after = self.held();
        ensure!(before == after, "it does not come to rest: {before:?}, then {after:?}");
        Ok(())
    }

    /// What each host holds: parts and generation. What runs in a container comes and goes by itself.
    fn held(&self) -> BTreeMap<(String, String), (String, Option<Generation>)> {
        let of_host = |(host, held): (String, BTreeMap<String, Held>)| {
            held.into_iter().map(move |(id, held)| ((host.clone(), id), (held.parts(), held.generation)))
        };
        self.bed.reality().into_iter().flat_map(of_host).collect()
    }

    fn put_right(&mut self, now: Option<Instant>) -> Result<()> {
        let over = |until: &Instant| now.is_none_or(|now| now >= *until);
        let hosts: Vec<(String, Trouble)> = self
            .troubles
            .iter()
            .filter(|(_, (_, until))| over(until))
            .map(|(host, (trouble, _))| (host.clone(), *trouble))
            .collect();
        for (name, trouble) in hosts {
            let host = self.bed.host(&name)?;
            match trouble {
                Trouble::Killed | Trouble::Off => host.restart()?,
                Trouble::Frozen => host.thaw()?,
                Trouble::Full => host.free_disk()?,
                Trouble::Clock => host.clock_jump(0)?,
            }
            self.troubles.remove(&name);
            self.note("repair", &format!("{name} was {trouble:?}"));
        }
        let ways: Vec<(String, String)> =
            self.ways.iter().filter(|(_, until)| over(until)).map(|(way, _)| way.clone()).collect();
        for way in ways {
            self.bed.mend(&way.0, &way.1)?;
            self.note("mend", &format!("{} - {}", way.0, way.1));
            self.ways.remove(&way);
        }
        Ok(())
    }

    /// An operator cordons, drains or puts a node into maintenance.
    fn operator(&mut self) -> Result<()> {
        if self.root_frozen() {
            return Ok(());
        }
        let (node, _) = *NODES.choose(&mut self.rng).context("there are nodes")?;
        let modes = [PlaceMode::Cordoned, PlaceMode::Draining, PlaceMode::Maintenance];
        let mode = *modes.choose(&mut self.rng).context("there are modes")?;
        let done = self.bed.ask(|client| async move { client.node_mode(node, mode, false).await });
        let until = self.seconds(2..30);
        self.orders.insert(node.to_owned(), until);
        self.note("order", &format!("{node} {}: {}", mode.word(), outcome(&done)));
        Ok(())
    }

    /// Opens nodes whose time is over; in the end again and again, until each is known to be open.
    fn nodes_open(&mut self, now: Option<Instant>) -> Result<()> {
        if now.is_some() && self.root_frozen() {
            return Ok(());
        }
        let over = |until: &Instant| now.is_none_or(|now| now >= *until);
        let due: Vec<String> =
            self.orders.iter().filter(|(_, until)| over(until)).map(|(node, _)| node.clone()).collect();
        for node in due {
            let which = node.as_str();
            let open = || {
                self.bed.ask(|client| async move { client.node_mode(which, PlaceMode::Open, false).await })
            };
            let done = match now {
                Some(_) => open().is_ok(),
                None => {
                    self.bed.until(&format!("{which} is open"), CALM_WAIT, || open().ok()).map(drop).is_ok()
                }
            };
            ensure!(now.is_some() || done, "{which} cannot be opened again");
            if done {
                self.note("open", which);
                self.orders.remove(&node);
            }
        }
        Ok(())
    }

    /// Nobody answers, and a client would wait for a minute.
    fn root_frozen(&self) -> bool {
        self.troubles.get("root").is_some_and(|(trouble, _)| *trouble == Trouble::Frozen)
    }

    fn seconds(&mut self, range: std::ops::Range<u64>) -> Instant {
        Instant::now() + Duration::from_millis(self.rng.random_range(range.start * 1000..range.end * 1000))
    }

    fn way_spoil(&mut self) -> Result<()> {
        let (a, b) = if self.rng.random_bool(0.3) {
            (*ZONES.choose(&mut self.rng).context("there are zones")?, "root")
        } else {
            *NODES.choose(&mut self.rng).context("there are nodes")?
        };
        let (from, to) = if self.rng.random_bool(0.5) { (a, b) } else { (b, a) };
        let fault = match self.rng.random_range(0..6) {
            0 => Fault::Cut,
            1 => Fault::OneWay,
            2 => Fault::HalfOpen,
            3 => Fault::Loss(self.rng.random_range(5..40)),
            4 => Fault::Delay(self.rng.random_range(20..500)),
            _ => {
                let each = Duration::from_millis(self.rng.random_range(50..800));
                self.note("flap", &format!("{a} - {b}, {each:?}"));
                self.ways.retain(|(x, y), _| !((x == a && y == b) || (x == b && y == a)));
                return self.bed.flap(a, b, 4, each);
            }
        };
        self.bed.fault(from, to, Some(fault))?;
        self.note("way", &format!("{from} > {to}: {fault}"));
        self.ways.retain(|(x, y), _| !((x == a && y == b) || (x == b && y == a)));
        let until = self.seconds(1..30);
        self.ways.insert((from.to_owned(), to.to_owned()), until);
        Ok(())
    }

    fn host_trouble(&mut self) -> Result<()> {
        if self.troubles.len() >= TROUBLES_MAX {
            return Ok(());
        }
        let hosts = self.bed.hosts().to_vec();
        let host = hosts.choose(&mut self.rng).context("there are hosts")?;
        if self.troubles.contains_key(host.name()) {
            return Ok(());
        }
        let (trouble, range) = match self.rng.random_range(0..11) {
            9 => (Trouble::Clock, 1..25),
            0..4 => (Trouble::Killed, 0..5),
            4..7 => (Trouble::Off, 1..30),
            7..9 => (Trouble::Frozen, 1..25),
            _ => (Trouble::Full, 1..15),
        };
        let silent = self.rng.random_bool(0.5);
        match trouble {
            Trouble::Killed => host.kill9()?,
            Trouble::Off if silent => host.power_cut()?,
            Trouble::Off => host.power_off()?,
            Trouble::Frozen => host.freeze()?,
            Trouble::Full => host.fill_disk()?,
            Trouble::Clock => host.clock_jump(self.rng.random_range(-7200..7200))?,
        }
        let until = self.seconds(range);
        self.note("host", &format!("{} {trouble:?}{}", host.name(), if silent { ", silently" } else { "" }));
        self.troubles.insert(host.name().to_owned(), (trouble, until));
        Ok(())
    }

    fn user(&mut self) -> Result<()> {
        let names: Vec<String> = self.names.iter().cloned().collect();
        let name = names.choose(&mut self.rng).cloned();
        if self.root_frozen() {
            return Ok(());
        }
        match (self.rng.random_range(0..100), name) {
            (0..25, _) => self.workload(),
            (25..55, _) | (_, None) if self.names.len() < INSTANCES_MAX => self.create(),
            (_, Some(name)) => self.change(&name),
            _ => Ok(()),
        }
    }

    fn create(&mut self) -> Result<()> {
        self.made += 1;
        let name = format!("i{}", self.made);
        let mut spec = sleeper();
        if self.rng.random_bool(0.15) {
            spec.lost = LossPolicy::Wait;
        }
        let (lost, done) = (spec.lost, self.bed.create(&name, spec));
        self.note("create", &format!("{name} {lost:?}: {}", outcome(&done)));
        self.names.insert(name);
        Ok(())
    }

    fn change(&mut self, name: &str) -> Result<()> {
        let (kind, done) = match self.rng.random_range(0..4) {
            0 => ("stop", self.bed.run_set(name, Run::Stopped)),
            1 => ("start", self.bed.run_set(name, Run::Running)),
            _ => ("delete", self.bed.delete(name)),
        };
        let gone = match &done {
            Ok(()) => kind == "delete",
            Err(error) => error.kind == ErrorKind::NotFound,
        };
        if gone {
            self.names.remove(name);
        }
        self.note(kind, &format!("{name}: {}", outcome(&done)));
        Ok(())
    }
}

fn outcome<T>(done: &model::Result<T>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
