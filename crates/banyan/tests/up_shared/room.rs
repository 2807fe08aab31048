//! Placement as a person sees it: where it went and why, and what happens when there is no room.

use crate::support::*;

fn capacity(cloud: &Cloud) -> u64 {
    let nodes = cloud.json(&["node", "list"]);
    let text = nodes[0]["facts"]["capacity"]["memory"].to_string();
    text.trim_matches('"').parse::<model::Bytes>().unwrap_or_else(|_| panic!("{nodes:#}")).0
}

#[test]
fn why_names_every_candidate() {
    let cloud = Cloud::shared();
    cloud.create("placed", &[], "sleep 100000");
    let node = cloud.get("placed")["node"].as_str().unwrap().to_owned();
    let why = cloud.good(&["why", "instance", "placed"]);
    says(&why, &["root chose local", &format!("local chose {node}"), "CANDIDATE", "best of those that fit"]);
    let why = cloud.json(&["why", "instance", "placed"]);
    assert_eq!(why["zone"]["verdicts"][0]["candidate"], node.as_str());
    cloud.good(&["instance", "delete", "placed"]);
    says(&cloud.good(&["zone", "list"]), &["local", "connected"]);
    says(&cloud.good(&["node", "list"]), &[&node, "alive"]);
}

#[test]
fn what_does_not_fit_waits_and_is_placed_when_room_appears() {
    let cloud = Cloud::shared();
    let most = format!("{}MiB", capacity(&cloud) / 10 * 6 / (1 << 20));
    cloud.create("hog", &["--memory", &most], "sleep 100000");
    let words = ["instance", "create", "late", "--image", "busybox", "--no-wait", "--memory", &most];
    cloud.good(&[&words[..], &["--", "sleep", "100000"]].concat());
    let late = cloud.wait("late", "refused a place", |i| i["message"].is_string());
    assert_eq!(late["phase"], "pending", "{late:#}");
    let why = cloud.good(&["why", "instance", "late"]);
    says(&why, &["late is pending", "local", "rejected", "needs ", " memory, ", " free"]);
    cloud.good(&["instance", "delete", "hog"]);
    cloud.wait("late", "placed", |i| i["phase"] == "running");
    says(&cloud.good(&["why", "instance", "late"]), &["root chose local"]);
    let events = cloud.events("late");
    assert!(whats(&events).contains(&"instance.unplaceable"), "{:?}", whats(&events));
    cloud.good(&["instance", "delete", "late"]);
}

#[test]
fn constraints_that_nothing_meets_are_named() {
    let cloud = Cloud::shared();
    for (name, option, value, reason) in [
        ("far", "--zone", "moon", "moon"),
        ("odd", "--node-label", "disk=tape", "disk=tape"),
        ("risc", "--arch", "riscv64", "riscv64"),
        ("gpus", "--gpus", "2", "GPU"),
    ] {
        let words =
            ["instance", "create", name, "--image", "busybox", "--no-wait", option, value, "--", "true"];
        cloud.good(&words);
        cloud.wait(name, "refused a place", |i| i["message"].is_string());
        says(&cloud.good(&["why", "instance", name]), &["is pending", "local", "rejected", reason]);
        cloud.good(&["instance", "delete", name]);
    }
}

#[test]
fn a_cordoned_node_takes_nothing_new_until_it_is_open_again() {
    // Other tests go on in the shared cloud, so this one has its own.
    let cloud = Cloud::start(&["--node-name", "solo", "--label", "disk=ssd"]);
    cloud.create("before", &["--node-label", "disk=ssd"], "sleep 100000");
    cloud.good(&["node", "cordon", "solo"]);
    cloud.good(&["instance", "create", "after", "--image", "busybox", "--no-wait", "--", "sleep", "100000"]);
    cloud.wait("after", "refused a place", |i| i["message"].is_string());
    says(&cloud.good(&["why", "instance", "after"]), &["is pending", "cordon"]);
    assert_eq!(cloud.get("before")["phase"], "running");
    cloud.good(&["node", "uncordon", "solo"]);
    cloud.wait("after", "placed", |i| i["phase"] == "running");
}
