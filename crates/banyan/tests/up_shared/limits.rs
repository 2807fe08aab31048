//! What an instance may use, and as whom and where it runs.

use crate::support::*;

#[test]
fn too_much_memory_is_told_as_such() {
    let cloud = Cloud::shared();
    let words =
        ["instance", "create", "greedy", "--image", "busybox", "--memory", "16MiB", "--restart", "never"];
    cloud.run(&[&words[..], &["--no-wait", "--", "tail", "/dev/zero"]].concat());
    let ended = cloud.wait("greedy", "ended", |i| i["phase"] == "exited");
    assert_eq!(ended["exit_code"], 137, "{ended:#}");
    says(ended["message"].as_str().unwrap(), &["memory"]);
    says(&cloud.good(&["instance", "get", "greedy"]), &["memory"]);
    let events = cloud.events("greedy");
    let exit = events.iter().find(|event| event["what"] == "instance.exited").unwrap();
    says(exit["message"].as_str().unwrap(), &["memory"]);
    cloud.good(&["instance", "delete", "greedy"]);
}

#[test]
fn limits_are_in_the_kernel() {
    let cloud = Cloud::shared();
    let options = ["--cpu", "0.3", "--memory", "24MiB", "--pids", "7"];
    let made = cloud.create("bounded", &options, "while true; do sleep 1; done");
    let id = made["id"].as_str().unwrap();
    let quota = cloud.cgroup(id, "cpu.cfs_quota_us", "cpu.max");
    let period = match quota.split_once(' ') {
        Some((_, period)) => period.to_owned(),
        None => cloud.cgroup(id, "cpu.cfs_period_us", "cpu.max"),
    };
    let quota: f64 = quota.split(' ').next().unwrap().parse().unwrap();
    assert!((quota / period.parse::<f64>().unwrap() - 0.3).abs() < 0.001, "{quota} of {period}");
    assert_eq!(cloud.cgroup(id, "memory.limit_in_bytes", "memory.max"), (24 << 20).to_string());
    assert_eq!(cloud.cgroup(id, "pids.max", "pids.max"), "7");
    let output = cloud.exec("bounded", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait");
    assert_ne!(output.status.code(), Some(0), "nine processes fitted into seven");
    cloud.good(&["instance", "delete", "bounded"]);
}

#[test]
fn the_process_is_who_and_where_it_was_asked_to_be() {
    let cloud = Cloud::shared();
    let options =
        ["-e", "COLOUR=dark red", "-e", "EMPTY=", "-u", "1234:2345", "-w", "/tmp", "--restart", "never"];
    let script =
        "id -u; id -g; pwd; echo \"$COLOUR\"; echo \"[$EMPTY]\"; grep -E 'CapEff|Seccomp:' /proc/self/status";
    cloud.create("who", &options, script);
    cloud.wait("who", "ended", |i| i["phase"] == "exited");
    let said = cloud.logs("who");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..5], ["1234", "2345", "/tmp", "dark red", "[]"], "{said}");
    says(&said, &["CapEff:\t0000000000000000", "Seccomp:\t2"]);
    cloud.good(&["instance", "delete", "who"]);
    let said = cloud.bad(&["instance", "create", "x", "--image", "busybox", "-w", "tmp", "--", "true"]);
    says(&said, &["absolute path", "workdir"]);
}

#[test]
fn a_process_that_fails_is_started_again_with_pauses() {
    let cloud = Cloud::shared();
    let script =
        "echo try; [ $(grep -c . /count 2>/dev/null || echo 0) -ge 2 ] && exit 0; echo x >> /count; exit 4";
    let words =
        ["instance", "create", "stubborn", "--image", "busybox", "--restart", "on-failure", "--no-wait"];
    cloud.good(&[&words[..], &["--", "sh", "-c", script]].concat());
    let ended = cloud.wait("stubborn", "ended well", |i| i["phase"] == "exited" && i["exit_code"] == 0);
    assert_eq!(ended["restarts"], 2, "{ended:#}");
    assert_eq!(cloud.logs("stubborn"), "try\ntry\ntry\n");
    let events = cloud.events("stubborn");
    for what in ["instance.started", "instance.exited"] {
        let count = whats(&events).into_iter().filter(|found| *found == what).count();
        assert_eq!(count, 3, "{what}: {:?}", whats(&events));
    }
    says(
        &cloud.good(&["event", "list", "--subject", "stubborn"]),
        &["exited with code 4", "exited with code 0"],
    );
    cloud.good(&["instance", "delete", "stubborn"]);
}
