//! Machines that are lost behind their cluster's back: found by asking the provider, and made anew.

use api::{Cluster, ClusterRepair, ClusterResize, ClusterStatus, JobStatus, NodeStatus};
use model::{ErrorKind, Report, Role};

use crate::cluster::{Fake, ask_for, catalogue, gone, settled};
use crate::world::World;

fn said(status: i32, message: &str, is_passing: bool) -> Report {
    Report { status, message: message.into(), is_passing, ..Report::default() }
}

/// A cluster of three, whose second machine goes; the cluster is asked about it.
async fn lost(user: &api::Client, fake: &Fake, status: i32) -> Cluster {
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    assert_eq!(settled(user, "shop").await.status, ClusterStatus::Active);
    fake.ground.lock().unwrap().fails = vec![("CONFIRM 1001".into(), 1, said(status, "it is gone", false))];
    user.cluster_check("shop").await.unwrap();
    let cluster = settled(user, "shop").await;
    fake.ground.lock().unwrap().done.clear();
    cluster
}

fn none() -> ClusterRepair {
    ClusterRepair::default()
}

#[tokio::test]
async fn a_machine_that_is_gone_is_noticed_and_made_anew() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let found = lost(&user, &fake, 410).await;
    assert_eq!(found.status, ClusterStatus::Degraded, "{found:?}");
    assert_eq!(found.message.as_deref(), Some("node 1001: it is gone; 'repair' makes anew what is gone"));
    assert_eq!(found.job.unwrap().status, JobStatus::Complete);
    let nodes = user.cluster_nodes("shop").await.unwrap();
    let missing: Vec<u32> =
        nodes.iter().filter(|node| node.status == NodeStatus::Missing).map(|node| node.num).collect();
    assert_eq!(missing, [1001]);

    user.cluster_repair("shop", &none()).await.unwrap();
    let whole = settled(&user, "shop").await;
    assert_eq!((whole.status, whole.message), (ClusterStatus::Active, None));
    assert_eq!((whole.size, whole.nodes, fake.machines()), (3, 3, 3));
    let new = user.cluster_nodes("shop").await.unwrap();
    let numbers: Vec<u32> = new.iter().map(|node| node.num).collect();
    assert_eq!(numbers, [1000, 1002, 1003]);
    assert_eq!(new[2].services, nodes[1].services, "the same services");
    // The old one ends before anybody is told, and those that stay are told before the new one begins.
    let done = fake.ground.lock().unwrap().done.clone();
    let at =
        |what: &str| done.iter().position(|told| told == what).unwrap_or_else(|| panic!("{what}: {done:?}"));
    let stays =
        nodes.iter().find(|node| node.num != 1001 && node.services.contains(&"web".to_owned())).unwrap();
    let told = at(&format!("CONFIGURE {} web", stays.num));
    let service = nodes[1].services[0].clone();
    assert!(at("DELETE 1001") < told && told < at(&format!("INSTALL 1003 {service}")), "{done:?}");
    assert_eq!(done.iter().filter(|told| told.contains("1001")).count(), 1, "{done:?}");
    // Nobody hears of the one that is gone.
    let bodies = fake.ground.lock().unwrap().bodies.clone();
    let last = bodies.iter().rev().find(|body| body["taskName"] == "CONFIGURE").unwrap();
    assert!(last["config"]["nodes"].is_null() || last["config"]["nodes"].get("1001").is_none());
    user.cluster_delete("shop", None).await.unwrap();
    gone(&user, "shop").await;
    assert_eq!(fake.machines(), 0);
}

#[tokio::test]
async fn a_repair_that_fails_leaves_it_degraded_and_any_change_repairs() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    lost(&user, &fake, 410).await;
    fake.ground.lock().unwrap().fails = vec![("INSTALL 1003".into(), 99, said(1, "no such package", false))];
    user.cluster_repair("shop", &none()).await.unwrap();
    let same = settled(&user, "shop").await;
    assert_eq!(same.status, ClusterStatus::Degraded, "{same:?}");
    assert!(same.job.unwrap().message.unwrap().contains("no such package"));
    assert_eq!(fake.machines(), 2, "the new one is not left either");
    // What is done to services passes over a machine that is gone.
    user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Degraded);
    user.cluster_expand("shop", &ClusterResize { size: 4, anew: false }).await.unwrap();
    let grown = settled(&user, "shop").await;
    assert_eq!((grown.status, grown.size, fake.machines()), (ClusterStatus::Active, 4, 4), "{grown:?}");
    // One that is there is made anew when it is named. It goes back to its pool without its services.
    let refused = user.cluster_repair("shop", &none()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict, "{refused:?}");
    let refused = user.cluster_repair("shop", &ClusterRepair { nodes: vec![7] }).await.unwrap_err();
    assert!(refused.message.contains("no node 7"), "{refused:?}");
    fake.ground.lock().unwrap().done.clear();
    user.cluster_repair("shop", &ClusterRepair { nodes: vec![1002] }).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    let done = fake.ground.lock().unwrap().done.clone();
    let of: Vec<&String> = done.iter().filter(|told| told.contains("1002")).collect();
    assert_eq!(of.last().unwrap().as_str(), "DELETE 1002");
    assert!(of.iter().any(|told| told.starts_with("STOP")), "{of:?}");
    assert_eq!(fake.machines(), 4);
}

#[tokio::test]
async fn what_does_not_answer_is_told_and_a_wrong_account_says_nothing_of_machines() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let found = lost(&user, &fake, 1).await;
    assert_eq!(found.status, ClusterStatus::Degraded, "{found:?}");
    assert_eq!(
        user.cluster_repair("shop", &none()).await.unwrap_err().kind,
        ErrorKind::Conflict,
        "it may be back"
    );
    // It is back.
    user.cluster_check("shop").await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    fake.ground.lock().unwrap().fails =
        vec![("CONFIRM 1000".into(), 9, said(201, "the key is wrong", false))];
    user.cluster_check("shop").await.unwrap();
    let asked = settled(&user, "shop").await;
    assert_eq!(asked.status, ClusterStatus::Active, "{asked:?}");
    let job = asked.job.unwrap();
    assert_eq!(job.status, JobStatus::Failed);
    assert!(job.message.unwrap().contains("the key is wrong"));
    assert!(user.cluster_nodes("shop").await.unwrap().iter().all(|node| node.status != NodeStatus::Missing));
    // A look changes nothing of what is wrong otherwise.
    fake.ground.lock().unwrap().fails = vec![("STOP 1001".into(), 9, said(1, "it does not stop", false))];
    user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Inconsistent);
    user.cluster_check("shop").await.unwrap();
    let looked = settled(&user, "shop").await;
    assert_eq!(looked.status, ClusterStatus::Inconsistent, "{looked:?}");
    assert!(looked.message.unwrap().contains("it does not stop"));
}
