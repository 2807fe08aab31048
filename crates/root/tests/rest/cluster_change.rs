//! Changes of clusters that go back: after a success, and after a failure half-way.

use api::{Cluster, ClusterConfigure, ClusterResize, ClusterStatus};
use model::{Report, Role};
use serde_json::{Value, json};

use crate::cluster::{Fake, ask_for, catalogue, settled};
use crate::world::World;

fn broken() -> Report {
    Report { status: 1, message: "no such file".into(), ..Report::default() }
}

/// What services were last told of one kind of task.
fn last_config(fake: &Fake, verb: &str) -> Value {
    let ground = fake.ground.lock().unwrap();
    let last = ground.bodies.iter().rev().find(|body| body["taskName"] == verb);
    last.unwrap()["config"]["cluster"].clone()
}

async fn configured(user: &api::Client, config: Value) -> Cluster {
    let body = ClusterConfigure { config: serde_json::from_value(config).unwrap(), restart: Some(false) };
    user.cluster_configure("shop", &body).await.unwrap();
    settled(user, "shop").await
}

#[tokio::test]
async fn a_rollback_after_a_failure_leads_to_what_was_before_it() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    let made = settled(&user, "shop").await;
    assert!(!made.can_rollback, "there is nothing before it");
    user.cluster_expand("shop", &ClusterResize { size: 5, anew: false }).await.unwrap();
    assert_eq!(settled(&user, "shop").await.size, 5);
    fake.ground.lock().unwrap().fails.push(("CONFIGURE 1003".into(), 1, broken()));
    let failed = configured(&user, json!({"web": {"peers": "other"}})).await;
    assert_eq!((failed.status, failed.can_rollback), (ClusterStatus::Inconsistent, true), "{failed:?}");
    assert_eq!(last_config(&fake, "CONFIGURE")["web"]["peers"], "other");
    user.cluster_rollback("shop").await.unwrap();
    let back = settled(&user, "shop").await;
    assert_eq!((back.status, back.size, fake.machines()), (ClusterStatus::Active, 5, 5), "{back:?}");
    assert_eq!(back.config, made.config);
    assert_ne!(last_config(&fake, "CONFIGURE")["web"]["peers"], "other", "services are told the old again");
    // Nothing failed since the expansion, so that is what is taken back now.
    user.cluster_rollback("shop").await.unwrap();
    let first = settled(&user, "shop").await;
    assert_eq!((first.status, first.size, fake.machines()), (ClusterStatus::Active, 3, 3), "{first:?}");
}

#[tokio::test]
async fn the_first_change_that_fails_can_be_taken_back() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    settled(&user, "shop").await;
    fake.ground.lock().unwrap().fails.push(("CONFIGURE 1001".into(), 1, broken()));
    fake.ground.lock().unwrap().fails.push(("CONFIGURE 1000".into(), 1, broken()));
    assert_eq!(configured(&user, json!({"a": 1})).await.status, ClusterStatus::Inconsistent);
    fake.ground.lock().unwrap().fails.clear();
    user.cluster_rollback("shop").await.unwrap();
    let back = settled(&user, "shop").await;
    assert_eq!((back.status, back.can_rollback), (ClusterStatus::Active, false), "{back:?}");
    assert!(!back.config.contains_key("a"));
}
