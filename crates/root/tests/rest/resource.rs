//! Files that plugins use, over REST and over the link's dispatcher.

use api::{CatalogueWrite, Client, ListQuery, Resource, ResourceStatus, ResourceUpload};
use bytes::Bytes;
use futures::TryStreamExt;
use link::dispatch::{Dispatcher, TaskAnswer, TaskAsk};
use model::{ChildId, Digest, ErrorKind, Result, Role};
use root::cluster::Office;
use root::tables::kind;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt;

use crate::cluster::{Fake, ask_for, catalogue, settled};
use crate::world::World;

const HELLO: &str = "automatortypes/shell/scripts/hello.sh";

async fn put(client: &Client, path: &str, how: ResourceUpload, bytes: impl Into<Bytes>) -> Result<Resource> {
    let body = futures::stream::iter([Ok::<Bytes, std::io::Error>(bytes.into())]);
    client.resource_upload(path, how, body).await
}

fn how(stage: bool, sync: bool) -> ResourceUpload {
    ResourceUpload { stage, sync, length: None }
}

fn states(file: &Resource) -> Vec<(u32, ResourceStatus)> {
    file.versions.iter().map(|version| (version.number, version.status)).collect()
}

async fn content(client: &Client, path: &str, number: u32) -> Result<Vec<u8>> {
    let chunks: Vec<Bytes> = client.resource_download(path, number).await?.try_collect().await?;
    Ok(chunks.concat())
}

/// A plugin with secret files, which operators describe.
async fn with_keys(world: &World) {
    let kind = json!({"providertypes": [{"name": "moon", "parameters": {},
        "resourceTypes": {"keys": {"format": "file", "permissions": "0400"}}}]});
    let write =
        CatalogueWrite { entities: serde_json::from_value(kind).unwrap(), replace: false, dry_run: false };
    world.admin.catalogue_write(&write).await.unwrap();
}

#[tokio::test]
async fn versions_are_staged_synced_recalled_and_deleted() {
    use ResourceStatus::{Active, Inactive, Recalled, Staged};
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let one = put(&admin, HELLO, how(false, false), "echo one").await.unwrap();
    assert_eq!((states(&one), one.format.as_str(), one.secret), (vec![(1, Inactive)], "file", false));
    let two = put(&admin, HELLO, how(false, true), "echo two").await.unwrap();
    assert_eq!(states(&two), [(2, Active), (1, Inactive)]);
    let three = put(&admin, HELLO, how(true, false), "echo three").await.unwrap();
    assert_eq!(states(&three), [(3, Staged), (2, Recalled), (1, Inactive)]);
    assert_eq!(
        states(&admin.resource_stage(HELLO, 1).await.unwrap()),
        [(3, Inactive), (2, Recalled), (1, Staged)]
    );
    let synced = admin.resource_sync().await.unwrap();
    assert_eq!((synced.activated, synced.recalled), (vec![format!("{HELLO}@1")], vec![format!("{HELLO}@2")]));
    assert_eq!(admin.resource_sync().await.unwrap(), Default::default(), "nothing is new");
    assert_eq!(
        states(&admin.resource_get(HELLO).await.unwrap()),
        [(3, Inactive), (2, Inactive), (1, Active)]
    );
    assert_eq!(content(&admin, HELLO, 2).await.unwrap(), b"echo two");

    let kept = admin.resource_delete(HELLO, 1).await.unwrap_err();
    assert_eq!(kept.kind, ErrorKind::Conflict);
    assert_eq!(kept.message, format!("version 1 of '{HELLO}' is active; only inactive ones go"));
    admin.resource_delete(HELLO, 2).await.unwrap();
    assert_eq!(admin.resource_delete(HELLO, 2).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(states(&admin.resource_recall(HELLO, 1).await.unwrap()), [(3, Inactive), (1, Recalled)]);
    admin.resource_sync().await.unwrap();
    for number in [1, 3] {
        admin.resource_delete(HELLO, number).await.unwrap();
    }
    assert_eq!(admin.resource_get(HELLO).await.unwrap_err().kind, ErrorKind::NotFound);

    let subject = ListQuery::new().with("subject", format!("resource/{HELLO}"));
    let history = admin.event_list(&subject).await.unwrap();
    let what: Vec<&str> = history.items.iter().rev().map(|event| event.what.as_str()).collect();
    let orders = ["upload", "upload", "upload", "stage", "delete", "recall", "delete", "delete"];
    assert_eq!(what, orders.map(|order| format!("resource.{order}")));
    assert!(history.items[7].message.starts_with("version 1, 8"), "{}", history.items[7].message);
    let synced = admin.event_list(&ListQuery::new().with("subject", "resource/mine")).await.unwrap();
    assert_eq!(synced.items[0].message, format!("{HELLO}@1 recalled"));
}

#[tokio::test]
async fn lists_are_filtered_and_old_versions_go() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    for number in 1..=13_u32 {
        put(&admin, HELLO, how(false, number == 1), format!("echo {number}")).await.unwrap();
    }
    let kept = admin.resource_get(HELLO).await.unwrap();
    let numbers: Vec<u32> = kept.versions.iter().map(|version| version.number).collect();
    assert_eq!(numbers, [13, 12, 11, 10, 9, 8, 7, 6, 5, 1], "ten are kept, and the active one is");
    put(&admin, "automatortypes/docker/compose/a.yaml", how(false, false), "services: {}").await.unwrap();
    put(&admin, "automatortypes/shell/scripts/bye.sh", how(true, false), "echo bye").await.unwrap();
    for (field, value, names) in [
        ("name", "*.sh", vec!["bye.sh", "hello.sh"]),
        ("plugin", "docker", vec!["a.yaml"]),
        ("type", "scripts", vec!["bye.sh", "hello.sh"]),
        ("kind", "automatortypes", vec!["a.yaml", "bye.sh", "hello.sh"]),
        ("kind", "providertypes", vec![]),
        ("status", "active", vec!["hello.sh"]),
        ("status", "staged", vec!["bye.sh"]),
    ] {
        let found = admin.resource_list(&ListQuery::new().with(field, value)).await.unwrap();
        let found: Vec<&str> = found.items.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(found, names, "{field}={value}");
    }
    let page = admin.resource_list(&ListQuery::new().limit(2)).await.unwrap();
    let rest = admin.resource_list(&ListQuery::new().after(page.next.as_deref().unwrap())).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len(), rest.next), (2, 1, None));
}

