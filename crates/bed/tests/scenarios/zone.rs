//! A zone is lost and found again.

use std::time::Duration;

use api::{EnrolRole, ListQuery, WorkloadCreate};
use bed::{Bed, NodeSettings};
use model::{Affinity, Mode, Phase, Preference, WorkloadSpec};

use crate::{WAIT, calm, run, seen, sleeper, small};

#[test]
fn a_lost_zone_gives_its_instances_to_another_and_drops_them_when_it_is_back() {
    let mut bed = small(&["e1"]);
    let before = run(&bed, "web", sleeper());
    let id = before.id.as_str();
    bed.zone("west").unwrap();
    bed.node("west", "w1", &NodeSettings::default()).unwrap();

    bed.cut("east", "root").unwrap();
    bed.until("it runs in the other zone as well", WAIT, || {
        bed.runs_on(id).contains(&"w1".to_owned()).then_some(())
    })
    .unwrap();
    assert!(bed.runs_on(id).contains(&"e1".to_owned()), "the zone that is cut off keeps its promise");
    let after = seen(&bed, "web", "root sees it there", |seen| {
        seen.phase == Phase::Running && seen.node.as_ref().is_some_and(|node| node.as_str() == "w1")
    });
    assert!(after.generation.major > before.generation.major);

    bed.heal().unwrap();
    bed.until("the zone drops what is no longer its own", WAIT, || (bed.runs_on(id) == ["w1"]).then_some(()))
        .unwrap();
    calm(&bed);
}

#[test]
fn what_one_zone_has_no_place_for_finds_another_and_a_zone_without_power_loses_it_again() {
    let mut bed = small(&["e1"]);
    let mut first = sleeper();
    first.labels.insert("app".to_owned(), "keeper".to_owned());
    run(&bed, "keeper", first);
    bed.zone("west").unwrap();
    bed.node("west", "w1", &NodeSettings::default()).unwrap();

    // Which of its nodes hold what, only a zone knows; root is drawn to the wrong one.
    let mut shy = sleeper();
    let wished = |zone: &str| Preference {
        zone: Some(zone.to_owned()),
        node: None,
        label: None,
        value: None,
        weight: 100,
    };
    let apart = Affinity { label: "app".to_owned(), value: "keeper".to_owned(), anti: true, required: true };
    shy.constraints.prefer = vec![wished("east")];
    shy.constraints.affinity = vec![apart];
    assert_eq!(run(&bed, "shy", shy.clone()).node.unwrap().as_str(), "w1");

    // Where no other may have it, it waits, and the zone's reason is told.
    shy.constraints.zone = Some("east".to_owned());
    bed.create("stuck", shy).unwrap();
    seen(&bed, "stuck", "it says why it waits", |seen| {
        let says = seen.message.as_deref().unwrap_or_default();
        seen.phase == Phase::Pending && says.contains("app=keeper")
    });
    for name in ["stuck", "shy"] {
        bed.delete(name).unwrap();
    }

    // The zone's own machine dies, its node does not.
    let id = bed.instance("keeper").unwrap().id.to_string();
    let zone = bed.host("east").unwrap();
    zone.power_cut().unwrap();
    bed.until("it runs in the other zone as well", WAIT, || {
        assert!(bed.twins().is_empty());
        bed.runs_on(&id).contains(&"w1".to_owned()).then_some(())
    })
    .unwrap();
    zone.restart().unwrap();
    bed.until("its own zone lets go of it", WAIT, || {
        assert!(bed.twins().is_empty());
        (bed.runs_on(&id) == ["w1"]).then_some(())
    })
    .unwrap();
    calm(&bed);
}

