//! What follows from policies: waiting for a lost place, giving way, emptying; and clocks that jump.

use model::{
    Area, Degrees, Generation, Group, InstanceId, Leg, LossPolicy, Moving, Phase, PlaceMode, Run, Timestamp,
    WorkloadId,
};
use tier::{Leases, Parent, ParentConfig};

use crate::common::*;

fn waiting(number: u128) -> model::Assignment {
    with(assignment(number, Run::Running), |spec| spec.lost = LossPolicy::Wait)
}

fn priority(number: u128, cores: u64, priority: i32) -> model::Assignment {
    with(assignment(number, Run::Running), |spec| {
        spec.cpu = model::Cpu(cores * 1000);
        spec.priority = priority;
    })
}

fn phase(parent: &Parent, id: &InstanceId) -> Phase {
    parent.view(id).expect("seen").phase
}

fn message(parent: &Parent, id: &InstanceId) -> String {
    parent.view(id).and_then(|view| view.message).unwrap_or_default()
}

/// Lets time pass as an owner does: leases are looked at all the time.
fn pass(parent: &mut Parent, from: Timestamp, ms: i64, alive: &[&Peer]) -> Timestamp {
    for step in 1..=ms / 1000 {
        let now = from.plus_ms(step * 1000);
        alive.iter().for_each(|peer| parent.heard(&peer.id, now));
        parent.expire(now);
    }
    from.plus_ms(ms)
}

#[test]
fn what_was_being_deleted_is_there_after_a_restart_until_its_child_says_gone() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let going = assignment(1, Run::Gone);
    let generation = Generation { major: going.generation.major, minor: 1 };
    let place = tier::Place { child: node.id.clone(), generation };
    parent.restore(going.clone(), Some(place), generation);
    assert!(!parent.gone(&going.id), "its place has not said so");
    node.follow(&mut parent, Phase::Gone, START);
    assert!(parent.gone(&going.id));
    // What never had a place is gone with the wish.
    let nowhere = assignment(2, Run::Gone);
    parent.restore(nowhere.clone(), None, nowhere.generation);
    assert!(parent.gone(&nowhere.id));
}

#[test]
fn what_waits_for_a_lost_place_goes_on_when_it_is_heard_again() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 4);
    let (stays, moves) = (waiting(1), assignment(2, Run::Running));
    parent.want(stays.clone());
    parent.want(moves.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let generation = parent.place_of(&stays.id).expect("placed").generation;
    let second = Peer::join(&mut parent, "n2", 4);

    let later = pass(&mut parent, START, LEASE_MS, &[&second]);
    decide(&mut parent, later);
    assert_eq!(phase(&parent, &stays.id), Phase::Lost);
    assert_eq!(message(&parent, &stays.id), "n1 does not answer; it waits for it");
    assert_eq!(parent.place_of(&moves.id).expect("placed again").child, second.id);

    parent.heard(&first.id, later);
    assert!(parent.news_take().contains(&stays.id));
    assert_eq!(phase(&parent, &stays.id), Phase::Running);
    assert_eq!(parent.place_of(&stays.id).expect("still there").generation, generation);

    // Deleted while its place is lost, it does not wait for that.
    let lost = pass(&mut parent, later, LEASE_MS, &[&second]);
    parent.want(model::Assignment { run: Run::Gone, ..stays.clone() });
    assert!(parent.gone(&stays.id));
    decide(&mut parent, lost);
}

#[test]
fn a_clock_that_jumps_kills_nobody_and_keeps_no_dead_ones() {
    for jump_ms in [3_600_000, -3_600_000] {
        let mut parent = parent();
        let (alive, _dead) = (Peer::join(&mut parent, "n1", 4), Peer::join(&mut parent, "n2", 4));
        let before = pass(&mut parent, START, 3_000, &[&alive]);
        let after = before.plus_ms(jump_ms);
        assert!(parent.expire(after).changed.is_empty());
        assert!(parent.reports().iter().all(|report| report.alive), "{jump_ms}");
        pass(&mut parent, after, LEASE_MS, &[&alive]);
        assert_eq!(lost(&parent), ["n2"], "{jump_ms}");
    }
}

