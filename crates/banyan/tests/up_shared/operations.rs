//! What operators do to the one node of a real cloud.

use crate::support::{Cloud, says, text, until, whats};

#[test]
fn a_node_is_labelled_drained_and_looked_at() {
    // Other tests go on in the shared cloud, so this one has its own.
    let cloud = Cloud::start(&["--node-name", "solo"]);

    let node = cloud.json(&["node", "label", "solo", "disk=ssd", "rack=4"]);
    assert_eq!(node["facts"]["labels"]["disk"][0], "ssd", "{node:#}");
    cloud.create("fast", &["--node-label", "disk=ssd"], "sleep 100000");
    cloud.good(&["node", "label", "solo", "rack-"]);
    let shown = cloud.good(&["node", "get", "solo"]);
    says(&shown, &["disk=ssd", "alive"]);
    assert!(!shown.contains("rack=4"), "{shown}");

    // There is nowhere to go, so the drain says so, and nothing is stopped for it.
    let said = cloud.bad(&["node", "drain", "solo", "--timeout", "2s"]);
    says(&said, &["1 instance left", "fast", "--force"]);
    assert_eq!(cloud.get("fast")["phase"], "running");
    says(&cloud.good(&["node", "list"]), &["draining"]);
    cloud.good(&["node", "resume", "solo"]);
    says(&cloud.bad(&["node", "remove", "solo", "--yes"]), &["alive and holds 1 instance", "drain"]);

    cloud.good(&["zone", "cordon", "local"]);
    cloud.good(&["instance", "create", "late", "--image", "busybox", "--no-wait", "--", "sleep", "100000"]);
    cloud.wait("late", "refused a place", |i| i["message"].is_string());
    says(&cloud.good(&["why", "instance", "late"]), &["cordon"]);
    cloud.good(&["zone", "uncordon", "local"]);
    cloud.wait("late", "placed", |i| i["phase"] == "running");

    until("a beat of the node said how it is", || {
        let node = cloud.json(&["node", "get", "solo"]);
        (node["certificate_until"].is_string() && node["usage"].is_object()).then_some(())
    });
    says(&cloud.good(&["node", "get", "solo"]), &["certificate:", "in use:"]);
    until("the node has a history", || {
        let samples = cloud.json(&["node", "history", "solo"]);
        samples
            .as_array()
            .unwrap()
            .last()
            .is_some_and(|last| last["usage"]["memory_bytes"] != 0)
            .then_some(())
    });
    says(&cloud.good(&["node", "history", "solo"]), &["cpu", "memory", "INSTANCES"]);
    cloud.good(&["zone", "history", "local"]);

    let events = cloud.json(&["event", "list", "--limit", "200"]);
    let happened = whats(events.as_array().unwrap());
    for what in ["node.label", "node.mode", "zone.mode"] {
        assert!(happened.contains(&what), "{what} is missing in {happened:?}");
    }
}

#[test]
fn the_platform_says_how_it_is() {
    let cloud = Cloud::shared();
    // How full this machine's disk is decides about the exit code, so that it is not looked at.
    let shown = |format: &str| text(&cloud.run(&["health", "-o", format]).stdout);
    let health: serde_json::Value = serde_json::from_str(&shown("json")).unwrap();
    let checks = health["checks"].as_array().unwrap();
    let found = |name: &str, subject: &str| {
        checks.iter().any(|check| {
            check["name"] == name && check["subject"].as_str().is_some_and(|s| s.starts_with(subject))
        })
    };
    for (name, subject) in [
        ("store", "root"),
        ("certificate", "root"),
        ("duty", "root"),
        ("lease", "zone local"),
        ("link", "zone local"),
        ("lease", "node "),
    ] {
        assert!(found(name, subject), "{name} of {subject} is missing: {health:#}");
    }
    says(&shown("wide"), &["LIGHT", "SUBJECT", "zone local"]);
}
