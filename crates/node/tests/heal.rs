//! Orphans, stuck drivers and a full disk, with real containers.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use model::exchange::{Assignment, Desired, Revision, RevisionedSet};
use model::{Facts, InstanceId, Phase, RestartPolicy, Result};
use node::{Attachment, Engine, HostNetwork, Network, NodeService};
use support::{World, assignment, wait, wait_for};
use tier::sync::ChildOwner;

const PATIENCE: Duration = Duration::from_secs(30);

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "it never came true: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn pid_of(data: &Path, id: &InstanceId) -> i32 {
    let path = data.join("instances").join(id.as_str()).join("started.json");
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    value["pid"].as_i64().unwrap().try_into().unwrap()
}

fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !status.contains("State:\tZ"))
}

/// Where this machine has cgroups of a parent.
fn cgroup_roots() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let memory = |line: &&str| {
        let kind = line.split_once(" - ").unwrap().1;
        kind.starts_with("cgroup2 ") || (kind.starts_with("cgroup ") && kind.contains("memory"))
    };
    table.lines().filter(memory).map(|line| line.split(' ').nth(4).unwrap().into()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_whose_folder_is_lost_is_removed_by_the_next_life() {
    let world = World::new("crun");
    let engine = world.engine().await;
    let (stays, lost) = (assignment(1, "sleep 1000"), assignment(2, "sleep 1000"));
    engine.apply(vec![stays.clone(), lost.clone()]);
    wait_for(&engine, |all| all.len() == 2 && all.iter().all(|o| o.phase == Phase::Running)).await;
    let pids = [&stays, &lost].map(|one| pid_of(&world.data(), &one.id));
    drop(engine);
    std::fs::remove_dir_all(world.data().join("instances").join(lost.id.as_str())).unwrap();
    let engine = world.engine().await;
    until("the lost one is ended", || !lives(pids[1])).await;
    wait_for(&engine, |all| all.len() == 1 && all[0].phase == Phase::Running).await;
    assert_eq!(engine.orphans_removed(), 1);
    assert!(lives(pids[0]), "the known one goes on");
    world.end(engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_go_and_nothing_foreign_is_touched() {
    let (world, other) = (World::new("crun"), World::new("crun"));
    let engine = world.engine().await;
    // Another node of this machine under the same parent cgroup, whose process is down.
    let mut shared = other.config();
    shared.cgroup_parent = world.config().cgroup_parent;
    let neighbour = other.start(shared.clone()).await.unwrap();
    let theirs = assignment(7, "sleep 1000");
    neighbour.apply(vec![theirs.clone()]);
    wait(&neighbour, &theirs.id, |o| o.phase == Phase::Running).await;
    let their_pid = pid_of(&other.data(), &theirs.id);
    drop(neighbour);

    let ours = assignment(1, "sleep 1000");
    engine.apply(vec![ours.clone()]);
    wait(&engine, &ours.id, |o| o.phase == Phase::Running).await;
    let our_pid = pid_of(&world.data(), &ours.id);
    let [folder, cgroup, runtime] = [2, 3, 4].map(InstanceId::from_random);
    let dir = world.data().join("instances").join(folder.as_str());
    std::fs::create_dir_all(dir.join("rootfs")).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(dir.join("rootfs")).status();
    assert!(mount.unwrap().success());
    for root in cgroup_roots() {
        std::fs::create_dir_all(root.join(&shared.cgroup_parent).join(cgroup.as_str())).unwrap();
    }
    std::fs::create_dir_all(world.data().join("runtime").join(runtime.as_str())).unwrap();

    engine.heal().await;
    assert_eq!(engine.orphans_removed(), 3);
    wait_for(&engine, |all| all.len() == 1).await;
    assert!(!dir.exists() && !world.data().join("runtime").join(runtime.as_str()).exists());
    for root in cgroup_roots() {
        assert!(!root.join(&shared.cgroup_parent).join(cgroup.as_str()).exists());
    }
    assert!(lives(our_pid) && lives(their_pid), "what somebody knows goes on");
    engine.heal().await;
    assert_eq!(engine.orphans_removed(), 3, "nothing is left to be found");

    let neighbour = other.start(shared).await.unwrap();
    wait(&neighbour, &theirs.id, |o| o.phase == Phase::Running && o.restarts == 0).await;
    neighbour.apply(Vec::new());
    wait_for(&neighbour, |all| all.is_empty()).await;
    neighbour.shutdown().await;
    world.end(engine).await;
}

/// A network whose first answer never comes.
#[derive(Default)]
struct Hangs(AtomicBool, AtomicU64);

impl Network for Hangs {
    fn attach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Attachment>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        match self.0.swap(true, Ordering::SeqCst) {
            true => HostNetwork.attach(id),
            false => Box::pin(std::future::pending()),
        }
    }

    fn detach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<()>> {
        HostNetwork.detach(id)
    }

    fn retain<'a>(&'a self, ids: &'a std::collections::BTreeSet<InstanceId>) -> BoxFuture<'a, Result<()>> {
        HostNetwork.retain(ids)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_hangs_is_started_again() {
    let world = World::new("crun");
    let mut config = world.config();
    config.stuck_after = Duration::from_millis(300);
    let network = Arc::new(Hangs::default());
    let engine = world.start_on(config, network.clone()).await;
    let wanted = assignment(1, "sleep 1000");
    engine.apply(vec![wanted.clone()]);
    until("it hangs", || network.1.load(Ordering::SeqCst) == 1).await;
    engine.heal().await;
    assert_eq!(network.1.load(Ordering::SeqCst), 1, "too early to call it stuck");
    tokio::time::sleep(Duration::from_millis(400)).await;
    engine.heal().await;
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    assert_eq!(network.1.load(Ordering::SeqCst), 2);
    world.end(engine).await;
}

fn facts() -> Facts {
    Facts::new("node-1".parse().unwrap(), "1")
}

fn whole(rev: u64, upserts: Vec<Assignment>) -> Desired {
    RevisionedSet {
        base: None,
        at: Revision { epoch: 1, rev },
        upserts,
        removes: Vec::new(),
        more: false,
        upto: None,
    }
}

fn phase_told(service: &NodeService, id: &InstanceId) -> Option<(Phase, String)> {
    let observed = service.report(None)?;
    let one = observed.set.upserts.into_iter().find(|one| one.id == *id)?;
    Some((one.phase, one.message.unwrap_or_default()))
}

/// Fills a disk to the last byte; the file's removal makes room again.
fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let chunk = vec![1; size];
        while file.write_all(&chunk).is_ok() {}
    }
    path
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn served(world: &World, data: &Path) -> (NodeService, tokio::task::JoinHandle<()>) {
    let mut config = world.config();
    config.data = data.join("engine");
    let engine: Engine = world.start(config).await.unwrap();
    let service = NodeService::open(data, facts(), engine).unwrap();
    let running = service.clone();
    (service, tokio::spawn(async move { running.run().await }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_loses_nothing_and_goes_on_when_there_is_room() {
    let world = World::new("crun");
    let disk = world.data().join("small");
    std::fs::create_dir_all(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&disk).status();
    assert!(mount.unwrap().success());
    let mounted = Mounted(disk.clone());
    let (service, task) = served(&world, &disk).await;
    let mut before = assignment(1, "while ! test -f /tmp/go; do sleep 0.05; done; exit 5");
    Arc::make_mut(&mut before.spec).restart = RestartPolicy::Never;
    let mut waits = assignment(2, "sleep 1000");
    waits.run = model::Run::Stopped;
    service.take(whole(1, vec![before.clone(), waits.clone()])).await.unwrap();
    until("it runs", || phase_told(&service, &before.id).is_some_and(|told| told.0 == Phase::Running)).await;
    until("it is stopped", || phase_told(&service, &waits.id).is_some_and(|told| told.0 == Phase::Stopped))
        .await;
    let pid = pid_of(&disk.join("engine"), &before.id);

    let filler = fill(&disk);
    waits.run = model::Run::Running;
    let refused = service.take(whole(2, vec![before.clone(), waits.clone()])).await.unwrap_err();
    assert_eq!(refused.kind, model::ErrorKind::OutOfSpace, "{refused}");
    assert_eq!(service.have(), Some(Revision { epoch: 1, rev: 1 }), "it is asked for again");
    assert!(lives(pid), "a full disk ends nothing");
    // What ends now must not lose how it ended.
    std::fs::write(format!("/proc/{pid}/root/tmp/go"), "").ok();
    std::fs::remove_file(&filler).unwrap();
    std::fs::write(format!("/proc/{pid}/root/tmp/go"), "").ok();
    service.take(whole(2, vec![before.clone(), waits.clone()])).await.unwrap();
    until("it runs", || phase_told(&service, &waits.id).is_some_and(|told| told.0 == Phase::Running)).await;
    let exited = |told: (Phase, String)| told.0 == Phase::Exited && told.1.contains("code 5");
    until("its exit is told", || phase_told(&service, &before.id).is_some_and(exited)).await;

    service.take(whole(3, Vec::new())).await.unwrap();
    until("all is gone", || service.report(None).is_none_or(|told| told.set.upserts.is_empty())).await;
    task.abort();
    let _ = task.await;
    drop(service);
    drop(mounted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_full_disk_says_so_and_is_tried_again() {
    let world = World::new("crun");
    std::fs::create_dir_all(world.data()).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(world.data()).status();
    assert!(mount.unwrap().success());
    let mounted = Mounted(world.data());
    let engine = world.engine().await;
    let filler = fill(&world.data());
    let wanted = assignment(1, "sleep 1000");
    engine.apply(vec![wanted.clone()]);
    let told = wait(&engine, &wanted.id, |o| o.phase == Phase::Failed).await;
    assert!(told.message.as_deref().unwrap_or_default().contains("disk of the node is full"), "{told:?}");
    std::fs::remove_file(filler).unwrap();
    wait(&engine, &wanted.id, |o| o.phase == Phase::Running).await;
    engine.apply(Vec::new());
    wait_for(&engine, |all| all.is_empty()).await;
    engine.shutdown().await;
    drop(mounted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_placed_elsewhere_meanwhile_is_dropped_with_the_first_word_of_the_zone() {
    let world = World::new("crun");
    let data = world.data();
    std::fs::create_dir_all(&data).unwrap();
    let (service, task) = served(&world, &data).await;
    // It hears SIGTERM and takes its time over it.
    let moved = assignment(1, "trap 'sleep 1000' TERM; while true; do sleep 0.1; done");
    let stays = assignment(2, "sleep 1000");
    service.take(whole(1, vec![moved.clone(), stays.clone()])).await.unwrap();
    let running = |id: &InstanceId| phase_told(&service, id).is_some_and(|told| told.0 == Phase::Running);
    until("both run", || running(&moved.id) && running(&stays.id)).await;
    let pids = [&moved, &stays].map(|one| pid_of(&data.join("engine"), &one.id));
    // The link heals: the zone speaks in a new life, and the instance is no longer this node's.
    let mut set = whole(1, vec![stays.clone()]);
    set.at.epoch = 2;
    service.take(set).await.unwrap();
    until("the old holder ends it", || !lives(pids[0])).await;
    until("it is no longer told", || phase_told(&service, &moved.id).is_none()).await;
    assert!(lives(pids[1]) && running(&stays.id));
    // A set from before the cut changes nothing any more.
    service.take(whole(9, vec![moved.clone(), stays.clone()])).await.unwrap();
    assert_eq!(service.have(), Some(Revision { epoch: 2, rev: 1 }));
    assert!(phase_told(&service, &moved.id).is_none());
    let mut set = whole(2, Vec::new());
    set.at.epoch = 2;
    service.take(set).await.unwrap();
    until("all is gone", || !lives(pids[1])).await;
    until("all is told", || service.report(None).is_none_or(|told| told.set.upserts.is_empty())).await;
    task.abort();
    let _ = task.await;
}
