//! Workloads and apps with real containers: applied, scaled, updated, rolled back, run and deleted; and
//! descriptors of another system that become them.

use serde_json::{Value, json};

use crate::support::image::{podman_save, registry, rootfs};
use crate::support::*;

fn write(cloud: &Cloud, name: &str, content: &str) -> String {
    let path = cloud.home.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// The instances of a workload that are not on their way out.
fn instances(cloud: &Cloud, workload: &str) -> Vec<Value> {
    let label = format!("banyan/workload={workload}");
    let found = cloud.json(&["instance", "list", "--label", &label]);
    let alive = |instance: &&Value| instance["run"] == "running";
    found.as_array().unwrap().iter().filter(alive).cloned().collect()
}

fn workload(cloud: &Cloud, name: &str) -> Value {
    cloud.json(&["workload", "get", name])
}

fn phase(cloud: &Cloud, name: &str) -> String {
    workload(cloud, name)["status"]["phase"].as_str().unwrap().to_owned()
}

const SHOP: &str = "\
kind: App
metadata: { name: shop }
spec:
  description: two that belong together
  workloads:
  - name: shop-web
    spec:
      instance: { image: busybox, memory: 16MiB, command: [sh, -c, 'echo colour $COLOUR; exec sleep 100000'] }
      mode: { kind: service, replicas: 2 }
  - name: shop-db
    spec:
      instance: { image: busybox, memory: 16MiB, command: [sleep, \"100000\"] }
";

#[test]
fn an_app_is_applied_scaled_updated_rolled_back_and_deleted() {
    let cloud = Cloud::shared();
    let file = write(&cloud, "shop.yaml", SHOP);
    let plan = cloud.run(&["apply", "--dry-run", "--detailed-exitcode", "-f", &file]);
    assert_eq!(plan.status.code(), Some(2), "{}", text(&plan.stderr));
    says(
        &text(&plan.stdout),
        &["+ App shop: create", "+ workload shop-web: create", "+ workload shop-db: create"],
    );
    cloud.good(&["apply", "-f", &file]);
    assert_eq!(
        (phase(&cloud, "shop-web"), phase(&cloud, "shop-db")),
        ("available".into(), "available".into())
    );
    assert_eq!(instances(&cloud, "shop-web").len(), 2);
    says(&cloud.good(&["apply", "-f", &file]), &["  App shop: unchanged"]);
    says(&cloud.good(&["workload", "get", "shop-web"]), &["2 of 2 available", "INSTANCE", "NODE", "local"]);
    says(&cloud.good(&["app", "list"]), &["shop", "3/3"]);
    says(&cloud.good(&["instance", "list"]), &["WORKLOAD", "shop-web"]);

    cloud.good(&["workload", "scale", "shop-web", "3"]);
    assert_eq!(instances(&cloud, "shop-web").len(), 3);
    let output = cloud.run(&["apply", "--dry-run", "-f", &file]);
    says(
        &text(&output.stdout),
        &["~ App shop: change", "~ workload shop-web: change", "~ mode.replicas: 3 -> 2"],
    );

    cloud.good(&["workload", "update", "shop-web", "--env", "COLOUR=blue", "--max-unavailable", "1"]);
    let found = instances(&cloud, "shop-web");
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found.iter().all(|one| one["spec"]["env"]["COLOUR"] == "blue"), "{found:#?}");
    until("all have said their colour", || {
        let said = cloud.good(&["workload", "logs", "shop-web"]);
        (said.lines().filter(|line| line.starts_with("shop-web-") && line.ends_with("| colour blue")).count()
            == 3)
            .then_some(())
    });

    let broken = ["workload", "update", "shop-web", "--", "sh", "-c", "echo I broke; exit 3"];
    says(&cloud.bad(&broken), &["the update of workload shop-web failed, and the revision before is back"]);
    let found = instances(&cloud, "shop-web");
    assert!(found.iter().all(|one| one["spec"]["command"][2] != "echo I broke; exit 3"), "{found:#?}");
    says(&cloud.good(&["workload", "revisions", "shop-web"]), &["REVISION", "I broke", "broke;"]);
    says(
        &cloud.good(&["workload", "why", "shop-web"]),
        &["was given up", "last events:", "Nothing is wrong"],
    );

    cloud.good(&["workload", "rollback", "shop-web", "--revision", "1"]);
    let found = instances(&cloud, "shop-web");
    assert!(found.iter().all(|one| one["spec"]["env"]["COLOUR"].is_null()), "{found:#?}");

    let (less, _) = SHOP.split_once("  - name: shop-db").unwrap();
    let less = write(&cloud, "less.yaml", less);
    says(&cloud.good(&["apply", "-f", &less]), &["- workload shop-db: delete"]);
    assert!(instances(&cloud, "shop-db").is_empty());
    let exported = write(&cloud, "exported.yaml", &cloud.good(&["app", "get", "shop", "-o", "yaml"]));
    says(&cloud.good(&["apply", "-f", &exported]), &["  App shop: unchanged"]);
    cloud.good(&["delete", "-f", &file]);
    says(&cloud.bad(&["app", "get", "shop"]), &["there is no app 'shop'", "banyan app list"]);
    assert!(instances(&cloud, "shop-web").is_empty());
}

#[test]
fn runs_end_and_daemons_are_everywhere() {
    let cloud = Cloud::shared();
    let words = ["workload", "create", "sums", "--image", "busybox", "--memory", "16MiB", "--once"];
    cloud.good(&[&words[..], &["--completions", "2", "--parallelism", "2", "--", "echo", "42"]].concat());
    let sums = workload(&cloud, "sums");
    assert_eq!(
        (&sums["status"]["phase"], &sums["status"]["succeeded"]),
        (&json!("done"), &json!(2)),
        "{sums:#}"
    );
    let said = cloud.good(&["workload", "logs", "sums"]);
    assert_eq!(said.lines().filter(|line| line.ends_with("| 42")).count(), 2, "{said}");
    cloud.good(&["workload", "run", "sums"]);

    let words =
        ["workload", "create", "nightly", "--image", "busybox", "--memory", "16MiB", "--retries", "0"];
    cloud.good(&[&words[..], &["--cron", "@monthly", "--", "sh", "-c", "echo tidy; exit 4"]].concat());
    assert_eq!(phase(&cloud, "nightly"), "waiting");
    says(&cloud.bad(&["workload", "run", "nightly"]), &["1 badly", "workload logs nightly"]);
    crate::support::until("what it said is kept", || {
        cloud.good(&["workload", "logs", "nightly"]).contains("tidy").then_some(())
    });
    cloud.good(&["workload", "update", "nightly", "--", "echo", "tidy"]);
    cloud.good(&["workload", "run", "nightly"]);

    cloud.good(&[
        "workload", "create", "probe", "--image", "busybox", "--memory", "16MiB", "--daemon", "--", "sleep",
        "100000",
    ]);
    let found = instances(&cloud, "probe");
    assert_eq!(found.len(), 1, "one node, one instance: {found:#?}");
    says(&cloud.bad(&["workload", "scale", "probe", "2"]), &["daemon"]);
    cloud.good(&["workload", "delete", "sums", "nightly", "probe"]);
    says(
        &cloud.bad(&["workload", "get", "probe"]),
        &["there is no workload 'probe'", "banyan workload list"],
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    let cloud = Cloud::shared();
    let file = write(
        &cloud,
        "torn.yaml",
        "kind: Workload\nmetadata: {name: torn}\nspec:\n  instance:\n    image: busybox\n    constraints:\n      \
         affinity:\n      - {label: a, value: b, required: true}\n      - {label: a, value: b, anti: true, required: true}\n",
    );
    says(
        &cloud.bad(&["apply", "-f", &file]),
        &["contradict each other", "spec.instance.constraints.affinity"],
    );
    assert_eq!(cloud.good(&["workload", "list", "--name", "torn", "-o", "name"]), "");
}

fn sla(services: Value) -> String {
    let application = json!({
        "applicationID": "", "application_name": "Edge", "application_namespace": "test",
        "application_desc": "as another system has it", "microservices": services
    });
    json!({"sla_version": "v2.0", "customerID": "Admin", "applications": [application]}).to_string()
}

fn service(name: &str, code: &str, more: Value) -> Value {
    let mut service = json!({
        "microserviceID": "", "microservice_name": name, "microservice_namespace": "test", "code": code,
        "virtualization": "container", "cmd": ["sh", "-c", "echo $WORD; exec sleep 100000"], "memory": 20,
        "vcpus": 0, "vgpus": 0, "vtpus": 0, "storage": 0, "bandwidth_in": 0, "bandwidth_out": 0, "port": "",
        "state": "", "environment": ["WORD=hello"], "added_files": [], "constraints": [], "connectivity": []
    });
    for (key, value) in more.as_object().unwrap() {
        service[key] = value.clone();
    }
    service
}

#[test]
fn a_descriptor_of_another_system_runs() {
    let cloud = Cloud::shared();
    let dir = cloud.home.join("sla");
    podman_save(&dir, &rootfs("plum\n").end());
    let reference = format!("{}:1", registry(dir.join("layout")));
    let zone =
        json!([{"type": "direct", "cluster": "local"}, {"type": "clusters", "allowed": ["local", "far"]}]);
    let services = json!([
        service("plain", "busybox", json!({ "constraints": zone })),
        service("pulled", &reference, json!({})),
        service("ends", "busybox", json!({"one_shot": true, "cmd": ["true"]})),
    ]);
    let file = write(&cloud, "sla.json", &sla(services));
    let shown = cloud.good(&["apply", "--dry-run", "-f", &file]);
    says(
        &shown,
        &[
            "+ Image app-1-",
            "+ App edge-test-",
            "kind: App",
            "oakestra/job: Edge.test.plain.test",
            "zone: local",
        ],
    );
    cloud.good(&["apply", "-f", &file]);
    let found = cloud.json(&["workload", "list"]);
    let of = |job: &str| {
        let job = format!("Edge.test.{job}.test");
        let all = found.as_array().unwrap();
        all.iter().find(|w| w["spec"]["instance"]["labels"]["oakestra/job"] == job.as_str()).unwrap().clone()
    };
    let name = |job: &str| of(job)["name"].as_str().unwrap().to_owned();
    assert_eq!(of("plain")["status"]["phase"], "available");
    assert_eq!(of("ends")["status"]["phase"], "done");
    until("the pulled one speaks", || {
        cloud.good(&["workload", "logs", &name("pulled")]).contains("| hello\n").then_some(())
    });
    let again = cloud.good(&["apply", "-f", &file]);
    assert!(again.lines().all(|line| line.ends_with(": unchanged")), "{again}");
    let wrong = sla(json!([service("plain", "busybox", json!({"port": "80:80", "memory": "much"}))]));
    let wrong = write(&cloud, "wrong.json", &wrong);
    let said = cloud.bad(&["apply", "-f", &wrong]);
    says(&said, &["applications[0].microservices[0].port", "applications[0].microservices[0].memory"]);
    assert_eq!(phase(&cloud, &name("pulled")), "available", "a refused descriptor changed something");
    cloud.good(&["delete", "-f", &file]);
    assert_eq!(cloud.good(&["workload", "list", "--name", "edge*", "-o", "name"]), "");
}
