//! The decisions in a small world of their own: instances come up, break and go, nodes vanish, users
//! change their minds; after every step the promises are checked.

use model::workload::{Canary, Overlap, RunPolicy};
use model::{Amount, ImageId, ImageManifest, InstanceSpec, TenantId, WorkloadSpec};

use super::*;
use crate::workload::record::{self, By, record_new};

/// Seeds that every promise is tried with.
const SEEDS: u64 = 150;
const NODES: u64 = 5;

mod daemons;
mod scale;
mod terms;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

struct World {
    record: WorkloadRecord,
    version: i64,
    state: Option<WorkloadState>,
    instances: Vec<Seen>,
    nodes: Vec<Node>,
    usage: Option<Usage>,
    now: Timestamp,
    clock_set_ms: i64,
    dice: Dice,
    made: u64,
    lines: Vec<(&'static str, String)>,
    /// Ends that a plan said it counted: well and badly.
    counted: (u32, u32),
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn image() -> ImageManifest {
    let platform = serde_json::json!({"arch": model::Arch::HOST});
    let image = serde_json::json!({"id": ImageId::from_random(1), "platform": platform, "layers": []});
    serde_json::from_value(image).expect("a manifest")
}

impl World {
    fn new(seed: u64, mode: Mode) -> Self {
        let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
        if mode.run().is_some() {
            spec.instance.restart = RestartPolicy::Never;
        }
        spec.mode = mode;
        let now = Timestamp(1_800_000_000_000_000);
        let by = By { who: "test", at: now };
        let record = record_new(&TenantId::from_random(1), &name("web"), None, spec, image(), &by);
        Self {
            record,
            version: 1,
            state: None,
            instances: Vec::new(),
            nodes: Vec::new(),
            usage: None,
            now,
            clock_set_ms: 0,
            dice: Dice(seed),
            made: 0,
            lines: Vec::new(),
            counted: (0, 0),
        }
    }

    fn spec(&mut self, edit: impl FnOnce(&mut WorkloadSpec)) {
        let mut spec = WorkloadSpec::clone(&self.record.spec);
        edit(&mut spec);
        let image = self.record.image.clone();
        record::spec_set(&mut self.record, spec, image, &By { who: "test", at: self.now }).expect("fits");
        self.version += 1;
    }

    fn template(&mut self, word: &str) {
        self.spec(|spec| drop(spec.instance.env.insert("V".into(), word.into())));
    }

    /// Whether what an instance runs breaks.
    fn bad(&self, revision: u64) -> bool {
        let of = |spec: &InstanceSpec| spec.env.get("V").is_some_and(|word| word.starts_with("bad"));
        match revision == self.record.revision {
            true => of(&self.record.spec.instance),
            false => self.record.earlier.iter().any(|t| t.revision == revision && of(&t.instance)),
        }
    }

    fn look<T>(&self, ask: impl FnOnce(&Look<'_>) -> T) -> T {
        ask(&Look {
            record: &self.record,
            version: self.version,
            state: self.state.as_ref(),
            instances: &self.instances,
            nodes: Some(&self.nodes),
            usage: self.usage,
            now: self.now,
            clock_set_ms: self.clock_set_ms,
        })
    }

    fn available(&self) -> u32 {
        self.look(|look| self.instances.iter().filter(|i| !i.going() && look.available(i)).count() as u32)
    }

    fn here(&self) -> u32 {
        self.instances.iter().filter(|seen| !seen.going()).count() as u32
    }

    /// One step of the controller, with the promises checked before it is carried out.
    fn step(&mut self) -> Plan {
        let plan = self.look(step);
        self.check(&plan);
        self.lines.extend(plan.lines.iter().cloned());
        for create in &plan.creates {
            for _ in 0..create.count {
                self.create(create);
            }
        }
        for id in &plan.deletes {
            let seen = self.instances.iter_mut().find(|seen| seen.id == *id).expect("only what is there");
            assert!(!seen.going(), "it goes already");
            seen.asked = Run::Gone;
            seen.phase = Phase::Deleting;
        }
        for (id, keep) in &plan.counted {
            let seen = self.instances.iter_mut().find(|seen| seen.id == *id).expect("only what is there");
            assert!(!seen.counted && seen.phase == Phase::Exited, "an end counts once");
            let well = seen.exit_code == Some(0);
            self.counted = (self.counted.0 + u32::from(well), self.counted.1 + u32::from(!well));
            (seen.counted, seen.asked) = (true, if *keep { Run::Stopped } else { Run::Gone });
            seen.phase = Phase::Stopped;
        }
        if let Some((to, why)) = &plan.roll_back {
            let by = By { who: "root", at: self.now };
            record::roll_back(&mut self.record, &[], Some(*to), Some(why.clone()), &by).expect("is there");
            self.version += 1;
        }
        self.state = Some(plan.state.clone());
        self.clock_set_ms = 0;
        plan
    }

    fn create(&mut self, create: &Create) {
        self.made += 1;
        self.instances.push(Seen {
            id: InstanceId::from_random(u128::from(self.made)),
            name: name(&format!("web-{}", self.made)),
            revision: create.revision,
            restart: self.record.restart_count,
            run: create.run,
            counted: false,
            asked: Run::Running,
            phase: Phase::Pending,
            checked: false,
            health: None,
            exit_code: None,
            restarts: 0,
            failures: 0,
            finished: false,
            node: create.pin.as_ref().map(|pin| pin.node.clone()),
            leaves: false,
            pin: create.pin.clone(),
            message: None,
            created_at: self.now,
            changed_at: self.now,
        });
    }

    fn check(&self, plan: &Plan) {
        if !matches!(self.record.spec.mode, Mode::Service { .. } | Mode::Daemon) || self.record.deleting {
            return;
        }
        let wanted = plan.state.status.wanted;
        let (mut missing, mut surge) = self.record.spec.update.room(wanted);
        if self.record.spec.mode == Mode::Daemon {
            (missing, surge) = (missing.max(1), 0);
        }
        let gone = |seen: &&Seen| plan.deletes.contains(&seen.id);
        let lost = self.look(|look| {
            self.instances.iter().filter(gone).filter(|seen| look.available(seen)).count() as u32
        });
        let after = self.here() - plan.deletes.len() as u32 + plan.created();
        if plan.created() > 0 {
            // What stands on a silent node does not count as wanted.
            let silent = self.silent();
            assert!(after <= wanted + surge + silent, "{after} of {wanted} with surge {surge}");
        }
        let on_gone = self.on_no_node(plan);
        if lost > on_gone {
            let left = self.available() - lost;
            assert!(left + missing >= wanted, "{left} of {wanted} are left, {missing} may be missing");
        }
        if self.record.spec.paused {
            assert!(plan.creates.is_empty() && plan.deletes.is_empty() && plan.roll_back.is_none());
        }
    }

    fn silent(&self) -> u32 {
        let alive = |seen: &&Seen| {
            let node = self.nodes.iter().find(|node| seen.pin.as_ref() == Some(&node.pin));
            seen.pin.is_some() && !seen.going() && !node.is_some_and(|node| node.alive)
        };
        self.instances.iter().filter(alive).count() as u32
    }

    /// Those that go because their node did.
    fn on_no_node(&self, plan: &Plan) -> u32 {
        let homeless = |seen: &&Seen| {
            let known = self.nodes.iter().any(|node| seen.pin.as_ref() == Some(&node.pin));
            seen.pin.is_some() && !known && plan.deletes.contains(&seen.id)
        };
        self.instances.iter().filter(homeless).count() as u32
    }

    /// The tree does a little of what it was told, in any order.
    fn tree(&mut self) {
        let mut left = Vec::new();
        for mut seen in std::mem::take(&mut self.instances) {
            let lucky = self.dice.roll(2) == 0;
            if seen.going() {
                if !lucky {
                    left.push(seen);
                }
                continue;
            }
            let breaks = self.bad(seen.revision);
            if lucky && seen.asked == Run::Running {
                let node = self.dice.roll(NODES);
                live(&mut seen, breaks, node, self.now);
            }
            left.push(seen);
        }
        self.instances = left;
    }

    /// Runs on until nothing more happens.
    fn settle(&mut self) {
        for _ in 0..600 {
            let plan = self.step();
            self.tree();
            let ms = if self.dice.roll(8) == 0 { 3_000 } else { 200 };
            self.now = self.now.plus_ms(ms);
            let quiet = plan.creates.is_empty() && plan.deletes.is_empty() && plan.roll_back.is_none();
            let phase = plan.state.status.phase;
            if quiet && phase == WorkloadPhase::Available && self.instances.iter().all(|seen| !seen.going()) {
                return;
            }
        }
        panic!("it does not settle: {:#?}", self.state);
    }
}

fn live(seen: &mut Seen, breaks: bool, node: u64, now: Timestamp) {
    match seen.phase {
        Phase::Pending if breaks => seen.restarts += 1,
        Phase::Pending | Phase::Lost => {
            seen.phase = Phase::Running;
            seen.node.get_or_insert_with(|| name(&format!("n{node}")));
            seen.changed_at = now;
        }
        _ => {}
    }
}

/// Something that nobody asked for, or that somebody did.
fn mishap(world: &mut World) {
    match world.dice.roll(12) {
        0 => {
            let replicas = world.dice.roll(12) as u32;
            if let Mode::Service { .. } = world.record.spec.mode {
                world.spec(|spec| spec.mode = Mode::Service { replicas });
            }
        }
        1 | 2 => {
            let word =
                format!("{}{}", if world.dice.roll(3) == 0 { "bad" } else { "good" }, world.dice.roll(3));
            world.template(&word);
        }
        3 => {
            world.record.restart_count += 1;
            world.version += 1;
        }
        4 => {
            let paused = !world.record.spec.paused;
            world.spec(|spec| spec.paused = paused);
        }
        5 | 6 => {
            // A node is lost: some are placed again, others wait for it.
            let lost = name(&format!("n{}", world.dice.roll(NODES)));
            let now = world.now;
            let phase = if world.dice.roll(2) == 0 { Phase::Lost } else { Phase::Pending };
            let on_it =
                |seen: &&mut Seen| !seen.going() && seen.pin.is_none() && seen.node.as_ref() == Some(&lost);
            for seen in world.instances.iter_mut().filter(on_it) {
                (seen.phase, seen.changed_at, seen.node) = (phase, now, None);
            }
        }
        7 => {
            let one = world.dice.roll(1 + world.instances.len() as u64) as usize;
            if let Some(seen) = world.instances.get_mut(one) {
                (seen.asked, seen.phase) = (Run::Gone, Phase::Deleting);
            }
        }
        8 if world.record.spec.update.canary.is_some() => {
            world.record.promoted = world.record.revision;
            world.version += 1;
        }
        _ => {}
    }
}

fn policy(world: &mut World) {
    let (surge, missing) = (world.dice.roll(4) as u32, world.dice.roll(4) as u32);
    let (hold, canary, healthy) = (world.dice.roll(5_000), world.dice.roll(3) == 0, world.dice.roll(2) * 700);
    world.spec(|spec| {
        spec.update.max_surge = Amount::Count(surge);
        spec.update.max_unavailable = Amount::Count(missing.max(u32::from(surge == 0)));
        spec.update.deadline_ms = 20_000;
        spec.update.healthy_ms = healthy;
        spec.update.canary = canary.then_some(Canary { instances: Amount::Count(2), hold_ms: Some(hold) });
    });
}

/// Sets the clock. Who has the statuses puts their times right; of the state, only who saw it happen can.
fn clock_set(world: &mut World, ms: i64, seen: bool) {
    world.now = world.now.plus_ms(ms);
    world.clock_set_ms += if seen { ms } else { 0 };
    let now = world.now;
    world.instances.iter_mut().for_each(|seen| seen.changed_at = seen.changed_at.min(now));
}

#[test]
fn what_was_written_under_a_clock_ahead_gets_on_when_it_is_set_back() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 4 });
        world.spec(|spec| {
            spec.update.canary = Some(Canary { instances: Amount::Count(1), hold_ms: Some(2_000) })
        });
        clock_set(&mut world, 600_000, true);
        world.settle();
        world.template("good1");
        while world.step().state.rollout.is_none_or(|rollout| rollout.canary_since.is_none()) {
            world.tree();
        }
        // Whoever saw the clock being set, or another who came after.
        clock_set(&mut world, -600_000, seed % 2 == 0);
        let back = world.now;
        world.settle();
        assert!(world.now.ms_since(back) < 300_000, "it waited for the wrong time to come");
    }
}

