//! Programs that are providers, and all the ways in which they misbehave.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use provision::carry::Carrier;
use provision::plugin::Plugin;
use provision::ssh::Pool;
use provision::task::{Fault, Report};
use serde_json::json;

fn carrier() -> Carrier {
    Carrier::new(Pool::new(1), PathBuf::from("/nonexistent"))
}

fn program(folder: &Path, name: &str, text: &str, limit: Duration) -> Plugin {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    Plugin::new(name, path, limit)
}

#[tokio::test]
async fn programs_are_providers_and_their_faults_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().display();
    let programs = [
        ("good", r#"grep -q '"verb":"create"' && echo making >&2; echo '{"status":0,"result":{"providerid":"x-1"}}'"#.to_owned()),
        ("denied", r#"cat >/dev/null; echo '{"status":201,"message":"the password is wrong"}'"#.to_owned()),
        ("garbage", "echo this is no JSON".to_owned()),
        ("flood", "yes | head -c 60000000; yes x | head -c 9000000 >&2".to_owned()),
        ("hang", format!("sleep 40 & echo $! > {marks}/child; wait")),
        ("dies", "echo oh no >&2; exit 4".to_owned()),
    ];
    let mut carrier = carrier();
    for (name, text) in &programs {
        carrier.provider_add(Arc::new(program(folder.path(), name, text, Duration::from_secs(3))));
    }
    carrier.provider_add(Arc::new(Plugin::new(
        "absent",
        folder.path().join("nowhere"),
        Duration::from_secs(1),
    )));
    let ask = async |name: &str| {
        let task = json!({"taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "CREATE", "nodeId": "n",
                          "config": {"provider": {"providertype": name}}});
        carrier.carry(&serde_json::from_value(task).unwrap()).await
    };
    let good = ask("good").await;
    assert_eq!(
        (good.status, good.stderr.as_str(), &good.result["providerid"]),
        (0, "making\n", &json!("x-1"))
    );
    let denied = ask("denied").await;
    assert_eq!(
        (denied.status, denied.message.as_str(), denied.is_passing),
        (201, "the password is wrong", false)
    );
    let garbage = ask("garbage").await;
    assert!(
        garbage.message.starts_with("the plugin 'garbage' did not answer as it should"),
        "{}",
        garbage.message
    );
    assert_eq!(garbage.stdout, "this is no JSON\n");
    let flood = ask("flood").await;
    assert_eq!(flood.message, "the plugin 'flood' answered more than 4 MiB");
    assert!(flood.stdout.len() < 4_000 && flood.stderr.len() < 80_000);
    assert_eq!(ask("hang").await.message, "the plugin 'hang' took longer than 3 s");
    let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
    let is_there = || Path::new(&format!("/proc/{}/cmdline", child.trim())).exists();
    let began = std::time::Instant::now();
    while is_there() && began.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!is_there(), "what it started is ended too");
    let dies = ask("dies").await;
    assert_eq!(
        (dies.message.as_str(), dies.stderr.as_str()),
        ("the plugin 'dies' ended with code 4", "oh no\n")
    );
    assert!(ask("absent").await.message.starts_with("the plugin 'absent' cannot be started"));
}

/// Runs one program; it may take so long.
async fn alone(folder: &Path, limit: Duration, text: &str) -> (Report, Duration) {
    let plugin = program(folder, "it", text, limit);
    let mut carrier = carrier();
    carrier.provider_add(Arc::new(plugin));
    let task = json!({"taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "CREATE", "nodeId": "n",
                      "config": {"provider": {"providertype": "it"}}});
    let began = Instant::now();
    let report = carrier.carry(&serde_json::from_value(task).unwrap()).await;
    (report, began.elapsed())
}

