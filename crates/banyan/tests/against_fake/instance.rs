//! Instances and files that describe them.

use serde_json::json;

use crate::fake::{Fake, broken, instance, missing, ok, page, raw, spec};
use crate::{says, text};

const ONE: &str = "/v1/instances/i-0123456789abcdef0";

const CREATE: [&str; 5] = ["instance", "create", "web", "--image", "busybox"];

#[test]
fn create_waits_until_it_runs_and_shows_it() {
    let fake = Fake::new();
    fake.on("POST /v1/instances", vec![ok(instance(json!({})))]);
    let running = ok(instance(json!({"phase": "running", "address": "10.1.2.3"})));
    fake.on(
        &format!("GET {ONE}"),
        vec![
            ok(instance(json!({}))),
            ok(instance(json!({"phase": "creating", "message": "unpacking"}))),
            running,
        ],
    );
    let output = fake.run(&CREATE);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stderr), &["instance web: pending", "creating: unpacking", "running ("]);
    says(&text(&output.stdout), &["name:", "web", "10.1.2.3"]);
    let output = fake.run(&[&CREATE[..], &["-o", "json"]].concat());
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["phase"], "running");
}

#[test]
fn where_one_of_several_is_missing_nothing_is_deleted_and_that_is_said() {
    let fake = Fake::new();
    fake.on("GET /v1/instances/web", vec![ok(instance(json!({})))]);
    let output = fake.run(&["instance", "delete", "web", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["nothing was deleted"]);
    assert_eq!(fake.count(&format!("DELETE {ONE}")), 0);
    let alone = text(&fake.run(&["instance", "delete", "nobody"]).stderr);
    assert!(!alone.contains("nothing was"), "{alone}");
}

#[test]
fn create_that_fails_says_why_and_is_no_success() {
    let fake = Fake::new();
    fake.on("POST /v1/instances", vec![ok(instance(json!({})))]);
    fake.on(
        &format!("GET {ONE}"),
        vec![ok(instance(json!({"phase": "failed", "message": "no such command"})))],
    );
    fake.on(&format!("GET {ONE}/logs"), vec![raw("one\nlast words\n")]);
    fake.on(
        "GET /v1/events",
        vec![page(json!([{
            "id": "e-00000000000000001", "at": "2026-01-01T00:00:00Z", "tenant": null, "who": "node-1",
            "what": "instance.failed", "subject_kind": "instance", "subject_id": "i-0123456789abcdef0",
            "subject_name": "web", "message": "exec: not found"}]))],
    );
    let output = fake.run(&CREATE);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    says(&said, &["instance web failed: no such command", "instance.failed  exec: not found", "last words"]);
    says(&said, &["hint: banyan why instance web"]);
}

#[test]
fn a_wait_ends_at_its_limit_with_the_state() {
    let fake = Fake::new();
    fake.on("POST /v1/instances", vec![ok(instance(json!({})))]);
    fake.on(&format!("GET {ONE}"), vec![ok(instance(json!({"message": "no node has room"})))]);
    let output = fake.run(&[&CREATE[..], &["--timeout", "300ms"]].concat());
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["after 0.3s", "now pending: no node has room", "banyan why instance web"]);
}

#[test]
fn without_waiting_the_order_is_enough() {
    let fake = Fake::new();
    fake.on("POST /v1/instances", vec![ok(instance(json!({})))]);
    let output = fake.run(&[&CREATE[..], &["--no-wait", "-o", "name"]].concat());
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "web\n"));
    assert_eq!(fake.count(&format!("GET {ONE}")), 0);
}

#[test]
fn a_dry_run_orders_nothing() {
    let fake = Fake::new();
    let output = fake.run(&[&CREATE[..], &["--dry-run"]].concat());
    assert_eq!(output.status.code(), Some(1), "the image is not there");
    says(&text(&output.stderr), &["where: image", "banyan image list"]);
    assert_eq!(fake.count("POST /v1/instances"), 0);
}