#[test]
fn a_parent_that_stood_still_gives_everybody_a_fresh_lease() {
    let mut parent = parent();
    let _node = Peer::join(&mut parent, "n1", 4);
    parent.expire(START.plus_ms(1_000));
    assert!(!parent.expire(START.plus_ms(LEASE_MS + 1)).children_changed);
    assert!(parent.reports()[0].alive);
}

fn lost(parent: &Parent) -> Vec<String> {
    parent.reports().into_iter().filter(|report| !report.alive).map(|report| report.id.to_string()).collect()
}

#[test]
fn when_nobody_of_several_is_heard_all_get_one_more_lease() {
    let mut parent = parent();
    let (first, _second) = (Peer::join(&mut parent, "n1", 4), Peer::join(&mut parent, "n2", 4));
    let cut = pass(&mut parent, START, LEASE_MS + 5_000, &[]);
    assert!(lost(&parent).is_empty(), "the parent's own link may be the one that is cut");
    // It was: the first is back, the other may take as long as a lease, and no longer.
    let back = pass(&mut parent, cut, LEASE_MS - 1_000, &[&first]);
    assert!(lost(&parent).is_empty());
    let late = pass(&mut parent, back, 2_000, &[&first]);
    assert_eq!(lost(&parent), ["n2"]);

    // Alone, it is lost with its lease; and after two leases of silence several are too.
    pass(&mut parent, late, LEASE_MS + 1_000, &[]);
    assert_eq!(lost(&parent), ["n1", "n2"]);
    let mut parent = tier_of_two();
    let end = pass(&mut parent, START, 2 * LEASE_MS - 1_000, &[]);
    assert!(lost(&parent).is_empty());
    pass(&mut parent, end, 2_000, &[]);
    assert_eq!(lost(&parent), ["n1", "n2"]);
}

#[test]
fn a_dead_child_beside_one_that_is_slow_gets_no_lease_after_lease() {
    for beat_ms in (1_000..LEASE_MS).step_by(500) {
        let mut parent = parent();
        let (slow, _dead) = (Peer::join(&mut parent, "n1", 4), Peer::join(&mut parent, "n2", 4));
        let mut now = START;
        // At the worst, nobody was heard for a while when the dead one was due: twice as long, once.
        for beat in (beat_ms..3 * LEASE_MS).step_by(beat_ms as usize) {
            now = pass(&mut parent, now, beat_ms, &[]);
            parent.heard(&slow.id, now);
            let late = beat > LEASE_MS + 1_000;
            assert!(!late || lost(&parent) == ["n2"], "beats of {beat_ms} ms, after {beat}");
        }
    }
    // Where the parent is cut off again and again, the child that never comes back is not spared again.
    let mut parent = parent();
    let (back, _dead) = (Peer::join(&mut parent, "n1", 4), Peer::join(&mut parent, "n2", 4));
    let cut = pass(&mut parent, START, LEASE_MS + 1_000, &[]);
    parent.heard(&back.id, cut);
    let again = pass(&mut parent, cut, LEASE_MS + 1_000, &[]);
    parent.heard(&back.id, again);
    assert_eq!(lost(&parent), ["n2"]);
}

#[test]
fn who_cannot_be_heard_at_the_moment_is_not_lost() {
    let mut parent = parent();
    let (behind, direct) = (Peer::join(&mut parent, "n1", 4), Peer::join(&mut parent, "n2", 4));
    let unheard = model::ChildId::from("n3");
    parent.child_add(unheard.clone(), None, START);
    let mut now = START;
    for _ in 0..10 {
        parent.spare(std::slice::from_ref(&behind.id), now);
        now = pass(&mut parent, now, LEASE_MS / 2, &[]);
    }
    assert_eq!(lost(&parent), [direct.id.as_str()], "its silence does say something");
    pass(&mut parent, now, LEASE_MS + 1_000, &[]);
    assert_eq!(lost(&parent), ["n1", "n2", "n3"]);
}

fn tier_of_two() -> Parent {
    let mut parent = parent();
    Peer::join(&mut parent, "n1", 4);
    Peer::join(&mut parent, "n2", 4);
    parent
}

