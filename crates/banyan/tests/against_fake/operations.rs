//! Nodes, zones and the health of the platform, against a scripted cloud.

use serde_json::{Value, json};

use crate::fake::{Fake, instance, missing, ok, page, refused};
use crate::{says, text};

fn facts(labels: &Value) -> Value {
    let none = json!({"cpu": 0, "memory": 0, "disk": 0});
    json!({
        "version": "0", "nodes": 1, "archs": ["amd64"], "runtimes": ["container"], "labels": labels,
        "capacity": none, "gpus": [], "cordoned": false
    })
}

fn node(change: Value) -> Value {
    let mut node = json!({
        "id": "n-0123456789abcdef0", "name": "n1", "zone": "east", "alive": true, "instances": 2,
        "last_seen": "2026-01-01T00:00:00Z", "reserved": {"cpu": 0, "memory": 0, "disk": 0},
        "facts": facts(&json!({"disk": ["ssd"]}))
    });
    for (field, value) in change.as_object().unwrap() {
        node[field] = value.clone();
    }
    node
}

fn zone(instances: u64, mode: &str) -> Value {
    json!({
        "id": "z-0123456789abcdef0", "name": "east", "live": true,
        "details": {"enrolled_at": "2026-01-01T00:00:00Z", "instances": instances, "mode": mode}
    })
}

const ONE: &str = "/v1/nodes/n-0123456789abcdef0";

