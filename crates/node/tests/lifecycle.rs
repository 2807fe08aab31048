//! Stop, start, restart, delete, exec, logs, and lives of the node, with real runtimes.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use model::exchange::Run;
use model::{Generation, Phase, RestartPolicy};
use node::ExecRequest;
use support::{World, assignment, logs, wait, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

on_both_runtimes!(
    stop_start_restart_delete,
    generations,
    logs_tail_follow_rotate,
    exec_with_pipes,
    exec_with_terminal,
    stats,
    adopted_by_the_next_life,
    shim_killed,
);

async fn stop_start_restart_delete(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(
        1,
        "trap 'echo term; exit 3' TERM; echo start >> /kept; cat /kept; while true; do sleep 0.1; done",
    );
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    written(&engine, &wanted, |text| text == "start\n").await;
    wanted.restart_count = 1;
    engine.apply(vec![wanted.clone()]);
    written(&engine, &wanted, |text| text == "start\nterm\nstart\nstart\n").await;
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    assert_eq!(seen.restarts, 0, "somebody asked for it");
    wanted.run = Run::Stopped;
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Stopped).await;
    assert_eq!(seen.exit_code, Some(3), "SIGTERM was heard");
    wanted.run = Run::Running;
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    written(&engine, &wanted, |text| text.ends_with("start\nstart\nstart\n")).await;
    wanted.run = Run::Gone;
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Gone).await;
    assert_eq!(seen.events.last().unwrap().kind, "gone");
    world.nothing_left();
    assert_eq!(engine.observed().len(), 1, "told until it is unassigned");
    world.end(engine).await;
}

async fn generations(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let first = assignment(1, "echo one; sleep 1000");
    engine.apply(vec![first.clone()]);
    let seen = wait(&engine, &first.id, |o| o.phase == Phase::Running).await;
    // The same spec with a newer generation is the same container.
    let mut newer = first.clone();
    newer.generation = Generation { major: 2, minor: 1 };
    engine.apply(vec![newer.clone()]);
    let same = wait(&engine, &first.id, |o| o.generation == newer.generation).await;
    assert_eq!((same.phase, same.started_at, same.restarts), (Phase::Running, seen.started_at, 0));
    // An older one is refused.
    let mut older = assignment(1, "echo old");
    older.generation = Generation { major: 1, minor: 9 };
    engine.apply(vec![older]);
    // Another spec is another container with a root file system of its own.
    newer.generation.minor = 2;
    Arc::make_mut(&mut newer.spec).command =
        ["/bin/sh", "-c", "echo two; sleep 1000"].map(String::from).to_vec();
    engine.apply(vec![newer.clone()]);
    wait(&engine, &first.id, |o| o.phase == Phase::Running && o.generation == newer.generation).await;
    written(&engine, &first, |text| text == "two\n").await;
    world.end(engine).await;
}

async fn logs_tail_follow_rotate(runtime: &str) {
    let mut world = World::new(runtime);
    world.log_bytes_max = 40_000;
    let engine = world.engine().await;
    let wanted = assignment(1, "for i in 1 2 3 4 5 6 7 8; do seq -w 1 1000; sleep 0.2; done; echo end");
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running || o.phase == Phase::Exited).await;
    let text = logs(&engine, &wanted.id, true, None).await;
    assert_eq!(text.lines().count(), 8001, "a follower sees everything across rotations");
    assert!(text.ends_with("1000\nend\n"));
    let kept = logs(&engine, &wanted.id, false, None).await;
    assert!(kept.len() <= 40_000 && kept.len() > 15_000, "{} bytes are kept", kept.len());
    assert_eq!(logs(&engine, &wanted.id, false, Some(2)).await, "1000\nend\n");
    world.end(engine).await;
}

async fn exec_with_pipes(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "sleep 1000");
    Arc::make_mut(&mut wanted.spec).user = Some("web".into());
    engine.apply(vec![wanted.clone()]);
    assert!(engine.exec(&wanted.id, request("true", false)).await.is_err(), "it does not run yet");
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    let mut session =
        engine.exec(&wanted.id, request("id -u; cat; echo err >&2; exit 5", false)).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    session.stdout.read_to_string(&mut out).await.unwrap();
    session.stderr.unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str(), session.exit.await.unwrap()), ("33\nhello\n", "err\n", 5));
    // A session that is dropped takes its command with it.
    let seconds = format!("{}{}", std::process::id(), runtime.len() + usize::from(runtime == "crun"));
    let script = format!("echo ready; sleep {seconds}; true");
    let mut session = engine.exec(&wanted.id, request(&script, false)).await.unwrap();
    let mut ready = [0; 6];
    session.stdout.read_exact(&mut ready).await.unwrap();
    drop(session);
    while process_with(&format!("sleep\0{seconds}")).is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.end(engine).await;
}

async fn exec_with_terminal(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let wanted = assignment(1, "sleep 1000");
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    let script = "tty; stty size; read line; stty size; echo got $line; exit 4";
    let mut session = engine.exec(&wanted.id, request(script, true)).await.unwrap();
    let mut text = read_until(&mut session.stdout, "33 44").await;
    assert!(text.contains("/dev/pts/"), "{text}");
    session.terminal.as_ref().unwrap().resize(50, 60).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    session.stdin.as_mut().unwrap().write_all(b"word\n").await.unwrap();
    session.stdout.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("50 60") && text.contains("got word"), "{text}");
    assert_eq!(session.exit.await.unwrap(), 4);
    world.end(engine).await;
}

