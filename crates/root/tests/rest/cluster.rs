//! Clusters over REST, with a provisioner that is only a few lines.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{
    CatalogueWrite, Cluster, ClusterCreate, ClusterResize, ClusterServices, ClusterSolve, ClusterStatus,
    JobStatus, NodeStatus, TaskStatus,
};
use link::dispatch::{Dispatcher, Given, TaskAsk, TaskDone};
use model::{ChildId, ErrorKind, ProvisionerId, Report, Role, Timestamp};
use root::cluster::Office;
use root::tables::{ProvisionerRecord, encode, kind};
use serde_json::{Value, json};
use store::Txn;

use crate::world::World;

pub fn catalogue() -> CatalogueWrite {
    let shell = |code: &str| json!({"type": "shell", "fields": {"code": code}});
    let entities = json!({
        "providers": [{"name": "lab", "providertype": "hosts", "provisioner": {"hosts": "192.0.2.1", "ssh_key": "very secret"}}],
        "hardwaretypes": [{"name": "small", "providermap": {"lab": {"flavor": "any", "cost": "0.5"}}}],
        "imagetypes": [{"name": "debian", "providermap": {"lab": {"image": "any", "sshuser": "admin"}}}],
        "services": [
            {"name": "db", "provisioner": {"actions": {"install": shell("db"), "start": shell("up"), "stop": shell("down")}}},
            {"name": "web", "dependencies": {"runtime": {"requires": ["db"]}},
             "links": [{"label": "Site", "url": "http://%ip.access_v4.self%/"}],
             "provisioner": {"actions": {"install": shell("web"), "configure": shell("conf"), "start": shell("up"), "stop": shell("down"), "remove": shell("gone")}}},
            {"name": "extra", "provisioner": {"actions": {"install": shell("extra"), "remove": shell("gone")}}}],
        "clustertemplates": [{"name": "site",
            "defaults": {"services": ["db", "web"], "provider": "lab", "config": {"web": {"peers": "%host.service.db%"}}},
            "links": [{"label": "Front", "url": "http://%ip.access_v4.service.web[0]%/"}],
            "constraints": {"layout": {"cantcoexist": [["db", "web"]]}, "services": {"db": {"quantities": {"min": 1, "max": 1}}, "web": {"quantities": {"min": 1}}}}}]
    });
    CatalogueWrite { entities: serde_json::from_value(entities).unwrap(), replace: false, dry_run: false }
}

pub fn ask_for(name: &str, size: u32) -> ClusterCreate {
    serde_json::from_value(json!({"name": name, "template": "site", "size": size})).unwrap()
}

/// Machines that exist, and what was done.
#[derive(Default)]
pub struct Ground {
    pub machines: BTreeSet<String>,
    pub done: Vec<String>,
    pub bodies: Vec<Value>,
    /// What fails, as `VERB NODE` or `CLUSTER VERB NODE`, and how often still.
    pub fails: Vec<(String, u32, Report)>,
    /// What is begun and never ends, as `CLUSTER VERB NODE`, and what of it was begun.
    pub hangs: BTreeSet<String>,
    pub hanging: BTreeSet<String>,
    /// What is said of those that are stopped.
    pub stopped: Option<Report>,
    /// What its provisioner says it has; nothing means all.
    pub plugins: BTreeSet<String>,
}