#[test]
fn a_clock_that_is_set_ahead_is_no_reason_to_give_a_revision_up() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 4 });
        policy(&mut world);
        world.settle();
        world.template("good1");
        world.step();
        clock_set(&mut world, 600_000, true);
        world.settle();
        assert!(world.record.rolled_back.is_none(), "seed {seed}: {:?}", world.lines);
    }
}

#[test]
fn a_service_keeps_its_promises_and_settles() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 6 });
        policy(&mut world);
        for _ in 0..200 {
            world.step();
            world.tree();
            let ms = world.dice.roll(1_500) as i64;
            world.now = world.now.plus_ms(ms);
            if world.dice.roll(6) == 0 {
                mishap(&mut world);
            }
        }
        world.spec(|spec| {
            spec.paused = false;
            spec.mode = Mode::Service { replicas: 7 };
        });
        world.template("good-last");
        world.settle();
        assert_eq!((world.here(), world.available()), (7, 7), "seed {seed}");
        assert_eq!(
            world.record.spec.instance.env["V"], "good-last",
            "seed {seed}: a good one is not taken back"
        );
        assert!(world.look(|look| world.instances.iter().all(|seen| look.current(seen))), "seed {seed}");
        world.record.deleting = true;
        while !world.step().gone {
            world.tree();
        }
    }
}

