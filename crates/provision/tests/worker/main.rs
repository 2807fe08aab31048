//! A provisioner's loop over the real link: what it takes, stops, reports and gives back.

#![allow(clippy::unwrap_used)]

mod bed;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bed::{World, body, files};
use provision::task::Fault;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_run_side_by_side_and_each_is_reported_once() {
    let world = World::new().await;
    let running = world.worker(3, LONG);
    (0..8).for_each(|task| drop(world.root.wait_task("main", task)));
    let wrong = world.root.give("main", 9, serde_json::json!({"taskName": "DANCE"}), 60_000);
    world.inside(3).await;
    world.gate.go.add_permits(8);
    world.root.until("all are reported", |state| state.done.len() == 9).await;
    assert_eq!(*world.gate.most.lock().unwrap(), 3, "no more at once than there are workers");
    let done = world.root.state().done.clone();
    let mut claims: Vec<u32> = done.iter().map(|done| done.claim.task).collect();
    claims.sort_unstable();
    assert_eq!(claims, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
    let bad = done.iter().find(|done| done.claim == wrong).unwrap();
    assert_eq!((bad.report.status, bad.report.is_passing), (Fault::INVALID, false));
    let good = done.iter().find(|done| done.claim.task == 4).unwrap();
    assert_eq!(good.report.hostname.as_deref(), Some("n4"));
    assert_eq!(running.worker.counts().done.load(Ordering::Relaxed), 8);
    running.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_root_does_not_want_is_stopped_and_what_takes_too_long_is_reported() {
    let world = World::new().await;
    let running = world.worker(4, LONG);
    let stopped = world.root.wait_task("main", 1);
    world.inside(1).await;
    world.root.change(|state| state.stop.push(stopped.clone()));
    world.inside(0).await;
    // What was done until then is told once.
    world.root.until("the stopped one is told of", |state| state.done.len() == 1).await;
    world.root.give("main", 2, body("CREATE", "late"), 200);
    world.root.until("the late one is reported", |state| state.done.len() == 2).await;
    world.inside(0).await;
    let done = world.root.state().done.clone();
    assert_eq!((&done[0].claim, done[0].report.message.as_str()), (&stopped, "it was stopped"));
    assert!(done[1].report.is_passing && done[1].report.message.contains("was not done within"));
    assert!(world.root.state().held.is_empty());
    running.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_waits_until_root_is_back() {
    let mut world = World::new().await;
    let running = world.worker(4, LONG);
    world.root.wait_task("main", 1);
    world.inside(1).await;
    world.down();
    world.gate.go.add_permits(1);
    world.inside(0).await;
    world.root.change(|state| state.refuse_reports = true);
    world.up().await;
    // It is there, but cannot keep anything yet.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running.worker.held(), 1);
    world.root.change(|state| state.refuse_reports = false);
    world.root.until("it is reported", |state| state.done.len() == 1).await;
    running.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_root_for_a_lease_what_is_being_done_is_stopped_and_done_again_later() {
    let mut world = World::new().await;
    world.root.change(|state| state.lease_ms = 1_000);
    let running = world.worker(4, LONG);
    world.root.wait_task("main", 1);
    world.inside(1).await;
    world.down();
    world.inside(0).await;
    world.up().await;
    // It is not named any more, so it is given out again.
    world.inside(1).await;
    world.gate.go.add_permits(1);
    world.root.until("it is reported", |state| state.done.len() == 1).await;
    assert_eq!(running.worker.counts().stopped.load(Ordering::Relaxed), 1);
    running.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_ends_takes_nothing_more_and_finishes_what_it_can() {
    let world = World::new().await;
    let running = world.worker(4, LONG);
    world.root.wait_task("main", 1);
    world.inside(1).await;
    running.end();
    world.root.until("it says that it takes nothing more", |state| state.capacity == 0).await;
    world.root.wait_task("main", 2);
    world.gate.go.add_permits(2);
    running.ended().await;
    let state = world.root.state();
    assert_eq!(state.done.iter().map(|done| done.claim.task).collect::<Vec<_>>(), [1]);
    assert_eq!(state.ready.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_ends_gives_back_what_it_cannot_finish() {
    let world = World::new().await;
    let running = world.worker(4, Duration::from_millis(200));
    world.root.wait_task("main", 1);
    world.inside(1).await;
    running.ended().await;
    world.inside(0).await;
    let state = world.root.state();
    assert!(state.held.is_empty() && state.ready.len() == 1, "root can give it to another at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_staged_by_tenant_exchanged_and_recalled() {
    let world = World::new().await;
    let at = "providertypes/banyan/scripts/a.sh";
    let (one, other) = (world.file(at, b"one"), world.file(at, b"other"));
    let more = world.file("automatortypes/shell/archives/b.tar", b"more");
    world.root.change(|state| {
        state.workers = [("main".to_owned(), 2), ("second".to_owned(), 2)].into();
        state.staged =
            [("main".to_owned(), vec![one.clone(), more]), ("second".to_owned(), vec![other.clone()])].into();
    });
    let running = world.worker(4, LONG);
    world.gate.go.add_permits(100);
    world.root.wait_task("main", 1);
    world.root.wait_task("second", 2);
    world.root.until("both are done", |state| state.done.len() == 2).await;
    let said = |task: u32| {
        let state = world.root.state();
        state.done.iter().find(|done| done.claim.task == task).unwrap().report.stdout.clone()
    };
    assert!(said(1).ends_with(" one") && said(2).ends_with(" other"));
    assert_ne!(said(1).split(' ').next(), said(2).split(' ').next(), "a folder of its own for each tenant");
    let tenants = world.data().join("tenants");
    let both = ["automatortypes/shell/archives/b.tar", at];
    world.root.until("the other file came too", |_| files(&tenants.join("t-main")) == both).await;

    // Another version, and one file less; what did not change is not fetched again.
    world.root.change(|state| drop(state.staged.insert("main".to_owned(), vec![other.clone()])));
    world.root.wait_task("main", 3);
    world.root.until("it is done", |state| state.done.len() == 3).await;
    assert!(said(3).ends_with(" other"));
    assert_eq!(files(&tenants.join("t-main")), [at]);
    world.root.wait_task("second", 4);
    world.root.until("it is done", |state| state.done.len() == 4).await;
    assert_eq!(world.root.state().fetched.len(), 4, "{:?}", world.root.state().fetched);

    // A file that root has not: the task waits for a better time.
    world.root.change(|state| state.files.clear());
    world.root.change(|state| drop(state.staged.insert("main".to_owned(), vec![one.clone()])));
    world.root.wait_task("main", 5);
    world.root.until("it is reported", |state| state.done.len() == 5).await;
    let report = world.root.state().done[4].report.clone();
    assert!(!report.is_good() && report.is_passing, "{report:?}");
    assert!(report.message.contains("'scripts/a.sh' cannot be fetched"), "{report:?}");

    // One that it does not need holds it up no longer, and is there as soon as root has it.
    let [back, lost] = [(at, "one"), ("automatortypes/shell/scripts/lost.sh", "lost")]
        .map(|(path, content)| world.file(path, content.as_bytes()));
    world.root.change(|state| {
        state.files.remove(&lost.digest);
        state.staged.insert("main".to_owned(), vec![lost.clone(), back]);
    });
    world.root.wait_task("main", 6);
    world.root.until("it is done", |state| state.done.len() == 6).await;
    assert!(said(6).ends_with(" one"), "{:?}", world.root.state().done[5]);
    assert_eq!(files(&tenants.join("t-main")), [at]);
    world.file(&lost.path, b"lost");
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    world.root.wait_task("main", 7);
    world.root.until("it is done", |state| state.done.len() == 7).await;
    let both = ["automatortypes/shell/scripts/lost.sh", at];
    world.root.until("the other file came too", |_| files(&tenants.join("t-main")) == both).await;

    // A tenant without workers here leaves nothing behind.
    world.root.change(|state| {
        state.workers.remove("main");
    });
    while tenants.join("t-main").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(tenants.join("t-second").exists());
    running.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_hangs_holds_up_only_those_who_need_it_and_not_for_ever() {
    let world = World::new().await;
    let at = "providertypes/banyan/scripts/a.sh";
    let (one, other) = (world.file(at, b"one"), world.file(at, b"other"));
    let stuck: Vec<_> = ["1", "2", "3"]
        .map(|name| world.file(&format!("automatortypes/shell/scripts/{name}.sh"), name.as_bytes()))
        .into();
    world.root.change(|state| {
        state.hang = stuck.iter().map(|file| file.digest.clone()).collect();
        let all = stuck.iter().cloned().chain([one.clone()]).collect();
        state.staged = [("main".to_owned(), all)].into();
    });
    let running = world.worker(8, LONG);
    world.gate.go.add_permits(100);
    let mut start = body("START", "needs");
    start["config"]["service"] =
        serde_json::json!({"name": "s", "action": {"type": "shell", "fields": {"script": "1.sh"}}});
    let key = provision::ssh::Identity::from_seed(&[4; 32]);
    start["config"]["ipaddresses"] = serde_json::json!({"access_v4": "127.0.0.1"});
    start["config"]["cluster-key"] = key.private_text().as_str().into();
    start["config"]["ssh_host_keys"] = serde_json::json!({"ed25519": key.public_text()});
    world.root.give("main", 1, start, 120_000);
    world.root.wait_task("main", 2);
    world.root.until("who does not need it is done", |state| state.done.len() == 1).await;
    let done = world.root.state().done[0].clone();
    assert!(done.claim.task == 2 && done.report.stdout.ends_with(" one"), "{done:?}");
    // Another version of what is needed is not held up either.
    world.root.change(|state| {
        state.staged.insert("main".to_owned(), stuck.iter().cloned().chain([other.clone()]).collect());
    });
    world.root.wait_task("main", 3);
    world.root.until("it is done", |state| state.done.len() == 2).await;
    assert!(world.root.state().done[1].report.stdout.ends_with(" other"));
    // Who needs it is told in the end, and waits for a better time.
    world.root.until("it is reported", |state| state.done.len() == 3).await;
    let report = world.root.state().done[2].report.clone();
    assert!(report.is_passing && report.message.contains("'scripts/1.sh' cannot be fetched"), "{report:?}");
    running.ended().await;
}
