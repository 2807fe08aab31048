//! A workload that grows under load and shrinks when the load ends, by what real containers use.

use serde_json::Value;

use crate::support::*;

fn running(cloud: &Cloud) -> Vec<String> {
    let found = cloud.json(&["instance", "list", "--label", "banyan/workload=burner"]);
    let runs = |one: &&Value| one["run"] == "running" && one["phase"] == "running";
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    found.as_array().unwrap().iter().filter(runs).map(name).collect()
}

/// More patient than others: what is used is looked at only now and then.
fn wait(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..600 {
        if look() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    panic!("it never came true: {what}");
}

#[test]
fn a_workload_grows_while_its_instances_burn_cpu_and_shrinks_when_they_stop() {
    let cloud = Cloud::shared();
    // Each burns all it may until somebody calms it.
    let script = "while :; do if [ -e /calm ]; then sleep 1; fi; done";
    cloud.good(&[
        "workload",
        "create",
        "burner",
        "--image",
        "busybox",
        "--memory",
        "16MiB",
        "--cpu",
        "0.05",
        "--autoscale-cpu",
        "50",
        "--min",
        "1",
        "--max",
        "3",
        "--scale-up-after",
        "0s",
        "--scale-down-after",
        "1s",
        "--",
        "sh",
        "-c",
        script,
    ]);
    wait("it grows to its most", || running(&cloud).len() == 3);
    let seen = cloud.json(&["workload", "get", "burner"]);
    assert!(seen["status"]["cpu_percent"].as_u64().unwrap() > 50, "{seen:#}");
    wait("it shrinks to its least", || {
        for name in running(&cloud) {
            // One that goes in this moment needs no calming.
            let _ = cloud.exec(&name, "touch /calm");
        }
        let seen = cloud.json(&["workload", "get", "burner"]);
        seen["status"]["wanted"] == 1 && running(&cloud).len() == 1
    });
    let events = cloud.good(&["event", "list", "--subject", "workload/burner"]);
    says(&events, &["from 1 to ", "to 1 instances; mean use: CPU"]);
    says(&cloud.bad(&["workload", "scale", "burner", "5"]), &["scales by itself"]);
    cloud.good(&["workload", "delete", "burner"]);
}
