//! Changes of clusters that go back: after a success, and after a failure half-way.

use api::{CatalogueWrite, Cluster, ClusterConfigure, ClusterResize, ClusterStatus, ClusterUpgrade};
use model::{ErrorKind, Report, Role};
use serde_json::{Value, json};

use crate::cluster::{Fake, ask_for, catalogue, gone, settled};
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

/// The catalogue with another template.
fn other_template(change: impl Fn(&mut Value)) -> CatalogueWrite {
    let mut all = catalogue();
    change(&mut all.entities.0.get_mut("clustertemplates").unwrap()[0]);
    all
}

async fn synced(user: &api::Client) -> Cluster {
    let sync = ClusterUpgrade { sync: true, ..ClusterUpgrade::default() };
    user.cluster_upgrade("shop", &sync).await.unwrap();
    settled(user, "shop").await
}

#[tokio::test]
async fn a_template_is_taken_anew_and_given_back() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    let defaults =
        |web: Value| other_template(move |it| it["defaults"]["config"] = json!({"web": web.clone()}));
    user.catalogue_write(&defaults(json!({"port": 80, "tls": false, "peers": "all"}))).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    settled(&user, "shop").await;
    let made = configured(&user, json!({"web": {"port": 8080, "tls": false, "peers": "all"}})).await;
    assert_eq!((made.status, made.links[0].label.as_str()), (ClusterStatus::Active, "Front"), "{made:?}");
    let mut newer = defaults(json!({"port": 81, "tls": true, "peers": "all", "log": "on"}));
    let template = &mut newer.entities.0.get_mut("clustertemplates").unwrap()[0];
    template["links"] = json!([{"label": "Door", "url": "http://%ip.access_v4.service.web[0]%:8080/"}]);
    user.catalogue_write(&newer).await.unwrap();
    // As long as it is not complete, and when it fails, the cluster is what it was.
    fake.ground.lock().unwrap().fails.push(("START 1002".into(), 1, broken()));
    let failed = synced(&user).await;
    assert_eq!(failed.status, ClusterStatus::Inconsistent, "{failed:?}");
    assert_eq!((&failed.links, &failed.config), (&made.links, &made.config));
    user.cluster_rollback("shop").await.unwrap();
    let back = settled(&user, "shop").await;
    assert_eq!((back.status, &back.links, &back.config), (ClusterStatus::Active, &made.links, &made.config));
    assert_eq!(last_config(&fake, "CONFIGURE")["web"]["tls"], false);
    // What the user has set stays, the rest is as the template has it now.
    let done = synced(&user).await;
    assert_eq!((done.status, done.links[0].label.as_str()), (ClusterStatus::Active, "Door"), "{done:?}");
    assert_eq!(done.config["web"], json!({"port": 8080, "tls": true, "peers": "all", "log": "on"}));
    assert_eq!(last_config(&fake, "CONFIGURE"), Value::Object(done.config.clone()));
    user.cluster_rollback("shop").await.unwrap();
    let back = settled(&user, "shop").await;
    assert_eq!((back.status, &back.links, &back.config), (ClusterStatus::Active, &made.links, &made.config));
    assert_eq!(last_config(&fake, "CONFIGURE"), Value::Object(made.config));
}

#[tokio::test]
async fn a_template_that_the_cluster_does_not_keep_to_is_not_taken() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let _fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    let made = settled(&user, "shop").await;
    let large = json!([{"name": "large", "providermap": {"lab": {"flavor": "any"}}}]);
    let more = |mut write: CatalogueWrite| {
        write.entities.0.insert("hardwaretypes".into(), serde_json::from_value(large.clone()).unwrap());
        write
    };
    let clashes = [
        (
            other_template(|it| it["constraints"]["services"]["web"]["quantities"] = json!({"max": 1})),
            "web may be on at most 1 machine",
        ),
        (other_template(|it| it["constraints"]["size"] = json!({"min": 4})), "at least 4 machines, not 3"),
        (
            more(other_template(|it| it["compatibility"] = json!({"hardwaretypes": ["large"]}))),
            "machines with hardware type small stand, which the template does not allow",
        ),
        (
            other_template(|it| {
                it["compatibility"] = json!({"services": ["db", "extra"]});
                it["defaults"]["services"] = json!(["db"]);
            }),
            "no longer has the service 'web'",
        ),
    ];
    for (write, word) in clashes {
        user.catalogue_write(&write).await.unwrap();
        let sync = ClusterUpgrade { sync: true, ..ClusterUpgrade::default() };
        let refused = user.cluster_upgrade("shop", &sync).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict, "{refused:?}");
        assert!(refused.message.contains(word), "{word}: {refused:?}");
        assert_eq!(user.cluster_get("shop").await.unwrap(), made, "nothing of it changed");
    }
    // Another default is for new machines, and no reason to refuse.
    let default = more(other_template(|it| it["defaults"]["hardwaretype"] = json!("large")));
    user.catalogue_write(&default).await.unwrap();
    assert_eq!(synced(&user).await.status, ClusterStatus::Active);
}