#[test]
fn a_drain_waits_until_the_node_is_empty_and_says_what_is_left() {
    let fake = Fake::new();
    fake.on("POST /v1/nodes/n1/mode", vec![ok(node(json!({"mode": "draining"})))]);
    let left = |count: u64, why: &str| ok(node(json!({"mode": "draining", "instances": count, "left": why})));
    fake.on(
        &format!("GET {ONE}"),
        vec![left(2, "web-1 is moving"), left(1, "db waits for its node"), left(0, "")],
    );
    let output = fake.run(&["node", "drain", "n1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    says(&said, &["2 instances left: web-1 is moving", "1 instance left: db waits", "node n1: empty ("]);
    let output = fake.run(&["node", "drain", "n1", "--no-wait"]);
    says(&text(&output.stderr), &["banyan node get n1"]);
}

#[test]
fn a_drain_that_does_not_end_says_why_and_what_to_do() {
    let fake = Fake::new();
    fake.on("POST /v1/nodes/n1/mode", vec![ok(node(json!({"mode": "draining"})))]);
    let left = json!({"mode": "draining", "instances": 1, "left": "log is pinned to this node"});
    fake.on(&format!("GET {ONE}"), vec![ok(node(left))]);
    let output = fake.run(&["node", "drain", "n1", "--timeout", "600ms"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["not empty after", "log is pinned to this node", "--force"]);
    fake.on(&format!("GET {ONE}"), vec![ok(node(json!({"mode": "open"})))]);
    says(&text(&fake.run(&["node", "drain", "n1"]).stderr), &["was opened again"]);
}

#[test]
fn a_drain_is_done_when_only_what_is_pinned_is_left() {
    let fake = Fake::new();
    fake.on("POST /v1/nodes/n1/mode", vec![ok(node(json!({"mode": "draining"})))]);
    fake.on(&format!("GET {ONE}"), vec![ok(node(json!({"mode": "draining", "instances": 1})))]);
    let pinned = json!({"spec": {"image": "busybox", "constraints": {"node": "n1"}}});
    fake.on("GET /v1/instances", vec![page(json!([instance(pinned)]))]);
    let output = fake.run(&["node", "drain", "n1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stderr), &["empty but for 1 pinned"]);
}

#[test]
fn nothing_is_removed_unasked() {
    let fake = Fake::new();
    fake.on("GET /v1/nodes/n1", vec![ok(node(json!({})))]);
    let output = fake.run(&["node", "remove", "n1"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["nothing was changed", "--yes"]);
    assert_eq!(fake.count(&format!("DELETE {ONE}")), 0);
    let busy = refused(409, "conflict", "the node 'n1' is alive and holds 2 instances");
    fake.on(&format!("DELETE {ONE}"), vec![busy, ok(json!(null))]);
    says(&text(&fake.run(&["node", "remove", "n1", "--yes"]).stderr), &["holds 2 instances"]);
    let output = fake.run(&["node", "remove", "n1", "--yes", "--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stderr), &["node n1: removed"]);
    let output = fake.run(&["node", "remove", "n9", "--yes"]);
    says(&text(&output.stderr), &["banyan node list"]);
}

#[test]
fn labels_and_states_are_shown() {
    let fake = Fake::new();
    let old = json!({"facts": facts(&json!({"old": ["1"], "own": ["x"]}))});
    fake.on("GET /v1/nodes/n1", vec![ok(node(old))]);
    let new = json!({"mode": "maintenance", "facts": facts(&json!({"disk": ["ssd"], "own": ["x"]}))});
    fake.on(&format!("POST {ONE}/labels"), vec![ok(node(new))]);
    let output = fake.run(&["node", "label", "n1", "disk=ssd", "old-", "own-", "none-"]);
    assert_eq!(
        text(&output.stdout),
        "node n1: set disk=ssd, removed old, own=x stays: it is in the node's own configuration, there was no label none\n"
    );
    let output = fake.run(&["node", "label", "n1", "disk"]);
    says(&text(&output.stderr), &["neither KEY=VALUE nor KEY-"]);
    assert_eq!(fake.count(&format!("POST {ONE}/labels")), 1);
    fake.on("GET /v1/nodes", vec![page(json!([node(json!({"alive": false, "mode": "cordoned"}))]))]);
    says(&text(&fake.run(&["node", "list"]).stdout), &["lost, cordoned"]);
}

#[test]
fn nodes_of_a_zone_that_is_away_are_not_passed_over_in_silence() {
    let fake = Fake::new();
    fake.on("GET /v1/nodes", vec![page(json!([node(json!({}))]))]);
    let west = json!({"id": "z-0123456789abcdef1", "name": "west", "live": false});
    fake.on("GET /v1/zones", vec![page(json!([zone(1, "open"), west]))]);
    says(
        &text(&fake.run(&["node", "list"]).stderr),
        &["zone west is not connected: its nodes are not listed"],
    );
    assert_eq!(text(&fake.run(&["node", "list", "--zone", "east"]).stderr), "");
    says(
        &text(&fake.run(&["node", "get", "n3"]).stderr),
        &["it may be in zone west, which is not connected"],
    );
}

#[test]
fn a_history_is_blocks_and_a_table_or_the_samples() {
    let fake = Fake::new();
    let sample = |second: u64| {
        let usage = json!({
            "cpu_milli": second * 10, "memory_bytes": 1 << 20, "disk_used_bytes": 1, "disk_total_bytes": 2,
            "net_received_bytes": second * 2048, "net_sent_bytes": 0, "instances": 3
        });
        json!({"at": format!("2026-01-01T00:00:{second:02}Z"), "usage": usage})
    };
    fake.on("GET /v1/nodes/n1/history", vec![ok(json!([sample(0), sample(10), sample(20)]))]);
    let shown = text(&fake.run(&["node", "history", "n1", "--since", "1d"]).stdout);
    says(&shown, &["▁▄█", "0.00 to 0.20", "INSTANCES", "2.0KiB"]);
    let output = fake.run(&["node", "history", "n1", "-o", "json"]);
    let samples: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(samples[2]["usage"]["cpu_milli"], 200);
    fake.on("GET /v1/zones/east/history", vec![ok(json!([]))]);
    says(&text(&fake.run(&["zone", "history", "east"]).stderr), &["nothing is known"]);
}

#[test]
fn a_zone_is_drained_and_removed() {
    let fake = Fake::new();
    let one = "/v1/zones/z-0123456789abcdef0";
    fake.on("POST /v1/zones/east/mode", vec![ok(zone(1, "draining"))]);
    fake.on(&format!("GET {one}"), vec![ok(zone(1, "draining")), ok(zone(0, "draining"))]);
    let output = fake.run(&["zone", "drain", "east"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stderr), &["1 instance left", "zone east: empty"]);
    fake.on("GET /v1/zones/east", vec![ok(zone(0, "draining")), missing()]);
    fake.on(&format!("DELETE {one}"), vec![ok(json!(null))]);
    says(&text(&fake.run(&["zone", "remove", "east", "-y"]).stderr), &["zone east: removed"]);
    assert_eq!(fake.count(&format!("DELETE {one}")), 1);
    says(&text(&fake.run(&["zone", "get", "east"]).stderr), &["banyan zone list"]);
}

#[test]
fn health_ends_with_the_code_of_its_worst_light() {
    let fake = Fake::new();
    let check = |light: &str, name: &str| {
        json!({"name": name, "subject": "zone east", "light": light, "message": format!("{name} was looked at"),
               "hint": format!("see to {name}"), "at": "2026-01-01T00:00:00Z"})
    };
    let health = |light: &str, checks: Value| {
        ok(json!({"light": light, "at": "2026-01-01T00:00:00Z", "checks": checks}))
    };
    fake.on("GET /v1/platform", vec![health("green", json!([check("green", "link")]))]);
    let output = fake.run(&["health"]);
    assert_eq!(output.status.code(), Some(0));
    says(&text(&output.stdout), &["green", "zone east", "link was looked at"]);
    says(&text(&output.stderr), &["all 1 checks are green"]);
    fake.on(
        "GET /v1/platform",
        vec![health("yellow", json!([check("yellow", "clock"), check("green", "link")]))],
    );
    let output = fake.run(&["health"]);
    assert_eq!(output.status.code(), Some(0));
    says(&text(&output.stderr), &["1 yellow", "somebody should look"]);
    says(&text(&output.stdout), &["zone east clock: see to clock"]);
    fake.on("GET /v1/platform", vec![health("red", json!([check("red", "lease"), check("green", "link")]))]);
    let output = fake.run(&["health", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["light"], &shown["checks"][0]["name"]), (&json!("red"), &json!("lease")));
}