#[test]
fn a_bad_update_is_taken_back_once_and_remembered() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 5 });
        policy(&mut world);
        world.template("good");
        world.settle();
        let (good, before) = (world.record.revision, world.made);
        world.template("bad");
        world.settle();
        assert_eq!(world.record.revision, good + 2, "seed {seed}");
        assert_eq!(world.record.spec.instance.env["V"], "good");
        let failed = world.record.earlier.last().and_then(|template| template.failed.clone());
        assert!(failed.is_some_and(|why| why.contains("broke") || why.contains("after")), "seed {seed}");
        assert_eq!(world.lines.iter().filter(|(what, _)| *what == "workload.rolled-back").count(), 1);
        assert!(world.made - before <= 2 * 5 + 8, "seed {seed}: good instances are not made anew");
    }
}

#[test]
fn without_a_way_back_a_failed_update_says_so() {
    let mut world = World::new(7, Mode::Service { replicas: 3 });
    world.template("bad");
    world.record.earlier.clear();
    for _ in 0..2000 {
        world.step();
        world.tree();
        world.now = world.now.plus_ms(1_000);
    }
    let status = world.state.expect("looked").status;
    assert_eq!(status.phase, WorkloadPhase::Failed);
    assert!(status.message.expect("why").contains("not available after 300 s"));
}