/// Carries out tasks as long as it is not dropped.
pub struct Fake {
    pub ground: Arc<Mutex<Ground>>,
    pub id: ProvisionerId,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether it is one of those that never end.
fn hangs(ground: &Mutex<Ground>, given: &Given) -> bool {
    let (mut ground, body) = (ground.lock().unwrap(), &given.body);
    let word = |field: &str| body[field].as_str().unwrap().to_owned();
    let what = format!("{} {} {}", word("clusterName"), word("taskName"), body["config"]["nodenum"]);
    let does = ground.hangs.contains(&what);
    if does {
        ground.hanging.insert(what);
    }
    does
}

fn carry(ground: &Mutex<Ground>, given: &Given) -> Report {
    let mut ground = ground.lock().unwrap();
    let body = &given.body;
    let verb = body["taskName"].as_str().unwrap().to_owned();
    let num = body["config"]["nodenum"].as_u64().unwrap();
    let node = body["nodeId"].as_str().unwrap().to_owned();
    let told = format!("{verb} {num} {}", body["config"]["service"]["name"].as_str().unwrap_or_default());
    ground.done.push(told.trim().to_owned());
    ground.bodies.push(body.clone());
    let what = format!("{verb} {num}");
    let own = format!("{} {what}", body["clusterName"].as_str().unwrap());
    let is_meant = |fails: &String| *fails == what || *fails == own;
    if let Some(at) = ground.fails.iter().position(|(fails, left, _)| is_meant(fails) && *left > 0) {
        ground.fails[at].1 -= 1;
        if verb == "CREATE" {
            ground.machines.insert(node);
        }
        return ground.fails[at].2.clone();
    }
    let mut report = Report::default();
    match verb.as_str() {
        "CREATE" => {
            report.result.insert("providerid".into(), json!(format!("i-{num}")));
            report.result.insert("ssh-auth".into(), json!({"user": "admin", "password": "hidden word"}));
            ground.machines.insert(node);
        }
        "CONFIRM" => {
            let address = format!("192.0.2.{}", num - 999);
            report.ipaddresses =
                ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), address.clone())).into();
        }
        "DELETE" => drop(ground.machines.remove(&node)),
        _ => report.stdout = format!("{verb} went well"),
    }
    report
}

impl Fake {
    /// One that has joined and is not there yet.
    pub async fn enroll(world: &World, name: &str) -> ProvisionerId {
        let id = ProvisionerId::from_random(rand::random());
        let record =
            ProvisionerRecord { id: id.clone(), name: name.parse().unwrap(), enrolled_at: Timestamp(0) };
        let txn = Txn::new().insert(kind::PROVISIONER, &id, None, Some(name), encode(&record));
        world.cloud.state.commit(txn).await.unwrap();
        id
    }

    pub async fn start(world: &World, name: &str) -> Self {
        Self::resume(world, Self::enroll(world, name).await, Arc::default())
    }

