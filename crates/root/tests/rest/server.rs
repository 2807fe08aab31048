//! The listener itself.

use std::sync::Arc;

use root::{Cloud, serve};

use crate::world::World;

#[tokio::test]
async fn a_port_in_use_is_one_sentence() {
    let world = World::new().await;
    let mut config = world.cloud.config.clone();
    config.listen = world.running.addr;
    let cloud = Cloud::new(
        config,
        world.cloud.state.clone(),
        world.tree.clone(),
        world.cloud.images.clone(),
        Arc::new(work::SystemClock),
    )
    .await
    .unwrap();
    let error = serve(cloud).await.err().unwrap();
    assert!(error.message.contains("in use"), "{error}");
    assert!(error.hint.unwrap().contains("--listen"));
}

#[tokio::test]
async fn nobody_listens_after_the_end() {
    let world = World::new().await;
    let client = world.admin.clone();
    assert!(client.health().await.is_ok());
    world.running.shutdown().await;
    assert_eq!(client.health().await.unwrap_err().kind, model::ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_store_that_went_away_is_told_in_health() {
    let world = World::with("sqlite:").await;
    assert!(world.admin.health().await.is_ok());
    world.cloud.state.store().clone().close().await;
    let refused = world.admin.instance_create(&crate::world::ask_for("late")).await.unwrap_err();
    assert_eq!(refused.kind, model::ErrorKind::Unavailable, "{refused}");
    while world.cloud.state.following() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(world.admin.health().await.unwrap_err().kind, model::ErrorKind::Unavailable);
    assert!(world.admin.instance_list(&api::ListQuery::new()).await.is_ok(), "reads go on from memory");
}