async fn stats(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "while true; do true; done");
    Arc::make_mut(&mut wanted.spec).cpu = model::Cpu(200);
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let first = engine.stats(&wanted.id).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = engine.stats(&wanted.id).await.unwrap();
    assert!(second.cpu_used_us > first.cpu_used_us);
    assert!(second.cpu_milli > 0 && second.cpu_milli < 400, "the quota holds: {second:?}");
    assert_eq!(second.memory_limit_bytes, 32 << 20);
    assert!(second.memory_bytes > 0 && second.pids >= 1, "{second:?}");
    // In short, for many at once; what does not run is left out.
    let unknown = model::InstanceId::from_random(99);
    let first = engine.usage(vec![wanted.id.clone(), unknown.clone()]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = engine.usage(vec![unknown, wanted.id.clone()]).await.unwrap();
    for usages in [first, second] {
        assert_eq!(usages.len(), 1);
        assert!(usages[0].id == wanted.id && usages[0].memory_bytes > 0 && usages[0].cpu_milli < 400);
        assert!(usages[0].cpu_milli > 0, "{usages:?}");
    }
    world.end(engine).await;
}

async fn adopted_by_the_next_life(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let stays = assignment(1, "sleep 1000");
    let ends = assignment(2, "while ! test -f /tmp/go; do sleep 0.05; done; exit 9");
    let orphan = assignment(3, "sleep 1000");
    let mut fails = assignment(4, "while ! test -f /tmp/go; do sleep 0.05; done; rm /tmp/go; exit 1");
    Arc::make_mut(&mut fails.spec).restart = RestartPolicy::OnFailure;
    let all = vec![stays.clone(), ends.clone(), orphan.clone(), fails.clone()];
    engine.apply(all);
    let before =
        wait_for(&engine, |all| all.len() == 4 && all.iter().all(|o| o.phase == Phase::Running)).await;
    let pid = init_pid(&world, &stays);
    drop(engine);

    for wanted in [&ends, &fails] {
        // Through the process's own root, because the overlay is mounted nowhere else.
        std::fs::write(format!("/proc/{}/root/tmp/go", init_pid(&world, wanted)), "").unwrap();
    }
    while !world.data().join("instances").join(ends.id.as_str()).join("exit.json").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let engine = world.engine().await;
    engine.apply(vec![stays.clone(), ends.clone(), fails.clone()]);
    let seen = wait(&engine, &ends.id, |o| o.phase == Phase::Exited).await;
    assert_eq!(seen.exit_code, Some(9), "the exit code was kept while nobody watched");
    let seen = wait(&engine, &stays.id, |o| o.phase == Phase::Running).await;
    assert_eq!(init_pid(&world, &stays), pid);
    assert_eq!((seen.started_at, seen.restarts), (before[0].started_at, 0));
    wait(&engine, &fails.id, |o| o.phase == Phase::Running && o.restarts == 1).await;
    wait_for(&engine, |all| all.iter().all(|o| o.id != orphan.id)).await;
    assert!(!world.data().join("instances").join(orphan.id.as_str()).exists());
    // An adopted instance can be spoken to like any other.
    let session = engine.exec(&stays.id, request("exit 6", false)).await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 6);
    let mut stopped = stays.clone();
    stopped.run = Run::Stopped;
    engine.apply(vec![stopped]);
    wait(&engine, &stays.id, |o| o.phase == Phase::Stopped).await;
    world.end(engine).await;
}

async fn shim_killed(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "sleep 1000");
    Arc::make_mut(&mut wanted.spec).restart = RestartPolicy::OnFailure;
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    let (init, dir) = (init_pid(&world, &wanted), world.data().join("instances").join(wanted.id.as_str()));
    let shim: i32 = std::fs::read_to_string(dir.join("shim.pid")).unwrap().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(shim).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running && o.restarts == 1).await;
    // Dead, though perhaps not yet reaped by whoever inherited it.
    let status = std::fs::read_to_string(format!("/proc/{init}/status")).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains("State:\tZ"),
        "the old process never runs beside the new one"
    );
    world.end(engine).await;
}

/// Waits until an instance has written what is looked for.
async fn written(engine: &node::Engine, wanted: &model::Assignment, holds: impl Fn(&str) -> bool) {
    for _ in 0..1500 {
        if holds(&logs(engine, &wanted.id, false, None).await) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never written: {}", logs(engine, &wanted.id, false, None).await);
}

fn request(script: &str, tty: bool) -> ExecRequest {
    let command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    ExecRequest { command, tty, stdin: true, rows: 33, cols: 44 }
}

fn init_pid(world: &World, wanted: &model::Assignment) -> i32 {
    let path = world.data().join("instances").join(wanted.id.as_str()).join("started.json");
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    value["pid"].as_i64().unwrap().try_into().unwrap()
}

fn process_with(text: &str) -> Option<PathBuf> {
    let mut all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.find(|path| {
        String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).unwrap_or_default()).contains(text)
    })
}

async fn read_until(from: &mut (impl tokio::io::AsyncRead + Unpin), word: &str) -> String {
    let mut stream = tokio_util::io::ReaderStream::new(from);
    let mut text = String::new();
    while !text.contains(word) {
        let chunk = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("{word} never came after {text}"));
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap().unwrap()));
    }
    text
}
