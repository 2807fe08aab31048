//! Workloads and apps through the typed client, with a tree that does what it is told.

use std::time::Duration;

use api::{AppCreate, AppUpdate, AppWorkload, ListQuery, Workload, WorkloadCreate, WorkloadUpdate};
use model::exchange::Health;
use model::workload::{Canary, Overlap, RunPolicy};
use model::{
    Amount, ErrorKind, Generation, HealthCheck, HealthProbe, InstanceSpec, Mode, ObservedInstance, Phase,
    Quota, RestartPolicy, Role, Run, WorkloadPhase, WorkloadSpec,
};
use root::state::Entry;
use root::tables::{StatusRecord, encode, kind};
use store::Txn;

use crate::world::World;

pub fn ask_for(name: &str, replicas: u32) -> WorkloadCreate {
    let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
    spec.mode = Mode::Service { replicas };
    WorkloadCreate { name: name.parse().unwrap(), app: None, spec }
}

/// What the tree makes of an instance that should run.
fn fate(entry: &Entry) -> (Phase, Option<i32>, Option<Health>) {
    let env = &entry.instance.spec.env;
    match env.get("FATE").map(String::as_str) {
        Some("sick") => (Phase::Running, None, Some(Health::Unhealthy)),
        Some("slow") => (Phase::Creating, None, None),
        Some("ends") => (Phase::Exited, Some(0), None),
        Some("fails") => (Phase::Exited, Some(1), None),
        _ => (Phase::Running, None, entry.instance.spec.health.as_ref().map(|_| Health::Healthy)),
    }
}

/// Lets instances be as they should for as long as the test goes on.
fn tree(world: &World) -> tokio::task::JoinHandle<()> {
    let (cloud, zone) = (world.cloud.clone(), world.zone.clone());
    tokio::spawn(async move {
        let mut changed = cloud.state.changed();
        loop {
            changed.borrow_and_update();
            let snapshot = cloud.state.snapshot();
            let mut txn = Txn::new();
            for entry in snapshot.entries.values().flat_map(|all| all.values()) {
                if txn.ops().len() >= 2000 {
                    break;
                }
                let id = &entry.instance.id;
                if entry.instance.run == Run::Gone {
                    txn = txn.delete(kind::INSTANCE, id, None).delete(kind::STATUS, id, None);
                    continue;
                }
                let (mut phase, exit_code, health) = fate(entry);
                if entry.instance.run == Run::Stopped {
                    phase = Phase::Stopped;
                }
                if entry.status.as_ref().is_some_and(|status| status.phase == phase) {
                    continue;
                }
                let generation = Generation { major: 1, minor: 1 };
                let mut observed = ObservedInstance::new(id.clone(), generation, phase);
                observed.node = Some("node-1".parse().unwrap());
                (observed.exit_code, observed.health) = (exit_code, health);
                let status = StatusRecord {
                    id: id.clone(),
                    zone: Some(zone.clone()),
                    generation,
                    phase,
                    observed: Some(observed),
                    explanation: None,
                    events_seen: 0,
                    changed_at: cloud.now(),
                };
                txn = txn.put(kind::STATUS, id, None, None, encode(&status));
            }
            if !txn.is_empty() {
                cloud.state.commit(txn).await.unwrap();
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), changed.changed()).await;
        }
    })
}

