//! Daemons while their zone starts again, and when a node of theirs is lost, removed, or of another kind.

use model::exchange::NodeReport;
use model::{Facts, PlaceMode, Resources, RuntimeKind, ZoneId};

use super::*;
use crate::tables::ZoneRecord;
use crate::workload::nodes;

fn zone() -> ZoneRecord {
    ZoneRecord {
        id: ZoneId::from_random(1),
        name: name("z"),
        enrolled_at: Timestamp(0),
        facts: None,
        mode: PlaceMode::Open,
        forced: false,
        hosts: Vec::new(),
        granted: Vec::new(),
    }
}

/// What the zone says of a node that it hears.
fn report(node: &str) -> NodeReport {
    let facts = Facts { runtimes: vec![RuntimeKind::Container], ..Facts::new(name(node), "1") };
    let report = serde_json::json!({
        "id": format!("id-{node}"),
        "facts": facts,
        "alive": true,
        "last_seen": Timestamp(0),
        "reserved": Resources::ZERO,
        "instances": 1,
    });
    serde_json::from_value(report).expect("a report")
}

/// The zone says which nodes it has, and the controller looks.
fn told(world: &mut World, reports: &[NodeReport]) -> Plan {
    let nodes = nodes::told(&zone(), reports, &world.record.spec.instance, &world.instances);
    world.nodes = nodes;
    world.step()
}

/// A daemon that runs on n1 and n2, and what the zone says of them.
fn running() -> (World, [NodeReport; 2]) {
    let mut world = World::new(1, Mode::Daemon);
    let both = [report("n1"), report("n2")];
    assert_eq!(told(&mut world, &both).created(), 2);
    world.settle();
    assert_eq!(world.available(), 2);
    (world, both)
}

fn on<'a>(world: &'a mut World, node: &str) -> &'a mut Seen {
    let pin = Pin { zone: name("z"), node: name(node) };
    let held = world.instances.iter_mut().find(|seen| seen.pin.as_ref() == Some(&pin) && !seen.going());
    held.expect("one stands there")
}

fn untouched(plan: &Plan) -> bool {
    plan.deletes.is_empty() && plan.creates.is_empty()
}

#[test]
fn a_zone_that_has_just_started_ends_no_daemon_of_a_node_that_it_has_not_heard() {
    let (mut world, both) = running();
    let names = |world: &World| world.instances.iter().map(|seen| seen.name.clone()).collect::<Vec<_>>();
    let before = names(&world);
    for reports in [&[][..], &both[..1], &both[1..], &both[..]] {
        let plan = told(&mut world, reports);
        assert!(untouched(&plan), "{plan:?}");
        let status = &plan.state.status;
        assert_eq!((status.phase, status.wanted, status.available), (WorkloadPhase::Available, 2, 2));
    }
    assert_eq!(names(&world), before);
}

#[test]
fn a_daemon_of_a_lost_node_waits_for_it_and_goes_when_it_is_removed() {
    let (mut world, both) = running();
    let lost = on(&mut world, "n2");
    (lost.phase, lost.node) = (Phase::Lost, None);
    let id = lost.id.clone();
    // The zone began anew and never heard it; or it says that somebody is lost, and not of what kind.
    let unheard = NodeReport {
        alive: false,
        facts: Facts { nodes: 0, runtimes: Vec::new(), ..both[1].facts.clone() },
        ..both[1].clone()
    };
    for reports in [&both[..1], &[both[0].clone(), unheard][..]] {
        let plan = told(&mut world, reports);
        assert!(untouched(&plan), "{plan:?}");
        assert_eq!((plan.state.status.wanted, plan.state.status.available), (1, 1));
    }
    // It was removed: the zone has no place for what is pinned to it.
    on(&mut world, "n2").phase = Phase::Pending;
    let plan = told(&mut world, &both[..1]);
    assert_eq!((plan.deletes, plan.creates), (vec![id], Vec::new()));
}

#[test]
fn a_daemon_goes_from_a_node_that_no_longer_matches() {
    let (mut world, mut both) = running();
    both[1].facts.runtimes = vec![RuntimeKind::Vm];
    let id = on(&mut world, "n2").id.clone();
    assert_eq!(told(&mut world, &both).deletes, vec![id]);
    // What the daemon itself rules out needs nobody's word.
    let (mut world, _) = running();
    world.spec(|spec| spec.instance.constraints.node = Some("n1".to_owned()));
    let id = on(&mut world, "n2").id.clone();
    assert!(told(&mut world, &[]).deletes.contains(&id));
}
