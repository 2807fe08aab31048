//! Operations on nodes and zones, and the health of the platform.

use api::{ListQuery, NodeLabels};
use model::{Check, ErrorKind, Generation, Light, Phase, PlaceMode, Timestamp};
use root::tables::{StatusRecord, encode, kind};
use store::Txn;

use crate::world::{World, ask_for};

fn labels(set: &[(&str, &str)], unset: &[&str]) -> NodeLabels {
    NodeLabels {
        set: set.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        unset: unset.iter().map(|key| key.to_string()).collect(),
    }
}

async fn whats(world: &World, subject: &str) -> Vec<String> {
    let page = world.admin.event_list(&ListQuery::new().with("subject", subject)).await.unwrap();
    page.items.into_iter().rev().map(|event| format!("{}: {}", event.what, event.message)).collect()
}

#[tokio::test]
async fn a_node_is_cordoned_drained_and_labelled_by_its_zone() {
    let world = World::new().await;
    let node = world.admin.node_mode("node-1", PlaceMode::Draining, true).await.unwrap();
    assert_eq!((node.mode, node.facts.cordoned), (PlaceMode::Draining, true));
    assert_eq!(world.admin.node_get("node-1").await.unwrap().mode, PlaceMode::Draining);
    let node = world.admin.node_labels("node-1", &labels(&[("disk", "ssd")], &["old"])).await.unwrap();
    assert_eq!(node.facts.labels["disk"], ["ssd"]);
    let orders = world.tree.zone.lock().unwrap().orders.join("\n");
    assert!(
        orders.contains("Mode { node: Name(\"node-1\"), mode: Draining, force: true, seen: None }"),
        "{orders}"
    );
    assert!(orders.contains("unset: [\"old\"]"), "{orders}");
    assert_eq!(
        whats(&world, "node/node-1").await,
        [
            "node.mode: draining in zone alpha, with what would rather wait",
            "node.label: set disk=ssd, there was no label old"
        ]
    );
}

#[tokio::test]
async fn bad_labels_and_modes_change_nothing() {
    let world = World::new().await;
    for bad in [
        labels(&[], &[]),
        labels(&[("a b", "c")], &[]),
        labels(&[("a", "b")], &["a"]),
        labels(&[], &[""]),
        labels(&[("a", "line\nbreak")], &[]),
    ] {
        let error = world.admin.node_labels("node-1", &bad).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, body) in [
        ("/v1/nodes/node-1/mode", serde_json::json!({"mode": "asleep"})),
        ("/v1/zones/alpha/mode", serde_json::json!({"mode": "open", "sure": true})),
    ] {
        let sent = http.post(world.url(path)).bearer_auth(&world.credentials.token).json(&body).send();
        assert_eq!(sent.await.unwrap().status(), 400, "{path}");
    }
    assert!(world.tree.zone.lock().unwrap().orders.is_empty());
    assert!(whats(&world, "node/node-1").await.is_empty());
}

