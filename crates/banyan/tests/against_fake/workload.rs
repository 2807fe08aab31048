//! Workloads, apps and the files that describe them.

use std::process::Output;

use serde_json::{Value, json};

use crate::fake::{Fake, app, broken, instance, missing, ok, page, raw, refused, workload};
use crate::{says, text};

const ONE: &str = "/v1/workloads/web";

#[track_caller]
fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn bad(output: &Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    says(&text(&output.stderr), parts);
}

/// A cloud with the workload `web` in these states, one after the other.
fn with_web(states: &[Value]) -> Fake {
    let fake = Fake::new();
    fake.on(&format!("GET {ONE}"), states.iter().map(|state| ok(workload(state.clone()))).collect());
    fake.on("GET /v1/instances", vec![page(json!([]))]);
    fake
}

#[test]
fn create_shows_the_way_to_available() {
    let fake = with_web(&[
        json!({"status": {"phase": "progressing", "available": 0}}),
        json!({"status": {"phase": "progressing", "available": 0, "message": "1 is starting"}}),
        json!({}),
    ]);
    fake.on("POST /v1/workloads", vec![ok(workload(json!({})))]);
    fake.on(
        "GET /v1/instances",
        vec![page(json!([instance(json!({"phase": "running", "zone": "east", "node": "n7"}))]))],
    );
    let words = [
        "workload",
        "create",
        "web",
        "--image",
        "busybox",
        "--replicas",
        "1",
        "--max-surge",
        "2",
        "--",
        "httpd",
    ];
    let output = fake.run(&words);
    says(&good(&output), &["mode:", "service of 1", "INSTANCE", "east", "n7"]);
    says(
        &text(&output.stderr),
        &["workload web: progressing, 0 of 1 available", "1 is starting", "available, 1 of 1 available ("],
    );
    let sent = fake.sent("POST /v1/workloads");
    assert_eq!((&sent["name"], &sent["spec"]["update"]["max_surge"]), (&json!("web"), &json!(2)));
    assert_eq!(sent["spec"]["instance"]["command"], json!(["httpd"]));
}

#[test]
fn what_failed_or_was_rolled_back_is_no_success() {
    let fake =
        with_web(&[json!({"status": {"phase": "failed", "available": 0, "message": "no progress for 5s"}})]);
    fake.on("POST /v1/workloads", vec![ok(workload(json!({})))]);
    let ill = instance(json!({"name": "web-1", "phase": "exited", "exit_code": 3}));
    fake.on("GET /v1/instances", vec![page(json!([ill]))]);
    fake.on("GET /v1/instances/i-0123456789abcdef0/logs", vec![raw("my last words\n")]);
    let create = ["workload", "create", "web", "--image", "busybox"];
    bad(
        &fake.run(&create),
        &[
            "workload web failed, 0 of 1 available",
            "no progress for 5s",
            "web-1 is exited with code 3",
            "my last words",
            "workload why",
        ],
    );

    let fake = with_web(&[
        json!({}),
        json!({"revision": 2, "status": {"phase": "updating", "updated": 0}}),
        json!({"revision": 2, "status": {"phase": "rolling-back"}}),
        json!({"revision": 3}),
    ]);
    fake.on(&format!("PUT {ONE}"), vec![ok(workload(json!({"revision": 2})))]);
    let failed = json!([{
        "revision": 2, "created_at": "2026-01-01T00:00:00Z", "created_by": "admin", "instances": 0,
        "instance": {"image": "busybox"}, "failed": "it was never healthy"}]);
    fake.on(&format!("GET {ONE}/revisions"), vec![ok(failed)]);
    let output = fake.run(&["workload", "update", "web", "--memory", "64MiB"]);
    bad(
        &output,
        &["the update of workload web failed, and the revision before is back: it was never healthy"],
    );
    says(&text(&output.stderr), &["rolling-back"]);
}

#[test]
fn an_update_sends_what_was_there_with_what_is_given() {
    let mut old = model::WorkloadSpec::new(model::InstanceSpec::new("busybox"));
    old.instance.env.insert("A".into(), "1".into());
    old.update.healthy_ms = 700;
    let old = serde_json::to_value(&old).unwrap();
    let fake = with_web(&[json!({"spec": old, "version": 7})]);
    let mismatch = refused(412, "version-mismatch", "it changed since");
    fake.on(&format!("PUT {ONE}"), vec![mismatch, ok(workload(json!({"spec": old})))]);
    good(&fake.run(&["workload", "update", "web", "--env", "B=2", "--cpu", "2", "--no-wait"]));
    assert_eq!(fake.count(&format!("PUT {ONE}")), 2, "only its status had moved");
    let mut expect = old.clone();
    expect["instance"]["env"] = json!({"A": "1", "B": "2"});
    expect["instance"]["cpu"] = json!("2");
    assert_eq!(fake.sent(&format!("PUT {ONE}"))["spec"], expect);
    let output = fake.run(&["workload", "update", "web", "--cpu", "3", "--dry-run"]);
    says(&good(&output), &["~ instance.cpu: \"0.25\" -> \"3\""]);
    bad(&fake.run(&["workload", "update", "web", "--completions", "3"]), &["--once or --cron"]);
}

