//! Jobs that are aborted while a task of each kind goes on and never ends by itself.

use std::time::Duration;

use api::{Cluster, ClusterRepair, ClusterResize, ClusterStatus, JobStatus};
use model::{Report, Role};

use crate::cluster::{Fake, ask_for, catalogue, settled};
use crate::world::World;

/// Waits until the task hangs, and aborts the job.
async fn abort(user: &api::Client, fake: &Fake, name: &str, task: &str) -> Cluster {
    let what = format!("{name} {task}");
    for _ in 0..600 {
        if fake.ground.lock().unwrap().hanging.remove(&what) {
            user.cluster_abort(name).await.unwrap();
            let ended = settled(user, name).await;
            fake.ground.lock().unwrap().hangs.remove(&what);
            assert_eq!(ended.job.as_ref().unwrap().status, JobStatus::Aborted, "{what}: {ended:?}");
            return ended;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} was never begun: {:?}", user.cluster_get(name).await);
}

fn hang(fake: &Fake, name: &str, task: &str) {
    fake.ground.lock().unwrap().hangs.insert(format!("{name} {task}"));
}

/// Machines of a cluster.
fn machines(fake: &Fake, cluster: &Cluster) -> usize {
    let beginning = format!("{}-", cluster.id);
    fake.ground.lock().unwrap().machines.iter().filter(|node| node.starts_with(&beginning)).count()
}

async fn world() -> (World, api::Client, Fake) {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    (world, user, fake)
}

#[tokio::test]
async fn a_create_that_is_aborted_in_any_task_leaves_no_machine() {
    let (_world, user, fake) = world().await;
    // The second of two machines is configured.
    for task in
        ["CREATE 1001", "CONFIRM 1000", "BOOTSTRAP 1000", "INSTALL 1000", "CONFIGURE 1001", "START 1000"]
    {
        let name = task.to_lowercase().replace(' ', "-");
        hang(&fake, &name, task);
        user.cluster_create(&ask_for(&name, 2), None).await.unwrap();
        let ended = abort(&user, &fake, &name, task).await;
        assert_eq!((ended.status, ended.nodes), (ClusterStatus::Terminated, 0), "{task}: {ended:?}");
        assert_eq!(fake.machines(), 0, "{task}");
    }
}

#[tokio::test]
async fn a_change_that_is_aborted_in_any_task_is_taken_back() {
    let (_world, user, fake) = world().await;
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    for (new, verb) in (1003..).zip(["CONFIRM", "BOOTSTRAP", "INSTALL", "CONFIGURE", "START"]) {
        let task = format!("{verb} {new}");
        hang(&fake, "shop", &task);
        user.cluster_expand("shop", &ClusterResize { size: 4, anew: false }).await.unwrap();
        let ended = abort(&user, &fake, "shop", &task).await;
        assert_eq!(
            (ended.status, ended.size, ended.nodes),
            (ClusterStatus::Active, 3, 3),
            "{task}: {ended:?}"
        );
        assert_eq!(machines(&fake, &ended), 3, "{task}");
    }
    for verb in ["STOP", "REMOVE"] {
        let task = format!("{verb} 1002");
        hang(&fake, "shop", &task);
        user.cluster_shrink("shop", &ClusterResize { size: 2, anew: false }).await.unwrap();
        let ended = abort(&user, &fake, "shop", &task).await;
        assert_eq!(
            (ended.status, ended.size, machines(&fake, &ended)),
            (ClusterStatus::Active, 3, 3),
            "{task}: {ended:?}"
        );
    }
    // What only does something to services is not taken back, and a rollback is the way out.
    hang(&fake, "shop", "STOP 1001");
    user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert_eq!(abort(&user, &fake, "shop", "STOP 1001").await.status, ClusterStatus::Inconsistent);
    user.cluster_rollback("shop").await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
}

#[tokio::test]
async fn a_repair_that_is_aborted_in_any_task_leaves_it_degraded() {
    let (_world, user, fake) = world().await;
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    let gone = Report { status: 410, message: "it is gone".into(), ..Report::default() };
    fake.ground.lock().unwrap().fails = vec![("CONFIRM 1001".into(), 1, gone)];
    user.cluster_check("shop").await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Degraded);
    for (new, task) in (1003..).zip(["CONFIRM", "CONFIGURE 1002", "INSTALL", "START"]) {
        let task = if task.contains(' ') { task.to_owned() } else { format!("{task} {new}") };
        hang(&fake, "shop", &task);
        user.cluster_repair("shop", &ClusterRepair::default()).await.unwrap();
        let ended = abort(&user, &fake, "shop", &task).await;
        assert_eq!(ended.status, ClusterStatus::Degraded, "{task}: {ended:?}");
        assert_eq!(machines(&fake, &ended), 2, "{task}");
    }
    user.cluster_repair("shop", &ClusterRepair::default()).await.unwrap();
    let whole = settled(&user, "shop").await;
    assert_eq!((whole.status, machines(&fake, &whole)), (ClusterStatus::Active, 3), "{whole:?}");
}

#[tokio::test]
async fn what_a_task_said_before_it_was_aborted_is_in_the_logs() {
    let (_world, user, fake) = world().await;
    let said = Report { status: 1, message: "it was stopped".into(), is_passing: true, ..Report::default() };
    fake.ground.lock().unwrap().stopped = Some(Report { stdout: "so far".into(), ..said });
    let told = async |name: &str, num: u32, verb: &str| {
        let logs = user.cluster_node_log(name, num).await.unwrap();
        assert!(
            logs.iter().any(|log| log.action == verb && log.stdout == "so far"),
            "{verb} {num}: {logs:?}"
        );
    };
    hang(&fake, "shop", "INSTALL 1000");
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    assert_eq!(abort(&user, &fake, "shop", "INSTALL 1000").await.status, ClusterStatus::Terminated);
    told("shop", 1000, "INSTALL").await;
    user.cluster_create(&ask_for("site", 2), None).await.unwrap();
    assert_eq!(settled(&user, "site").await.status, ClusterStatus::Active);
    hang(&fake, "site", "INSTALL 1002");
    user.cluster_expand("site", &ClusterResize { size: 3, anew: false }).await.unwrap();
    let ended = abort(&user, &fake, "site", "INSTALL 1002").await;
    assert_eq!((ended.status, machines(&fake, &ended)), (ClusterStatus::Active, 2), "{ended:?}");
    // A look that was stopped has not seen that a machine is away.
    hang(&fake, "site", "CONFIRM 1000");
    user.cluster_check("site").await.unwrap();
    assert_eq!(abort(&user, &fake, "site", "CONFIRM 1000").await.status, ClusterStatus::Active);
    told("site", 1000, "CONFIRM").await;
}
