//! The tour a person takes: create, look, listen, enter, stop, start, delete.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::terminal::Terminal;
use crate::support::*;

/// Says a line, waits until it is told to go on, says another and ends with 3.
const PATIENT: &str = "echo one; until [ -f /go ]; do sleep 0.1; done; echo two; exit 3";

#[test]
fn an_instance_is_created_seen_and_deleted() {
    let cloud = Cloud::shared();
    let made =
        cloud.create("tour", &["--label", "app=tour", "--memory", "64MiB"], "while true; do sleep 1; done");
    assert_eq!((made["phase"].as_str(), made["node"].is_string()), (Some("running"), true), "{made:#}");
    says(&cloud.good(&["instance", "list", "--label", "app=tour"]), &["NAME", "tour", "running", "64MiB"]);
    says(&cloud.good(&["ps"]), &["tour"]);
    says(
        &cloud.good(&["instance", "get", "tour"]),
        &["phase:", "running", "latest events:", "instance.started"],
    );
    assert_eq!(cloud.good(&["instance", "list", "--name", "tou*", "-o", "name"]), "tour\n");
    assert_eq!(cloud.good(&["instance", "get", made["id"].as_str().unwrap(), "-o", "name"]), "tour\n");
    let yaml: serde_json::Value =
        yaml_serde::from_str(&cloud.good(&["instance", "get", "tour", "-o", "yaml"])).unwrap();
    assert_eq!(yaml["id"], made["id"]);
    assert_eq!(cloud.json(&["instance", "list", "--name", "tour"])[0]["spec"]["labels"]["app"], "tour");
    let stats = cloud.json(&["instance", "stats", "tour"]);
    assert_eq!(stats[0]["memory_limit_bytes"], 64 << 20, "{stats:#}");
    assert!(stats[0]["pids"].as_u64().unwrap() >= 1);
    says(&cloud.bad(&["instance", "create", "tour", "--image", "busybox"]), &["tour", "already"]);
    cloud.good(&["instance", "delete", "tour"]);
    says(&cloud.bad(&["instance", "get", "tour"]), &["there is no instance 'tour'", "banyan instance list"]);
    let left = cloud.remains();
    let id = made["id"].as_str().unwrap().to_owned();
    for list in [left.shims, left.cgroups, left.namespaces, left.folders] {
        assert!(!list.contains(&id), "something of {id} is left: {list:?}");
    }
}

