//! Instances through the typed client.

use api::ListQuery;
use model::{ErrorKind, Generation, ObservedInstance, Phase, Run, Timestamp};
use root::tables::{StatusRecord, encode, kind};
use store::Txn;

use crate::world::{World, ask_for};

/// What the tree would write.
pub async fn status_put(world: &World, name: &str, phase: Phase) {
    let instance = world.admin.instance_get(name).await.unwrap();
    let generation = Generation { major: 1, minor: 1 };
    let mut observed = ObservedInstance::new(instance.id.clone(), generation, phase);
    observed.node = Some("node-1".parse().unwrap());
    observed.address = Some("10.0.0.9".parse().unwrap());
    let status = StatusRecord {
        id: instance.id.clone(),
        zone: Some(world.zone.clone()),
        generation,
        phase,
        observed: Some(observed),
        explanation: None,
        events_seen: 0,
        changed_at: Timestamp(1),
    };
    let txn = Txn::new().put(kind::STATUS, &instance.id, None, None, encode(&status));
    world.cloud.state.commit(txn).await.unwrap();
}

async fn life(database: &str) {
    let world = World::with(database).await;
    let client = &world.admin;
    let made = client.instance_create(&ask_for("web")).await.unwrap();
    assert_eq!((made.phase, made.run, made.created_by.as_str()), (Phase::Pending, Run::Running, "admin"));
    assert!(made.version > 0);
    assert_eq!(client.instance_get("web").await.unwrap(), made);
    assert_eq!(client.instance_get(made.id.as_str()).await.unwrap(), made);
    let wakes = || world.tree.wakes.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(wakes(), 1, "the placer was woken");

    status_put(&world, "web", Phase::Running).await;
    let seen = client.instance_get("web").await.unwrap();
    assert_eq!(seen.phase, Phase::Running);
    assert_eq!((seen.zone.unwrap().as_str(), seen.node.unwrap().as_str()), ("alpha", "node-1"));
    assert_eq!(seen.version, made.version, "a status is not a change of what was asked for");

    let stopped = client.instance_stop("web", Some(made.version)).await.unwrap();
    assert_eq!(stopped.run, Run::Stopped);
    let stale = client.instance_start("web", Some(made.version)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::VersionMismatch);
    let again = client.instance_stop("web", None).await.unwrap();
    assert_eq!(again.version, stopped.version, "what changes nothing commits nothing");
    let restarted = client.instance_restart("web", None).await.unwrap();
    assert_eq!((restarted.run, restarted.restart_count), (Run::Running, 1));

    let gone = client.instance_delete("web", None).await.unwrap();
    assert_eq!((gone.run, gone.phase), (Run::Gone, Phase::Deleting));
    assert_eq!(client.instance_start("web", None).await.unwrap_err().kind, ErrorKind::Conflict);
    let taken = client.instance_create(&ask_for("web")).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Conflict, "the name is free once it is gone");
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_life_in_memory() {
    life("memory:").await;
}

#[tokio::test]
async fn a_life_on_sqlite() {
    life("sqlite:").await;
}

#[tokio::test]
async fn all_is_there_after_a_restart() {
    let world = World::with("sqlite:").await;
    world.admin.instance_create(&ask_for("kept")).await.unwrap();
    let version = world.admin.instance_get("kept").await.unwrap().version;
    let World { cloud, running, objects, dir, .. } = world;
    objects.stop().await;
    running.shutdown().await;
    let store = cloud.state.store().clone();
    drop(cloud);
    store.close().await;
    let (world, first) = World::open(dir, "sqlite:").await;
    assert!(!first, "credentials are made once");
    assert_eq!(world.admin.instance_get("kept").await.unwrap().version, version);
}

#[tokio::test]
async fn a_key_creates_once() {
    let world = World::with("sqlite:").await;
    let body = ask_for("once");
    let calls = (0..16).map(|_| world.admin.instance_create_once(&body, "key-1"));
    let answers = futures::future::join_all(calls).await;
    let first = answers[0].as_ref().unwrap().clone();
    for answer in answers {
        assert_eq!(answer.unwrap(), first, "every answer is the same");
    }
    assert_eq!(world.admin.instance_list(&ListQuery::new()).await.unwrap().items.len(), 1);
    let other = world.admin.instance_create_once(&ask_for("twice"), "key-1").await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::Conflict);
    assert_eq!(other.field.as_deref(), Some("Idempotency-Key"));
    let unkeyed = world.admin.instance_create(&body).await.unwrap_err();
    assert_eq!(unkeyed.kind, ErrorKind::Conflict);
}

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    let world = World::new().await;
    for index in 0..25 {
        let mut body = ask_for(&format!("web-{index:02}"));
        body.spec.labels.insert("app".into(), if index % 5 == 0 { "db" } else { "web" }.into());
        world.admin.instance_create(&body).await.unwrap();
    }
    status_put(&world, "web-07", Phase::Running).await;
    let names = async |query: ListQuery| -> Vec<String> {
        let page = world.admin.instance_list(&query).await.unwrap();
        page.items.iter().map(|item| item.name.to_string()).collect()
    };
    assert_eq!(names(ListQuery::new().with("phase", "running")).await, ["web-07"]);
    assert_eq!(names(ListQuery::new().with("zone", "alpha")).await, ["web-07"]);
    assert!(names(ListQuery::new().with("zone", "beta")).await.is_empty());
    assert_eq!(names(ListQuery::new().with("name", "*-1*")).await.len(), 10);
    let both = ListQuery::new().with("label", "app=db").with("name", "web-1*");
    assert_eq!(names(both).await, ["web-10", "web-15"]);

    let mut all = Vec::new();
    let mut query = ListQuery::new().limit(10);
    loop {
        let page = world.admin.instance_list(&query).await.unwrap();
        all.extend(page.items.iter().map(|item| item.name.to_string()));
        match page.next {
            Some(next) => query = ListQuery::new().limit(10).after(&next),
            None => break,
        }
    }
    assert_eq!(all, (0..25).map(|index| format!("web-{index:02}")).collect::<Vec<_>>());

    // An operator may list every tenant's, page by page.
    let other = world.user("other", model::Role::Member).await;
    other.instance_create(&ask_for("theirs")).await.unwrap();
    let everyone = world.admin.with_tenant("*");
    let first = everyone.instance_list(&ListQuery::new().limit(20)).await.unwrap();
    let rest = ListQuery::new().limit(20).after(&first.next.unwrap());
    assert_eq!(first.items.len() + everyone.instance_list(&rest).await.unwrap().items.len(), 26);
}