#[tokio::test]
async fn what_is_wrong_with_an_upload_is_said() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let mut evil = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..5].copy_from_slice(b"../up");
    header.set_size(1);
    header.set_cksum();
    evil.append(&header, &b"x"[..]).unwrap();
    let evil = evil.into_inner().unwrap();
    let good = crate::image::tarball();
    let half = good[..515].to_vec();
    let archive = "automatortypes/shell/archives/site.tar";
    for (path, bytes, word) in [
        ("services/shell/scripts/a", b"x".to_vec(), "kind of plugins 'services'"),
        ("automatortypes/salt/scripts/a", b"x".to_vec(), "there is no automator type 'salt'"),
        ("automatortypes/shell/states/a", b"x".to_vec(), "'shell' has no files of the type 'states'"),
        ("automatortypes/shell/scripts/.a", b"x".to_vec(), "no '.' first"),
        ("automatortypes/shell/scripts/a b", b"x".to_vec(), "'a b' is no name for a file"),
        (HELLO, Vec::new(), "the file is empty"),
        (archive, b"#!/bin/sh\n".to_vec(), "not an archive: a script was found"),
        (archive, evil, "has '..' in its name"),
        (archive, half, "it ends in the middle"),
        (archive, vec![0; 1024], "holds no file"),
    ] {
        let refused = put(&admin, path, how(false, true), bytes).await.unwrap_err();
        assert!(refused.message.contains(word), "{path}: {}", refused.message);
    }
    assert_eq!(put(&admin, archive, how(false, true), good).await.unwrap().format, "archive");
    let large = ResourceUpload { length: Some(300 << 20), ..how(false, false) };
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[7; 65536])));
    let refused = admin.resource_upload(HELLO, large, endless).await.unwrap_err();
    assert!([ErrorKind::TooLarge, ErrorKind::Unavailable].contains(&refused.kind), "{refused}");
    assert!(admin.resource_get(HELLO).await.is_err(), "nothing of all that is kept");
}