#[test]
fn the_lower_priority_gives_way_and_says_to_whom() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let (small, large) = (priority(1, 1, 0), priority(2, 3, 0));
    parent.want(small.clone());
    parent.want(large.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);

    let urgent = priority(3, 1, 10);
    parent.want(urgent.clone());
    decide(&mut parent, START);
    assert!(parent.place_of(&urgent.id).is_none(), "nothing is free before the other one is gone");
    node.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    assert_eq!(parent.place_of(&urgent.id).expect("placed").child, node.id);
    let gone: Vec<_> =
        [&small, &large].into_iter().filter(|other| parent.place_of(&other.id).is_none()).collect();
    assert_eq!(gone.len(), 1, "the fewest");
    assert_eq!(message(&parent, &gone[0].id), "gave way to i-3 (priority 10 over 0)");
    assert!(parent.stuck(&gone[0].id), "it waits");
}

#[test]
fn nobody_gives_way_to_equals_or_where_it_would_not_help() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let held = priority(1, 4, 5);
    parent.want(held.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    for other in [priority(2, 1, 5), priority(3, 1, 4), priority(4, 5, 9)] {
        parent.want(other.clone());
        decide(&mut parent, START);
        node.follow(&mut parent, Phase::Running, START);
        decide(&mut parent, START);
        assert!(parent.stuck(&other.id));
        assert_eq!(phase(&parent, &held.id), Phase::Running);
    }
}

#[test]
fn the_lowest_go_first_and_no_more_than_needed() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let held: Vec<_> = (1..=4).map(|number| priority(number, 1, number as i32)).collect();
    held.iter().for_each(|one| parent.want(one.clone()));
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    parent.want(priority(9, 2, 9));
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    let placed: Vec<bool> = held.iter().map(|one| parent.place_of(&one.id).is_some()).collect();
    assert_eq!(placed, [false, false, true, true]);
}

#[test]
fn an_emptied_child_is_told_to_drop_before_another_place_is_sought() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let generation = parent.place_of(&wanted.id).expect("placed").generation;
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    decide(&mut parent, START);
    assert_eq!(
        parent.reports()[0].left.as_deref(),
        Some("i-1 has no other place in its zone; it moves when root finds one in another")
    );

    let mut second = Peer::join(&mut parent, "n2", 4);
    decide(&mut parent, START);
    assert_eq!(parent.place_of(&wanted.id).expect("not yet").child, first.id);
    first.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    let place = parent.place_of(&wanted.id).expect("moved").clone();
    assert!(place.child == second.id && place.generation > generation);
    second.follow(&mut parent, Phase::Running, START);
    first.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    assert_eq!((first.holds(), parent.reports()[0].left.clone()), (0, None));
}

#[test]
fn a_workload_keeps_as_many_as_it_asks_for_while_its_node_empties() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 8);
    let members: Vec<_> = (1..=6).map(|number| member(number, false)).collect();
    members.iter().for_each(|one| parent.want(one.clone()));
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let mut second = Peer::join(&mut parent, "n2", 8);
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    let moving = |parent: &Parent, number: usize| parent.view(&members[number].id).expect("known").moving;
    for _ in 0..5 {
        decide(&mut parent, START);
        first.follow(&mut parent, Phase::Running, START);
    }
    assert_eq!(first.holds(), 6, "nobody let them go");
    assert!((0..6).all(|number| moving(&parent, number) == Some(Moving::Asks)));
    assert!(parent.reports()[0].left.as_deref().is_some_and(|left| left.contains("root lets it go")));

    // Two may go: they are said to leave until they are off their node.
    members[..2].iter().for_each(|one| parent.want(let_go(one, true)));
    decide(&mut parent, START);
    assert!((0..2).all(|number| moving(&parent, number) == Some(Moving::Leaves)));
    for _ in 0..5 {
        first.follow(&mut parent, Phase::Running, START);
        decide(&mut parent, START);
        second.follow(&mut parent, Phase::Running, START);
    }
    assert_eq!((first.holds(), second.holds()), (4, 2));
    assert_eq!((moving(&parent, 0), moving(&parent, 2)), (None, Some(Moving::Asks)));
    assert!(second.child.assignments().all(|held| held.group.as_ref().is_some_and(|group| !group.may_move)));

    // Nobody empties the node any more, so nobody asks.
    parent.mode_set(&first.id, PlaceMode::Open, false);
    assert_eq!(moving(&parent, 2), None);
}