#[test]
fn the_ones_to_go_are_those_missed_least() {
    let mut world = World::new(1, Mode::Service { replicas: 6 });
    world.step();
    for (index, node) in ["n1", "n1", "n1", "n2", "n2", "n3"].into_iter().enumerate() {
        let seen = &mut world.instances[index];
        (seen.phase, seen.node) = (Phase::Running, Some(name(node)));
        seen.created_at = seen.created_at.plus_ms(index as i64);
    }
    world.instances[3].phase = Phase::Pending;
    let order = world.look(|look| {
        let all: Vec<&Seen> = world.instances.iter().collect();
        service::leaving(look, &all).into_iter().map(|seen| seen.name.to_string()).collect::<Vec<_>>()
    });
    // First what does not run, then from the fullest node, the youngest first.
    assert_eq!(order, ["web-4", "web-3", "web-5", "web-2", "web-6", "web-1"]);
}

#[test]
fn an_instance_that_ends_is_replaced_but_not_in_a_hurry() {
    let mut world = World::new(1, Mode::Service { replicas: 1 });
    world.spec(|spec| spec.instance.restart = RestartPolicy::Never);
    world.record.earlier.clear();
    world.step();
    world.instances[0].phase = Phase::Exited;
    world.instances[0].exit_code = Some(1);
    let plan = world.step();
    assert!(plan.deletes.is_empty() && plan.created() == 0);
    world.now = plan.next.expect("a time").plus_ms(1);
    let plan = world.step();
    assert_eq!((plan.deletes.len(), plan.created()), (1, 1));
}

