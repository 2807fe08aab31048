//! What a user of one tenant may ask of clusters so that the cloud of all suffers.

use api::{ClusterConfigure, ClusterStatus, JobStatus, ListQuery};
use link::dispatch::{Dispatcher, TaskAsk, TaskDone};
use model::{ChildId, ErrorKind, Report, Role};
use root::cluster::Office;
use serde_json::{Value, json};

use crate::cluster::{Fake, ask_for, catalogue, gone, settled};
use crate::world::World;

async fn create(user: &api::Client, more: Value) -> model::Result<api::Cluster> {
    let mut body = json!({"name": "shop", "template": "site", "size": 2});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    user.cluster_create(&serde_json::from_value(body).unwrap(), None).await
}

#[tokio::test]
async fn a_lease_beyond_the_calendar_does_not_end_the_cloud() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let _fake = Fake::start(&world, "hand").await;
    create(&user, json!({"lease_ms": 1_000_000_000_000_000_u64})).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    let more = api::ClusterLease { expires_at: None, extend_ms: Some(u64::MAX) };
    assert!(user.cluster_lease("shop", &more).await.unwrap().expires_at.is_some());
    let more = api::ClusterLease { expires_at: None, extend_ms: Some(i64::MAX as u64) };
    assert!(user.cluster_lease("shop", &more).await.unwrap().expires_at.is_some());
    assert_eq!(user.cluster_list(&ListQuery::new()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_configuration_that_could_not_be_kept_later_is_refused_before() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let _fake = Fake::start(&world, "hand").await;
    let config = |letter: &str, count| json!({"web": {"text": letter.repeat(count)}});
    let refused = create(&user, json!({"config": config("a", 1_010_000)})).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooLarge, "{refused:?}");
    create(&user, json!({"config": config("a", 600_000)})).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    // Each of the two can be kept, but not both.
    let other = |count| ClusterConfigure {
        config: serde_json::from_value(config("b", count)).unwrap(),
        ..Default::default()
    };
    let refused = user.cluster_configure("shop", &other(600_000)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooLarge, "{refused:?}");
    user.cluster_configure("shop", &other(300_000)).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
}

#[tokio::test]
async fn macros_that_become_too_much_fail_their_own_job_only() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let bomb = format!("%map(host.service.db,'{}')%", "$ ".repeat(300_000));
    create(&user, json!({"config": {"web": {"peers": bomb}}})).await.unwrap();
    user.cluster_create(&ask_for("other", 2), None).await.unwrap();
    let failed = settled(&user, "shop").await;
    assert_eq!(failed.status, ClusterStatus::Terminated);
    assert!(failed.message.as_deref().is_some_and(|why| why.contains("too much text")), "{failed:?}");
    assert_eq!(settled(&user, "other").await.status, ClusterStatus::Active);
    assert_eq!(fake.machines(), 2);
}

#[tokio::test]
async fn fields_of_a_provider_that_nobody_described_are_not_for_users() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    let mut all = catalogue();
    let unknown =
        json!([{"name": "lab", "providertype": "own", "provisioner": {"url": "https://a", "password": "x"}}]);
    all.entities.0.insert("providers".into(), serde_json::from_value(unknown).unwrap());
    user.catalogue_write(&all).await.unwrap();
    let refused = create(&user, json!({"provider_fields": {"url": "https://evil"}})).await.unwrap_err();
    assert!(refused.message.contains("users set none"), "{refused:?}");
    create(&user, json!({})).await.unwrap();
}

#[tokio::test]
async fn a_pause_does_not_outlive_the_lease() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    // Nobody carries tasks out.
    create(&user, json!({"lease_ms": 1_000})).await.unwrap();
    user.cluster_pause("shop").await.unwrap();
    let ended = settled(&user, "shop").await;
    assert_eq!(ended.job.unwrap().status, JobStatus::Aborted);
    gone(&user, "shop").await;
}

/// What a cloud of a tenant says of its machines, and a provisioner that says everything twice.
#[tokio::test]
async fn reports_that_are_too_much_or_said_twice_count_as_far_as_they_may() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let (office, me) = (Office::new(world.cloud.clone()), ChildId::from(&fake.id));
    drop(fake);
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    let mut ask = TaskAsk { session: "two".into(), capacity: 8, ..TaskAsk::default() };
    let mut twice = 0;
    while user.cluster_get("shop").await.unwrap().status == ClusterStatus::Pending {
        let answer = office.poll(&me, ask.clone(), true).await.unwrap();
        ask.seen = answer.seen;
        for given in answer.tasks {
            let mut report = Report { hostname: Some("h".repeat(2 << 20)), ..Report::default() };
            report.ipaddresses = (0..1_000).map(|at| (format!("a{at}"), "192.0.2.1".to_owned())).collect();
            let huge = "1".repeat(2 << 20);
            report.ipaddresses.insert("access_v4".into(), huge);
            report.ipaddresses.insert("bind_v4".into(), "192.0.2.7".into());
            let done = TaskDone { claim: given.claim, report };
            let bad = TaskDone { report: Report { status: 400, ..Report::default() }, ..done.clone() };
            let told = office.finish_all(&me, vec![done, bad]).await;
            assert!(told[0].is_ok(), "{told:?}");
            twice += usize::from(told[1].is_err());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(user.cluster_get("shop").await.unwrap().status, ClusterStatus::Active);
    assert!(twice > 0);
    for node in user.cluster_nodes("shop").await.unwrap() {
        assert!(node.hostname.len() < 256 && node.addresses.len() <= 32, "{}", node.addresses.len());
        assert!(!node.addresses.contains_key("access_v4"));
    }
}