#[test]
fn verbs_reach_their_routes() {
    let fake = with_web(&[json!({})]);
    for (words, route) in [
        (&["scale", "web", "1"][..], "scale"),
        (&["restart", "web"], "restart"),
        (&["pause", "web"], "pause"),
        (&["resume", "web"], "resume"),
        (&["promote", "web"], "promote"),
        (&["rollback", "web", "--revision", "4"], "rollback"),
    ] {
        let route = format!("POST {ONE}/{route}");
        fake.on(&route, vec![ok(workload(json!({})))]);
        good(&fake.run(&[&["workload"], words].concat()));
        assert_eq!(fake.count(&route), 1, "{route}");
    }
    assert_eq!(fake.sent(&format!("POST {ONE}/scale")), json!({"replicas": 1}));
    assert_eq!(fake.sent(&format!("POST {ONE}/rollback")), json!({"revision": 4}));
    bad(&fake.run(&["workload", "get", "nobody"]), &["banyan workload list"]);
}

#[test]
fn fewer_are_waited_for_until_the_others_are_gone() {
    let spec = |replicas: u32| {
        let mut spec = model::WorkloadSpec::new(model::InstanceSpec::new("busybox"));
        spec.mode = model::Mode::Service { replicas };
        serde_json::to_value(spec).unwrap()
    };
    let counts = |wanted: u32, there: u32| json!({"wanted": wanted, "instances": there, "updated": there, "available": there});
    let two = json!({"spec": spec(2), "version": 2, "status": counts(2, 2)});
    let fake = with_web(&[
        json!({"spec": spec(5), "status": counts(5, 5)}),
        json!({"spec": spec(2), "version": 2, "status": counts(2, 5)}),
        two.clone(),
    ]);
    fake.on(&format!("POST {ONE}/scale"), vec![ok(workload(two))]);
    let going = instance(json!({"name": "web-5", "phase": "deleting"}));
    fake.on("GET /v1/instances", vec![page(json!([going])), page(json!([]))]);
    let output = fake.run(&["workload", "scale", "web", "2"]);
    good(&output);
    says(
        &text(&output.stderr),
        &[
            "2 of 2 available, 3 still to end",
            "2 of 2 available, 1 still to end",
            "available, 2 of 2 available (",
        ],
    );
}

#[test]
fn why_says_what_a_health_check_met() {
    let fake = with_web(&[json!({})]);
    let one = json!({"name": "web-1", "phase": "running", "health": "starting", "restarts": 2});
    fake.on("GET /v1/instances", vec![page(json!([instance(one)]))]);
    let why = json!({"name": "web-1", "phase": "running"});
    fake.on("GET /v1/instances/i-0123456789abcdef0/why", vec![ok(why)]);
    let event = json!({
        "id": "e-00000000000000001", "at": "2026-01-01T00:00:00Z", "tenant": null, "who": "node-1",
        "what": "instance.unhealthy", "subject_kind": "instance", "subject_id": "i-0123456789abcdef0",
        "subject_name": "web-1", "message": "10.1.2.3:81 does not accept"});
    fake.on("GET /v1/events", vec![page(json!([event]))]);
    let shown = good(&fake.run(&["workload", "why", "web"]));
    says(&shown, &["started again 2 times; last, its health check failed: 10.1.2.3:81 does not accept"]);
}

#[test]
fn a_run_is_waited_for_until_it_ended() {
    let spec = json!({"instance": {"image": "busybox", "restart": "never"}, "mode": {"kind": "cron", "schedule": "@daily"}});
    let state = |phase: &str, ran: &str| json!({"spec": spec, "status": {"phase": phase, "last_run_at": ran, "wanted": 0}});
    let mut done = state("waiting", "2026-01-02T00:00:00Z");
    done["status"]["succeeded"] = json!(1);
    let fake = with_web(&[
        state("waiting", "2026-01-01T00:00:00Z"),
        state("waiting", "2026-01-01T00:00:00Z"),
        state("active", "2026-01-02T00:00:00Z"),
        done,
    ]);
    let mut taken = state("waiting", "2026-01-01T00:00:00Z");
    taken["version"] = json!(9);
    fake.on(&format!("POST {ONE}/run"), vec![ok(workload(taken))]);
    let output = fake.run(&["workload", "run", "web"]);
    good(&output);
    says(&text(&output.stderr), &["active, 0 of 1 ended well", "waiting, 1 of 1 ended well ("]);
}

