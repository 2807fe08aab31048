//! What happens to clusters without anybody asking: restarts, leases, webhooks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{ClusterLease, ClusterStatus, ListQuery, TaskStatus};
use axum::Json;
use axum::routing::post;
use link::dispatch::Dispatcher;
use model::{Report, Role};
use serde_json::{Value, json};

use crate::cluster::{Fake, Ground, ask_for, catalogue, gone, settled};
use crate::world::World;

/// Takes webhooks; the first call of each is refused.
async fn listener() -> (String, Arc<Mutex<Vec<Value>>>) {
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (own, refused) = (seen.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let take = move |Json(body): Json<Value>| {
        let (own, refused) = (own.clone(), refused.clone());
        async move {
            let id = format!("{} {}", body["job"]["id"], body["event"]);
            if refused.lock().unwrap().insert(id) {
                return axum::http::StatusCode::SERVICE_UNAVAILABLE;
            }
            own.lock().unwrap().push(body);
            axum::http::StatusCode::OK
        }
    };
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", socket.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(socket, axum::Router::new().route("/hook", post(take))).await });
    (url, seen)
}

#[tokio::test]
async fn webhooks_are_called_until_they_answer_and_leases_end() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let (url, seen) = listener().await;
    let body = json!({"name": "shop", "template": "site", "size": 2, "lease_ms": 3_600_000,
                      "webhooks": {"start": url, "success": url, "failure": url}});
    user.cluster_create(&serde_json::from_value(body).unwrap(), None).await.unwrap();
    let made = settled(&user, "shop").await;
    assert!(made.expires_at.is_some());
    for _ in 0..300 {
        if seen.lock().unwrap().len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut events: Vec<(String, String)> = Vec::new();
    for body in seen.lock().unwrap().iter() {
        assert_eq!(body["cluster"]["name"], "shop");
        let names: Vec<&Value> = body["nodes"].as_array().unwrap().iter().map(|node| &node["num"]).collect();
        assert_eq!((names, &body["nodes_total"]), (vec![&json!(1000), &json!(1001)], &json!(2)), "{body}");
        events.push((body["event"].to_string(), body["job"]["action"].to_string()));
    }
    events.sort();
    let said = |event: &str| (format!("\"{event}\""), "\"CLUSTER_CREATE\"".to_owned());
    assert_eq!(events, [said("start"), said("success")]);
    // A lease that is made shorter ends, warned of before.
    let soon = ClusterLease { expires_at: Some(made.created_at.plus_ms(14_000)), extend_ms: None };
    user.cluster_lease("shop", &soon).await.unwrap();
    gone(&user, "shop").await;
    assert_eq!(fake.machines(), 0);
    let history = user.event_list(&ListQuery::new().with("subject", "cluster/shop")).await.unwrap();
    let what: Vec<&str> = history.items.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "cluster.complete",
            "cluster.delete",
            "cluster.lease-warning",
            "cluster.lease",
            "cluster.complete",
            "cluster.create"
        ]
    );
}

#[tokio::test]
async fn a_job_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = World::open(dir, "sqlite:").await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    // It does not get beyond this.
    let slow = Report { status: 1, message: "not yet".into(), is_passing: true, ..Report::default() };
    let slow = Report { stdout: "first line\nlast line\n".into(), ..slow };
    fake.ground.lock().unwrap().fails.push(("CONFIRM 1001".into(), 3, slow));
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    for _ in 0..200 {
        if fake.ground.lock().unwrap().done.iter().any(|told| told == "CONFIRM 1001") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ground = fake.ground.clone();
    let id = fake.id.clone();
    drop(fake);
    let World { dir, running, cloud, objects, .. } = world;
    running.shutdown().await;
    objects.stop().await;
    cloud.state.close().await;
    drop(cloud);
    let (world, is_first) = World::open(dir, "sqlite:").await;
    assert!(!is_first);
    let user = world.admin.with_tenant("mine");
    let seen = user.cluster_get("shop").await.unwrap();
    assert_eq!(seen.status, ClusterStatus::Pending, "{seen:?}");
    let _fake = Fake::resume(&world, id, ground.clone());
    let made = settled(&user, "shop").await;
    assert_eq!(made.status, ClusterStatus::Active, "{made:?}");
    // Each attempt is told, before and after the restart, under the name that the job has for the task.
    let log = user.cluster_node_log("shop", 1001).await.unwrap();
    let tries: Vec<_> = log.iter().filter(|action| action.action == "CONFIRM").collect();
    let (last, failed) = tries.split_last().unwrap();
    assert_eq!((failed.len(), last.status, last.failures), (3, TaskStatus::Complete, 3), "{log:?}");
    for attempt in failed {
        assert_eq!((attempt.status, attempt.message.as_deref()), (TaskStatus::Failed, Some("not yet")));
        assert_eq!(attempt.stdout, "first line\nlast line\n");
    }
    let job = user.cluster_job("shop", &made.job.unwrap().id).await.unwrap();
    let task = job.stages.iter().flatten().find(|task| task.name == "CONFIRM" && task.node == 1001);
    assert!(tries.iter().all(|attempt| attempt.id == task.unwrap().id), "{tries:?}");
    let ground = ground.lock().unwrap();
    let count = |told: &str| ground.done.iter().filter(|one| *one == told).count();
    assert_eq!((count("CREATE 1000"), count("CREATE 1001")), (1, 1), "{:?}", ground.done);
    assert_eq!(ground.machines.len(), 2);
}

/// What a provisioner has done that has these plugins.
fn ground(plugins: &[&str]) -> Arc<Mutex<Ground>> {
    let plugins = plugins.iter().map(|plugin| (*plugin).to_owned()).collect();
    Arc::new(Mutex::new(Ground { plugins, ..Ground::default() }))
}

#[tokio::test]
async fn a_job_waits_for_the_provisioner_that_has_its_plugins() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let (plain, able) =
        (ground(&["provider other", "automator shell"]), ground(&["provider hosts", "automator shell"]));
    let _plain = Fake::resume(&world, Fake::enroll(&world, "plain").await, plain.clone());
    let away = Fake::enroll(&world, "able").await;
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits = user.cluster_get("shop").await.unwrap();
    assert_eq!(waits.status, ClusterStatus::Pending, "{waits:?}");
    let fake = Fake::resume(&world, away, able.clone());
    let made = settled(&user, "shop").await;
    assert_eq!((made.status, fake.machines()), (ClusterStatus::Active, 2), "{made:?}");
    assert_eq!(plain.lock().unwrap().done, Vec::<String>::new());
    // One that is told to end says so, and is waited for like one that fell silent.
    let away = fake.id.clone();
    drop(fake);
    let office = root::cluster::Office::new(world.cloud.clone());
    let ask = link::dispatch::TaskAsk { session: "one".into(), ..link::dispatch::TaskAsk::default() };
    office.poll(&model::ChildId::from(&away), ask, true).await.unwrap();
    user.cluster_delete("shop", None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plain.lock().unwrap().done, Vec::<String>::new());
    let _fake = Fake::resume(&world, away, able);
    gone(&user, "shop").await;
}