/// Waits until the process whose number is in the file has ended.
async fn ends(file: &Path) -> bool {
    let pid = std::fs::read_to_string(file).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let runs = || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    let began = Instant::now();
    while runs() && began.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    !runs()
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn what_a_program_leaves_running_ends_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("child");
    let at = mark.display();
    let good = r#"echo '{"status":0,"result":{"providerid":"x"}}'"#;
    let (report, took) = alone(folder.path(), LONG, &format!("sleep 40 & echo $! > {at}; {good}")).await;
    assert!(report.is_good() && took < Duration::from_secs(10), "{} {took:?}", report.message);
    assert_eq!(report.result["providerid"], "x");
    assert!(ends(&mark).await, "it still runs");
    // One that left the group is not ours to end, and not waited for either.
    let leave = format!("setsid sh -c 'echo $$ > {at}; exec sleep 40' & sleep 0.3; {good}");
    let (report, took) = alone(folder.path(), LONG, &leave).await;
    assert!(report.is_good() && took < Duration::from_secs(10), "{} {took:?}", report.message);
    let pid = std::fs::read_to_string(&mark).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    // The same when it ends without an answer.
    let (report, took) = alone(folder.path(), LONG, &format!("sleep 40 & echo $! > {at}; exit 3")).await;
    assert_eq!(report.message, "the plugin 'it' ended with code 3");
    assert!(took < Duration::from_secs(10) && ends(&mark).await, "{took:?}");
}

#[tokio::test]
async fn a_program_that_does_not_want_to_end_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("child");
    let deaf = format!(
        "trap '' TERM INT HUP QUIT; echo $$ > {}; echo on >&2; while :; do sleep 1; done",
        mark.display()
    );
    let (report, took) = alone(folder.path(), SHORT, &deaf).await;
    assert_eq!(report.message, "the plugin 'it' took longer than 2 s");
    assert_eq!((report.is_passing, report.stderr.as_str()), (true, "on\n"));
    assert!(took < Duration::from_secs(6) && ends(&mark).await, "{took:?}");
}

#[tokio::test]
async fn output_without_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("child");
    // An answer that is too long can only get longer.
    let (report, took) = alone(folder.path(), LONG, &format!("echo $$ > {}; exec yes", mark.display())).await;
    assert_eq!(report.message, "the plugin 'it' answered more than 4 MiB");
    assert!(took < Duration::from_secs(10) && ends(&mark).await, "{took:?}");
    assert!(report.stdout.len() < 4_000);
    // A log may be of any length, and its beginning and end are kept.
    let (report, _) = alone(folder.path(), SHORT, "echo first >&2; exec yes >&2").await;
    assert_eq!(report.message, "the plugin 'it' took longer than 2 s");
    assert!(report.stderr.starts_with("first\n") && report.stderr.len() < 80_000, "{}", report.stderr.len());
}

#[tokio::test]
async fn half_an_answer_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for half in [
        r#"printf '{"status":0,"result":{"providerid":'"#,
        r#"printf '{"result":{"providerid":"x"}}'"#,
        r#"printf '{"status":0}{"status":0}'"#,
        r#"printf '{"status":"0"}'"#,
        "exit 0",
        r"printf '\377\376'",
    ] {
        let (report, _) = alone(folder.path(), LONG, half).await;
        let start = "the plugin 'it' did not answer as it should: ";
        assert!(report.message.starts_with(start), "{half}: {}", report.message);
        assert_eq!((report.status, report.is_passing), (Fault::FAILED, true));
        assert!(report.result.is_empty());
    }
    let (report, _) = alone(folder.path(), LONG, "kill -9 $$").await;
    assert_eq!(report.message, "the plugin 'it' was killed");
    // Good words of a program that fails are not believed.
    let (report, _) = alone(folder.path(), LONG, r#"echo '{"status":0}'; exit 1"#).await;
    assert_eq!((report.status, report.is_passing), (Fault::FAILED, true));
}

#[tokio::test]
async fn an_automator_that_is_stopped_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("child");
    let text = format!("echo so far >&2; echo $$ > {0}.part; mv {0}.part {0}; exec sleep 40", mark.display());
    let mut carrier = carrier();
    carrier.automator_add(Arc::new(program(folder.path(), "slow", &text, LONG)));
    let key = provision::ssh::Identity::from_seed(&[4; 32]);
    let task = json!({"taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "INSTALL", "nodeId": "n", "config": {
        "ipaddresses": {"access_v4": "127.0.0.1"}, "cluster-key": key.private_text().as_str(),
        "ssh_host_keys": {"ed25519": key.public_text()},
        "service": {"name": "s", "action": {"type": "slow"}}
    }});
    let task = serde_json::from_value(task).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let begun = async {
        while !mark.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.cancel();
    };
    let began = Instant::now();
    let (report, ()) = tokio::join!(carrier.carry_until(&task, &stop), begun);
    assert_eq!((report.message.as_str(), report.is_passing), ("it was stopped", true));
    assert_eq!(report.stderr, "so far\n");
    assert!(began.elapsed() < Duration::from_secs(10) && ends(&mark).await);
}