/// Waits until the workload is so.
async fn until(client: &api::Client, name: &str, what: &str, holds: impl Fn(&Workload) -> bool) -> Workload {
    let mut last = None;
    for _ in 0..1500 {
        let found = client.workload_get(name).await.unwrap();
        if holds(&found) {
            return found;
        }
        last = Some(found);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{name} did not become {what}: {last:#?}");
}

async fn until_gone(client: &api::Client, name: &str) {
    for _ in 0..1500 {
        match client.workload_get(name).await {
            Err(error) if error.kind == ErrorKind::NotFound => return,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("{name} is still there");
}

fn is(phase: WorkloadPhase) -> impl Fn(&Workload) -> bool {
    move |found| found.status.phase == phase
}

async fn names(client: &api::Client, workload: &str) -> Vec<String> {
    let page = client.instance_list(&ListQuery::new().with("workload", workload).limit(1000)).await.unwrap();
    page.items.into_iter().map(|item| item.name.to_string()).collect()
}

async fn events(client: &api::Client, workload: &str) -> Vec<String> {
    let query = ListQuery::new().with("subject", format!("workload/{workload}")).limit(1000);
    client.event_list(&query).await.unwrap().items.into_iter().map(|event| event.what).collect()
}

async fn life(database: &str) {
    let world = World::with(database).await;
    let tree = tree(&world);
    let client = &world.admin;
    let made = client.workload_create(&ask_for("web", 3)).await.unwrap();
    assert_eq!((made.status.phase, made.revision), (WorkloadPhase::Progressing, 1));
    let there = until(client, "web", "available", is(WorkloadPhase::Available)).await;
    assert_eq!((there.status.available, there.status.instances, there.version), (3, 3, made.version));
    let first = names(client, "web").await;
    assert_eq!(first.len(), 3);
    let one = client.instance_get(&first[0]).await.unwrap();
    assert_eq!(one.workload.unwrap().as_str(), "web");
    assert_eq!(one.spec.labels["banyan/workload"], "web");
    assert_eq!(one.spec.constraints.spread.unwrap().group, "web");
    assert!(first[0].starts_with("web-") && first[0].len() == 9, "{first:?}");
    let stopped = client.instance_stop(&first[0], None).await.unwrap_err();
    assert!(stopped.kind == ErrorKind::Conflict && stopped.message.contains("'web'"), "{stopped}");

    client.workload_scale("web", 5).await.unwrap();
    let five =
        until(client, "web", "five", |w| is(WorkloadPhase::Available)(w) && w.status.available == 5).await;
    assert_eq!(five.revision, 1, "a number is no template");
    client.workload_scale("web", 2).await.unwrap();
    until(client, "web", "two", |w| is(WorkloadPhase::Available)(w) && w.status.instances == 2).await;

    client.instance_delete(&names(client, "web").await[0], None).await.unwrap();
    until(client, "web", "two again", |w| is(WorkloadPhase::Available)(w) && w.status.instances == 2).await;

    let before = names(client, "web").await;
    client.workload_restart("web").await.unwrap();
    until(client, "web", "restarted", is(WorkloadPhase::Available)).await;
    assert!(names(client, "web").await.iter().all(|name| !before.contains(name)), "all were replaced");

    client.workload_pause("web").await.unwrap();
    client.workload_scale("web", 4).await.unwrap();
    let paused = until(client, "web", "paused", |w| w.status.wanted == 4).await;
    assert_eq!((paused.status.phase, paused.status.instances), (WorkloadPhase::Paused, 2));
    client.workload_resume("web").await.unwrap();
    until(client, "web", "four", |w| is(WorkloadPhase::Available)(w) && w.status.instances == 4).await;

    let gone = client.workload_delete("web", None).await.unwrap();
    assert_eq!(gone.status.phase, WorkloadPhase::Deleting);
    until_gone(client, "web").await;
    assert!(client.instance_list(&ListQuery::new()).await.unwrap().items.is_empty());
    let told = events(client, "web").await;
    for what in
        ["workload.create", "workload.scaled", "workload.restart", "workload.instances", "workload.gone"]
    {
        assert!(told.iter().any(|event| event == what), "{what} is missing in {told:?}");
    }
    tree.abort();
    world.running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_in_memory() {
    life("memory:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_on_sqlite() {
    life("sqlite:").await;
}

fn changed(of: &Workload, edit: impl FnOnce(&mut WorkloadSpec)) -> WorkloadUpdate {
    let mut spec = of.spec.clone();
    edit(&mut spec);
    WorkloadUpdate { spec }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_reaches_all_and_a_bad_one_is_taken_back() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    client.workload_create(&ask_for("web", 4)).await.unwrap();
    let first = until(client, "web", "available", is(WorkloadPhase::Available)).await;

    let body = changed(&first, |spec| drop(spec.instance.env.insert("V".into(), "2".into())));
    let second = client.workload_update("web", &body, Some(first.version)).await.unwrap();
    assert_eq!((second.revision, second.status.phase), (2, WorkloadPhase::Progressing), "never stale");
    let second = until(client, "web", "updated", is(WorkloadPhase::Available)).await;
    assert_eq!((second.status.updated, second.status.instances), (4, 4));
    let stale = client.workload_update("web", &body, Some(first.version)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::VersionMismatch);
    let kept = names(client, "web").await;
    let same = client.workload_update("web", &body, None).await.unwrap();
    assert_eq!((same.revision, same.version), (2, second.version), "what changes nothing commits nothing");

    let probe = HealthProbe::Tcp { port: 80 };
    let health = HealthCheck { probe, interval_ms: 1000, timeout_ms: 100, retries: 3, grace_ms: 0 };
    let bad = changed(&second, |spec| {
        spec.instance.env.insert("FATE".into(), "sick".into());
        spec.instance.health = Some(health);
    });
    client.workload_update("web", &bad, None).await.unwrap();
    let back =
        until(client, "web", "taken back", |w| w.revision == 4 && is(WorkloadPhase::Available)(w)).await;
    assert_eq!(back.spec.instance, second.spec.instance);
    assert_eq!(back.status.message, None, "what is over is not said of what is available");
    let revisions = client.workload_revisions("web").await.unwrap();
    assert_eq!(revisions.iter().map(|r| r.revision).collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert!(revisions[1].failed.as_ref().unwrap().contains("health check fails"), "{revisions:#?}");
    let now = names(client, "web").await;
    assert!(kept.iter().filter(|name| now.contains(name)).count() >= 3, "good ones were not replaced");
    assert!(events(client, "web").await.contains(&"workload.rolled-back".to_owned()));

    client.workload_rollback("web", Some(1)).await.unwrap();
    let first_again =
        until(client, "web", "rolled back", |w| w.revision == 5 && is(WorkloadPhase::Available)(w)).await;
    assert_eq!(first_again.spec.instance, first.spec.instance);
    assert_eq!(client.workload_rollback("web", Some(99)).await.unwrap_err().kind, ErrorKind::NotFound);
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_waits_to_be_promoted() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    let mut body = ask_for("web", 4);
    body.spec.update.canary = Some(Canary { instances: Amount::Count(1), hold_ms: None });
    client.workload_create(&body).await.unwrap();
    let first = until(client, "web", "available", is(WorkloadPhase::Available)).await;
    assert_eq!(client.workload_promote("web").await.unwrap_err().kind, ErrorKind::Conflict);
    let second = changed(&first, |spec| drop(spec.instance.env.insert("V".into(), "2".into())));
    client.workload_update("web", &second, None).await.unwrap();
    let canary =
        until(client, "web", "a canary", |w| is(WorkloadPhase::Canary)(w) && w.status.instances == 4).await;
    assert_eq!((canary.status.updated, canary.status.available), (1, 4));
    client.workload_promote("web").await.unwrap();
    let all = until(client, "web", "promoted", is(WorkloadPhase::Available)).await;
    assert_eq!((all.status.updated, all.status.instances), (4, 4));
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_counted_and_repeated_when_asked() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    let mut body = ask_for("job", 1);
    body.spec.instance.restart = RestartPolicy::Never;
    body.spec.instance.env.insert("FATE".into(), "ends".into());
    let run = RunPolicy { completions: 5, parallelism: 2, retries: 0, deadline_ms: None };
    body.spec.mode = Mode::Once { run: run.clone() };
    client.workload_create(&body).await.unwrap();
    let done = until(client, "job", "done", is(WorkloadPhase::Done)).await;
    assert_eq!((done.status.succeeded, done.status.failed), (5, 0));
    client.workload_run("job").await.unwrap();
    let again =
        until(client, "job", "done again", |w| is(WorkloadPhase::Done)(w) && w.version > done.version).await;
    assert_eq!(again.status.succeeded, 5);
    assert_eq!(names(client, "job").await.len(), 10, "ended ones are kept to look at");
    assert_eq!(client.workload_scale("job", 2).await.unwrap_err().kind, ErrorKind::Conflict);

    body.name = "bad".parse().unwrap();
    body.spec.instance.env.insert("FATE".into(), "fails".into());
    client.workload_create(&body).await.unwrap();
    let failed = until(client, "bad", "failed", is(WorkloadPhase::Failed)).await;
    assert!(failed.status.failed >= 1 && failed.status.message.unwrap().contains("ended badly"));

    body.name = "nightly".parse().unwrap();
    body.spec.instance.env.insert("FATE".into(), "ends".into());
    body.spec.mode = Mode::Cron {
        schedule: "0 0 29 2 *".to_owned(),
        time_zone: None,
        overlap: Overlap::Skip,
        keep: 1,
        run,
    };
    client.workload_create(&body).await.unwrap();
    let waiting = until(client, "nightly", "waiting", is(WorkloadPhase::Waiting)).await;
    assert!(waiting.status.next_run_at.is_some() && waiting.status.last_run_at.is_none());
    for _ in 0..2 {
        let before = client.workload_run("nightly").await.unwrap();
        until(client, "nightly", "run", |w| is(WorkloadPhase::Waiting)(w) && w.version == before.version)
            .await;
    }
    let kept = until(client, "nightly", "kept", |w| w.status.instances == 5).await;
    assert_eq!(kept.status.succeeded, 5);
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_stands_on_every_node() {
    let world = World::new().await;
    let tree = tree(&world);
    let mut body = ask_for("agent", 1);
    body.spec.mode = Mode::Daemon;
    world.admin.workload_create(&body).await.unwrap();
    let there = until(&world.admin, "agent", "there", |w| w.status.available == 1).await;
    assert_eq!((there.status.phase, there.status.wanted), (WorkloadPhase::Available, 1));
    let one = world.admin.instance_get(&names(&world.admin, "agent").await[0]).await.unwrap();
    assert_eq!(one.spec.constraints.node.as_deref(), Some("node-1"));
    assert_eq!(one.spec.constraints.zone.as_deref(), Some("alpha"));
    body.name = "elsewhere".parse().unwrap();
    body.spec.instance.constraints.node_labels.insert("disk".into(), "fast".into());
    world.admin.workload_create(&body).await.unwrap();
    let none = until(&world.admin, "elsewhere", "settled", is(WorkloadPhase::Available)).await;
    assert_eq!((none.status.wanted, none.status.instances), (0, 0));
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_holds_a_workload_back_until_it_grows() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = world.user("small", Role::Member).await;
    let quota = |instances| Quota { instances: Some(instances), ..Quota::default() };
    world.admin.quota_set("small", &quota(3), None).await.unwrap();
    client.workload_create(&ask_for("web", 5)).await.unwrap();
    let short =
        until(&client, "web", "short", |w| w.status.available == 3 && w.status.message.is_some()).await;
    assert_eq!(short.status.phase, WorkloadPhase::Progressing);
    assert!(short.status.message.unwrap().contains("may have 3 instances"));
    world.admin.quota_set("small", &quota(5), None).await.unwrap();
    until(&client, "web", "whole", is(WorkloadPhase::Available)).await;
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_are_made_in_large_steps() {
    let world = World::new().await;
    let tree = tree(&world);
    world.admin.workload_create(&ask_for("many", 5000)).await.unwrap();
    until(&world.admin, "many", "whole", is(WorkloadPhase::Available)).await;
    let told = events(&world.admin, "many").await;
    let steps = told.iter().filter(|what| *what == "workload.instances").count();
    assert!(steps <= 10, "{steps} steps");
    assert_eq!(world.cloud.state.snapshot().members.values().map(|m| m.len()).sum::<usize>(), 5000);
    tree.abort();
}

fn member(name: &str, replicas: u32) -> AppWorkload {
    AppWorkload { name: name.parse().unwrap(), spec: ask_for(name, replicas).spec }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_one() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    let mut body = AppCreate {
        name: "shop".parse().unwrap(),
        description: "sells".into(),
        workloads: vec![member("front", 2), member("back", 1)],
    };
    body.workloads[1].spec.instance.image = "missing".into();
    let error = client.app_create(&body).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("'missing'"), "{error}");
    assert!(client.workload_list(&ListQuery::new()).await.unwrap().items.is_empty(), "nothing is half done");
    body.workloads[1].spec.instance.image = "busybox".into();
    let mut circle = body.clone();
    for (at, other) in ["back", "front"].into_iter().enumerate() {
        circle.workloads[at].spec.instance.constraints.latency = vec![model::LatencyTerm {
            place: None,
            workload: Some(other.to_owned()),
            max_ms: 5,
            required: true,
        }];
    }
    let error = client.app_create(&circle).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("back, front"), "{error}");
    let made = client.app_create(&body).await.unwrap();
    assert_eq!(made.workloads.len(), 2);
    until(client, "back", "available", is(WorkloadPhase::Available)).await;
    let front = until(client, "front", "available", is(WorkloadPhase::Available)).await;
    assert_eq!(front.app.unwrap().as_str(), "shop");
    assert_eq!(client.workload_list(&ListQuery::new().with("app", "shop")).await.unwrap().items.len(), 2);

    let update =
        AppUpdate { description: "sells".into(), workloads: vec![member("front", 3), member("side", 1)] };
    let changed = client.app_update("shop", &update, Some(made.version)).await.unwrap();
    assert!(changed.version > made.version);
    until_gone(client, "back").await;
    until(client, "side", "available", is(WorkloadPhase::Available)).await;
    until(client, "front", "three", |w| w.status.available == 3).await;
    let stale = client.app_update("shop", &update, Some(made.version)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::VersionMismatch);
    client.workload_create(&ask_for("alone", 0)).await.unwrap();
    let theft = AppUpdate { description: String::new(), workloads: vec![member("alone", 1)] };
    assert_eq!(client.app_update("shop", &theft, None).await.unwrap_err().kind, ErrorKind::Conflict);

    assert!(client.app_delete("shop", None).await.unwrap().deleting);
    for name in ["front", "side"] {
        until_gone(client, name).await;
    }
    assert_eq!(client.app_get("shop").await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(client.workload_get("alone").await.is_ok());
    tree.abort();
}

#[tokio::test]
async fn bad_input_changes_nothing() {
    let world = World::new().await;
    let check = async |edit: &dyn Fn(&mut WorkloadCreate), field: &str| {
        let mut body = ask_for("web", 1);
        edit(&mut body);
        let error = world.admin.workload_create(&body).await.unwrap_err();
        assert_eq!(error.field.as_deref(), Some(field), "{error}");
    };
    check(&|b| b.name = "x".repeat(57).parse().unwrap(), "name").await;
    check(&|b| b.spec.instance.image = "none".into(), "spec.instance.image").await;
    check(&|b| b.spec.mode = Mode::Service { replicas: 1_000_000 }, "spec.mode.replicas").await;
    let nothing = |b: &mut WorkloadCreate| {
        b.spec.update.max_surge = Amount::Count(0);
        b.spec.update.max_unavailable = Amount::Count(0);
    };
    check(&nothing, "spec.update.max_unavailable").await;
    check(&|b| b.app = Some("none".parse().unwrap()), "app").await;
    assert!(world.admin.workload_list(&ListQuery::new()).await.unwrap().items.is_empty());
    world.admin.workload_create(&ask_for("web", 0)).await.unwrap();
    let mut spec = ask_for("web", 0).spec;
    spec.mode = Mode::Daemon;
    let error = world.admin.workload_update("web", &WorkloadUpdate { spec }, None).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("spec.mode"), "{error}");
    assert_eq!(world.admin.workload_run("web").await.unwrap_err().kind, ErrorKind::Conflict);
    let taken = world.admin.workload_create(&ask_for("web", 0)).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Conflict);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_take_the_version_that_was_seen() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    client.workload_create(&ask_for("web", 2)).await.unwrap();
    let seen = until(client, "web", "available", is(WorkloadPhase::Available)).await;
    let three = serde_json::json!({"replicas": 3});
    let stale = Some(seen.version + 1);
    let orders = [("scale", three.clone()), ("rollback", serde_json::json!({"revision": 1}))];
    let plain = ["restart", "pause", "resume", "promote", "run"].map(|verb| (verb, serde_json::json!({})));
    for (verb, body) in orders.into_iter().chain(plain) {
        let error = client.workload_order("web", verb, &body, stale).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::VersionMismatch, "{verb}: {error}");
    }
    assert_eq!(client.workload_get("web").await.unwrap().version, seen.version, "nothing was changed");
    client.workload_order("web", "scale", &three, Some(seen.version)).await.unwrap();
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_say_what_differs_and_why_says_what_is_wrong() {
    let world = World::new().await;
    let tree = tree(&world);
    let client = &world.admin;
    client.workload_create(&ask_for("web", 2)).await.unwrap();
    let seen = until(client, "web", "available", is(WorkloadPhase::Available)).await;
    let mut spec = seen.spec.clone();
    spec.instance.env.insert("FATE".into(), "fails".into());
    spec.instance.restart = RestartPolicy::Never;
    spec.instance.memory = model::Bytes::mib(64);
    client.workload_update("web", &WorkloadUpdate { spec }, None).await.unwrap();
    until(client, "web", "back", |found| found.revision == 3 && found.status.available == 2).await;
    let revisions = client.workload_revisions("web").await.unwrap();
    let second = &revisions[1];
    assert_eq!((second.revision, second.complete, revisions[2].complete), (2, false, true));
    let changes = second.changes.join("\n");
    assert!(
        changes.contains("+ env") && changes.contains("memory") && changes.contains("restart"),
        "{changes}"
    );
    assert!(revisions[2].changes.is_empty(), "the first has nothing before it");
    let why = client.workload_why("web").await.unwrap();
    assert_eq!((why.workload.revision, why.given_up.len(), why.unwell), (3, 1, 0));
    assert!(why.given_up[0].failed.as_deref().unwrap().contains("broke"), "{:?}", why.given_up);

    let mut slow = ask_for("slow", 1);
    slow.spec.instance.env.insert("FATE".into(), "slow".into());
    client.workload_create(&slow).await.unwrap();
    until(client, "slow", "begun", |found| found.status.instances == 1).await;
    let why = client.workload_why("slow").await.unwrap();
    assert_eq!((why.unwell, why.instances.len()), (1, 1));
    let missing = client.workload_why("nobody").await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    tree.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_is_refused_terms_that_mean_nothing_for_it() {
    let world = World::new().await;
    let mut ask = ask_for("probe", 1);
    ask.spec.mode = Mode::Daemon;
    let term = |workload: bool| model::LatencyTerm {
        place: (!workload).then(|| "sea".to_owned()),
        workload: workload.then(|| "web".to_owned()),
        max_ms: 5,
        required: true,
    };
    let refused = async |ask: &WorkloadCreate, field: &str| {
        let error = world.admin.workload_create(ask).await.unwrap_err();
        assert_eq!(error.field.as_deref(), Some(field), "{error}");
    };
    ask.spec.update.max_surge = Amount::Count(1);
    refused(&ask, "spec.update.max_surge").await;
    ask.spec.update.max_surge = Amount::Count(0);
    ask.spec.update.max_unavailable = Amount::Count(0);
    refused(&ask, "spec.update.max_unavailable").await;
    ask.spec.update.max_unavailable = Amount::Count(1);
    ask.spec.instance.constraints.latency = vec![term(true)];
    refused(&ask, "spec.instance.constraints.latency").await;
    // A place that no node has measured matches no node.
    ask.spec.instance.constraints.latency = vec![term(false)];
    world.admin.workload_create(&ask).await.unwrap();
    let says =
        |found: &Workload| found.status.message.as_deref().unwrap_or_default().contains("no node matches");
    until(&world.admin, "probe", "without a node", says).await;
}