#[tokio::test]
async fn a_node_with_instances_is_removed_only_by_force() {
    let world = World::new().await;
    let error = world.admin.node_remove("node-1", false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.hint.unwrap().contains("banyan node drain node-1"));
    assert!(!world.tree.zone.lock().unwrap().removed);
    world.admin.node_remove("node-1", true).await.unwrap();
    assert_eq!(world.admin.node_get("node-1").await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(whats(&world, "node/node-1").await[0].starts_with("node.remove: removed from zone alpha"));
}

#[tokio::test]
async fn histories_come_from_the_zone_and_begin_where_asked() {
    let world = World::new().await;
    let since = Timestamp(1_700_000_000_000_000);
    let samples = world.admin.node_history("node-1", Some(since)).await.unwrap();
    assert_eq!((samples[0].at, samples[0].usage.cpu_milli), (since.plus_ms(1_000), 250));
    let samples = world.admin.zone_history("alpha", None).await.unwrap();
    let back = world.cloud.now().ms_since(samples[0].at);
    assert!((3_000_000..3_700_000).contains(&back), "the last hour: {back}");
    let bad = reqwest::Client::builder().no_proxy().build().unwrap();
    let bad = bad.get(world.url("/v1/zones/alpha/history?since=yesterday"));
    let bad = bad.bearer_auth(&world.credentials.token).send().await.unwrap();
    assert_eq!(bad.status(), 400);
    assert!(bad.text().await.unwrap().contains("2026-01-31"));
}

/// An instance that the zone holds, in this phase since long ago.
async fn held(world: &World, name: &str, phase: Phase) -> String {
    let made = world.admin.instance_create(&ask_for(name)).await.unwrap();
    let status = StatusRecord {
        id: made.id.clone(),
        zone: Some(world.zone.clone()),
        generation: Generation { major: 1, minor: 0 },
        phase,
        observed: None,
        explanation: None,
        events_seen: 0,
        changed_at: Timestamp(0),
    };
    let txn = Txn::new().put(kind::STATUS, &made.id, None, None, encode(&status));
    world.cloud.state.commit(txn).await.unwrap();
    made.id.to_string()
}

#[tokio::test]
async fn a_zone_is_drained_and_removed_for_good() {
    let world = World::new().await;
    held(&world, "web", Phase::Running).await;
    let zone = world.admin.zone_mode("alpha", PlaceMode::Draining, false).await.unwrap();
    let details = zone.details.unwrap();
    assert_eq!((details.mode, details.instances), (PlaceMode::Draining, 1));
    let error = world.admin.zone_remove("alpha", false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.hint.unwrap().contains("banyan zone drain alpha"));
    world.admin.zone_remove("alpha", true).await.unwrap();
    assert_eq!(world.admin.zone_get("alpha").await.unwrap_err().kind, ErrorKind::NotFound);
    let snapshot = world.cloud.state.snapshot();
    assert_eq!(snapshot.removed[&model::ChildId::from(&world.zone)].by, "admin");
    assert_eq!(world.admin.zone_remove("alpha", true).await.unwrap_err().kind, ErrorKind::NotFound);
    let whats = whats(&world, "zone/alpha").await;
    assert!(whats[0].starts_with("zone.mode: draining") && whats[1].starts_with("zone.remove:"), "{whats:?}");
}

#[tokio::test]
async fn the_health_of_the_platform_is_the_worst_of_its_checks() {
    let world = World::new().await;
    let health = world.admin.platform_health().await.unwrap();
    // How full this machine's disk is decides about one light, so that it is not looked at.
    let lit = |check: &&Check| check.light != Light::Green && check.name != "disk";
    assert_eq!(health.checks.iter().find(lit), None);
    for name in
        ["store", "feed", "disk", "duty", "certificate", "history", "orphan", "stuck", "lease", "link"]
    {
        assert!(health.checks.iter().any(|check| check.name == name), "{name} is missing");
    }
    let red = Check::new("disk", "node node-1", Light::Red, "1 % free", Timestamp(0)).hint("make room");
    world.tree.zone.lock().unwrap().checks = vec![red.clone()];
    let health = world.admin.platform_health().await.unwrap();
    assert_eq!((health.light, &health.checks[0]), (Light::Red, &red));
    world.tree.zone.lock().unwrap().silent = true;
    let health = world.admin.platform_health().await.unwrap();
    let link = health.checks.iter().find(|check| check.name == "link").unwrap();
    assert_eq!((link.subject.as_str(), link.light, health.light), ("zone alpha", Light::Red, Light::Red));
    world.cloud.metrics.platform_set(&health);
    let text = reqwest::get(world.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains("banyan_platform_check{name=\"link\",subject=\"zone alpha\"} 2"), "{text}");
    assert!(text.contains("banyan_platform_check{name=\"store\",subject=\"root\"} 0"), "{text}");
}

/// One round, as if it were so many seconds later.
async fn heal(world: &World, seconds: i64) {
    root::heal::heal(&world.cloud, world.cloud.steady().plus_ms(seconds * 1_000)).await.unwrap();
}

#[tokio::test]
async fn what_is_stuck_is_told_again_and_shown() {
    let world = World::new().await;
    let id = held(&world, "late", Phase::Stopping).await;
    heal(&world, -180).await;
    assert!(
        world.tree.healed.lock().unwrap().is_empty(),
        "seen for the first time, whatever its record says"
    );
    heal(&world, 0).await;
    heal(&world, 0).await;
    let told = world.tree.healed.lock().unwrap().clone();
    assert_eq!(told, [format!("told {id}")], "once");
    let health = world.admin.platform_health().await.unwrap();
    let stuck = health.checks.iter().find(|check| check.name == "stuck").unwrap();
    assert_eq!((stuck.light, stuck.subject.as_str()), (Light::Yellow, "zone alpha"));
    assert!(stuck.message.contains("late is stopping"), "{}", stuck.message);
    let healed = held(&world, "never", Phase::Placed).await;
    heal(&world, -200).await;
    heal(&world, 0).await;
    assert!(world.tree.healed.lock().unwrap().contains(&format!("took {healed}")));
    let whats = whats(&world, "instance/never").await;
    assert!(whats.last().unwrap().starts_with("instance.heal: placed for"), "{whats:?}");
}

#[tokio::test]
async fn a_status_without_its_instance_goes() {
    let world = World::new().await;
    let id = held(&world, "gone", Phase::Running).await;
    let txn = Txn::new().delete(kind::INSTANCE, &id, None);
    world.cloud.state.commit(txn).await.unwrap();
    for _ in 0..2 {
        heal(&world, 0).await;
    }
    assert!(world.cloud.state.snapshot().statuses.is_empty());
    assert_eq!(world.cloud.healer.counts().1, 1);
}

#[tokio::test]
async fn orders_to_nodes_take_the_version_that_was_seen() {
    let world = World::new().await;
    let node = world.admin.node_get("node-1").await.unwrap();
    let set = api::PlaceModeSet { mode: PlaceMode::Cordoned, force: false };
    let error = world.admin.node_mode_if("node-1", &set, node.version + 1).await.unwrap_err();
    assert_eq!(error.kind, model::ErrorKind::VersionMismatch, "{error}");
    let labels = api::NodeLabels { set: [("disk".to_owned(), "ssd".to_owned())].into(), unset: vec![] };
    let changed = world.admin.node_labels("node-1", &labels).await.unwrap();
    assert_ne!(changed.version, node.version);
    let error = world.admin.node_mode_if("node-1", &set, node.version).await.unwrap_err();
    assert_eq!(error.kind, model::ErrorKind::VersionMismatch, "{error}");
    assert_eq!(world.admin.node_get("node-1").await.unwrap().mode, PlaceMode::Open, "nothing was changed");
    let done = world.admin.node_mode_if("node-1", &set, changed.version).await.unwrap();
    assert_eq!(done.mode, PlaceMode::Cordoned);
}

#[tokio::test]
async fn the_only_root_server_is_listed_with_every_duty() {
    let world = World::new().await;
    let servers = world.admin.server_list().await.unwrap();
    assert_eq!(servers.len(), 1);
    assert_eq!(
        (servers[0].this, servers[0].duties.join(" ")),
        (true, "tree workloads sweep clusters".to_owned())
    );
    let health = world.admin.platform_health().await.unwrap();
    let check = health.checks.iter().find(|check| check.name == "server").expect("it is in the health");
    assert!(check.message.contains("holds tree, workloads, sweep, clusters"), "{}", check.message);
}
