//! The object store as operators see it, and who they are in it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use model::{ErrorKind, Light, Role};
use object::client::{Ask, Client, Credentials};

use crate::world::World;

/// Speaks S3 as whoever the session is for.
async fn s3(rest: &api::Client) -> Client {
    let session = rest.s3_session().await.unwrap();
    let credentials = Credentials {
        access_key_id: session.access_key_id,
        secret_access_key: session.secret_access_key.into(),
        session_token: Some(session.session_token),
    };
    Client::new(&session.endpoint, &session.region, credentials).unwrap()
}

async fn put(s3: &Client, bucket: &str, key: &str, size: usize) {
    let body = futures::stream::iter([Ok(Bytes::from(vec![7; size]))]);
    s3.put(bucket, key, size as u64, Vec::new(), body).await.unwrap();
}

/// Who the store takes this client for.
async fn identity(s3: &Client) -> String {
    let ask =
        Ask::new(reqwest::Method::POST, "", "").header("content-type", "application/x-www-form-urlencoded");
    let answer = s3.ask(ask.body("Action=GetCallerIdentity&Version=2011-06-15")).await.unwrap();
    answer.text().await.unwrap()
}

#[tokio::test]
async fn an_operator_acts_in_another_tenant_under_its_own_name() {
    let world = World::new().await;
    let member = world.user("mine", Role::Member).await;
    let there = s3(&world.admin.with_tenant("mine")).await;
    there.bucket_create("visited", false).await.unwrap();
    assert_eq!(member.bucket_get("visited").await.unwrap().tenant.as_str(), "mine");
    put(&s3(&member).await, "visited", "a", 5).await;
    assert_eq!(there.get("visited", "a", None, None).await.unwrap().bytes().await.unwrap().len(), 5);

    let operator = world.credentials.user.clone();
    let tenant = world.cloud.state.snapshot().tenant_by_name("mine").unwrap().id.clone();
    let said = identity(&there).await;
    assert!(said.contains(&format!("arn:aws:sts::{tenant}:assumed-role/operator/{operator}")), "{said}");
    let said = identity(&s3(&world.admin).await).await;
    assert!(said.contains(&format!(":user/{operator}<")), "{said}");
    // For others, another tenant does not exist.
    let refused = member.with_tenant("main").s3_session().await;
    assert_eq!(refused.err().map(|error| error.kind), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn who_is_no_operator_any_more_loses_the_other_tenant() {
    let world = World::new().await;
    world.user("mine", Role::Viewer).await;
    let second = world.user("main", Role::Operator).await;
    let there = s3(&second.with_tenant("mine")).await;
    there.bucket_create("visited", false).await.unwrap();
    let update = api::UserUpdate { role: Some(Role::Admin), ..api::UserUpdate::default() };
    world.admin.user_update("main-operator", &update, None).await.unwrap();
    let refused = there.list("visited", "", None, None).await.unwrap_err();
    assert!(refused.message.contains("InvalidToken"), "{refused}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let inner = std::fs::read_dir(folder).unwrap().flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path) } else { vec![path] }
    });
    inner.collect()
}

#[tokio::test]
async fn a_scrub_finds_damage_and_everyone_hears_of_it() {
    let world = World::new().await;
    let s3 = s3(&world.admin).await;
    s3.bucket_create("kept", false).await.unwrap();
    put(&s3, "kept", "sound", 100).await;
    put(&s3, "kept", "large", 200_000).await;
    let store = world.admin.object_store().await.unwrap();
    assert_eq!((store.state.as_str(), store.objects, store.damaged), ("ok", 2, 0));
    assert_eq!((store.packed_bytes.0, store.file_bytes.0), (100, 200_000));
    assert_eq!(store.scrub.ended_at, None);

    let blobs = files(&world.dir.path().join("object/blobs"));
    assert_eq!(blobs.len(), 1);
    std::fs::File::options().write(true).open(&blobs[0]).unwrap().write_all_at(b"x", 70_000).unwrap();
    world.admin.object_store_scrub(&api::ScrubStart::default()).await.unwrap();
    let store = loop {
        let store = world.admin.object_store().await.unwrap();
        if store.scrub.ended_at.is_some() {
            break store;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((store.state.as_str(), store.damaged, store.scrub.damaged), ("damaged", 1, 1));
    let damage = world.admin.object_store_damage().await.unwrap();
    assert_eq!(damage.len(), 1);
    assert_eq!(
        (damage[0].bucket.as_str(), damage[0].key.as_str(), damage[0].bytes.0),
        ("kept", "large", 200_000)
    );

    let health = world.admin.platform_health().await.unwrap();
    let check = health.checks.iter().find(|check| check.name == "objects").unwrap();
    assert_eq!(check.light, Light::Red, "{check:?}");
    let metrics = reqwest::get(world.url("/metrics")).await.unwrap().text().await.unwrap();
    for line in [
        "banyan_object_damaged_blobs 1",
        "banyan_object_requests_total{operation=\"PutObject\",status=\"2xx\"} 2",
        "banyan_object_objects 2",
        "banyan_tenants ",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n") && metrics.matches("# EOF").count() == 1, "{metrics}");

    s3.delete("kept", "large", None).await.unwrap();
    assert!(
        world.admin.object_store_damage().await.unwrap().is_empty(),
        "nobody has the damaged bytes any more"
    );
}

#[tokio::test]
async fn a_session_lives_as_long_as_a_link() {
    let world = World::new().await;
    let week = 7 * 24 * 60 * 60;
    let session = world.admin.s3_session_for(week).await.unwrap();
    let left = session.expires_at.0 / 1_000_000 - world.cloud.now().0 / 1_000_000;
    assert!((left - week as i64).abs() < 60, "{left} s are left");
    for bad in [0, 8 * 24 * 60 * 60] {
        let error = world.admin.s3_session_for(bad).await.err().unwrap();
        assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::Invalid, Some("duration_s")), "{error}");
    }
}

#[tokio::test]
async fn a_tenant_sees_what_its_buckets_hold() {
    let world = World::new().await;
    let member = world.user("mine", Role::Member).await;
    let store = s3(&member).await;
    assert_eq!(member.quota().await.unwrap().usage.objects, Some(0));
    store.bucket_create("first", false).await.unwrap();
    store.bucket_create("second", false).await.unwrap();
    put(&store, "first", "a", 1000).await;
    put(&store, "second", "b", 200_000).await;
    let usage = member.quota().await.unwrap().usage;
    assert_eq!((usage.objects, usage.object_bytes), (Some(2), Some(model::Bytes(201_000))));
    assert_eq!(world.admin.tenant_get("mine").await.unwrap().usage, usage);
    let neighbour = world.user("theirs", Role::Member).await;
    assert_eq!(neighbour.quota().await.unwrap().usage.object_bytes, Some(model::Bytes(0)));
}