fn node(index: u64, alive: bool, open: bool) -> Node {
    Node { pin: Pin { zone: name("z"), node: name(&format!("n{index}")) }, alive, open }
}

#[test]
fn a_daemon_follows_its_nodes() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Daemon);
        policy(&mut world);
        for _ in 0..150 {
            world.step();
            world.tree();
            let ms = world.dice.roll(1_500) as i64;
            world.now = world.now.plus_ms(ms);
            if world.dice.roll(6) == 0 {
                mishap(&mut world);
            }
            let index = world.dice.roll(NODES);
            let before = world.nodes.len();
            match world.dice.roll(12) {
                0 => world.nodes.retain(|node| node.pin.node != name(&format!("n{index}"))),
                1 | 2 => {
                    world.nodes.retain(|node| node.pin.node != name(&format!("n{index}")));
                    let (alive, open) = (world.dice.roll(4) > 0, world.dice.roll(4) > 0);
                    world.nodes.push(node(index, alive, open));
                }
                _ => {}
            }
            assert!(world.nodes.len().abs_diff(before) <= 1);
        }
        world.nodes = (0..NODES).map(|index| node(index, true, true)).collect();
        world.spec(|spec| spec.paused = false);
        world.template("good-last");
        world.settle();
        let mut pins: Vec<&Pin> = world.instances.iter().filter_map(|seen| seen.pin.as_ref()).collect();
        pins.sort();
        pins.dedup();
        assert_eq!((pins.len() as u64, world.available() as u64), (NODES, NODES), "seed {seed}");
        // Cordon removes nothing; a node that is gone loses its own.
        world.nodes = (0..NODES - 1).map(|index| node(index, true, false)).collect();
        world.settle();
        assert_eq!(world.here() as u64, NODES - 1, "seed {seed}");
    }
}

#[test]
fn runs_are_counted_exactly() {
    for seed in 0..SEEDS {
        let mut dice = Dice(seed);
        let (completions, parallelism) = (1 + dice.roll(9) as u32, 1 + dice.roll(4) as u32);
        let retries = dice.roll(4) as u32;
        let odds = 1 + dice.roll(5);
        let run = RunPolicy { completions, parallelism, retries, deadline_ms: None };
        let mut world = World::new(seed, Mode::Once { run });
        let mut done = None;
        for _ in 0..4000 {
            let plan = world.step();
            let live = world.instances.iter().filter(|i| !i.going() && !i.counted).count() as u32;
            assert!(live <= parallelism, "seed {seed}");
            if matches!(plan.state.status.phase, WorkloadPhase::Done | WorkloadPhase::Failed) {
                done = Some(plan.state.status);
                break;
            }
            world.now = world.now.plus_ms(700);
            world.instances.retain(|seen| !seen.going());
            for index in 0..world.instances.len() {
                let (luck, code) = (world.dice.roll(6), i32::from(world.dice.roll(odds + 1) == 0));
                let now = world.now;
                let seen = &mut world.instances[index];
                match (seen.phase, luck) {
                    (Phase::Pending, 0..3) => seen.phase = Phase::Running,
                    (Phase::Running, 0..2) => {
                        (seen.phase, seen.exit_code, seen.changed_at) = (Phase::Exited, Some(code), now);
                    }
                    // Its node is lost, or somebody deletes it.
                    (Phase::Running, 4) => seen.phase = Phase::Pending,
                    (Phase::Running | Phase::Stopped, 5) => {
                        (seen.asked, seen.phase) = (Run::Gone, Phase::Deleting)
                    }
                    _ => {}
                }
            }
        }
        let status = done.expect("every run ends");
        assert_eq!((status.succeeded, status.failed), world.counted, "seed {seed}");
        match status.phase {
            WorkloadPhase::Done => assert_eq!(status.succeeded, completions, "seed {seed}"),
            _ => assert!(status.failed > retries && status.succeeded < completions, "seed {seed}"),
        }
    }
}