#[test]
fn the_client_and_the_command_line_see_the_same() {
    let cloud = Cloud::shared();
    wait_async(async {
        let client = cloud.client();
        assert_eq!(client.whoami().await.unwrap().user.as_str(), "admin");
        let mut spec = model::InstanceSpec::new("busybox");
        spec.command = ["sleep", "100000"].map(String::from).to_vec();
        spec.memory = model::Bytes::mib(16);
        let seq = client.instance_list(&api::ListQuery::new().limit(1)).await.unwrap().seq;
        let mut watch = client.watch(api::WatchKind::Instance, Some(seq)).await.unwrap();
        let body = api::InstanceCreate { name: "typed".parse().unwrap(), spec };
        let made = client.instance_create_once(&body, "the-same-key").await.unwrap();
        let again = client.instance_create_once(&body, "the-same-key").await.unwrap();
        assert_eq!(made.id, again.id, "a repeated create made two");
        let mut phases = Vec::new();
        while phases.last().map(String::as_str) != Some("running") {
            let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
            if event.id == made.id.as_str() {
                phases.push(event.object.unwrap()["phase"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(phases[0], "pending", "{phases:?}");
        let stale = client.instance_stop("typed", Some(made.version + 100)).await.unwrap_err();
        assert_eq!(stale.kind, model::ErrorKind::VersionMismatch, "{stale:?}");
    });
    assert_eq!(cloud.get("typed")["phase"], "running");
    cloud.good(&["instance", "delete", "typed"]);
}

#[test]
fn output_is_read_and_followed_to_the_exit_code() {
    let cloud = Cloud::shared();
    cloud.create("talk", &["--restart", "never"], PATIENT);
    let mut follow =
        cloud.command(&["instance", "logs", "-f", "talk"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(cloud.logs("talk"), "one\n");
    assert!(cloud.exec("talk", "touch /go").status.success());
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    assert!(lines.next().is_none(), "the output did not end with the instance");
    assert!(follow.wait().unwrap().success());
    let ended = cloud.wait("talk", "exited", |i| i["phase"] == "exited");
    assert_eq!(ended["exit_code"], 3);
    says(&cloud.good(&["instance", "list", "--name", "talk"]), &["exited (3)"]);
    assert_eq!(cloud.good(&["instance", "logs", "--tail", "1", "talk"]), "two\n");
    let events = cloud.events("talk");
    let walk =
        ["instance.create", "instance.placed", "instance.created", "instance.started", "instance.exited"];
    let mut rest = whats(&events).into_iter();
    for what in walk {
        assert!(rest.any(|found| found == what), "{what} is missing or late: {:?}", whats(&events));
    }
    let first = &events[0];
    assert_eq!(
        (first["who"].as_str(), first["from"].as_str()),
        (Some("admin"), Some("127.0.0.1")),
        "{first}"
    );
    assert!(events.iter().all(|event| event["at"].is_string() && event["who"].is_string()));
    says(
        events.iter().rfind(|e| e["what"] == "instance.exited").unwrap()["message"].as_str().unwrap(),
        &["3"],
    );
    cloud.good(&["instance", "delete", "talk"]);
    says(&cloud.good(&["event", "list", "--subject", "talk", "-o", "wide"]), &["instance.gone", "127.0.0.1"]);
}

#[test]
fn a_create_that_fails_at_once_says_why() {
    let cloud = Cloud::shared();
    let words = ["instance", "create", "stillborn", "--image", "busybox", "--restart", "never"];
    let said = cloud.bad(&[&words[..], &["--", "sh", "-c", "echo my last words; exit 9"]].concat());
    says(&said, &["exited with code 9", "my last words", "instance.exited"]);
    let said = cloud.bad(&["instance", "create", "nowhere", "--image", "no-such", "--", "sh"]);
    says(&said, &["no-such", "banyan image list"]);
    let said = cloud.bad(&[
        "instance",
        "create",
        "missing",
        "--image",
        "busybox",
        "--restart",
        "never",
        "--",
        "/no/such",
    ]);
    says(&said, &["/no/such"]);
    cloud.good(&["instance", "delete", "stillborn", "missing"]);
    assert_eq!(cloud.good(&["instance", "list", "--name", "nowhere", "-o", "name"]), "");
}

#[test]
fn commands_run_inside_with_their_input_output_and_code() {
    let cloud = Cloud::shared();
    cloud.create("inside", &[], "while true; do sleep 1; done");
    let output = cloud.exec("inside", "echo out; echo err >&2; exit 7");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "out\n".to_owned()));
    assert_eq!(text(&output.stderr), "err\n");
    assert_eq!(cloud.exec("inside", "kill -9 $$").status.code(), Some(137));
    let big: Vec<u8> = (0..300_000u32).flat_map(|number| number.to_le_bytes()).collect();
    let output = cloud.fed(&["instance", "exec", "-i", "inside", "--", "cat"], &big);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout == big, "{} of {} bytes came back, or others", output.stdout.len(), big.len());
    says(&cloud.bad(&["instance", "exec", "-t", "inside"]), &["terminal", "leave -t out"]);
    let output = cloud.run(&["instance", "exec", "inside", "--", "/no/such/program"]);
    assert!(!output.status.success());
    says(&text(&output.stderr), &["/no/such/program"]);
    cloud.good(&["instance", "delete", "inside"]);
    says(&cloud.bad(&["instance", "exec", "inside", "--", "true"]), &["there is no instance 'inside'"]);
}

#[test]
fn a_terminal_reaches_inside_with_its_size() {
    let cloud = Cloud::shared();
    cloud.create("screen", &[], "while true; do sleep 1; done");
    let mut terminal = Terminal::start(&mut cloud.command(&["instance", "exec", "-it", "screen"]), 33, 77);
    terminal.expect("# ");
    terminal.write("tty; stty size; echo a$((40+2))b\n");
    terminal.expect("a42b");
    says(&terminal.seen(), &["/dev/pts/", "33 77"]);
    assert!(!terminal.is_cooked(), "our terminal is not raw");
    terminal.resize(44, 99);
    // The size travels beside the keys, so it is asked for until it is there.
    terminal.write("until stty size | grep '44 99'; do sleep 0.1; done; echo c$((40+2))d\n");
    terminal.expect("c42d");
    terminal.write("exit 5\n");
    assert_eq!(terminal.end().code(), Some(5), "{}", terminal.seen());
    assert!(terminal.is_cooked(), "the terminal was not given back");
    cloud.good(&["instance", "delete", "screen"]);
}

#[test]
fn stop_start_and_restart_keep_the_name_and_the_disk() {
    let cloud = Cloud::shared();
    let script = "trap 'exit 0' TERM; echo born; while true; do sleep 0.1; done";
    let id = cloud.create("phoenix", &[], script)["id"].as_str().unwrap().to_owned();
    assert!(cloud.exec("phoenix", "echo kept > /root-file").status.success());
    let first = cloud.life(&id);
    cloud.good(&["instance", "stop", "phoenix"]);
    let stopped = cloud.get("phoenix");
    assert_eq!((stopped["phase"].as_str(), stopped["run"].as_str()), (Some("stopped"), Some("stopped")));
    says(&cloud.bad(&["instance", "exec", "phoenix", "--", "true"]), &["is stopped"]);
    says(&cloud.bad(&["instance", "stats", "phoenix"]), &["is stopped"]);
    cloud.good(&["instance", "start", "phoenix"]);
    let second = cloud.life(&id);
    assert_ne!(first, second);
    assert_eq!(text(&cloud.exec("phoenix", "cat /root-file").stdout), "kept\n");
    cloud.good(&["instance", "restart", "phoenix"]);
    assert_ne!(second, cloud.life(&id));
    assert_eq!(cloud.get("phoenix")["phase"], "running");
    assert_eq!(cloud.logs("phoenix"), "born\nborn\nborn\n");
    let events = cloud.events("phoenix");
    for what in ["instance.stop", "instance.start", "instance.restart"] {
        let event = events.iter().find(|event| event["what"] == what);
        assert_eq!(event.map(|event| &event["who"]), Some(&"admin".into()), "{what}: {:?}", whats(&events));
    }
    cloud.good(&["instance", "delete", "phoenix"]);
}
