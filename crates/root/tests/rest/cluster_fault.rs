//! A fault at every task of a create: the cluster is made, or not a machine of it is left.

use std::time::Duration;

use api::{ClusterStatus, NodeStatus};
use model::{Report, Role};

use crate::cluster::{Fake, ask_for, catalogue, gone, settled};
use crate::world::World;

fn broken() -> Report {
    Report { status: 1, message: "it broke".into(), ..Report::default() }
}

/// The tasks of a create of two machines, as `VERB NODE`.
async fn tasks(user: &api::Client, fake: &Fake) -> Vec<String> {
    user.cluster_create(&ask_for("sound", 2), None).await.unwrap();
    assert_eq!(settled(user, "sound").await.status, ClusterStatus::Active);
    let done = fake.ground.lock().unwrap().done.clone();
    let tasks = done.iter().map(|told| told.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    user.cluster_delete("sound", None).await.unwrap();
    gone(user, "sound").await;
    assert_eq!(fake.machines(), 0);
    tasks
}

#[tokio::test]
async fn whichever_task_of_a_create_fails_nothing_is_left_of_it() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let tasks = tasks(&user, &fake).await;
    assert_eq!(tasks.len(), 11, "two machines, db without and web with a configuration: {tasks:?}");
    // For good, and only once; both for each task, all at the same time.
    let passing = Report { is_passing: true, ..broken() };
    let ways = [("ever", 99, broken()), ("once", 1, passing)];
    let mut clusters = Vec::new();
    for (way, times, report) in &ways {
        for (at, task) in tasks.iter().enumerate() {
            let name = format!("{way}-{at}");
            fake.ground.lock().unwrap().fails.push((format!("{name} {task}"), *times, report.clone()));
            user.cluster_create(&ask_for(&name, 2), None).await.unwrap();
            clusters.push((*way, name, task.clone()));
        }
    }
    let mut stand = 0;
    for (way, name, task) in &clusters {
        let ended = settled(&user, name).await;
        let nodes = user.cluster_nodes(name).await.unwrap();
        if *way == "once" {
            stand += 2;
            assert_eq!((ended.status, ended.nodes), (ClusterStatus::Active, 2), "{task}: {ended:?}");
            assert!(nodes.iter().all(|node| node.status == NodeStatus::Confirmed), "{task}: {nodes:?}");
            continue;
        }
        assert_eq!((ended.status, ended.nodes), (ClusterStatus::Terminated, 0), "{task}: {ended:?}");
        let message = ended.message.unwrap();
        let (verb, node) = task.split_once(' ').unwrap();
        assert!(
            message.starts_with(verb) && message.contains(&format!("on node {node}: it broke")),
            "{message}"
        );
        assert!(nodes.is_empty(), "{task}: {nodes:?}");
        let id = ended.id.to_string();
        let left: Vec<String> =
            fake.ground.lock().unwrap().machines.iter().filter(|one| one.starts_with(&id)).cloned().collect();
        assert!(left.is_empty(), "{task}: {left:?}");
    }
    assert_eq!(fake.machines(), stand);
}

#[tokio::test]
async fn a_machine_that_cannot_be_deleted_is_told_and_deleted_later() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    fake.ground.lock().unwrap().fails =
        vec![("START 1001".into(), 99, broken()), ("DELETE 1000".into(), 1, broken())];
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    let ended = settled(&user, "shop").await;
    assert_eq!((ended.status, ended.nodes, fake.machines()), (ClusterStatus::Incomplete, 1, 1), "{ended:?}");
    assert!(ended.message.unwrap().contains("the machine of node 1000 could not be deleted: it broke"));
    user.cluster_delete("shop", None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), gone(&user, "shop")).await.unwrap();
    assert_eq!(fake.machines(), 0);
}

#[tokio::test]
async fn a_machine_without_room_is_not_made_anew() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let message = "no zone can hold it (near: only 250m CPU are free)".to_owned();
    let full = Report { status: 507, message: message.clone(), ..Report::default() };
    fake.ground.lock().unwrap().fails = vec![("CONFIRM 1001".into(), 99, full)];
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    let ended = settled(&user, "shop").await;
    assert_eq!((ended.status, ended.nodes, fake.machines()), (ClusterStatus::Terminated, 0, 0), "{ended:?}");
    assert!(ended.message.unwrap().contains(&message));
    let ground = fake.ground.lock().unwrap();
    assert_eq!(ground.done.iter().filter(|done| *done == "CONFIRM 1001").count(), 1, "{:?}", ground.done);
}

#[tokio::test]
async fn machines_that_cannot_be_deleted_are_given_up_when_that_is_asked_for() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    settled(&user, "shop").await;
    fake.ground.lock().unwrap().fails = vec![("DELETE 1001".into(), 99, broken())];
    user.cluster_delete_forced("shop").await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), gone(&user, "shop")).await.unwrap();
    let tried = fake.ground.lock().unwrap().done.iter().filter(|done| *done == "DELETE 1001").count();
    assert_eq!((tried, fake.machines()), (1, 1));
    let events = user.event_list(&api::ListQuery::new()).await.unwrap().items;
    let is_told = |message: &str| {
        message.contains("given up") && message.contains("of node 1001") && message.contains("it broke")
    };
    assert!(events.iter().any(|event| is_told(&event.message)), "{events:?}");
}