#[test]
fn delete_waits_until_it_is_gone() {
    let fake = Fake::new();
    let there = ok(instance(json!({"phase": "running"})));
    fake.on("GET /v1/instances/web", vec![there.clone()]);
    fake.on(&format!("DELETE {ONE}"), vec![there]);
    fake.on(&format!("GET {ONE}"), vec![ok(instance(json!({"phase": "deleting"}))), missing()]);
    let output = fake.run(&["instance", "rm", "web"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stderr), &["instance web: deleting", "gone ("]);
    let output = fake.run(&["instance", "rm", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["banyan instance list"]);
}

#[test]
fn following_survives_a_broken_stream_without_repeating() {
    let fake = Fake::new();
    let ended = instance(
        json!({"phase": "exited", "exit_code": 0, "spec": {"image": "busybox", "restart": "never"}}),
    );
    fake.on("GET /v1/instances/web", vec![ok(instance(json!({"phase": "running"})))]);
    fake.on(&format!("GET {ONE}"), vec![ok(instance(json!({"phase": "running"}))), ok(ended)]);
    fake.on(&format!("GET {ONE}/logs"), vec![broken("one\ntwo\n"), raw("one\ntwo\nthree\n")]);
    let output = fake.run(&["instance", "logs", "-f", "web"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "one\ntwo\nthree\n");
    says(&text(&output.stderr), &["connecting again"]);
}

#[test]
fn the_beginning_of_an_id_is_enough() {
    let fake = Fake::new();
    fake.on("GET /v1/instances", vec![page(json!([instance(json!({}))]))]);
    fake.on(&format!("GET {ONE}"), vec![ok(instance(json!({"phase": "running"})))]);
    let output = fake.run(&["instance", "get", "i-01", "-o", "name"]);
    assert_eq!(text(&output.stdout), "web\n", "{}", text(&output.stderr));
    let output = fake.run(&["instance", "get", "i-02"]);
    says(&text(&output.stderr), &["there is no instance 'i-02'", "banyan instance list"]);
}

#[test]
fn apply_changes_only_what_differs() {
    let fake = Fake::new();
    fake.on("GET /v1/instances/web", vec![ok(instance(json!({"spec": spec()})))]);
    fake.write("same.yaml", "kind: Instance\nmetadata: {name: web}\nspec: {image: busybox}\n");
    fake.write("other.yaml", "kind: Instance\nmetadata: {name: web}\nspec: {image: busybox, cpu: 2}\n");
    let output = fake.run(&["apply", "-f", "same.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stdout), &["Instance web: unchanged"]);
    let plan = ["apply", "--dry-run", "--detailed-exitcode", "-f"];
    assert_eq!(fake.run(&[&plan[..], &["same.yaml"]].concat()).status.code(), Some(0));
    let output = fake.run(&[&plan[..], &["other.yaml"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    says(&text(&output.stdout), &["Instance web: replace", "~ cpu:"]);
    let output = fake.run(&["apply", "-f", "other.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["cannot be changed in place; nothing was changed", "--replace"]);
    assert_eq!(fake.count("POST /v1/instances") + fake.count(&format!("DELETE {ONE}")), 0);
}

#[test]
fn apply_makes_what_is_missing_and_waits() {
    let fake = Fake::new();
    fake.write("new.yaml", "kind: Instance\nmetadata: {name: web}\nspec: {image: busybox}\n");
    fake.on("POST /v1/instances", vec![ok(instance(json!({})))]);
    fake.on(&format!("GET {ONE}"), vec![ok(instance(json!({"phase": "running"})))]);
    let output = fake.run(&["apply", "-f", "new.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    says(&text(&output.stdout), &["+ Instance web: create"]);
    says(&text(&output.stderr), &["Instance web: created", "running ("]);
    assert_eq!(fake.count("POST /v1/instances"), 1);
}
