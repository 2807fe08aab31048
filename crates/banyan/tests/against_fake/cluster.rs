//! Orders to clusters, against a scripted cloud.

use serde_json::{Value, json};

use crate::fake::{Fake, ok, refused};
use crate::{says, text};

fn cluster(version: i64, config: Value) -> Value {
    json!({
        "id": "c-0123456789abcdef0", "name": "shop", "tenant": "main", "version": version, "template": "web",
        "provider": "banyan", "size": 2, "nodes": 2, "services": ["web"], "status": "active", "config": config,
        "public_key": "", "created_at": "2026-01-01T00:00:00Z", "created_by": "admin"
    })
}

const CONFIGURE: &str = "POST /v1/clusters/shop/configure";

#[test]
fn a_value_is_set_upon_what_somebody_else_has_just_changed() {
    let fake = Fake::new();
    let (mine, theirs) = (json!({"web": {"port": 80}}), json!({"web": {"port": 80, "tls": true}}));
    fake.on("GET /v1/clusters/shop", vec![ok(cluster(7, mine)), ok(cluster(9, theirs))]);
    let late = refused(412, "version-mismatch", "the cluster is at version 9");
    fake.on(CONFIGURE, vec![late.clone(), ok(cluster(10, json!({})))]);
    let output = fake.run(&["cluster", "configure", "shop", "--set", "web.port=8080", "--no-wait"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fake.versions(CONFIGURE), [Some("7".to_owned()), Some("9".to_owned())]);
    assert_eq!(fake.sent(CONFIGURE)["config"], json!({"web": {"port": 8080, "tls": true}}));

    // It is not tried for ever, and a whole configuration is meant whatever there was.
    fake.on(CONFIGURE, vec![late]);
    let output = fake.run(&["cluster", "configure", "shop", "--set", "web.port=1", "--no-wait"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["the cluster is at version 9"]);
    assert_eq!(fake.count(CONFIGURE), 7);
    fake.on(CONFIGURE, vec![ok(cluster(10, json!({})))]);
    fake.write("whole.json", r#"{"a": 1}"#);
    fake.run(&["cluster", "configure", "shop", "--file", "whole.json", "--no-wait"]);
    assert_eq!(fake.versions(CONFIGURE).last(), Some(&None));
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let fake = Fake::new();
    for option in ["--provider", "--services", "--hardwaretype", "--imagetype"] {
        let output = fake.run(&["cluster", "solve", "--cluster", "shop", "--size", "3", option, "x"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        says(&text(&output.stderr), &["--cluster", option]);
    }
    let create = ["cluster", "create", "shop", "--template", "web", "--size", "2", "--no-wait"];
    let output = fake.run(&[&create[..], &["--on-actions", "CLUSTER_EXPAND"]].concat());
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["--on-actions", "--on-success"]);
    assert_eq!(fake.count("POST /v1/clusters"), 0);

    fake.on("POST /v1/clusters", vec![ok(cluster(1, json!({})))]);
    let some = ["--on-success", "http://h/", "--on-actions", "CLUSTER_EXPAND,CLUSTER_SHRINK"];
    fake.run(&[&create[..], &some].concat());
    let hooks = json!({"success": "http://h/", "actions": ["CLUSTER_EXPAND", "CLUSTER_SHRINK"]});
    assert_eq!(fake.sent("POST /v1/clusters")["webhooks"], hooks);
}

#[test]
fn services_come_with_machines_for_them() {
    let fake = Fake::new();
    fake.on("GET /v1/clusters/shop", vec![ok(cluster(7, json!({})))]);
    fake.on("POST /v1/clusters/shop/services", vec![ok(cluster(8, json!({})))]);
    let ask = ["cluster", "services", "shop", "--add", "clock", "--size", "3", "--no-wait"];
    assert_eq!(fake.run(&ask).status.code(), Some(0));
    assert_eq!(fake.sent("POST /v1/clusters/shop/services"), json!({"add": ["clock"], "size": 3}));
}