/// A zone that asks for leave to move everything it holds, and does what it may; says how many are on their way.
fn zone_moves(parent: &mut Parent, zone: &mut Peer, away: &[InstanceId]) -> usize {
    if let Some(desired) = parent.desired(&zone.id, zone.child.have()) {
        zone.child.desired(desired).expect("applies");
    }
    let held: Vec<_> = zone.child.assignments().cloned().collect();
    let mut leaving = 0;
    for one in held {
        let mut seen = model::ObservedInstance::new(one.id.clone(), one.generation, Phase::Running);
        let may_move = one.group.is_some_and(|group| group.may_move);
        if !away.contains(&one.id) {
            seen.moving = Some(if may_move { Moving::Leaves } else { Moving::Asks });
            leaving += usize::from(may_move);
        }
        zone.child.observe(seen);
    }
    zone.report(parent, START);
    leaving
}

#[test]
fn two_zones_that_are_emptied_at_once_share_what_a_workload_may_miss() {
    for (most, least_steps) in [(1, 6), (2, 3)] {
        let mut parent = Parent::new(ParentConfig::over_zones(1));
        let mut zones = [Peer::join(&mut parent, "east", 3), Peer::join(&mut parent, "west", 3)];
        parent.limit_set(&WorkloadId::from_random(1), most);
        (1..=6).for_each(|number| parent.want(member(number, false)));
        decide(&mut parent, START);
        let (mut away, mut steps) = (Vec::new(), 0);
        zones.iter_mut().for_each(|zone| zone.follow(&mut parent, Phase::Running, START));
        while away.len() < 6 {
            steps += 1;
            assert!(steps < 20, "everything moves in the end, not only {away:?}");
            decide(&mut parent, START);
            // Once more while some leave: those count.
            for _ in 0..2 {
                let moves = |zone: &mut Peer| zone_moves(&mut parent, zone, &away);
                let leaving: usize = zones.iter_mut().map(moves).sum();
                assert!(leaving <= most as usize, "{leaving} are on their way, {most} may be");
                decide(&mut parent, START);
            }
            for zone in &zones {
                let gone =
                    zone.child.assignments().filter(|one| one.group.as_ref().is_some_and(|g| g.may_move));
                away.extend(gone.map(|one| one.id.clone()));
            }
            away.sort();
            away.dedup();
            for zone in &mut zones {
                zone_moves(&mut parent, zone, &away);
            }
        }
        assert!(steps >= least_steps);
    }
}

#[test]
fn a_new_number_holds_for_what_is_there_and_with_none_nothing_moves() {
    let mut parent = Parent::new(ParentConfig::over_zones(1));
    let mut east = Peer::join(&mut parent, "east", 8);
    let workload = WorkloadId::from_random(1);
    parent.limit_set(&workload, 0);
    (1..=4).for_each(|number| parent.want(member(number, false)));
    decide(&mut parent, START);
    east.follow(&mut parent, Phase::Running, START);
    let mut leaving = |parent: &mut Parent| {
        zone_moves(parent, &mut east, &[]);
        decide(parent, START);
        zone_moves(parent, &mut east, &[])
    };
    assert_eq!(leaving(&mut parent), 0);
    parent.limit_set(&workload, 3);
    assert_eq!(leaving(&mut parent), 3);
}

fn member(number: u128, may_move: bool) -> model::Assignment {
    let group = Group { workload: WorkloadId::from_random(1), may_move };
    model::Assignment { group: Some(group), ..assignment(number, Run::Running) }
}

fn let_go(one: &model::Assignment, may_move: bool) -> model::Assignment {
    let group = one.group.clone().map(|group| Group { may_move, ..group });
    model::Assignment { group, ..one.clone() }
}

#[test]
fn what_is_pinned_or_waits_stays_on_an_emptied_child() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 8);
    let pinned = with(assignment(1, Run::Running), |spec| spec.constraints.node = Some("n1".to_owned()));
    let stays = waiting(2);
    parent.want(pinned.clone());
    parent.want(stays.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let _second = Peer::join(&mut parent, "n2", 8);
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    decide(&mut parent, START);
    let left = parent.reports()[0].left.clone().expect("something is left");
    assert_eq!(left, "i-1 is pinned to its node; i-2 waits for its place; with force it moves too");
    parent.mode_set(&first.id, PlaceMode::Draining, true);
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    decide(&mut parent, START);
    assert_ne!(parent.place_of(&stays.id).expect("moved").child, first.id);
    assert_eq!(parent.place_of(&pinned.id).expect("stays").child, first.id);
}

