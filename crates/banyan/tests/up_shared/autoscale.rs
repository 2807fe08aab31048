//! A workload that grows under load and shrinks when the load ends, by what real containers use.

use serde_json::Value;

use crate::support::*;

fn running(cloud: &Cloud, workload: &str) -> Vec<String> {
    let label = format!("banyan/workload={workload}");
    let found = cloud.json(&["instance", "list", "--label", &label]);
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

/// Each instance uses much of what the flag names, until somebody calms it.
fn grows_and_shrinks(workload: &str, flag: &str, percent: &str, script: &str) {
    let cloud = Cloud::shared();
    let what = ["workload", "create", workload, "--image", "busybox", "--memory", "16MiB", "--cpu", "0.05"];
    let scale =
        [flag, percent, "--min", "1", "--max", "3", "--scale-up-after", "0s", "--scale-down-after", "1s"];
    cloud.good(&[&what[..], &scale, &["--", "sh", "-c", script]].concat());
    wait("it grows to its most", || running(&cloud, workload).len() == 3);
    let seen = cloud.json(&["workload", "get", workload]);
    let field = format!("{}_percent", flag.trim_start_matches("--autoscale-"));
    let target: u64 = percent.parse().unwrap();
    assert!(seen["status"][field].as_u64().unwrap() > target, "{seen:#}");
    wait("it shrinks to its least", || {
        for name in running(&cloud, workload) {
            // One that goes in this moment needs no calming.
            let _ = cloud.exec(&name, "touch /calm");
        }
        let seen = cloud.json(&["workload", "get", workload]);
        seen["status"]["wanted"] == 1 && running(&cloud, workload).len() == 1
    });
    let events = cloud.good(&["event", "list", "--subject", &format!("workload/{workload}")]);
    says(&events, &["from 1 to ", "to 1 instances; mean use: CPU"]);
    says(&cloud.bad(&["workload", "scale", workload, "5"]), &["scales by itself"]);
    cloud.good(&["workload", "delete", workload]);
}

#[test]
fn a_workload_grows_while_its_instances_burn_cpu_and_shrinks_when_they_stop() {
    let script = "while :; do if [ -e /calm ]; then sleep 1; fi; done";
    grows_and_shrinks("burner", "--autoscale-cpu", "50", script);
}

#[test]
fn a_workload_grows_while_its_instances_fill_memory_and_shrinks_when_they_free_it() {
    let script = "head -c 11000000 /dev/zero >/dev/shm/much; while [ ! -e /calm ]; do sleep 1; done; \
                  rm /dev/shm/much; while :; do sleep 1; done";
    grows_and_shrinks("filler", "--autoscale-memory", "50", script);
}
