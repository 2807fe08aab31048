//! Scripts on a machine.

use provision::automator::Shell;
use provision::machine::Machine;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_script_has_its_settings_and_leaves_nothing() {
    let world = World::new(Shell);
    let code = "#!/bin/sh\nset -e\necho \"$BANYAN_ACTION $BANYAN_SERVICE $BANYAN_HOSTNAME $1 $2\"\nsetting web.port; echo\n\
                setting web.none else; echo\nif grep -q secret task.json; then echo leaked; fi\npwd\n";
    std::fs::write(world.staged("scripts/hello.sh"), code).unwrap();
    let report = world.act("INSTALL", json!({"script": "hello.sh", "args": "'a b' c"})).await.unwrap();
    let lines: Vec<&str> = report.stdout.lines().collect();
    assert_eq!(lines[..3], ["install web web1-1000.local a b c", "80", "else"]);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[3].starts_with(&format!("/var/lib/banyan/tasks/{}-", world.task_id())));
    assert!(!std::path::Path::new(lines[3]).exists());
}

#[tokio::test]
async fn what_fails_says_why() {
    let world = World::new(Shell);
    let failed =
        world.act("START", json!({"code": "#!/bin/sh\necho one\necho two >&2\nexit 3"})).await.unwrap_err();
    assert_eq!(failed.message, "start of 'web' failed on 127.0.0.1: it ended with code 3: two");
    assert_eq!((failed.stdout.as_str(), failed.stderr.as_str(), failed.is_passing), ("one\n", "two\n", true));
    let slow = world.act("START", json!({"code": "#!/bin/sh\nsleep 60", "timeout": "1"})).await.unwrap_err();
    assert_eq!(slow.message, "the command took longer than 1 s");
    for (fields, why) in [
        (json!({}), "a shell action needs 'script' or 'code'"),
        (
            json!({"script": "none.sh"}),
            "the resource 'none.sh' of scripts cannot be read: it is not staged; upload and stage it",
        ),
        (json!({"script": "../x"}), "'../x' is no name of a resource"),
    ] {
        let refused = world.act("START", fields).await.unwrap_err();
        assert_eq!((refused.message.as_str(), refused.is_passing), (why, false));
    }
}

#[tokio::test]
async fn a_second_try_ends_what_the_first_left_running() {
    let world = World::new(Shell);
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("first");
    let at = mark.display();
    // What left the session is a service that was begun, and stays.
    let code = format!(
        "#!/bin/sh\nif [ -e {at} ]; then read first < {at}; grep '^State' /proc/$first/status | grep -v Z; echo again; exit; fi\n\
         setsid sleep 61 >/dev/null 2>&1 & echo $! > {at}.service; echo $$ > {at}.part; mv {at}.part {at}; sleep 60"
    );
    let fields = json!({"code": code});
    let first = async {
        tokio::select! {
            done = world.act("START", fields.clone()) => panic!("{done:?}"),
            () = async { while !mark.exists() { tokio::time::sleep(std::time::Duration::from_millis(20)).await } } => {}
        }
    };
    // Nobody is left who could end it, as when a provisioner is killed.
    first.await;
    let pid = std::fs::read_to_string(&mark).unwrap();
    let is_there = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
    };
    assert!(is_there(&pid), "it runs on by itself");
    let again = world.act("START", fields).await.unwrap();
    assert_eq!(again.stdout, "again\n");
    assert!(!is_there(&pid));
    let service = std::fs::read_to_string(format!("{at}.service")).unwrap();
    assert!(is_there(&service));
    assert!(std::process::Command::new("kill").args(["-9", service.trim()]).status().unwrap().success());
    let left = std::fs::read_dir("/var/lib/banyan/tasks").unwrap().flatten();
    let mine = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&world.task_id()));
    assert_eq!(mine.count(), 0);
}

#[tokio::test]
async fn a_machine_that_was_not_confirmed_is_not_touched() {
    let world = World::new(Shell);
    let mut task = world.task("INSTALL", json!({}));
    task.config.remove("ssh_host_keys");
    let refused = Machine::of(&task, &world.pool).err().unwrap();
    assert_eq!(refused.message, "the machine's host key is not known: it was not confirmed");
}