    /// Another process of one that has joined before.
    pub fn resume(world: &World, id: ProvisionerId, ground: Arc<Mutex<Ground>>) -> Self {
        let office = Office::new(world.cloud.clone());
        let (own, me) = (ground.clone(), ChildId::from(&id));
        let task = tokio::spawn(async move {
            assert!(office.admits(&me) && office.holds().is_ok());
            let plugins = own.lock().unwrap().plugins.clone();
            let mut ask = TaskAsk { session: "one".into(), capacity: 8, plugins, ..TaskAsk::default() };
            loop {
                let Ok(answer) = office.poll(&me, ask.clone(), false).await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                ask.seen = answer.seen;
                let said = own.lock().unwrap().stopped.clone();
                for claim in ask.holds.extract_if(.., |claim| answer.stop.contains(claim)) {
                    if let Some(report) = said.clone() {
                        office.finish(&me, TaskDone { claim, report }).await.unwrap();
                    }
                }
                for given in answer.tasks {
                    if hangs(&own, &given) {
                        ask.holds.push(given.claim);
                        continue;
                    }
                    let report = carry(&own, &given);
                    let done = TaskDone { claim: given.claim, report };
                    while office.finish(&me, done.clone()).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        });
        Self { ground, id, task }
    }

    pub fn machines(&self) -> usize {
        self.ground.lock().unwrap().machines.len()
    }
}

pub async fn settled(client: &api::Client, name: &str) -> Cluster {
    for _ in 0..600 {
        let cluster = client.cluster_get(name).await.unwrap();
        if cluster.status != ClusterStatus::Pending {
            return cluster;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is still pending: {:?}", client.cluster_get(name).await);
}

pub async fn gone(client: &api::Client, name: &str) {
    for _ in 0..600 {
        if client.cluster_get(name).await.is_err_and(|error| error.kind == ErrorKind::NotFound) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is still there: {:?}", client.cluster_get(name).await);
}

async fn nothing_left(world: &World) {
    for kind in [kind::CLUSTER_NODE, kind::CLUSTER_TASK, kind::CLUSTER_JOB, kind::CLUSTER_PART] {
        for _ in 0..100 {
            if world.cloud.state.store().list(kind).await.unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(world.cloud.state.store().list(kind).await.unwrap().is_empty(), "{kind} is left");
    }
}

#[tokio::test]
async fn a_cluster_is_made_changed_and_deleted() {
    life(&World::new().await).await;
}

#[tokio::test]
async fn a_cluster_is_made_changed_and_deleted_on_postgresql() {
    let server = store::testing::Postgres::shared().unwrap();
    life(&World::with(&server.database().unwrap()).await).await;
}

async fn life(world: &World) {
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(world, "hand").await;
    let made = user.cluster_create(&ask_for("shop", 3), Some("once")).await.unwrap();
    assert_eq!((made.status, made.size, made.cost), (ClusterStatus::Pending, 3, Some(1.5)));
    assert_eq!(user.cluster_create(&ask_for("shop", 3), Some("once")).await.unwrap().id, made.id);
    let ready = settled(&user, "shop").await;
    assert_eq!(ready.status, ClusterStatus::Active, "{ready:?}");
    let job = ready.job.unwrap();
    assert_eq!(
        (job.action.as_str(), job.status, job.steps_total),
        ("CLUSTER_CREATE", JobStatus::Complete, job.steps_completed)
    );
    assert_eq!(ready.links[0].url, "http://192.0.2.2/");
    let nodes = user.cluster_nodes("shop").await.unwrap();
    assert_eq!(nodes.len(), 3);
    assert!(
        nodes.iter().all(|node| node.status == NodeStatus::Confirmed && node.ssh_user == "admin"),
        "{nodes:?}"
    );
    assert_eq!(nodes[0].hostname, "shop1-1000.local");
    let log = user.cluster_node_log("shop", 1000).await.unwrap();
    let verbs: Vec<&str> = log.iter().map(|action| action.action.as_str()).collect();
    assert_eq!(verbs[..3], ["CREATE", "CONFIRM", "BOOTSTRAP"]);
    assert!(log.iter().any(|action| action.stdout == "START went well"));
    let whole = user.cluster_job("shop", &job.id).await.unwrap();
    assert!(whole.stages.iter().flatten().all(|task| task.status == TaskStatus::Complete));
    // What a task was told, and what is kept of it.
    let bodies = fake.ground.lock().unwrap().bodies.clone();
    let start = bodies.iter().find(|body| body["taskName"] == "CONFIGURE").unwrap();
    let db = nodes.iter().find(|node| node.services == ["db"]).unwrap();
    assert_eq!(start["config"]["cluster"]["web"]["peers"], json!(db.hostname));
    assert_eq!(start["config"]["provider"]["provisioner"]["ssh_key"], "very secret");
    assert_eq!(start["config"]["ssh-auth"]["password"], "hidden word");
    for kind in [kind::CLUSTER, kind::CLUSTER_NODE, kind::CLUSTER_TASK, kind::CLUSTER_JOB] {
        for record in world.cloud.state.store().list(kind).await.unwrap() {
            let text = record.body.text();
            assert!(
                !text.contains("very secret")
                    && !text.contains("hidden word")
                    && !text.contains("PRIVATE KEY")
            );
        }
    }
    let key = user.cluster_key("shop").await.unwrap();
    assert!(key.private_key.contains("OPENSSH PRIVATE KEY") && ready.public_key == key.public_key);
    // More machines, then fewer, then as it was.
    user.cluster_expand("shop", &ClusterResize { size: 5, anew: false }).await.unwrap();
    let grown = settled(&user, "shop").await;
    assert_eq!((grown.status, grown.size, grown.nodes, fake.machines()), (ClusterStatus::Active, 5, 5, 5));
    user.cluster_shrink("shop", &ClusterResize { size: 2, anew: false }).await.unwrap();
    let shrunk = settled(&user, "shop").await;
    assert_eq!((shrunk.status, shrunk.size, shrunk.nodes, fake.machines()), (ClusterStatus::Active, 2, 2, 2));
    user.cluster_rollback("shop").await.unwrap();
    assert_eq!((settled(&user, "shop").await.size, fake.machines()), (5, 5));
    let add = ClusterServices { add: vec!["extra".into()], ..ClusterServices::default() };
    user.cluster_services("shop", &add).await.unwrap();
    assert_eq!(settled(&user, "shop").await.services, ["db", "web", "extra"]);
    let none = ClusterResize { size: 5, anew: false };
    assert_eq!(user.cluster_expand("shop", &none).await.unwrap_err().kind, ErrorKind::Conflict);
    let restart = user.cluster_restart("shop", &Default::default()).await.unwrap();
    assert_eq!(restart.job.unwrap().action, "RESTART_SERVICES");
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    user.cluster_upgrade("shop", &Default::default()).await.unwrap();
    assert_eq!(settled(&user, "shop").await.status, ClusterStatus::Active);
    assert_eq!(user.cluster_jobs("shop").await.unwrap().len(), 7);
    user.cluster_delete("shop", None).await.unwrap();
    gone(&user, "shop").await;
    assert_eq!(fake.machines(), 0);
    nothing_left(world).await;
}

#[tokio::test]
async fn a_create_that_fails_leaves_no_machine_and_a_half_made_one_is_replaced() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let fake = Fake::start(&world, "hand").await;
    let broken = Report { status: 1, message: "no such package".into(), ..Report::default() };
    fake.ground.lock().unwrap().fails.push(("INSTALL 1001".into(), 99, broken.clone()));
    user.cluster_create(&ask_for("bad", 3), None).await.unwrap();
    let failed = settled(&user, "bad").await;
    assert_eq!((failed.status, fake.machines()), (ClusterStatus::Terminated, 0), "{failed:?}");
    let message = failed.message.unwrap();
    assert!(
        message.starts_with("INSTALL of ") && message.ends_with("on node 1001: no such package"),
        "{message}"
    );
    user.cluster_delete("bad", None).await.unwrap();
    gone(&user, "bad").await;
    fake.ground.lock().unwrap().fails = vec![("CONFIRM 1002".into(), 1, broken)];
    user.cluster_create(&ask_for("good", 3), None).await.unwrap();
    assert_eq!(settled(&user, "good").await.status, ClusterStatus::Active);
    let done = fake.ground.lock().unwrap().done.clone();
    let own: Vec<&String> = done.iter().rev().filter(|told| told.contains("1002")).collect();
    let count = |verb: &str| own.iter().filter(|told| told.starts_with(verb)).count();
    assert_eq!((count("DELETE"), fake.machines()), (2, 3), "{own:?}");
    // A failed change leaves the cluster as it was.
    let hopeless = Report { status: 201, message: "the account is empty".into(), ..Report::default() };
    fake.ground.lock().unwrap().fails = vec![("CREATE 1003".into(), 99, hopeless)];
    user.cluster_expand("good", &ClusterResize { size: 4, anew: false }).await.unwrap();
    let same = settled(&user, "good").await;
    assert_eq!((same.status, same.size, same.nodes), (ClusterStatus::Active, 3, 3), "{same:?}");
    assert!(same.message.unwrap().contains("the account is empty; the cluster is as it was"));
}

#[tokio::test]
async fn what_cannot_be_is_said_at_once() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    for (change, word) in [
        (json!({"template": "none"}), "there is no cluster template 'none'"),
        (json!({"size": 0}), "1 to 10000 machines"),
        (json!({"size": 1}), "cannot"),
        (json!({"provider": "moon"}), "there is no provider 'moon'"),
        (json!({"services": ["web"]}), "web requires db"),
        (json!({"config": {"a": ["%ip.nothing.here%"]}}), "is no macro"),
        (json!({"webhooks": {"start": "ftp://x"}}), "no address"),
        (json!({"provider_fields": {"region": "x"}}), "no field 'region'"),
        (json!({"dns_suffix": "a b"}), "no DNS suffix"),
    ] {
        let mut body = json!({"name": "shop", "template": "site", "size": 3});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = user.cluster_create(&serde_json::from_value(body).unwrap(), None).await.unwrap_err();
        assert!(
            format!("{refused} {:?}", refused.hint).contains(word) || word == "cannot",
            "{change}: {refused:?}"
        );
    }
    assert!(user.cluster_list(&api::ListQuery::new()).await.unwrap().items.is_empty());
    let ask = |size| ClusterSolve {
        ask: Some(serde_json::from_value(json!({"template": "site", "size": size})).unwrap()),
        ..ClusterSolve::default()
    };
    let seen = user.cluster_solve(&ask(3)).await.unwrap();
    assert_eq!((seen.layout.len(), seen.tasks["CREATE"], seen.cost), (2, 3, Some(1.5)), "{seen:?}");
    assert!(user.cluster_solve(&ask(1)).await.unwrap().unsolvable.is_some());
    // Without provisioners it waits, and can be given up.
    user.cluster_create(&ask_for("shop", 3), None).await.unwrap();
    assert_eq!(user.cluster_delete("shop", None).await.unwrap_err().kind, ErrorKind::Conflict);
    user.cluster_abort("shop").await.unwrap();
    let ended = settled(&user, "shop").await;
    assert_eq!((ended.status, ended.job.unwrap().status), (ClusterStatus::Terminated, JobStatus::Aborted));
    assert_eq!(ended.message.as_deref(), Some("Aborted by mine-admin."));
}

#[tokio::test]
async fn machines_of_this_cloud_need_somebody_in_whose_name_they_are_made() {
    let world = World::new().await;
    let body = api::TenantCreate { name: "empty".parse().unwrap(), quota: Default::default() };
    world.admin.tenant_create(&body).await.unwrap();
    let operator = world.admin.with_tenant("empty");
    let mut write = serde_json::to_value(catalogue()).unwrap();
    write["entities"]["providers"] = json!([{"name": "lab", "providertype": "banyan"}]);
    operator.catalogue_write(&serde_json::from_value(write).unwrap()).await.unwrap();
    let refused = operator.cluster_create(&ask_for("shop", 3), None).await.unwrap_err();
    assert_eq!(refused.message, "the tenant has no user in whose name machines can be made");
    world.user("empty", Role::Member).await;
    let refused = operator.cluster_create(&ask_for("shop", 3), None).await.unwrap_err();
    assert!(refused.message.contains("the image 'any'"), "the next that is missing: {refused:?}");
}

#[tokio::test]
async fn quotas_count_what_is_being_made() {
    let world = World::new().await;
    let user = world.user("mine", Role::Admin).await;
    user.catalogue_write(&catalogue()).await.unwrap();
    let quota = model::Quota { clusters: Some(2), cluster_machines: Some(5), ..model::Quota::default() };
    world.admin.quota_set("mine", &quota, None).await.unwrap();
    user.cluster_create(&ask_for("one", 3), None).await.unwrap();
    let refused = user.cluster_create(&ask_for("two", 3), None).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::QuotaExceeded);
    let expect = "the tenant may have 5 machines in clusters; in use: 3, asked for: 3 more";
    assert_eq!(refused.message, expect);
    let used = user.quota().await.unwrap().usage;
    assert_eq!((used.clusters, used.cluster_machines), (1, 3));
    user.cluster_create(&ask_for("two", 2), None).await.unwrap();
    let third = user.cluster_create(&ask_for("three", 2), None).await.unwrap_err();
    assert!(third.message.contains("2 clusters"), "{}", third.message);
}