#[tokio::test]
async fn secret_files_are_sealed_and_never_shown() {
    let world = World::new().await;
    with_keys(&world).await;
    let admin = world.user("mine", Role::Admin).await;
    let path = "providertypes/moon/keys/id";
    let made = put(&admin, path, how(false, true), "a very secret key").await.unwrap();
    assert!(made.secret && made.versions[0].digest.is_none(), "{made:?}");
    let shown = content(&admin, path, 1).await.unwrap_err();
    assert_eq!(shown.message, format!("'{path}' is secret and is never shown again"));
    for kind in [kind::RESOURCE, kind::RESOURCE_SECRET] {
        let records = world.cloud.state.store().list(kind).await.unwrap();
        assert_eq!(records.len(), 1);
        assert!(!records[0].body.text().contains("very secret"));
    }
    let digest = Digest::from_sha256(&Sha256::digest("a very secret key"));
    assert_eq!(world.cloud.images.blob_path(&digest), None, "it is not on the disk");
    let large = put(&admin, path, how(false, false), vec![b'x'; (64 << 10) + 1]).await.unwrap_err();
    assert_eq!(large.kind, ErrorKind::TooLarge);
    // Whoever has no workers of the tenant does not get it, and it goes with its version.
    admin.resource_recall(path, 1).await.unwrap();
    admin.resource_sync().await.unwrap();
    admin.resource_delete(path, 1).await.unwrap();
    assert!(world.cloud.state.store().list(kind::RESOURCE_SECRET).await.unwrap().is_empty());
}

#[tokio::test]
async fn plugin_types_with_files_in_use_stay() {
    let world = World::new().await;
    with_keys(&world).await;
    let admin = world.user("mine", Role::Admin).await;
    let path = "providertypes/moon/keys/id";
    put(&admin, path, how(true, false), "key").await.unwrap();
    let word = "the provider type 'moon' has files that are active or staged (1)";
    let refused = world.admin.definition_delete("providertypes", "moon", None).await.unwrap_err();
    assert_eq!((refused.kind, refused.message.as_str()), (ErrorKind::Conflict, word));
    let less = json!({"providertypes": [{"name": "moon", "parameters": {}}]});
    let write =
        CatalogueWrite { entities: serde_json::from_value(less).unwrap(), replace: false, dry_run: false };
    assert_eq!(world.admin.catalogue_write(&write).await.unwrap_err().message, word);
    admin.resource_recall(path, 1).await.unwrap();
    world.admin.definition_delete("providertypes", "moon", None).await.unwrap();
    let gone = admin.resource_stage(path, 1).await.unwrap_err();
    assert_eq!(gone.message, "there is no provider type 'moon'");
    admin.resource_delete(path, 1).await.unwrap();
}

/// What a provisioner is told now.
async fn told(office: &Office, me: &ChildId, seen: u64) -> TaskAnswer {
    let ask = TaskAsk { session: "one".into(), capacity: 8, seen, ..TaskAsk::default() };
    office.poll(me, ask, true).await.unwrap()
}

async fn fetched(office: &Office, me: &ChildId, tenant: &str, digest: &Digest) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    office.resource(me, tenant, digest).await?.reader.read_to_end(&mut bytes).await.unwrap();
    Ok(bytes)
}

