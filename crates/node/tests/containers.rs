//! What a container gets and what it is kept from, with real runtimes.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use model::exchange::{Health, Run};
use model::{Bytes, HealthCheck, HealthProbe, Phase, RestartPolicy};
use support::{World, assignment, logs, wait, wait_for};

on_both_runtimes!(
    exit_code_and_output,
    process_settings,
    isolation,
    memory_limit,
    pids_limit,
    failures_are_told,
    restart_with_pauses,
    unhealthy_is_restarted,
);

#[tokio::test]
async fn an_unusable_runtime_is_one_sentence() {
    let world = World::new("crun");
    for (program, words) in
        [("/nonexistent/crun", "is not installed"), ("/bin/false", "the OCI runtime failed")]
    {
        let mut config = world.config();
        config.oci_runtime = Some(program.into());
        let error = world.start(config).await.err().unwrap();
        assert_eq!(error.kind, model::ErrorKind::Unavailable);
        assert!(error.message.starts_with("no OCI runtime can run containers here"), "{error}");
        assert!(error.message.contains(words) && !error.message.contains('\n'), "{error}");
        assert!(error.hint.unwrap().contains("apt-get install crun"));
    }
    assert!(!world.data().join("probe").exists(), "a failed trial leaves nothing");
}

#[tokio::test]
async fn a_runtime_is_found_by_itself() {
    let world = World::new("crun");
    let mut config = world.config();
    config.oci_runtime = None;
    let engine = world.start(config).await.unwrap();
    assert!(["crun", "runc"].contains(&engine.runtime().file_name().unwrap().to_str().unwrap()));
    world.end(engine).await;
}

async fn exit_code_and_output(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let wanted = assignment(1, "echo out; echo err >&2; exit 7");
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Exited).await;
    assert_eq!(seen.exit_code, Some(7));
    assert_eq!(seen.message.as_deref(), Some("exited with code 7"));
    assert_eq!(seen.node.unwrap().as_str(), "node-1");
    assert_eq!(seen.generation, wanted.generation);
    assert!(seen.started_at.is_some());
    let kinds: Vec<_> = seen.events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(kinds, [(1, "created"), (2, "started"), (3, "exited")]);
    assert_eq!(logs(&engine, &wanted.id, true, None).await, "out\nerr\n");
    world.end(engine).await;
}

async fn process_settings(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let script = "id -u; id -g; id -G; pwd; hostname; echo $FROM_IMAGE $MINE $HOME; cat /etc/hostname; \
                  grep -c web-1 /etc/hosts; test -f /etc/resolv.conf && echo resolv; ls /proc/self/fd | wc -l; ulimit -Sn";
    let mut wanted = assignment(1, script);
    std::sync::Arc::make_mut(&mut wanted.spec).user = Some("web".into());
    std::sync::Arc::make_mut(&mut wanted.spec).workdir = Some("/srv/deep".into());
    std::sync::Arc::make_mut(&mut wanted.spec).env.insert("MINE".into(), "a b".into());
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Exited).await;
    let text = logs(&engine, &wanted.id, false, None).await;
    assert_eq!(seen.exit_code, Some(0), "{text}");
    // Standard streams and the descriptor that lists them: nothing of ours leaks in.
    assert_eq!(text, "33\n44\n44 50\n/srv/deep\nweb-1\nyes a b /srv\nweb-1\n1\nresolv\n4\n1024\n");
    world.end(engine).await;
}

async fn isolation(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let script = "grep -E 'CapEff|NoNewPrivs|^Seccomp:' /proc/self/status; mount -t tmpfs x /tmp || echo no mount; \
                  unshare -U true || echo no namespaces; echo x > /proc/sys/kernel/hostname || echo no sysctl; \
                  ls /proc/kcore >/dev/null; wc -c < /proc/timer_list; ps | wc -l; dd if=/dev/vda of=/dev/null count=1 || echo no disk";
    let wanted = assignment(1, script);
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Exited).await;
    let text = logs(&engine, &wanted.id, false, None).await;
    // The twelve capabilities of the default set and no other.
    for line in [
        "CapEff:\t00000000a00405fb",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "no mount",
        "no namespaces",
        "no sysctl",
        "no disk",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    world.end(engine).await;
}

async fn memory_limit(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "exec dd if=/dev/zero of=/dev/null bs=200M count=1");
    std::sync::Arc::make_mut(&mut wanted.spec).memory = Bytes::mib(32);
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Exited).await;
    assert_eq!(seen.exit_code, Some(137));
    assert!(seen.message.unwrap().contains("out of memory, the limit is 32MiB"));
    world.end(engine).await;
}