#[test]
fn a_child_that_says_goodbye_keeps_what_it_holds_for_the_time_of_a_restart() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 8);
    let (moves, later) = (assignment(1, Run::Running), assignment(2, Run::Running));
    parent.want(moves.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let second = Peer::join(&mut parent, "n2", 4);
    let place = parent.place_of(&moves.id).cloned();

    parent.leaving(&first.id, START);
    parent.link_lost(&first.id, START);
    assert!(parent.reports()[0].alive && parent.reports()[0].restarting);
    parent.want(later.clone());
    let now = pass(&mut parent, START, 2 * LEASE_MS, &[&second]);
    decide(&mut parent, now);
    assert_eq!(parent.place_of(&moves.id).cloned(), place);
    assert_eq!(parent.place_of(&later.id).expect("placed").child, second.id, "it gets nothing new");
    // Back in time: nothing has happened, and a kill is noticed as ever.
    first.report(&mut parent, now);
    assert!(!parent.reports()[0].restarting);
    parent.link_lost(&first.id, now);
    let now = pass(&mut parent, now, LEASE_MS, &[&second]);
    decide(&mut parent, now);
    assert_eq!(parent.place_of(&moves.id).expect("moved").child, second.id);

    // One that does not come back is lost when the time is over.
    first.report(&mut parent, now);
    parent.leaving(&second.id, now);
    let now = pass(&mut parent, now, tier::STOP_GRACE_MS, &[&first]);
    decide(&mut parent, now);
    assert!(!parent.reports()[1].alive && !parent.reports()[1].restarting);
    assert_eq!(parent.place_of(&moves.id).expect("moved").child, first.id);
}

#[test]
fn what_is_pinned_waits_for_its_node_and_ends_only_with_it() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 8);
    let pinned = with(assignment(1, Run::Running), |spec| spec.constraints.node = Some("n1".to_owned()));
    parent.want(pinned.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let second = Peer::join(&mut parent, "n2", 8);
    let place = parent.place_of(&pinned.id).cloned();
    let now = pass(&mut parent, START, LEASE_MS, &[&second]);
    decide(&mut parent, now);
    assert_eq!((phase(&parent, &pinned.id), parent.place_of(&pinned.id).cloned()), (Phase::Lost, place));
    assert!(!parent.stuck(&pinned.id), "nobody above looks for another place");
    first.report(&mut parent, now);
    assert_eq!(phase(&parent, &pinned.id), Phase::Running);

    assert!(!parent.child_drained(&first.id));
    parent.mode_set(&first.id, PlaceMode::Draining, false);
    decide(&mut parent, now);
    assert!(parent.child_drained(&first.id) && parent.reports()[0].remaining[0].pinned);
    parent.child_remove(&first.id);
    decide(&mut parent, now);
    assert!(parent.stuck(&pinned.id));
}

#[test]
fn a_child_that_refuses_again_and_again_is_asked_more_and_more_rarely() {
    let leases = Leases { lease_ms: 3_600_000, gone_grace_ms: LEASE_MS, avoid_ms: AVOID_MS };
    let config = || ParentConfig { leases, ..ParentConfig::over_zones(1) };
    let refuse = |parent: &mut Parent, zone: &mut Peer, id: &InstanceId, named: Option<&str>, now| {
        let Some(place) = parent.place_of(id).cloned() else { return false };
        let mut seen = model::ObservedInstance::new(id.clone(), place.generation, Phase::Pending);
        let verdicts = named.map(|node| model::Verdict {
            candidate: node.to_owned(),
            outcome: model::Outcome::Rejected { reason: "is full".to_owned() },
        });
        seen.explanation = Some(std::sync::Arc::new(model::Explanation {
            at: now,
            by: "zone".to_owned(),
            chosen: None,
            verdicts: verdicts.into_iter().collect(),
            others: Vec::new(),
        }));
        seen.refused = true;
        zone.child.observe(seen);
        zone.report(parent, now);
        true
    };
    let tries = |pinned: bool, named: Option<&str>| {
        let mut parent = Parent::new(config());
        let mut zone = Peer::join(&mut parent, "east", 8);
        let wanted = with(assignment(1, Run::Running), |spec| {
            spec.constraints.node = pinned.then(|| "n1".to_owned());
        });
        parent.want(wanted.clone());
        let mut count = 0;
        for second in 0..300 {
            let now = START.plus_ms(second * 1_000);
            decide(&mut parent, now);
            count += usize::from(refuse(&mut parent, &mut zone, &wanted.id, named, now));
        }
        // Other members than before: it is asked at once.
        let now = START.plus_ms(300_000);
        let facts = model::Facts { members: 7, ..zone.child.facts().clone() };
        zone.child.facts_set(facts);
        zone.report(&mut parent, now);
        decide(&mut parent, now);
        (count, parent.place_of(&wanted.id).is_some())
    };
    assert_eq!(tries(true, None), (1, true), "it does not have that node");
    let (count, asked) = tries(true, Some("n1"));
    assert!(asked && (5..=10).contains(&count), "{count}");
    let (count, asked) = tries(false, None);
    assert!(asked && (5..=10).contains(&count), "{count}");
}