#[test]
fn logs_name_the_instance_of_each_line() {
    let fake = with_web(&[json!({"status": {"instances": 2}})]);
    let (one, two) = ("i-0123456789abcdef0", "i-0123456789abcdef1");
    let both = json!([
        instance(json!({"id": one, "name": "web-1"})),
        instance(json!({"id": two, "name": "web-two"}))
    ]);
    fake.on("GET /v1/instances", vec![page(both)]);
    fake.on(&format!("GET /v1/instances/{one}/logs"), vec![raw("a\nb\n")]);
    fake.on(&format!("GET /v1/instances/{two}/logs"), vec![raw("c")]);
    assert_eq!(good(&fake.run(&["workload", "logs", "web"])), "web-1   | a\nweb-1   | b\nweb-two | c\n");
}

#[test]
fn what_get_shows_is_what_apply_takes() {
    let fake = with_web(&[json!({"version": 5, "app": null})]);
    let yaml = good(&fake.run(&["workload", "get", "web", "-o", "yaml"]));
    says(&yaml, &["kind: Workload", "status:"]);
    fake.write("web.yaml", &yaml);
    says(&good(&fake.run(&["apply", "-f", "web.yaml"])), &["  Workload web: unchanged"]);
    fake.write("more.yaml", &yaml.replace("replicas: 1", "replicas: 4"));
    let output = fake.run(&["apply", "--dry-run", "-f", "more.yaml"]);
    says(&good(&output), &["~ Workload web: change", "~ mode.replicas: 1 -> 4"]);
    fake.on("GET /v1/apps/shop", vec![ok(app(&["web"]))]);
    fake.on(&format!("GET {ONE}"), vec![ok(workload(json!({"app": "shop"})))]);
    let json = good(&fake.run(&["app", "get", "shop", "-o", "json"]));
    fake.write("shop.json", &json);
    says(&good(&fake.run(&["apply", "-f", "shop.json"])), &["  App shop: unchanged"]);
    fake.write("alone.yaml", &yaml);
    bad(&fake.run(&["apply", "-f", "alone.yaml"]), &["belongs to app 'shop'; it cannot be moved"]);
}

const SHOP: &str = "
kind: App
metadata: { name: shop }
spec:
  workloads:
  - name: web
    spec: { instance: { image: busybox, cpu: 2 } }
  - name: new
    spec: { instance: { image: busybox } }
";

#[test]
fn a_plan_of_an_app_names_what_comes_changes_and_goes() {
    let fake = with_web(&[json!({"app": "shop"})]);
    fake.write("shop.yaml", SHOP);
    fake.on("GET /v1/apps/shop", vec![ok(app(&["web", "old"]))]);
    fake.on("GET /v1/workloads/old", vec![ok(workload(json!({"name": "old", "app": "shop"})))]);
    let plan = fake.run(&["apply", "--dry-run", "--detailed-exitcode", "-f", "shop.yaml"]);
    assert_eq!(plan.status.code(), Some(2), "{}", text(&plan.stderr));
    says(
        &text(&plan.stdout),
        &[
            "~ App shop: change\n    ~ workload web: change\n        ~ instance.cpu: \"0.25\" -> \"2\"\n",
            "    + workload new: create\n    - workload old: delete\n",
        ],
    );
    assert_eq!(fake.count("PUT /v1/apps/shop"), 0);
    // What is in the way is told before anything is done.
    fake.on("GET /v1/workloads/new", vec![ok(workload(json!({"name": "new"})))]);
    bad(
        &fake.run(&["apply", "-f", "shop.yaml"]),
        &["already a workload 'new'; it belongs to no app", "shop.yaml"],
    );
    // Once it is made, its workloads are waited for, and those that go too.
    let new = |phase: &str| {
        ok(workload(json!({"name": "new", "app": "shop", "status": {"phase": phase, "available": 0}})))
    };
    let done = ok(workload(json!({"name": "new", "app": "shop"})));
    fake.on("GET /v1/workloads/new", vec![missing(), new("progressing"), new("progressing"), done]);
    let old = ok(workload(json!({"name": "old", "app": "shop"})));
    fake.on("GET /v1/workloads/old", vec![old.clone(), old, missing()]);
    fake.on("PUT /v1/apps/shop", vec![ok(app(&["web", "new"]))]);
    let output = fake.run(&["apply", "-f", "shop.yaml"]);
    good(&output);
    says(&text(&output.stderr), &["App shop: changed", "workload old: gone", "workload new: available"]);
    let sent = fake.sent("PUT /v1/apps/shop");
    assert_eq!(sent["workloads"].as_array().unwrap().len(), 2, "{sent:#}");
}

