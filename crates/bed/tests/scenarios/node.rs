//! A node's process dies, a node's host dies, root is away meanwhile.

use model::Phase;

use crate::{WAIT, calm, run, seen, sleeper, small};

#[test]
fn a_killed_node_adopts_what_ran_on() {
    let bed = small(&["e1"]);
    let before = run(&bed, "web", sleeper());
    let id = before.id.as_str();
    let held = bed.reality()["e1"][id].clone();
    assert!(held.runs());

    let node = bed.host("e1").unwrap();
    node.kill9().unwrap();
    assert!(bed.reality()["e1"][id].runs(), "the container does not notice");
    node.restart().unwrap();
    node.up_wait().unwrap();
    let after = seen(&bed, "web", "it runs", |seen| seen.phase == Phase::Running);
    assert_eq!(after.generation, before.generation);
    let again = &bed.reality()["e1"][id];
    assert_eq!(again.pids.first(), held.pids.first(), "the same container");
    assert_eq!(again.generation, held.generation);
    bed.delete("web").unwrap();
    calm(&bed);
}

#[test]
fn a_dead_host_is_replaced_inside_its_zone_while_root_is_away() {
    let bed = small(&["e1", "e2"]);
    let before = run(&bed, "web", sleeper());
    let (id, first) = (before.id.as_str(), before.node.clone().unwrap());
    let other = if first.as_str() == "e1" { "e2" } else { "e1" };
    let old = bed.reality()[first.as_str()][id].generation;

    bed.host("root").unwrap().kill9().unwrap();
    bed.host(first.as_str()).unwrap().power_off().unwrap();
    bed.until("it runs on the other host", WAIT, || (bed.runs_on(id) == [other]).then_some(())).unwrap();

    bed.host("root").unwrap().restart().unwrap();
    seen(&bed, "web", "root sees where it is", |seen| {
        seen.phase == Phase::Running && seen.node.as_ref().is_some_and(|node| node.as_str() == other)
    });
    assert!(bed.reality()[other][id].generation > old, "a new place has a new generation");
    bed.host(first.as_str()).unwrap().restart().unwrap();
    calm(&bed);
    assert_eq!(bed.runs_on(id), [other]);
}
