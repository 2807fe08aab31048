//! A parent over children: placing, losing, refusing, emptying, giving way.

mod common;
mod handed;
mod heal;
mod policy;
mod rest;

use model::{Assignment, Cpu, ObservedInstance, Outcome, Phase, Run};

use common::*;

#[test]
fn an_instance_is_placed_told_and_seen() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    assert!(parent.told_take().contains(&node.id));
    node.follow(&mut parent, Phase::Running, START);
    let view = parent.view(&wanted.id).expect("seen");
    assert_eq!(view.phase, Phase::Running);
    assert_eq!(view.generation, wanted.generation, "above, the generation of above is spoken");
    let why = parent.explanation(&wanted.id).expect("explained");
    assert!(matches!(why.verdicts[0].outcome, Outcome::Chosen { .. }));
}

#[test]
fn what_a_lost_child_held_runs_elsewhere_under_a_newer_generation() {
    let mut parent = parent();
    let mut first = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    first.follow(&mut parent, Phase::Running, START);
    let old = parent.place_of(&wanted.id).expect("placed").generation;
    let mut second = Peer::join(&mut parent, "n2", 4);

    let later = START.plus_ms(LEASE_MS);
    parent.heard(&second.id, later);
    assert_eq!(parent.expire(later).changed, vec![wanted.id.clone()]);
    decide(&mut parent, later);
    second.follow(&mut parent, Phase::Running, later);
    let place = parent.place_of(&wanted.id).expect("placed again").clone();
    assert_eq!(place.child, second.id);
    assert!(place.generation > old);

    // The first comes back and still says it runs: it is not believed, and told to drop it.
    let mut stale = ObservedInstance::new(wanted.id.clone(), old, Phase::Exited);
    stale.message = Some("old news".to_owned());
    first.child.observe(stale);
    first.report(&mut parent, later);
    assert_eq!(parent.view(&wanted.id).expect("seen").phase, Phase::Running);
    first.follow(&mut parent, Phase::Running, later);
    assert_eq!(first.holds(), 0);
}

#[test]
fn a_child_that_refuses_is_not_asked_again_at_once() {
    let mut parent = parent();
    let mut only = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    if let Some(desired) = parent.desired(&only.id, None) {
        only.child.desired(desired).expect("applies");
    }
    let generation = parent.place_of(&wanted.id).expect("placed").generation;
    let mut refusal = ObservedInstance::new(wanted.id.clone(), generation, Phase::Pending);
    refusal.refused = true;
    only.child.observe(refusal);
    only.report(&mut parent, START);
    assert!(parent.place_of(&wanted.id).is_none());
    decide(&mut parent, START);
    assert!(parent.place_of(&wanted.id).is_none(), "the one that refused is avoided");
    let later = START.plus_ms(AVOID_MS);
    assert!(parent.next_deadline().is_some_and(|deadline| deadline <= later));
    parent.heard(&only.id, later);
    decide(&mut parent, later);
    assert!(parent.place_of(&wanted.id).expect("asked again").generation > generation);
}

#[test]
fn what_does_not_fit_waits_until_there_is_room() {
    let mut parent = parent();
    let _small = Peer::join(&mut parent, "n1", 1);
    let (first, second) = (assignment(1, Run::Running), assignment(2, Run::Running));
    parent.want(first.clone());
    parent.want(second.clone());
    decide(&mut parent, START);
    assert!(parent.place_of(&first.id).is_some());
    assert!(parent.stuck(&second.id));
    assert!(!parent.undecided(START), "nothing changed, so nothing is tried");
    parent.unwant(&first.id);
    decide(&mut parent, START);
    assert!(parent.place_of(&second.id).is_some());
}

#[test]
fn deletion_ends_when_the_holder_says_gone_or_there_is_none() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    parent.want(Assignment { run: Run::Gone, ..wanted.clone() });
    assert!(!parent.gone(&wanted.id));
    node.follow(&mut parent, Phase::Gone, START);
    assert!(parent.gone(&wanted.id));
    assert_eq!(parent.view(&wanted.id).expect("seen").phase, Phase::Gone);

    let never_placed = assignment(2, Run::Gone);
    parent.want(never_placed.clone());
    assert!(parent.gone(&never_placed.id));
}

#[test]
fn a_short_absence_moves_nothing() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    parent.link_lost(&node.id, START);
    parent.heard(&node.id, START.plus_ms(LEASE_MS / 4));
    assert!(parent.expire(START.plus_ms(LEASE_MS / 2)).changed.is_empty());
    assert!(parent.place_of(&wanted.id).is_some());
}

#[test]
fn a_zone_of_many_nodes_is_not_refused_for_what_its_aggregate_leaves_out() {
    let mut zone = parent();
    for number in 0..100 {
        let mut facts = facts(&format!("n{number}"), 4);
        facts.labels.insert("hostname".to_owned(), vec![format!("h{number:03}")]);
        facts.labels.insert("disk".to_owned(), vec!["ssd".to_owned()]);
        facts.gpus = vec![model::GpuDevice { model: "a100".to_owned(), free_milli: 1000 }; 8];
        let id = model::ChildId::from(format!("n{number}").as_str());
        zone.child_add(id.clone(), Some(facts), START);
    }
    let whole = zone.aggregate("east".parse().expect("a name"), "1", None);
    let text = serde_json::to_string(&whole).expect("is JSON");
    assert!(text.len() < 4_000, "{} bytes", text.len());
    let told: model::Facts = serde_json::from_str(&text).expect("reads back");
    assert_eq!((told.gpus.len(), &told), (800, &whole));

    let mut root = tier::Parent::new(tier::ParentConfig::over_zones(1));
    root.child_add("east".into(), Some(told), START);
    root.heard(&"east".into(), START);
    let on = |number: u128, key: &str, value: &str| {
        with(assignment(number, Run::Running), |spec| {
            spec.constraints.node_labels.insert(key.to_owned(), value.to_owned());
        })
    };
    let (last, none) = (on(1, "hostname", "h099"), on(2, "disk", "tape"));
    root.want(last.clone());
    root.want(none.clone());
    let with_gpu = |number: u128| {
        with(assignment(number, Run::Running), |spec| {
            spec.cpu = Cpu(100);
            spec.gpu = Some(model::GpuAsk { count: 1, milli: 1000, models: vec!["a100".to_owned()] });
        })
    };
    (100..200).for_each(|number| root.want(with_gpu(number)));
    for _ in 0..3 {
        decide(&mut root, START);
    }
    assert!(root.place_of(&last.id).is_some(), "the zone decides");
    assert!(root.place_of(&none.id).is_none());
    let placed = (100..200).filter(|number| root.place_of(&with_gpu(*number).id).is_some()).count();
    assert_eq!(placed, 100, "not only as many as fit a list");
}

#[test]
fn the_aggregate_speaks_as_one_large_child_and_names_none() {
    let mut parent = parent();
    let _a = Peer::join(&mut parent, "n1", 4);
    let _b = Peer::join(&mut parent, "n2", 2);
    parent.want(assignment(1, Run::Running));
    decide(&mut parent, START);
    let whole = parent.aggregate("east".parse().expect("a name"), "1", None);
    assert_eq!(whole.nodes, 2);
    assert_eq!(whole.capacity.cpu, Cpu(6000));
    assert_eq!(whole.largest.expect("a largest slot").cpu, Cpu(4000), "best fit took the smaller node");
    assert!(!format!("{whole:?}").contains("n1"));
}