#[tokio::test]
async fn single_values_are_set_in_what_a_template_inherits() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    let mut all = catalogue();
    let partial = json!([{"name": "logged", "defaults": {"config": {"log": {"to": "x", "level": 3}}}}]);
    all.entities.0.insert("partialtemplates".into(), serde_json::from_value(partial).unwrap());
    let child = json!({"name": "child", "extends": {"name": "site"}, "includes": [{"name": "logged"}],
                       "defaults": {"config": {"own": true}}});
    all.entities.0.get_mut("clustertemplates").unwrap().push(child);
    user.catalogue_write(&all).await.unwrap();
    let create = async |more: Value| {
        let mut body = json!({"name": "shop", "template": "child", "size": 2});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        user.cluster_create(&serde_json::from_value(body).unwrap(), None).await
    };
    for (set, word) in [
        (json!({"own.deeper": 1}), "leads through a value that is no object"),
        (json!({"log..to": 1}), "is no path"),
        (json!({"log.to": "%ip.nothing.here%"}), "is no macro"),
    ] {
        let refused = create(json!({"set": set})).await.unwrap_err();
        assert!(refused.message.contains(word), "{refused:?}");
    }
    let made = create(json!({"set": {"log.level": 5, "web.port": 8080}})).await.unwrap();
    assert_eq!(
        Value::Object(made.config),
        json!({"log": {"to": "x", "level": 5}, "own": true, "web": {"peers": "%host.service.db%", "port": 8080}})
    );
    let whole = create(json!({"name": "other", "config": {"a": {"b": 1}}, "set": {"a.c": 2}})).await.unwrap();
    assert_eq!(Value::Object(whole.config), json!({"a": {"b": 1, "c": 2}}));
}

/// What was done to a node since, in its order.
fn done_to(fake: &Fake, from: usize, num: u32) -> Vec<String> {
    let ground = fake.ground.lock().unwrap();
    let own = |told: &&String| told.split(' ').nth(1) == Some(num.to_string().as_str());
    ground.done[from..].iter().filter(own).cloned().collect()
}

#[tokio::test]
async fn machines_of_a_pool_are_given_back_without_services() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let count = || fake.ground.lock().unwrap().done.len();
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    settled(&user, "shop").await;
    // What cannot be stopped is given back all the same.
    fake.ground.lock().unwrap().fails.push(("STOP 1002".into(), 9, broken()));
    let from = count();
    user.cluster_delete("shop", None).await.unwrap();
    gone(&user, "shop").await;
    assert_eq!(done_to(&fake, from, 1000), ["STOP 1000 db", "DELETE 1000"]);
    for num in [1001, 1002] {
        let all = [format!("STOP {num} web"), format!("REMOVE {num} web"), format!("DELETE {num}")];
        assert_eq!(done_to(&fake, from, num), all);
    }
    assert_eq!(fake.machines(), 0);
    // So are those of a cluster that is not made, and of a change that is taken back.
    fake.ground.lock().unwrap().fails = vec![("START 1001".into(), 9, broken())];
    let from = count();
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    let failed = settled(&user, "shop").await;
    assert_eq!((failed.status, fake.machines()), (ClusterStatus::Terminated, 0), "{failed:?}");
    let last = |num: u32, from: usize| done_to(&fake, from, num).split_off(5);
    assert_eq!(done_to(&fake, from, 1000).last().unwrap(), "DELETE 1000");
    assert_eq!(last(1001, from), ["START 1001 web", "STOP 1001 web", "REMOVE 1001 web", "DELETE 1001"]);
    user.cluster_delete("shop", None).await.unwrap();
    gone(&user, "shop").await;
    fake.ground.lock().unwrap().fails.clear();
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    fake.ground.lock().unwrap().fails =
        vec![("START 1002".into(), 9, broken()), ("REMOVE 1002".into(), 9, broken())];
    let from = count();
    user.cluster_expand("shop", &ClusterResize { size: 3, anew: false }).await.unwrap();
    let same = settled(&user, "shop").await;
    assert_eq!((same.status, same.size, fake.machines()), (ClusterStatus::Active, 2, 2), "{same:?}");
    assert_eq!(last(1002, from), ["START 1002 web", "STOP 1002 web", "REMOVE 1002 web", "DELETE 1002"]);
}

#[tokio::test]
async fn a_rollback_takes_back_the_last_change_and_no_other() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    user.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    settled(&user, "shop").await;
    user.cluster_expand("shop", &ClusterResize { size: 3, anew: false }).await.unwrap();
    settled(&user, "shop").await;
    let back =
        || api::ClusterSolve { cluster: Some("shop".into()), rollback: true, ..api::ClusterSolve::default() };
    let preview = user.cluster_solve(&back()).await.unwrap();
    assert_eq!((preview.made, preview.deleted), (vec![], vec![1002]));
    // What only goes through services is the last change only where it may lead elsewhere.
    user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert!(settled(&user, "shop").await.can_rollback);
    user.cluster_check("shop").await.unwrap();
    assert!(settled(&user, "shop").await.can_rollback);
    user.cluster_upgrade("shop", &ClusterUpgrade::default()).await.unwrap();
    settled(&user, "shop").await;
    user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert!(!settled(&user, "shop").await.can_rollback);
    for refused in
        [user.cluster_rollback("shop").await.unwrap_err(), user.cluster_solve(&back()).await.unwrap_err()]
    {
        assert!(refused.message.contains("there is nothing to go back to"), "{refused:?}");
    }
    assert_eq!(fake.machines(), 3);
}