fn cron(overlap: Overlap, keep: u32) -> World {
    let mode = Mode::Cron {
        schedule: "*/5 * * * *".into(),
        time_zone: None,
        overlap,
        keep,
        run: RunPolicy::default(),
    };
    World::new(1, mode)
}

/// Lets `minutes` pass in one leap, and says how many runs have begun in all.
fn leap(world: &mut World, minutes: i64) -> u64 {
    world.now = world.now.plus_ms(minutes * 60_000);
    world.step();
    world.state.as_ref().expect("looked").run_last
}

fn end_all(world: &mut World) {
    for seen in world.instances.iter_mut().filter(|seen| !seen.going() && !seen.counted) {
        (seen.phase, seen.exit_code) = (Phase::Exited, Some(0));
    }
    world.step();
    world.instances.retain(|seen| !seen.going());
}

#[test]
fn a_schedule_runs_missed_times_once_and_keeps_few() {
    let mut world = cron(Overlap::Skip, 2);
    assert_eq!(leap(&mut world, 0), 0, "not before its time");
    assert_eq!(leap(&mut world, 60), 1, "twelve missed times are one run");
    assert_eq!(leap(&mut world, 5), 1, "the one before is under way");
    end_all(&mut world);
    for run in 2..6 {
        assert_eq!(leap(&mut world, 5), run);
        end_all(&mut world);
    }
    let state = world.state.as_ref().expect("looked");
    assert_eq!((state.runs.len(), world.here()), (2, 2));
    assert!(state.status.next_run_at.is_some_and(|next| next > world.now));
    assert_eq!(state.status.phase, WorkloadPhase::Waiting);
    // What is missed in a pause does not count.
    world.spec(|spec| spec.paused = true);
    assert_eq!(leap(&mut world, 30), 5);
    world.spec(|spec| spec.paused = false);
    assert_eq!(leap(&mut world, 0), 5);
}

#[test]
fn runs_that_meet_follow_the_overlap() {
    let mut world = cron(Overlap::Allow, 3);
    leap(&mut world, 5);
    assert_eq!((leap(&mut world, 5), world.here()), (2, 2));
    let mut world = cron(Overlap::Replace, 3);
    leap(&mut world, 5);
    assert_eq!((leap(&mut world, 5), world.here()), (2, 1));
    world.record.runs_asked += 1;
    assert_eq!((leap(&mut world, 0), world.here()), (3, 1), "one by hand besides");
}

#[test]
fn a_run_ends_at_its_deadline() {
    let run = RunPolicy { deadline_ms: Some(10_000), ..RunPolicy::default() };
    let mut world = World::new(1, Mode::Once { run });
    let plan = world.step();
    assert_eq!(plan.created(), 1);
    world.now = plan.next.expect("the deadline");
    let plan = world.step();
    assert_eq!((plan.state.status.phase, plan.deletes.len()), (WorkloadPhase::Failed, 1));
}
