//! Containers outlive `banyan up`, however it ends, and are taken over again.

use crate::support::*;

const FOREVER: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
/// Ends with a code once it is told to, by a file.
const WAITS: &str = "until [ -f /go ]; do sleep 0.1; done; echo late; exit 7";

fn id(instance: &serde_json::Value) -> String {
    instance["id"].as_str().unwrap().to_owned()
}

/// Tells an instance to end while nobody watches, and waits until its process is gone.
fn ends_alone(cloud: &Cloud, id: &str) {
    let (pid, _) = cloud.life(id);
    std::fs::write(format!("/proc/{pid}/root/go"), "").unwrap();
    until("the process ends", || (cloud.life(id).1 == "gone").then_some(()));
}

fn survives(end: impl Fn(&Cloud)) {
    let cloud = Cloud::start(&[]);
    let stays = id(&cloud.create("stays", &[], FOREVER));
    let ends = id(&cloud.create("ends", &["--restart", "never"], WAITS));
    let again = id(&cloud.create("again", &["--restart", "on-failure"], WAITS));
    cloud.create("halted", &[], FOREVER);
    cloud.good(&["instance", "stop", "halted"]);
    let (life, address) = (cloud.life(&stays), cloud.get("stays")["address"].clone());
    let (events, endpoint) = (cloud.events("stays").len(), cloud.endpoint());
    end(&cloud);
    says(&cloud.bad(&["instance", "list"]), &[&endpoint, "cannot be reached", "banyan up"]);
    ends_alone(&cloud, &ends);
    ends_alone(&cloud, &again);
    assert_eq!(cloud.life(&stays), life, "a container ended with the cloud");
    cloud.up(&[]);
    let learnt = cloud.wait("ends", "exited", |i| i["phase"] == "exited");
    assert_eq!(learnt["exit_code"], 7, "{learnt:#}");
    assert_eq!(cloud.logs("ends"), "late\n");
    let kept = cloud.get("stays");
    assert_eq!(
        (kept["phase"].as_str(), &kept["address"], kept["restarts"].as_u64()),
        (Some("running"), &address, Some(0))
    );
    assert_eq!(cloud.life(&stays), life, "it was started again instead of taken over");
    assert!(cloud.events("stays").len() >= events, "history was lost");
    assert_eq!(cloud.exec("stays", "exit 4").status.code(), Some(4));
    assert_eq!(cloud.get("halted")["phase"], "stopped");
    let exits = cloud.wait("again", "started again", |i| i["restarts"].as_u64() >= Some(1));
    assert_eq!(exits["exit_code"].as_i64().unwrap_or(7), 7);
    cloud.good(&["instance", "restart", "stays"]);
    assert_ne!(cloud.life(&stays), life);
    cloud.good(&["instance", "start", "halted"]);
}

#[test]
fn instances_survive_a_polite_stop() {
    survives(Cloud::terminate);
}

#[test]
fn instances_survive_a_kill() {
    survives(Cloud::kill);
}

#[test]
fn an_order_given_before_the_end_is_carried_out_after_it() {
    let cloud = Cloud::start(&[]);
    let doomed = id(&cloud.create("doomed", &[], "trap '' TERM; while true; do sleep 0.1; done"));
    cloud.create("tired", &[], "trap '' TERM; while true; do sleep 0.1; done");
    cloud.good(&["instance", "delete", "--no-wait", "doomed"]);
    cloud.good(&["instance", "stop", "--no-wait", "tired"]);
    cloud.kill();
    cloud.up(&[]);
    until("the deleted one is gone", || {
        (!cloud.run(&["instance", "get", "doomed"]).status.success()).then_some(())
    });
    until("nothing of it is left", || (!cloud.remains().folders.contains(&doomed)).then_some(()));
    cloud.wait("tired", "stopped", |i| i["phase"] == "stopped");
}

#[test]
fn a_container_that_is_killed_from_outside_is_told_and_started_again() {
    let cloud = Cloud::start(&[]);
    let victim = id(&cloud.create("victim", &[], FOREVER));
    let (pid, _) = cloud.life(&victim);
    signal(pid as u32, rustix::process::Signal::KILL);
    cloud.wait("victim", "started again", |i| i["restarts"] == 1 && i["phase"] == "running");
    says(&cloud.good(&["event", "list", "--subject", "victim"]), &["exited with code 137"]);
    let shim = std::fs::read_to_string(cloud.folder(&victim).join("shim.pid")).unwrap();
    let shim: u32 = shim.trim().parse().unwrap();
    cloud.kill();
    // A supervisor that is lost while nobody watches takes its container along.
    signal(shim, rustix::process::Signal::KILL);
    cloud.up(&[]);
    cloud.wait("victim", "started again", |i| i["restarts"] == 2 && i["phase"] == "running");
    let shims = cloud.remains().shims;
    assert_eq!(shims, [victim], "not one supervisor");
}

#[test]
fn a_lost_credentials_file_is_made_anew_and_the_old_ones_end() {
    let cloud = Cloud::start(&[]);
    let old = cloud.admin()["token"].as_str().unwrap().to_owned();
    cloud.terminate();
    std::fs::remove_file(cloud.data().join("admin.json")).unwrap();
    cloud.up(&[]);
    assert_ne!(cloud.admin()["token"].as_str().unwrap(), old);
    cloud.good(&["whoami"]);
    cloud.bad(&["--endpoint", &cloud.endpoint(), "--token", &old, "whoami"]);
}

#[test]
fn down_ends_what_up_left_and_up_brings_it_back() {
    let cloud = Cloud::start(&[]);
    let made = id(&cloud.create("web", &[], FOREVER));
    let names = ["--bridge", &cloud.tag, "--cgroup-parent", &cloud.tag];
    let data = cloud.data();
    let down = [&["down", "--data", data.to_str().unwrap()], &names[..]].concat();
    says(&cloud.bad(&down), &["another banyan", "runs on"]);
    cloud.terminate();
    let before = cloud.life(&made);
    cloud.good(&down);
    assert_eq!(cloud.remains(), guard::Remains::default());
    cloud.up(&[]);
    let started = cloud.folder(&made).join("started.json");
    let again = until("it is started again", || started.exists().then(|| cloud.life(&made)));
    assert_ne!(again, before);
    cloud.wait("web", "running again", |seen| seen["phase"] == "running");
    cloud.good(&["instance", "delete", "web"]);
    cloud.terminate();
    cloud.good(&[&down[..], &["--purge"]].concat());
    assert!(!data.exists());
}
