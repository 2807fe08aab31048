//! Three root servers on one PostgreSQL, a zone and a node, each in a process of its own: any of the servers
//! serves, any may die or freeze, and the database may go away for a while.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod world;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use support::{says, signal, text, until, wait_async};
use world::World;

#[test]
fn every_server_serves_and_each_may_die() {
    let mut world = World::start();
    refuses_a_server_without_the_key(&world);

    // What is asked of one is seen, reached and told by all.
    world.good(
        0,
        &["instance", "create", "web", "--image", "busybox", "--", "sh", "-c", "echo hi; sleep 100000"],
    );
    for server in 0..3 {
        until("every server shows it", || {
            let seen = world.json(server, &["instance", "get", "web"]);
            (seen["phase"] == "running").then_some(())
        });
        assert_eq!(world.good(server, &["instance", "logs", "web"]), "hi\n");
        world.good(server, &["instance", "exec", "web", "--", "true"]);
        says(&world.good(server, &["node", "list"]), &["one", "east"]);
        says(&world.good(server, &["zone", "list"]), &["east", "connected"]);
    }
    layers_are_everywhere(&world);
    a_tenant_with_buckets_stays(&world);

    // The holder of the tree dies, and its work goes on elsewhere.
    let holder = world.holder();
    let term = world.term();
    world.roots[holder].kill();
    let other = (holder + 1) % 3;
    world.good(other, &["instance", "create", "two", "--image", "busybox", "--", "sleep", "100000"]);
    assert!(world.holder() != holder && world.term() > term);
    assert_eq!(world.json(other, &["instance", "get", "web"])["restarts"], 0);
    world.good(other, &["instance", "exec", "web", "--", "true"]);
    world.roots[holder].again();

    cluster::is_made_although_its_server_dies(&mut world);
    a_frozen_holder_writes_nothing(&world);
    the_database_goes_away_under_load(&world);

    let server = world.holder();
    world.good(server, &["instance", "delete", "--all", "--yes"]);
}

fn refuses_a_server_without_the_key(world: &World) {
    let said = world.root_refused();
    says(&said, &["master key", "missing", "copy the file from another root server"]);
}

/// Only one server runs the store; the others do not take a tenant for empty.
fn a_tenant_with_buckets_stays(world: &World) {
    world.good(1, &["tenant", "create", "keeper"]);
    world.good(0, &["--tenant", "keeper", "bucket", "create", "kept"]);
    let refused = |server: usize, words: &[&str]| {
        let output = world.run(server, words);
        support::refused(&output);
        text(&output.stderr)
    };
    says(&refused(1, &["tenant", "delete", "keeper"]), &["object store", "ask that one", "root0"]);
    says(&refused(2, &["bucket", "list"]), &["no object store", "root0"]);
    says(&refused(0, &["tenant", "delete", "keeper"]), &["still has buckets (1)"]);
    world.good(0, &["--tenant", "keeper", "bucket", "delete", "kept"]);
    world.good(0, &["tenant", "delete", "keeper"]);
}

fn layers_are_everywhere(world: &World) {
    let layers = |server: usize| -> BTreeSet<String> {
        let folder = world.root_data(server).join("images/blobs/sha256");
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| text(entry.unwrap().file_name().as_encoded_bytes()))
            .collect()
    };
    let archive = world.cloud.home.join("extra.tar");
    std::fs::write(&archive, support::image::rootfs("extra").end()).unwrap();
    world.good(1, &["image", "import", "extra", archive.to_str().unwrap()]);
    until("every server has every layer", || {
        let all = [layers(0), layers(1), layers(2)];
        (all[0].len() > 1 && all[0] == all[1] && all[1] == all[2]).then_some(())
    });
}

/// A holder that is stopped past its term and wakes up neither writes nor holds, and serves as the others do.
fn a_frozen_holder_writes_nothing(world: &World) {
    let holder = world.holder();
    let term = world.term();
    let pid = world.roots[holder].pid();
    signal(pid, rustix::process::Signal::STOP);
    until("another server holds the tree", || (world.term() > term).then_some(()));
    let other = (holder + 1) % 3;
    world.good(other, &["instance", "create", "three", "--image", "busybox", "--", "sleep", "100000"]);
    let term = world.term();
    let statuses = world.records("status");
    signal(pid, rustix::process::Signal::CONT);
    until("the one that slept follows", || {
        let seen = world.run(holder, &["instance", "get", "three"]);
        seen.status.success().then_some(())
    });
    until("it passes questions on", || {
        world.run(holder, &["instance", "exec", "three", "--", "true"]).status.success().then_some(())
    });
    assert_eq!(world.term(), term, "the tree changed hands for no reason");
    assert_eq!(world.records("status"), statuses, "what was known was written again");
}

/// Tenants are made through all servers while the database is killed and comes back: every one that was
/// acknowledged is there.
fn the_database_goes_away_under_load(world: &World) {
    let (stop, kept) = (AtomicBool::new(false), std::sync::Mutex::new(BTreeSet::new()));
    let load = |server: usize| {
        let client = world.client(server);
        wait_async(async {
            for number in 0.. {
                let name: model::Name = format!("t{server}-{number}").parse().unwrap();
                let body = api::TenantCreate { name: name.clone(), quota: model::Quota::default() };
                match client.tenant_create(&body).await {
                    Ok(_) => drop(kept.lock().unwrap().insert(name.to_string())),
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|server| drop(scope.spawn(move || load(server))));
        let more =
            |than: usize| until("tenants are made", || (kept.lock().unwrap().len() > than).then_some(()));
        more(20);
        world.postgres.down().unwrap();
        until("the servers say that they cannot", || {
            let said = (0..3).map(|server| world.run(server, &["tenant", "create", "never"]));
            said.into_iter().all(|output| !output.status.success()).then_some(())
        });
        world.postgres.up().unwrap();
        let before = kept.lock().unwrap().len();
        more(before + 60);
        stop.store(true, Ordering::Relaxed);
    });
    let acknowledged = kept.into_inner().unwrap();
    for server in 0..3 {
        until("every acknowledged tenant is there", || {
            let there = world.tenants(server);
            acknowledged.is_subset(&there).then_some(())
        });
    }
    until("the tree is held again", || {
        world.run(0, &["instance", "exec", "web", "--", "true"]).status.success().then_some(())
    });
}
