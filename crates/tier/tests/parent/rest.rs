//! Instances that are stopped or ended: what they give back, what they keep, and how they begin again.

use model::{Assignment, Cpu, InstanceId, LossPolicy, ObservedInstance, Phase, PlaceMode, Run};
use tier::Parent;

use crate::common::*;

/// Takes what it should hold, and says of one instance that it ended, or is stopped as asked.
fn ends(peer: &mut Peer, parent: &mut Parent, id: &InstanceId) {
    if let Some(desired) = parent.desired(&peer.id, peer.child.have()) {
        peer.child.desired(desired).expect("applies");
    }
    let told = peer.child.assignment(id).expect("it holds it").clone();
    let phase = if told.run == Run::Stopped { Phase::Stopped } else { Phase::Exited };
    let mut seen = ObservedInstance::new(id.clone(), told.generation, phase);
    (seen.finished, seen.exit_code) = (phase == Phase::Exited, Some(0));
    seen.node = Some(peer.id.as_str().parse().expect("a name"));
    peer.child.observe(seen);
    peer.report(parent, START);
}

fn whole(number: u128) -> Assignment {
    with(assignment(number, Run::Running), |spec| {
        spec.cpu = Cpu(4000);
        spec.disk = model::Bytes::gib(1);
    })
}

fn told(peer: &Peer, parent: &mut Parent, id: &InstanceId) -> Run {
    let desired = parent.desired(&peer.id, None).expect("a set");
    desired.upserts.iter().find(|held| held.id == *id).expect("it is told of it").run
}

