use std::sync::Arc;

use model::{
    Arch, Bytes, Cpu, ImageId, ImageManifest, InstanceSpec, Platform, Resources, RevisionedSet, RuntimeKind,
    TenantId,
};

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);

/// A zone with its disk and the nodes under it.
struct World {
    core: Core,
    disk: Kept,
    nodes: BTreeMap<ChildId, Child>,
    rev: u64,
    epoch: u64,
}

fn config(epoch: u64) -> ParentConfig {
    ParentConfig::over_nodes("east", epoch)
}

fn facts(name: &str, cores: u64) -> Facts {
    Facts {
        archs: vec![Arch::Amd64],
        runtimes: vec![RuntimeKind::Container],
        capacity: Resources { cpu: Cpu(cores * 1000), memory: Bytes::gib(8), disk: Bytes::gib(8) },
        ..Facts::new(name.parse().expect("a name"), "1")
    }
}

fn assignment(number: u128, change: impl FnOnce(&mut InstanceSpec)) -> Assignment {
    let mut spec = InstanceSpec { cpu: Cpu(1000), ..InstanceSpec::new("busybox") };
    change(&mut spec);
    Assignment {
        id: InstanceId::from_random(number),
        tenant: TenantId::from_random(1),
        name: format!("i-{number}").parse().expect("a name"),
        generation: Generation { major: 1, minor: 0 },
        run: Run::Running,
        restart_count: 0,
        spec: Arc::new(spec),
        group: None,
        image: Arc::new(ImageManifest {
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

impl World {
    /// Keeps an order and puts it in force, as the owner does.
    fn order(&mut self, ordered: Result<Ordered>) {
        let (order, writes) = ordered.expect("it is legal");
        self.disk.apply(&writes);
        self.core.ordered(order);
    }

    fn new() -> Self {
        let core = Core::new("east".parse().expect("a name"), "1", config(1), Kept::default(), NOW);
        Self { core, disk: Kept::default(), nodes: BTreeMap::new(), rev: 0, epoch: 1 }
    }

    fn node(&mut self, name: &str, cores: u64) -> ChildId {
        let id = ChildId::from(format!("id-{name}").as_str());
        self.disk.members.insert(id.clone(), Some(name.parse().expect("a name")));
        self.nodes.insert(id.clone(), Child::new(1, facts(name, cores), Inbox::default()));
        self.settle();
        id
    }

    /// Root says what the zone should hold beside what it has.
    fn tell(&mut self, upserts: Vec<Assignment>) {
        let base = self.core.have();
        self.rev += 1;
        let at = Revision { epoch: 1, rev: self.rev };
        let set = RevisionedSet { base, at, upserts, removes: Vec::new(), more: false, upto: None };
        let writes = self.core.desired(set).expect("applies");
        self.disk.apply(&writes);
        self.settle();
    }

    /// Root takes something off the zone.
    fn untell(&mut self, number: u128) {
        let (base, removes) = (self.core.have(), vec![InstanceId::from_random(number)]);
        self.rev += 1;
        let at = Revision { epoch: 1, rev: self.rev };
        let set = RevisionedSet { base, at, upserts: Vec::new(), removes, more: false, upto: None };
        let writes = self.core.desired(set).expect("applies");
        self.disk.apply(&writes);
        self.settle();
    }

    /// Lets everybody hear of everything until nothing changes.
    fn settle(&mut self) {
        for _ in 0..6 {
            let step = self.core.step(NOW);
            self.disk.apply(&step.writes);
            self.core.committed(&step.decisions, NOW);
            for (id, node) in &mut self.nodes {
                follow(&mut self.core, id, node);
            }
        }
    }

    /// The process starts again from its disk.
    fn restart(&mut self) {
        self.epoch += 1;
        let kept = self.disk.clone();
        self.core = Core::new("east".parse().expect("a name"), "1", config(self.epoch), kept, NOW);
        self.settle();
    }

    fn phase(&self, number: u128) -> Option<Phase> {
        self.core.observed_get(&InstanceId::from_random(number)).map(|seen| seen.phase)
    }

    fn place(&self, number: u128) -> Option<ChildId> {
        self.core.node_of(&InstanceId::from_random(number))
    }
}

/// A node that does what it is told and says so.
fn follow(core: &mut Core, id: &ChildId, node: &mut Child) {
    while let Some(desired) = core.node_desired(id, node.have()) {
        node.desired(desired).expect("applies");
    }
    let held: Vec<_> = node.assignments().map(|a| (a.id.clone(), a.generation, a.run)).collect();
    for (id, generation, run) in held {
        let phase = match run {
            Run::Gone => Phase::Gone,
            Run::Stopped => Phase::Stopped,
            Run::Running => Phase::Running,
        };
        node.observe(ObservedInstance::new(id, generation, phase));
    }
    for id in node.observed_ids() {
        if node.assignment(&id).is_none() {
            node.forget(&id);
        }
    }
    core.node_observed(id, node.report_whole(), NOW);
}

#[test]
fn an_instance_is_placed_and_root_hears_of_it() {
    let mut world = World::new();
    let node = world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    assert_eq!((world.place(1), world.phase(1)), (Some(node), Some(Phase::Running)));
    let told = world.core.report(None).expect("news");
    assert_eq!(told.set.upserts.len(), 1);
    assert_eq!(told.facts.free.expect("an aggregate").cpu, Cpu(3000));
}

#[test]
fn a_restart_keeps_places_modes_labels_and_who_was_removed() {
    let mut world = World::new();
    let node = world.node("n1", 4);
    world.node("n2", 4);
    world.tell(vec![assignment(1, |spec| spec.constraints.node = Some("n1".to_owned()))]);
    let generation = world.disk.places[&InstanceId::from_random(1)].generation;
    let ordered = world.core.node_mode("n2", PlaceMode::Cordoned, false);
    world.order(ordered);
    let set = Labels::from([("rack".to_owned(), "r1".to_owned())]);
    let ordered = world.core.node_label("n1", &set, &[]);
    world.order(ordered);
    world.restart();
    assert_eq!(world.place(1), Some(node));
    assert_eq!(world.disk.places[&InstanceId::from_random(1)].generation, generation);
    let reports = world.core.nodes();
    assert_eq!(reports[0].facts.labels["rack"], ["r1"]);
    assert_eq!(reports[1].mode, PlaceMode::Cordoned);
}

#[test]
fn what_fits_nowhere_is_refused_with_the_reason() {
    let mut world = World::new();
    world.node("n1", 1);
    world.tell(vec![assignment(1, |spec| spec.cpu = Cpu(2000))]);
    let seen = world.core.observed_get(&InstanceId::from_random(1)).expect("told");
    assert!(seen.refused);
    assert_eq!(seen.message.as_deref(), Some("no node of east fits (n1: needs 2 CPU, 1 free)"));
}

#[test]
fn a_zone_that_began_anew_refuses_nothing_before_its_nodes_were_heard_or_lost() {
    for comes in [true, false] {
        let mut world = World::new();
        let large = world.node("n2", 4);
        world.tell(vec![assignment(2, |_| {})]);
        world.node("n1", 1);
        let away = world.nodes.remove(&large).expect("there");
        world.restart();
        world.tell(vec![assignment(3, |spec| spec.cpu = Cpu(2000))]);
        let seen = world.core.observed_get(&InstanceId::from_random(3)).expect("told");
        assert!(seen.phase == Phase::Pending && !seen.refused, "{seen:?}");
        if comes {
            world.nodes.insert(large.clone(), away);
            world.settle();
            assert_eq!(world.place(3), Some(large));
        } else {
            for second in 1..=30 {
                let now = NOW.plus_ms(second * 1000);
                world.nodes.keys().for_each(|node| world.core.node_heard(node, now));
                world.core.step(now);
            }
            let seen = world.core.observed_get(&InstanceId::from_random(3)).expect("told");
            assert!(seen.refused, "{seen:?}");
        }
    }
}

#[test]
fn a_zone_that_began_anew_waits_for_nodes_that_hold_nothing_too() {
    let mut world = World::new();
    let large = world.node("n2", 4);
    let away = world.nodes.remove(&large).expect("there");
    world.restart();
    world.tell(vec![assignment(1, |_| {})]);
    let seen = world.core.observed_get(&InstanceId::from_random(1)).expect("told");
    assert!(!seen.refused, "{seen:?}");
    world.nodes.insert(large.clone(), away);
    world.settle();
    assert_eq!(world.place(1), Some(large));

    // One that never comes again is shown under the name with which it joined, so that it can be removed.
    world.nodes.clear();
    world.restart();
    for second in 1..=60 {
        world.core.step(NOW.plus_ms(second * 1_000));
    }
    let reports = world.core.nodes();
    assert_eq!((reports.len(), reports[0].alive, reports[0].facts.name.as_str()), (1, false, "n2"));
    assert!(world.core.node_remove("n2", false).is_ok());
}

#[test]
fn a_start_while_a_zone_begins_anew_stays_where_its_disk_is() {
    let mut world = World::new();
    let first = world.node("n1", 4);
    let stopped = Assignment { run: Run::Stopped, ..assignment(1, |_| {}) };
    world.tell(vec![assignment(1, |_| {})]);
    world.tell(vec![stopped]);
    assert_eq!(world.phase(1), Some(Phase::Stopped));
    world.node("n2", 4);
    let away = world.nodes.remove(&first).expect("there");
    world.restart();
    world.tell(vec![assignment(1, |_| {})]);
    let seen = world.core.observed_get(&InstanceId::from_random(1)).expect("told");
    assert!(!seen.refused, "{seen:?}");
    assert_eq!(world.place(1), Some(first.clone()), "the other node has room, but not what it wrote");
    world.nodes.insert(first.clone(), away);
    world.settle();
    assert_eq!((world.place(1), world.phase(1)), (Some(first), Some(Phase::Running)));
}

#[test]
fn a_drain_goes_on_after_a_restart_and_hands_nothing_up_before_the_nodes_are_there() {
    let mut world = World::new();
    let first = world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    let ordered = world.core.node_mode("n1", PlaceMode::Draining, false);
    world.order(ordered);
    world.settle();
    let handed_up =
        |world: &World| world.core.observed_get(&InstanceId::from_random(1)).expect("told").handed_up;
    assert!(handed_up(&world), "there is no other node");
    let second = world.node("n2", 1);
    world.settle();
    assert_eq!(world.place(1), Some(second.clone()));
    let ordered = world.core.node_mode("n1", PlaceMode::Open, false);
    world.order(ordered);
    let ordered = world.core.node_mode("n2", PlaceMode::Draining, false);
    world.order(ordered);
    let away = world.nodes.remove(&first).expect("there");
    world.restart();
    assert!(!handed_up(&world), "the one that has room is about to come");
    world.nodes.insert(first.clone(), away);
    world.settle();
    world.settle();
    assert_eq!(world.place(1), Some(first));
}

#[test]
fn a_drained_node_ends_empty_and_the_instance_runs_once() {
    let mut world = World::new();
    let first = world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {}), assignment(2, |_| {})]);
    let second = world.node("n2", 4);
    let ordered = world.core.node_mode("n1", PlaceMode::Draining, false);
    world.order(ordered);
    world.settle();
    world.settle();
    assert_eq!(world.nodes[&first].assignments().count(), 0);
    assert_eq!(world.nodes[&second].assignments().count(), 2);
    assert_eq!((world.phase(1), world.phase(2)), (Some(Phase::Running), Some(Phase::Running)));
    assert!(world.core.node_mode("nobody", PlaceMode::Open, false).is_err());
}

#[test]
fn a_restart_before_root_heard_that_something_is_gone_tells_it_again() {
    let mut world = World::new();
    for (run, phase) in [(Run::Stopped, Phase::Stopped), (Run::Gone, Phase::Gone)] {
        world.tell(vec![Assignment { run, ..assignment(1, |_| {}) }]);
        assert_eq!(world.phase(1), Some(phase));
        world.restart();
        assert_eq!(world.phase(1), Some(phase), "no node has it who could say so");
    }
}

#[test]
fn a_removed_node_is_never_let_in_again() {
    let mut world = World::new();
    let first = world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    let second = world.node("n2", 4);
    assert!(world.core.node_remove("n1", false).is_err(), "it lives and holds something");
    assert!(world.core.node_remove("nobody", true).is_err());
    let ordered = world.core.node_remove("n1", true);
    world.order(ordered);
    world.settle();
    assert_eq!(world.place(1), Some(second));
    world.restart();
    assert!(!world.core.admits(&first));
    assert!(world.core.nodes().iter().all(|report| report.id != first.as_str()));
}

#[test]
fn generations_go_on_after_a_node_was_removed_and_the_zone_began_anew() {
    let mut world = World::new();
    world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    let before = world.disk.places[&InstanceId::from_random(1)].generation;
    let ordered = world.core.node_remove("n1", true);
    world.order(ordered);
    world.restart();
    assert_eq!(world.place(1), None);
    let second = world.node("n2", 4);
    assert_eq!(world.place(1), Some(second));
    let after = world.disk.places[&InstanceId::from_random(1)].generation;
    assert!(after > before, "{after} is not above {before}");
}

#[test]
fn what_comes_back_under_the_same_decision_of_root_gets_a_generation_above_all_before() {
    let mut world = World::new();
    world.node("n1", 4);
    for (restart, minor) in [(false, 1), (false, 2), (true, 3)] {
        world.tell(vec![assignment(1, |_| {})]);
        assert_eq!(world.disk.places[&InstanceId::from_random(1)].generation.minor, minor);
        world.untell(1);
        assert!(world.disk.places.is_empty());
        if restart {
            world.restart();
            world.tell(vec![assignment(1, |_| {})]);
            assert_eq!(world.disk.places[&InstanceId::from_random(1)].generation.minor, minor + 1);
        }
    }
}

#[test]
fn a_removal_that_could_not_be_kept_loses_no_generation() {
    let mut world = World::new();
    world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    let (base, removes) = (world.core.have(), vec![InstanceId::from_random(1)]);
    world.rev += 1;
    let at = Revision { epoch: 1, rev: world.rev };
    let set = RevisionedSet { base, at, upserts: Vec::new(), removes, more: false, upto: None };
    // The disk is full: what was decided is lost, and the same comes again.
    drop(world.core.desired(set).expect("applies"));
    world.core.desired_restore(world.disk.clone());
    world.rev -= 1;
    world.untell(1);
    world.restart();
    world.tell(vec![assignment(1, |_| {})]);
    assert_eq!(world.disk.places[&InstanceId::from_random(1)].generation.minor, 2);
}

#[test]
fn an_order_that_is_not_kept_changes_nothing() {
    let mut world = World::new();
    let node = world.node("n1", 4);
    world.tell(vec![assignment(1, |_| {})]);
    let before = world.core.nodes();
    let set = Labels::from([("rack".to_owned(), "r1".to_owned())]);
    for ordered in [
        world.core.node_mode("n1", PlaceMode::Draining, true),
        world.core.node_label("n1", &set, &[]),
        world.core.node_remove("n1", true),
    ] {
        drop(ordered.expect("it is legal, and the disk is full"));
    }
    world.settle();
    let after = world.core.nodes();
    assert_eq!((after[0].mode, &after[0].facts.labels), (PlaceMode::Open, &before[0].facts.labels));
    assert!(world.core.admits(&node));
    assert_eq!((world.place(1), world.phase(1)), (Some(node), Some(Phase::Running)));
}

#[test]
fn bad_labels_change_nothing() {
    let mut world = World::new();
    world.node("n1", 4);
    let bad = Labels::from([("no spaces".to_owned(), "x".to_owned())]);
    assert!(world.core.node_label("n1", &bad, &[]).is_err());
    assert!(world.core.nodes()[0].facts.labels.is_empty());
}

#[test]
fn who_gives_way_says_so_and_is_refused_upwards() {
    let mut world = World::new();
    world.node("n1", 1);
    world.tell(vec![assignment(1, |_| {})]);
    world.tell(vec![assignment(2, |spec| spec.priority = 10)]);
    world.settle();
    assert_eq!(world.phase(2), Some(Phase::Running));
    let seen = world.core.observed_get(&InstanceId::from_random(1)).expect("told");
    assert!(seen.refused);
    let message = seen.message.clone().unwrap_or_default();
    assert!(message.starts_with("gave way to i-2 (priority 10 over 0); no node of east fits"), "{message}");
}

#[test]
fn that_it_has_a_node_is_told_after_a_while_and_what_the_node_says_at_once() {
    let mut zone = World::new();
    let node = zone.node("n1", 8);
    // A node that is slow to say anything.
    let mut slow = zone.nodes.remove(&node).expect("is there");
    zone.tell(vec![assignment(1, |_| {}), assignment(2, |_| {})]);
    assert_eq!((zone.place(1), zone.phase(1)), (Some(node.clone()), None));
    let due = zone.core.next_deadline().expect("it is looked at again");
    assert!(due <= NOW.plus_ms(PLACED_TOLD_AFTER_MS));
    let mut seen =
        ObservedInstance::new(InstanceId::from_random(1), Generation { major: 1, minor: 1 }, Phase::Running);
    seen.node = Some("n1".parse().expect("a name"));
    slow.observe(seen);
    zone.core.node_observed(&node, slow.report_whole(), NOW);
    assert_eq!((zone.phase(1), zone.phase(2)), (Some(Phase::Running), None));
    zone.core.step(due);
    assert_eq!((zone.phase(1), zone.phase(2)), (Some(Phase::Running), Some(Phase::Placed)));
}
