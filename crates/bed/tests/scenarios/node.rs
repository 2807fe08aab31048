//! A node's process dies, a node's host dies, root is away meanwhile.

use std::time::Duration;

use api::EnrolRole;
use bed::{Bed, NodeSettings};
use model::{Cpu, InstanceSpec, LossPolicy, Phase, PlaceMode};

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

#[test]
fn a_node_without_mqtt_keeps_the_same_promises() {
    let mut bed = small(&["e1"]);
    bed.node("east", "e2", &NodeSettings { https: true, ..NodeSettings::default() }).unwrap();
    let mode = |mode| bed.ask(|client| async move { client.node_mode("e1", mode, false).await }).unwrap();
    mode(PlaceMode::Cordoned);
    let before = run(&bed, "web", sleeper());
    let id = before.id.as_str();
    assert_eq!(bed.runs_on(id), ["e2"]);
    mode(PlaceMode::Open);

    // Its process dies and adopts what ran on; its host dies and another takes it.
    let node = bed.host("e2").unwrap();
    node.kill9().unwrap();
    node.restart().unwrap();
    node.up_wait().unwrap();
    let after = seen(&bed, "web", "it runs", |seen| seen.phase == Phase::Running);
    assert_eq!((after.generation, bed.runs_on(id)), (before.generation, vec!["e2".to_owned()]));
    node.power_off().unwrap();
    bed.until("it runs on the other host", WAIT, || (bed.runs_on(id) == ["e1"]).then_some(())).unwrap();
    node.restart().unwrap();
    calm(&bed);
    assert_eq!(bed.runs_on(id), ["e1"]);
}

#[test]
fn what_matters_more_takes_the_room_of_what_matters_less_and_gives_it_back() {
    let bed = small(&["e1"]);
    let room = bed.ask(|client| async move { client.node_get("e1").await }).unwrap().facts.capacity.cpu;
    let large = |priority| InstanceSpec { cpu: Cpu(room.0 * 6 / 10), priority, ..sleeper() };
    let low = run(&bed, "low", large(0));
    assert_eq!(bed.runs_on(low.id.as_str()), ["e1"]);
    let high = run(&bed, "high", large(10));
    assert_eq!(bed.runs_on(high.id.as_str()), ["e1"]);
    assert!(bed.runs_on(low.id.as_str()).is_empty(), "there is room for one");
    seen(&bed, "low", "it waits", |seen| seen.phase == Phase::Pending);
    // One of the same priority takes nothing from anybody.
    bed.create("other", large(10)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(bed.runs_on(high.id.as_str()), ["e1"]);
    bed.delete("other").unwrap();
    bed.delete("high").unwrap();
    seen(&bed, "low", "it runs again", |seen| seen.phase == Phase::Running);
    calm(&bed);
    assert_eq!(bed.runs_on(low.id.as_str()), ["e1"]);
}

#[test]
fn an_instance_that_waits_for_its_host_goes_on_there() {
    let bed = small(&["e1", "e2"]);
    let mut spec = sleeper();
    spec.lost = LossPolicy::Wait;
    let before = run(&bed, "web", spec);
    let (id, node) = (before.id.as_str(), before.node.clone().unwrap());
    bed.host(node.as_str()).unwrap().power_off().unwrap();
    seen(&bed, "web", "it is seen as lost", |seen| seen.phase == Phase::Lost);
    std::thread::sleep(Duration::from_secs(3));
    assert!(bed.runs_on(id).is_empty(), "nobody else takes it");
    bed.host(node.as_str()).unwrap().restart().unwrap();
    let after = seen(&bed, "web", "it runs again", |seen| seen.phase == Phase::Running);
    assert_eq!(after.node, Some(node));
    calm(&bed);
}

#[test]
fn a_full_disk_is_survived() {
    let bed = small(&["e1"]);
    run(&bed, "web", sleeper());
    for name in ["e1", "east", "root"] {
        let host = bed.host(name).unwrap();
        host.fill_disk().unwrap();
        // Root has a reserve for this; the others are asked for what they cannot do.
        bed.create(&format!("more-{name}"), sleeper()).unwrap();
        if name == "root" {
            bed.delete("more-east").unwrap();
            host.fill_disk().unwrap();
            assert!(bed.create("refused", sleeper()).is_err(), "nothing is left to keep it with");
        }
        std::thread::sleep(Duration::from_secs(2));
        host.free_disk().unwrap();
        calm(&bed);
    }
    run(&bed, "last", sleeper());
    calm(&bed);
}

#[test]
fn clocks_that_jump_are_survived() {
    let bed = small(&["e1", "e2"]);
    let before = run(&bed, "web", sleeper());
    let (id, node) = (before.id.as_str(), before.node.clone().unwrap());
    for (host, ahead) in
        [("e1", 3600), ("e1", -3600), ("east", 3600), ("east", -3600), ("root", 3600), ("root", 0)]
    {
        bed.host(host).unwrap().clock_jump(ahead).unwrap();
        let name = format!("{host}{}", ahead.abs() + i64::from(ahead > 0));
        run(&bed, &name, sleeper());
        bed.delete(&name).unwrap();
    }
    calm(&bed);
    assert_eq!(bed.runs_on(id), [node.as_str()], "it was never moved");
    assert_eq!(bed.instance("web").unwrap().generation, before.generation);
}

#[test]
fn a_token_that_was_used_or_made_up_is_refused() {
    let mut bed = small(&[]);
    let stranger = bed.bare("stranger").unwrap();
    let token = bed.enrol(EnrolRole::Node, Some("east")).unwrap();
    let refused = |bed: &Bed, token: &str| {
        let config = bed.node_config("east", "e9", &stranger, token, &NodeSettings::default()).unwrap();
        let said = stranger.role_try("node", &config).unwrap();
        assert!(said.contains("token"), "{said}");
        assert!(!stranger.data_seen().join("identity").exists(), "nothing is kept");
    };
    let mut forged = token.clone().into_bytes();
    let middle = forged.len() / 2;
    forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
    refused(&bed, &String::from_utf8(forged).unwrap());
    bed.node_with("east", "e1", &token, &NodeSettings::default()).unwrap();
    refused(&bed, &token);
    run(&bed, "web", sleeper());
    calm(&bed);
}
