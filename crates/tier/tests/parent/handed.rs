//! What leaves a node and finds no other in its zone goes up to root, and from there to another zone.

use model::{ChildId, InstanceId, ObservedInstance, Phase, PlaceMode, Run};
use tier::{Leases, Parent, ParentConfig};

use crate::common::*;

#[test]
fn what_finds_no_other_node_is_handed_up_and_runs_on() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "first", 4);
    parent.want(assignment(1, Run::Running));
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let id = InstanceId::from_random(1);
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let view = parent.view(&id).expect("known");
    assert!(view.handed_up && view.phase == Phase::Running, "{view:?}");
    let report = &parent.reports()[0];
    let left = report.left.clone().unwrap_or_default();
    assert!(left.contains("i-1 has no other place in its zone"), "{left}");
    assert_eq!(report.remaining.len(), 1);
    assert_eq!((report.remaining[0].id.clone(), report.remaining[0].name.as_str()), (id.clone(), "i-1"));
    assert!(parent.news_take().contains(&id), "the zone tells it upwards");

    // An order that is taken back leaves nothing of it.
    parent.mode_set(&first.id, PlaceMode::Open, false);
    decide(&mut parent, START);
    let report = &parent.reports()[0];
    assert!(report.left.is_none() && report.remaining.is_empty());
    assert!(!parent.view(&id).expect("known").handed_up && parent.news_take().contains(&id));

    // With room elsewhere in the zone it moves there and nobody above is asked.
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    decide(&mut parent, START);
    let mut second = Peer::join(&mut parent, "second", 4);
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    second.follow(&mut parent, Phase::Running, START);
    assert_eq!((first.holds(), second.holds()), (1, 1), "the first has not read that it is gone");
    assert!(!parent.view(&id).expect("known").handed_up);
}

/// Root over zones: `east` would give one away.
fn handed_up(parent: &mut Parent, east: &mut Peer, handed_up: bool) {
    let held: Vec<_> = east.child.assignments().map(|held| (held.id.clone(), held.generation)).collect();
    for (id, generation) in held {
        let seen = ObservedInstance { handed_up, ..ObservedInstance::new(id, generation, Phase::Running) };
        east.child.observe(seen);
    }
    east.report(parent, START);
}

#[test]
fn what_a_zone_hands_up_moves_to_another_zone_only_when_that_has_room() {
    let leases = Leases { lease_ms: LEASE_MS, gone_grace_ms: LEASE_MS, avoid_ms: AVOID_MS };
    let mut parent = Parent::new(ParentConfig { leases, ..ParentConfig::over_zones(1) });
    let mut east = Peer::join(&mut parent, "east", 4);
    parent.want(assignment(1, Run::Running));
    decide(&mut parent, START);
    east.follow(&mut parent, Phase::Running, START);
    handed_up(&mut parent, &mut east, true);
    decide(&mut parent, START);
    let id = InstanceId::from_random(1);
    assert_eq!(parent.place_of(&id).map(|place| &place.child), Some(&east.id));
    assert_eq!(parent.view(&id).expect("known").phase, Phase::Running, "it runs on: there is no other zone");

    let mut west = Peer::join(&mut parent, "west", 4);
    decide(&mut parent, START);
    assert_eq!(parent.place_of(&id).map(|place| &place.child), Some(&east.id), "it is stopped there first");
    east.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    west.follow(&mut parent, Phase::Running, START);
    assert_eq!(parent.place_of(&id).map(|place| &place.child), Some(&west.id));
    decide(&mut parent, START);
    assert_eq!(parent.view(&id).expect("known").phase, Phase::Running);
    assert_eq!(west.holds(), 1);
}

#[test]
fn a_zone_that_takes_back_what_it_handed_up_keeps_it() {
    let mut parent = Parent::new(ParentConfig::over_zones(1));
    let mut east = Peer::join(&mut parent, "east", 4);
    parent.want(assignment(1, Run::Running));
    decide(&mut parent, START);
    east.follow(&mut parent, Phase::Running, START);
    handed_up(&mut parent, &mut east, true);
    handed_up(&mut parent, &mut east, false);
    let _west = Peer::join(&mut parent, "west", 4);
    decide(&mut parent, START);
    east.follow(&mut parent, Phase::Running, START);
    let id = InstanceId::from_random(1);
    assert_eq!(parent.place_of(&id).map(|place| &place.child), Some(&east.id));
    assert_eq!(parent.view(&id).expect("known").phase, Phase::Running);
}

#[test]
fn a_child_is_connected_once_it_was_heard() {
    let mut parent = parent();
    let child = ChildId::from("n");
    parent.child_add(child.clone(), None, START);
    assert!(parent.child_alive(&child) && !parent.child_connected(&child));
    assert_eq!(parent.child_last_seen(&child), None);
    parent.heard(&child, START);
    assert!(parent.child_connected(&child) && parent.child_last_seen(&child) == Some(START));
    parent.expire(START.plus_ms(LEASE_MS));
    assert!(!parent.child_connected(&child));
}