#[tokio::test]
async fn provisioners_get_what_is_active_of_tenants_they_work_for() {
    let world = World::new().await;
    with_keys(&world).await;
    let admin = world.user("mine", Role::Admin).await;
    let other = world.user("other", Role::Admin).await;
    put(&admin, HELLO, how(false, true), "echo mine").await.unwrap();
    put(&admin, "providertypes/moon/keys/id", how(false, true), "a very secret key").await.unwrap();
    put(&admin, "automatortypes/shell/scripts/no.sh", how(true, false), "echo no").await.unwrap();
    put(&other, HELLO, how(false, true), "echo other").await.unwrap();

    // It takes tasks and never does them, so the tenant keeps workers there.
    admin.catalogue_write(&catalogue()).await.unwrap();
    let id = Fake::start(&world, "hand").await.id.clone();
    admin.cluster_create(&ask_for("shop", 2), None).await.unwrap();
    let (office, me) = (Office::new(world.cloud.clone()), ChildId::from(&id));
    let mut answer = told(&office, &me, 0).await;
    for _ in 0..200 {
        if !answer.workers.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        answer = told(&office, &me, 0).await;
    }
    let tenant = answer.workers.keys().next().unwrap().clone();
    assert_eq!(answer.staged.keys().collect::<Vec<_>>(), [&tenant], "of one tenant only");
    let files = &answer.staged[&tenant];
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [HELLO, "providertypes/moon/keys/id"]);
    assert_eq!(fetched(&office, &me, &tenant, &files[0].digest).await.unwrap(), b"echo mine");
    assert_eq!(fetched(&office, &me, &tenant, &files[1].digest).await.unwrap(), b"a very secret key");

    // Neither another tenant's files, nor what is not active, nor anything for one who does nothing for the tenant.
    let snapshot = world.cloud.state.snapshot();
    let foreign = snapshot.tenant_by_name("other").unwrap().id.to_string();
    let theirs = Digest::from_sha256(&Sha256::digest("echo other"));
    let idle = Digest::from_sha256(&Sha256::digest("echo no"));
    let stranger = ChildId::from("p-stranger");
    for (who, whose, what) in [
        (&me, &foreign, &theirs),
        (&me, &tenant, &theirs),
        (&me, &foreign, &files[0].digest),
        (&me, &tenant, &idle),
        (&stranger, &tenant, &files[0].digest),
    ] {
        assert_eq!(fetched(&office, who, whose, what).await.unwrap_err().kind, ErrorKind::NotFound);
    }

    // A sync is told at once.
    admin.resource_stage("automatortypes/shell/scripts/no.sh", 1).await.unwrap();
    admin.resource_sync().await.unwrap();
    let mut news = told(&office, &me, answer.seen).await;
    for _ in 0..200 {
        if news.seen != answer.seen {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        news = told(&office, &me, answer.seen).await;
    }
    assert_ne!(news.seen, answer.seen, "the poll of one that has seen the rest is answered");
    assert_eq!(news.staged[&tenant].len(), 3);
    let _fake = Fake::resume(&world, id, Default::default());
    settled(&admin, "shop").await;
}

#[tokio::test]
async fn files_survive_a_restart_and_the_sweep_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = World::open(dir, "sqlite:").await;
    let admin = world.admin.clone();
    put(&admin, HELLO, how(false, true), "echo kept").await.unwrap();
    let World { dir, running, cloud, objects, .. } = world;
    running.shutdown().await;
    objects.stop().await;
    cloud.state.close().await;
    drop(cloud);
    let (world, _) = World::open(dir, "sqlite:").await;
    let used = root::ops::image::digests_used(&world.cloud.state.snapshot());
    world.cloud.images.blobs_retain(&used, std::time::Duration::ZERO).unwrap();
    assert_eq!(content(&world.admin, HELLO, 1).await.unwrap(), b"echo kept");
    let file = world.admin.resource_get(HELLO).await.unwrap();
    assert_eq!(states(&file), [(1, ResourceStatus::Active)]);
}

#[tokio::test]
async fn uploads_at_the_same_moment_are_all_kept() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let name = |number: u32| format!("automatortypes/shell/scripts/{}.sh", number % 4);
    let paths: Vec<String> = (0..24).map(name).collect();
    let uploads = paths.iter().map(|path| put(&admin, path, how(false, false), "echo"));
    for made in futures::future::join_all(uploads).await {
        made.unwrap();
    }
    for file in admin.resource_list(&ListQuery::new()).await.unwrap().items {
        let numbers: Vec<u32> = file.versions.iter().map(|version| version.number).collect();
        assert_eq!(numbers, [6, 5, 4, 3, 2, 1], "{}", file.name);
    }
}

#[tokio::test]
async fn a_tenant_goes_with_its_files() {
    let world = World::new().await;
    with_keys(&world).await;
    let name = api::TenantCreate { name: "mine".parse().unwrap(), quota: Default::default() };
    world.admin.tenant_create(&name).await.unwrap();
    let inside = world.admin.with_tenant("mine");
    put(&inside, HELLO, how(false, true), "echo mine").await.unwrap();
    put(&inside, "providertypes/moon/keys/id", how(false, true), "key").await.unwrap();
    world.admin.tenant_delete("mine", None).await.unwrap();
    for kind in [kind::RESOURCE, kind::RESOURCE_SECRET] {
        assert!(world.cloud.state.store().list(kind).await.unwrap().is_empty(), "{kind} is left");
    }
}