/// One node, filled by one instance that came to rest.
fn world(stopped: bool) -> (Parent, Peer, Assignment) {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let mut first = whole(1);
    parent.want(first.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    if stopped {
        first.run = Run::Stopped;
        parent.want(first.clone());
    }
    ends(&mut node, &mut parent, &first.id);
    (parent, node, first)
}

#[test]
fn what_ended_or_is_stopped_gives_back_all_but_its_disk() {
    for stopped in [false, true] {
        let (mut parent, node, first) = world(stopped);
        let report = parent.reports().remove(0);
        assert_eq!((report.reserved.cpu, report.reserved.memory.0), (Cpu(0), 0), "stopped: {stopped}");
        assert_eq!(report.reserved.disk, model::Bytes::gib(1));
        assert_eq!((report.instances, report.resting), (1, 1));
        let whole_free = parent.aggregate("east".parse().expect("a name"), "1", None);
        assert_eq!(whole_free.largest.expect("a slot").cpu, Cpu(4000));
        let second = whole(2);
        parent.want(second.clone());
        decide(&mut parent, START);
        assert_eq!(parent.place_of(&second.id).expect("placed").child, node.id);
        parent.want(Assignment { run: Run::Gone, ..first });
        assert_eq!(parent.child_rests(&node.id), 1, "it is there until its child says gone");
    }
}

#[test]
fn a_start_takes_room_again_or_waits_on_its_place_and_says_why() {
    let (mut parent, mut node, mut first) = world(true);
    let second = whole(2);
    parent.want(second.clone());
    decide(&mut parent, START);
    first.run = Run::Running;
    parent.want(first.clone());
    decide(&mut parent, START);
    assert_eq!(told(&node, &mut parent, &first.id), Run::Stopped, "there is no room to start it in");
    let view = parent.view(&first.id).expect("seen");
    assert_eq!(view.phase, Phase::Pending);
    let message = view.message.expect("a reason");
    assert!(message.contains("waits for room on n1") && message.contains("needs 4 CPU, 0 free"), "{message}");
    assert!(!parent.stuck(&first.id), "it is not sent elsewhere");

    parent.unwant(&second.id);
    decide(&mut parent, START);
    assert_eq!(told(&node, &mut parent, &first.id), Run::Running);
    node.follow(&mut parent, Phase::Running, START);
    assert_eq!(parent.view(&first.id).expect("seen").phase, Phase::Running);
    assert_eq!(parent.reports()[0].reserved.cpu, Cpu(4000));
    assert_eq!(parent.child_rests(&node.id), 0);
}

#[test]
fn what_waits_for_room_to_start_in_can_be_deleted() {
    let (mut parent, mut node, mut first) = world(true);
    let second = whole(2);
    parent.want(second.clone());
    decide(&mut parent, START);
    for run in [Run::Running, Run::Gone] {
        first.run = run;
        parent.want(first.clone());
        decide(&mut parent, START);
    }
    assert_eq!(told(&node, &mut parent, &first.id), Run::Gone);
    node.follow(&mut parent, Phase::Gone, START);
    assert!(parent.gone(&first.id));
    assert_eq!(parent.view(&first.id).expect("seen").phase, Phase::Gone);
}

#[test]
fn a_restart_begins_what_ended_again() {
    let (mut parent, mut node, mut first) = world(false);
    assert_eq!(parent.view(&first.id).expect("seen").phase, Phase::Exited);
    first.restart_count += 1;
    parent.want(first.clone());
    assert_eq!(parent.reports()[0].reserved.cpu, Cpu(4000));
    assert_eq!(told(&node, &mut parent, &first.id), Run::Running);
    node.follow(&mut parent, Phase::Running, START);
    assert_eq!(parent.child_rests(&node.id), 0);
}

#[test]
fn a_drain_leaves_what_is_at_rest_alone() {
    for stopped in [false, true] {
        let (mut parent, node, first) = world(stopped);
        let _other = Peer::join(&mut parent, "n2", 4);
        parent.mode_set(&node.id, PlaceMode::Draining, true);
        decide(&mut parent, START);
        assert_eq!(parent.place_of(&first.id).expect("placed").child, node.id);
        let report = parent.reports().into_iter().find(|report| report.id == "n1").expect("n1");
        assert_eq!((report.left, report.instances - report.resting), (None, 0));
    }
}

#[test]
fn a_lost_or_removed_place_does_not_begin_anew_what_ended() {
    let (mut parent, node, first) = world(false);
    let other = Peer::join(&mut parent, "n2", 4);
    let later = START.plus_ms(LEASE_MS);
    parent.heard(&other.id, later);
    parent.expire(later);
    decide(&mut parent, later);
    assert_eq!(parent.view(&first.id).expect("seen").phase, Phase::Exited, "it ended, wherever its node is");
    parent.child_remove(&node.id);
    decide(&mut parent, later);
    assert!(parent.place_of(&first.id).is_none());
    let view = parent.view(&first.id).expect("seen");
    assert_eq!((view.phase, view.node), (Phase::Exited, None));
    assert!(view.message.expect("why").contains("n1 was removed"));

    // After a restart of the parent it is still so.
    let kept = parent.resting(&first.id).expect("kept");
    let mut again = crate::common::parent();
    let _other = Peer::join(&mut again, "n2", 4);
    again.restore(first.clone(), None, first.generation);
    again.restore_rest(&first.id, kept);
    decide(&mut again, later);
    assert!(again.place_of(&first.id).is_none());
    assert_eq!(again.view(&first.id).expect("seen").phase, Phase::Exited);
    again.want(Assignment { restart_count: 1, ..first.clone() });
    decide(&mut again, later);
    assert!(again.place_of(&first.id).is_some(), "whoever asks for it gets it");
}

#[test]
fn a_start_does_not_wait_for_a_lost_place_unless_that_is_its_policy() {
    for policy in [LossPolicy::Replace, LossPolicy::Wait] {
        let mut parent = parent();
        let mut node = Peer::join(&mut parent, "n1", 4);
        let first = with(whole(1), |spec| spec.lost = policy);
        parent.want(first.clone());
        decide(&mut parent, START);
        node.follow(&mut parent, Phase::Running, START);
        parent.want(Assignment { run: Run::Stopped, ..first.clone() });
        ends(&mut node, &mut parent, &first.id);
        let other = Peer::join(&mut parent, "n2", 4);
        let later = START.plus_ms(LEASE_MS);
        parent.heard(&other.id, later);
        parent.expire(later);
        assert_eq!(parent.view(&first.id).expect("seen").phase, Phase::Stopped);
        parent.want(first.clone());
        decide(&mut parent, later);
        let place = parent.place_of(&first.id).map(|place| place.child.clone());
        assert_eq!(place, Some(if policy == LossPolicy::Replace { other.id } else { node.id }));
    }
}

#[test]
fn a_parent_that_starts_again_knows_who_rests_and_who_waits() {
    let (mut parent, _node, mut first) = world(true);
    let second = whole(2);
    parent.want(second.clone());
    decide(&mut parent, START);
    first.run = Run::Running;
    parent.want(first.clone());
    let kept = parent.resting(&first.id).expect("kept");
    let places: Vec<_> = [&first, &second].map(|held| parent.place_of(&held.id).cloned()).into();

    let mut again = crate::common::parent();
    let node = Peer::join(&mut again, "n1", 4);
    for (held, place) in [&second, &first].into_iter().zip(places.into_iter().rev()) {
        let last = place.as_ref().expect("placed").generation;
        again.restore(held.clone(), place, last);
    }
    again.restore_rest(&first.id, kept);
    decide(&mut again, START);
    assert_eq!(told(&node, &mut again, &first.id), Run::Stopped);
    again.unwant(&second.id);
    decide(&mut again, START);
    assert_eq!(told(&node, &mut again, &first.id), Run::Running);
}

#[test]
fn a_start_that_finds_its_place_full_begins_on_another_unless_it_would_rather_wait() {
    for policy in [LossPolicy::Replace, LossPolicy::Wait] {
        let (mut parent, mut node, mut first) = world(true);
        std::sync::Arc::make_mut(&mut first.spec).lost = policy;
        parent.want(whole(2));
        decide(&mut parent, START);
        let other = Peer::join(&mut parent, "n2", 4);
        first.run = Run::Running;
        parent.want(first.clone());
        node.follow(&mut parent, Phase::Stopped, START);
        decide(&mut parent, START);
        let place = parent.place_of(&first.id).map(|place| place.child.clone());
        assert_eq!(place, Some(if policy == LossPolicy::Replace { other.id } else { node.id }));
    }
}