#[test]
fn a_child_that_gives_up_what_it_should_hold_loses_it() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    let generation: Generation = parent.place_of(&wanted.id).expect("placed").generation;
    node.follow(&mut parent, Phase::Gone, START);
    decide(&mut parent, START);
    assert!(parent.place_of(&wanted.id).expect("placed again").generation > generation);
}

#[test]
fn a_child_that_a_new_parent_never_heard_is_told_of_once_it_is_lost() {
    let mut parent = parent();
    let (held, empty) = (model::ChildId::from("id-1"), model::ChildId::from("id-2"));
    parent.child_add(held.clone(), None, START);
    parent.child_add(empty.clone(), None, START);
    let pinned = with(assignment(1, Run::Running), |spec| spec.constraints.node = Some("n1".to_owned()));
    let place = tier::Place { child: held.clone(), generation: pinned.generation };
    parent.restore(pinned.clone(), Some(place), pinned.generation);
    assert!(parent.reports().is_empty(), "they may be heard yet");
    pass(&mut parent, START, LEASE_MS, &[]);
    assert_eq!(phase(&parent, &pinned.id), Phase::Lost);
    let told: Vec<_> = parent.reports().into_iter().map(|report| (report.facts, report.alive)).collect();
    let told: Vec<_> = told.iter().map(|(facts, alive)| (facts.name.as_str(), facts.nodes, *alive)).collect();
    assert_eq!(told, [("n1", 0, false), ("id-2", 0, false)], "by the name that is asked for, or by id");
    assert_eq!(parent.child_by_name("n1"), Some(held.clone()));
    parent.child_remove(&held);
    assert_eq!(phase(&parent, &pinned.id), Phase::Pending);
    assert!(parent.child_by_name("n1").is_none());
}

#[test]
fn the_aggregate_has_the_ways_and_the_area_of_its_nodes() {
    let mut parent = parent();
    for (name, zone_us, city_us, latitude) in [("n1", 500, 4_000, 48.0), ("n2", 900, 9_000, 49.0)] {
        let mut node = Peer::join(&mut parent, name, 4);
        let mut facts = node.child.facts().clone();
        facts.legs = [("zone".to_owned(), Leg::of(zone_us)), ("city".to_owned(), Leg::of(city_us))].into();
        facts.area =
            Some(Area { latitude: Degrees::new(latitude), longitude: Degrees::new(11.0), radius_km: 0 });
        node.child.facts_set(facts);
        node.report(&mut parent, START);
    }
    let members = parent.aggregate("east".parse().expect("a name"), "1", None).members;
    let whole = parent.aggregate("east".parse().expect("a name"), "1", Some(10_000));
    assert_eq!(whole.members, members);
    assert_eq!(whole.legs["city"], Leg { min_us: 4_000, max_us: 9_000 });
    assert_eq!(whole.legs["root"], Leg { min_us: 10_500, max_us: 10_900 });
    assert!(!whole.legs.contains_key("zone"));
    assert!((100..130).contains(&whole.area.expect("an area").radius_km));
    assert_eq!(whole.free.expect("free").cpu.0, 8_000);
    parent.mode_set(&"n1".into(), PlaceMode::Cordoned, false);
    let whole = parent.aggregate("east".parse().expect("a name"), "1", None);
    assert!(whole.members > members && whole.free.expect("free").cpu.0 == 4_000);
}