async fn pids_limit(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo all");
    std::sync::Arc::make_mut(&mut wanted.spec).pids = 8;
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Exited).await;
    let text = logs(&engine, &wanted.id, false, None).await;
    assert_ne!(seen.exit_code, Some(0));
    assert!(text.contains("can't fork") && !text.contains("all"), "{text}");
    world.end(engine).await;
}

async fn failures_are_told(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut no_program = assignment(1, "");
    std::sync::Arc::make_mut(&mut no_program.spec).command = vec!["/bin/nothing".into()];
    let mut no_user = assignment(2, "true");
    std::sync::Arc::make_mut(&mut no_user.spec).user = Some("stranger".into());
    let mut no_command = assignment(3, "");
    std::sync::Arc::make_mut(&mut no_command.spec).command.clear();
    engine.apply(vec![no_program.clone(), no_user.clone(), no_command.clone()]);
    for (wanted, word) in [(&no_program, "/bin/nothing"), (&no_user, "stranger"), (&no_command, "no command")]
    {
        let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Failed).await;
        assert!(seen.message.as_ref().unwrap().contains(word), "{seen:?}");
        // It is tried again, and told each time.
        wait(&engine, &wanted.id, |o| o.events.iter().filter(|e| e.kind == "failed").count() >= 2).await;
    }
    world.end(engine).await;
}

async fn restart_with_pauses(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    // The root file system is kept between runs, so the third one can tell that it is the third.
    let mut wanted = assignment(1, "echo x >> /runs; test $(wc -l < /runs) -ge 3");
    std::sync::Arc::make_mut(&mut wanted.spec).restart = RestartPolicy::OnFailure;
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.phase == Phase::Exited && o.exit_code == Some(0)).await;
    assert_eq!(seen.restarts, 2);
    let pauses: Vec<_> = seen.events.iter().filter(|e| e.kind == "restarting").map(|e| &e.message).collect();
    assert!(pauses[0].ends_with("after 20 ms") && pauses[1].ends_with("after 40 ms"), "{pauses:?}");
    std::sync::Arc::make_mut(&mut wanted.spec).restart = RestartPolicy::Always;
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.restarts >= 4).await;
    world.end(engine).await;
}

async fn unhealthy_is_restarted(runtime: &str) {
    let world = World::new(runtime);
    let engine = world.engine().await;
    let mut wanted = assignment(1, "sleep 1000");
    let check = |probe| HealthCheck { probe, interval_ms: 100, timeout_ms: 5000, retries: 2, grace_ms: 0 };
    let command = ["/bin/test", "-f", "/tmp/healthy"].map(String::from).to_vec();
    std::sync::Arc::make_mut(&mut wanted.spec).health = Some(check(HealthProbe::Command(command)));
    std::sync::Arc::make_mut(&mut wanted.spec).restart = RestartPolicy::Always;
    engine.apply(vec![wanted.clone()]);
    let seen = wait(&engine, &wanted.id, |o| o.restarts >= 1).await;
    assert!(seen.events.iter().any(|e| e.kind == "unhealthy" && e.message.contains("code 1")), "{seen:?}");
    // What the check asks for is written into the running instance.
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    let touch = node::ExecRequest {
        command: ["/bin/touch", "/tmp/healthy"].map(String::from).to_vec(),
        ..node::ExecRequest::default()
    };
    while engine.observed()[0].health != Some(Health::Healthy) {
        if let Ok(session) = engine.exec(&wanted.id, touch.clone()).await {
            let _ = session.exit.await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A port that refuses, then one that answers, each with the same running process.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    std::sync::Arc::make_mut(&mut wanted.spec).restart = RestartPolicy::Never;
    std::sync::Arc::make_mut(&mut wanted.spec).health = Some(check(HealthProbe::Tcp { port }));
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.health == Some(Health::Healthy)).await;
    drop(listener);
    let seen = wait(&engine, &wanted.id, |o| o.health == Some(Health::Unhealthy)).await;
    assert_eq!(seen.phase, Phase::Running, "the policy forbids a restart");
    wanted.run = Run::Gone;
    engine.apply(vec![wanted.clone()]);
    wait(&engine, &wanted.id, |o| o.phase == Phase::Gone).await;
    wait_for(&engine, |all| all.len() == 1).await;
    world.end(engine).await;
}