#[test]
fn a_zone_keeps_every_promise_while_root_is_away() {
    let bed = small(&["e1", "e2"]);
    let before = run(&bed, "web", sleeper());
    let (id, first) = (before.id.as_str(), before.node.clone().unwrap());
    let other = if first.as_str() == "e1" { "e2" } else { "e1" };
    bed.host("root").unwrap().kill9().unwrap();

    // Its process ends: it is started again where it is.
    let old = bed.reality()[first.as_str()][id].pids.clone();
    let pid = rustix::process::Pid::from_raw(i32::try_from(old[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    bed.until("it is started again", WAIT, || {
        let held = bed.reality()[first.as_str()].get(id).cloned().unwrap_or_default();
        (held.runs() && held.pids.iter().all(|pid| !old.contains(pid))).then_some(())
    })
    .unwrap();

    // The zone's own process ends, and then the node's host: it comes up by itself and finds another node.
    let zone = bed.host("east").unwrap();
    zone.kill9().unwrap();
    zone.restart().unwrap();
    zone.up_wait().unwrap();
    bed.host(first.as_str()).unwrap().power_off().unwrap();
    bed.until("it runs on the other host", WAIT, || (bed.runs_on(id) == [other]).then_some(())).unwrap();

    bed.host("root").unwrap().restart().unwrap();
    seen(&bed, "web", "root sees the truth", |seen| {
        seen.phase == Phase::Running && seen.node.as_ref().is_some_and(|node| node.as_str() == other)
    });
    bed.host(first.as_str()).unwrap().restart().unwrap();
    calm(&bed);
}

/// The names of all instances, once so many of them run.
fn running(bed: &Bed, count: usize) -> Vec<String> {
    bed.until(&format!("{count} instances run"), WAIT, || {
        let mut all = bed.instances().ok()?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let well = all.len() == count && all.iter().all(|one| one.phase == Phase::Running);
        well.then(|| all.iter().map(|one| one.name.to_string()).collect())
    })
    .unwrap()
}

/// Waits until root hears that the zone counts so many nodes.
fn counts(bed: &Bed, nodes: u32) {
    bed.until(&format!("the zone counts {nodes} nodes"), WAIT, || {
        let zone = bed.ask(|client| async move { client.zone_get("east").await }).ok()?;
        (zone.live && zone.details?.facts?.nodes == nodes).then_some(())
    })
    .unwrap();
}

#[test]
fn a_zone_that_starts_again_keeps_its_daemons_before_it_hears_their_nodes() {
    let bed = small(&["e1", "e2"]);
    let mut spec = WorkloadSpec::new(sleeper());
    spec.mode = Mode::Daemon;
    let ask = WorkloadCreate { name: "probe".parse().unwrap(), app: None, spec };
    bed.ask(|client| async move { client.workload_create(&ask).await }).unwrap();
    let before = running(&bed, 2);

    // Its nodes are silent for longer than root takes to ask it which it has.
    let zone = bed.host("east").unwrap();
    let nodes = ["e1", "e2"].map(|name| bed.host(name).unwrap());
    nodes.iter().for_each(|node| node.freeze().unwrap());
    zone.kill9().unwrap();
    zone.restart().unwrap();
    zone.up_wait().unwrap();
    counts(&bed, 0);
    std::thread::sleep(Duration::from_secs(3));
    nodes.iter().for_each(|node| node.thaw().unwrap());
    counts(&bed, 2);
    assert_eq!(running(&bed, 2), before, "they go on under their names");
    let query = ListQuery::new().with("subject", "workload/probe");
    let events = bed.ask(|client| async move { client.event_list(&query).await }).unwrap().items;
    let changes: Vec<&str> = events
        .iter()
        .filter(|event| event.what == "workload.instances")
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(changes, ["made 2, removed 0, at revision 1"], "none was ended in between either");

    // A node goes for good, and its own with it.
    bed.ask(|client| async move { client.node_remove("e2", true).await }).unwrap();
    assert!(before.contains(&running(&bed, 1)[0]));
    bed.ask(|client| async move { client.workload_delete("probe", None).await }).unwrap();
    running(&bed, 0);
    calm(&bed);
}

#[test]
fn a_second_zone_of_the_same_name_is_refused() {
    let mut bed = small(&["e1"]);
    run(&bed, "web", sleeper());
    let other = bed.bare("other").unwrap();
    let token = bed.enrol(EnrolRole::Zone, None).unwrap();
    let said = other.role_try("zone", &bed.zone_config("east", &other, &token).unwrap()).unwrap();
    assert!(said.contains("east") && said.contains("already"), "{said}");
    calm(&bed);
}