#[test]
fn delete_removes_what_files_describe() {
    let fake = with_web(&[json!({})]);
    fake.write(
        "all.yaml",
        &format!("{SHOP}---\nkind: Workload\nmetadata: {{name: lone}}\nspec: {{instance: {{image: x}}}}\n"),
    );
    fake.on("GET /v1/apps/shop", vec![ok(app(&["web"]))]);
    let output = fake.run(&["delete", "--dry-run", "-f", "all.yaml"]);
    assert_eq!(good(&output), "  Workload lone: there is none\n- App shop: delete\n");
    fake.on("GET /v1/apps/shop", vec![ok(app(&["web"])), ok(app(&["web"])), missing()]);
    fake.on("DELETE /v1/apps/shop", vec![ok(app(&["web"]))]);
    let output = fake.run(&["delete", "-f", "all.yaml"]);
    good(&output);
    says(&text(&output.stderr), &["app shop: gone (", "App shop: deleted"]);
}

#[test]
fn a_descriptor_is_shown_as_what_it_becomes() {
    let fake = Fake::new();
    let service = |name: &str, code: &str| json!({"microservice_name": name, "microservice_namespace": "b", "virtualization": "container", "code": code});
    let services = json!([service("c", "busybox"), service("d", "127.0.0.1:5/team/app:1")]);
    let sla = json!({"sla_version": "v2.0", "customerID": "Admin", "applications": [
        {"application_name": "a", "application_namespace": "b", "application_desc": "x", "microservices": services}]});
    fake.write("sla.json", &sla.to_string());
    let output = fake.run(&["apply", "--dry-run", "-f", "sla.json"]);
    let shown = good(&output);
    says(
        &shown,
        &["+ Image app-1-", "+ App a-b: create", "+ workload a-b-c-b: create", "oakestra/job: a.b.c.b"],
    );
    // What is shown is what apply takes, and means the same.
    let manifests = shown.split_once("---\n").unwrap().1;
    fake.write("same.yaml", manifests);
    let again = good(&fake.run(&["apply", "--dry-run", "-f", "same.yaml"]));
    assert_eq!(again, shown.split_once("---\n").unwrap().0);
    // The image is pulled before the app is made.
    fake.on("POST /v1/apps", vec![refused(409, "conflict", "no more today")]);
    bad(&fake.run(&["apply", "-f", "sla.json"]), &["there is no such thing"]);
    assert_eq!(fake.count("POST /v1/apps"), 0);
}

#[test]
fn following_a_run_shows_every_line_once_although_its_streams_break() {
    let over = json!({"status": {"phase": "done"}, "spec": once()});
    let fake = with_web(&[json!({"spec": once()}), json!({"spec": once()}), json!({"spec": once()}), over]);
    let one = "i-0123456789abcdef0";
    let ended = instance(json!({"name": "web-1", "phase": "stopped"}));
    fake.on("GET /v1/instances", vec![page(json!([ended]))]);
    let running = instance(json!({"name": "web-1", "phase": "running"}));
    fake.on(&format!("GET /v1/instances/{one}"), vec![ok(running), ok(ended)]);
    fake.on(
        &format!("GET /v1/instances/{one}/logs"),
        vec![broken("one\ntwo\nth"), raw("one\ntwo\nthree\nfour\nlast")],
    );
    let said = good(&fake.run(&["workload", "logs", "-f", "web"]));
    assert_eq!(said, "web-1 | one\nweb-1 | two\nweb-1 | three\nweb-1 | four\nweb-1 | last\n");
}

fn once() -> Value {
    let mut spec = model::WorkloadSpec::new(model::InstanceSpec::new("busybox"));
    spec.instance.restart = model::RestartPolicy::Never;
    spec.mode = model::Mode::Once { run: Default::default() };
    serde_json::to_value(spec).unwrap()
}

#[test]
fn an_unchanged_file_waits_for_what_an_earlier_order_began() {
    let fake = with_web(&[json!({"app": null})]);
    fake.write("web.yaml", &good(&fake.run(&["workload", "get", "web", "-o", "yaml"])));
    let going =
        json!({"app": null, "status": {"phase": "progressing", "wanted": 1, "instances": 1, "available": 0}});
    let going = || ok(workload(going.clone()));
    fake.on(&format!("GET {ONE}"), vec![going(), going(), going(), ok(workload(json!({"app": null})))]);
    let output = fake.run(&["apply", "-f", "web.yaml"]);
    says(&good(&output), &["  Workload web: unchanged"]);
    says(&text(&output.stderr), &["workload web: available"]);
    fake.on(&format!("GET {ONE}"), vec![going()]);
    bad(&fake.run(&["apply", "-f", "web.yaml", "--timeout", "1s"]), &["workload web"]);
    good(&fake.run(&["apply", "-f", "web.yaml", "--no-wait"]));
}
