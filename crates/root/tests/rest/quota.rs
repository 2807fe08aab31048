//! Quotas hold whatever comes at once.

use api::ListQuery;
use model::{Bytes, Cpu, ErrorKind, Generation, ObservedInstance, Phase, Quota, Role};

use root::auth::{Principal, Proof};
use root::tables::{StatusRecord, encode, kind};
use root::{Caller, Cloud, State};
use store::Txn;

use crate::world::{World, ask_for};

async fn burst(database: &str) {
    let world = World::with(database).await;
    let client = world.user("small", Role::Member).await;
    let quota = Quota { instances: Some(10), ..Quota::default() };
    world.admin.quota_set("small", &quota, None).await.unwrap();
    let bodies: Vec<_> = (0..60).map(|index| ask_for(&format!("i-{index}"))).collect();
    let answers = futures::future::join_all(bodies.iter().map(|body| client.instance_create(body))).await;
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(made, 10);
    for error in answers.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
    }
    let report = client.quota().await.unwrap();
    assert_eq!((report.usage.instances, report.quota.instances), (10, Some(10)));
    assert_eq!(client.instance_list(&ListQuery::new()).await.unwrap().items.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_fills_the_quota_and_no_more_in_memory() {
    burst("memory:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_fills_the_quota_and_no_more_on_sqlite() {
    burst("sqlite:").await;
}

#[tokio::test]
async fn amounts_are_counted_too() {
    let world = World::new().await;
    let client = world.user("small", Role::Member).await;
    let quota = Quota { cpu: Some(Cpu(600)), memory: Some(Bytes::mib(300)), ..Quota::default() };
    world.admin.quota_set("small", &quota, None).await.unwrap();
    client.instance_create(&ask_for("one")).await.unwrap();
    let mut large = ask_for("two");
    large.spec.cpu = Cpu(400);
    let error = client.instance_create(&large).await.unwrap_err();
    assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::QuotaExceeded, Some("cpu")));
    large.spec.cpu = Cpu(100);
    large.spec.memory = Bytes::mib(200);
    let error = client.instance_create(&large).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("memory"), "{error}");
    large.spec.memory = Bytes::mib(100);
    client.instance_create(&large).await.unwrap();
    let seen = world.admin.tenant_get("small").await.unwrap();
    assert_eq!((seen.usage.cpu, seen.usage.memory), (Cpu(350), Bytes::mib(228)));
    let stale = world.admin.quota_set("small", &quota, Some(1)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::VersionMismatch);
}

/// What the tree would say of an instance.
async fn seen(world: &World, id: &model::InstanceId, phase: Phase) {
    let mut observed = ObservedInstance::new(id.clone(), Generation::default(), phase);
    observed.finished = phase == Phase::Exited;
    let status = StatusRecord {
        id: id.clone(),
        zone: Some(world.zone.clone()),
        generation: Generation::default(),
        phase,
        observed: Some(observed),
        explanation: None,
        events_seen: 0,
        changed_at: world.cloud.now(),
    };
    let txn = Txn::new().put(kind::STATUS, id, None, None, encode(&status));
    world.cloud.state.commit(txn).await.unwrap();
}

#[tokio::test]
async fn what_is_stopped_or_ended_gives_its_amounts_back_and_a_start_asks_for_them_again() {
    let world = World::new().await;
    let client = world.user("small", Role::Member).await;
    let quota = Quota { cpu: Some(Cpu(250)), ..Quota::default() };
    world.admin.quota_set("small", &quota, None).await.unwrap();
    let used = async || client.quota().await.unwrap().usage;
    for phase in [Phase::Stopped, Phase::Exited] {
        let one = client.instance_create(&ask_for("one")).await.unwrap();
        seen(&world, &one.id, Phase::Running).await;
        assert_eq!(used().await.cpu, Cpu(250));
        if phase == Phase::Stopped {
            client.instance_stop("one", None).await.unwrap();
            assert_eq!(used().await.cpu, Cpu(250), "until it is");
        }
        seen(&world, &one.id, phase).await;
        assert_eq!((used().await.instances, used().await.cpu, used().await.memory), (1, Cpu(0), Bytes(0)));
        let two = client.instance_create(&ask_for("two")).await.unwrap();
        let error = client.instance_restart("one", None).await.unwrap_err();
        assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::QuotaExceeded, Some("cpu")), "{error}");
        let still = client.instance_get("one").await.unwrap();
        assert_eq!((still.phase, still.restart_count), (phase, 0), "nothing was changed");
        let gone = |id| Txn::new().delete(kind::INSTANCE, id, None);
        world.cloud.state.commit(gone(&two.id)).await.unwrap();
        client.instance_restart("one", None).await.unwrap();
        seen(&world, &one.id, Phase::Running).await;
        assert_eq!(used().await.cpu, Cpu(250));
        world.cloud.state.commit(gone(&one.id).delete(kind::STATUS, &one.id, None)).await.unwrap();
        assert_eq!((used().await.instances, used().await.cpu), (0, Cpu(0)));
    }
}

/// Two root servers on one store, each with its own view of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_quota_holds_across_root_servers() {
    let world = World::new().await;
    let client = world.user("small", Role::Member).await;
    let quota = Quota { instances: Some(10), ..Quota::default() };
    world.admin.quota_set("small", &quota, None).await.unwrap();
    let store = world.cloud.state.store().clone();
    let mut roots = Vec::new();
    for _ in 0..2 {
        let mut config = world.cloud.config.clone();
        // Only says that others write to the store as well.
        config.database = Some("postgres://shared".to_owned());
        let state = State::open(store.clone()).await.unwrap();
        let images = world.cloud.images.clone();
        let clock = std::sync::Arc::new(work::SystemClock);
        roots.push(Cloud::new(config, state, world.tree.clone(), images, clock).await.unwrap());
    }
    let me = client.whoami().await.unwrap();
    let mut creates = Vec::new();
    for index in 0..40 {
        let principal = Principal {
            user: me.user_id.clone(),
            user_name: me.user.clone(),
            tenant: me.tenant_id.clone(),
            role: me.role,
            proof: Proof::Session(model::SessionId::from_random(1)),
            from: None,
        };
        let root = roots[index % 2].clone();
        let caller = Caller::new(&root, principal, None).unwrap();
        let body = ask_for(&format!("i-{index}"));
        creates.push(async move { root::ops::instance::create(&root, &caller, body, None).await });
    }
    let answers = futures::future::join_all(creates).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    world.cloud.state.wait_for(store.head().await.unwrap()).await;
    assert_eq!(client.quota().await.unwrap().usage.instances, 10);
}
