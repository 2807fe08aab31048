//! What only a real database has: other processes, other servers, full disks, newer versions.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use futures::future::join_all;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use sqlx::{AnyConnection, Connection, Row};
use store::testing::Postgres;
use store::{CommitError, Store, StoreError, Txn};

fn sqlite_url(directory: &Path) -> String {
    format!("sqlite:{}/store.db", directory.display())
}

/// Runs a statement behind the store's back.
async fn execute(url: &str, statement: &'static str) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn newer_is_refused(url: &str) {
    Store::open(url).await.unwrap().close().await;
    execute(url, "INSERT INTO migrations (number, name) VALUES (1000, 'of the future')").await;
    let refused = Store::open(url).await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 1000, .. }), "{refused}");
    execute(url, "DELETE FROM migrations WHERE number = 1000").await;
    Store::open(url).await.unwrap().close().await;
}

#[tokio::test]
async fn sqlite_of_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    newer_is_refused(&sqlite_url(directory.path())).await;
}

/// The tables are empty when the first statements are planned.
#[tokio::test]
async fn postgres_reads_no_whole_table_to_write_into_it() {
    let server = Postgres::shared().unwrap();
    let url = server.database().unwrap();
    let store = Store::open(&url).await.unwrap();
    for round in 0..30 {
        let insert = |txn: Txn, at: u32| {
            txn.put(
                "thing",
                format!("{round}/{at}"),
                None,
                Some(&format!("n{round}-{at}")),
                json!({ "at": at }),
            )
        };
        store.commit((0..200).fold(Txn::new(), insert)).await.unwrap();
    }
    store.close().await;
    // What a connection read is counted by the time it has ended.
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    let read = "SELECT seq_tup_read, idx_scan FROM pg_stat_user_tables WHERE relname = 'records'";
    let row = sqlx::query(read).fetch_one(&mut connection).await.unwrap();
    let (whole, by_key): (i64, i64) = (row.get(0), row.get(1));
    assert!(whole < 200 && by_key >= 6_000, "{whole} rows were read by going through all, {by_key} by key");
    connection.close().await.unwrap();
}

#[tokio::test]
async fn sqlite_is_opened_once() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(directory.path());
    let store = Store::open(&url).await.unwrap();
    let refused = Store::open(&url).await.map(|_| ()).unwrap_err();
    let path = format!("{}/store.db", directory.path().display());
    assert_eq!(refused, StoreError::Locked { path: path.clone(), holder: Some(std::process::id()) });
    let sentence = format!("the database {path} is in use by another process (pid {})", std::process::id());
    assert_eq!(refused.to_string(), sentence);
    for file in ["", "-wal", "-shm", ".lock"] {
        let mode = std::fs::metadata(format!("{path}{file}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner reads {path}{file}");
    }
    store.close().await;
    Store::open(&url).await.unwrap().close().await;
}

#[tokio::test]
async fn urls_are_checked() {
    for url in ["mysql://x/y", "sqlite:", "sqlite::memory:", "", "/some/path"] {
        assert_eq!(Store::open(url).await.map(|_| ()).unwrap_err(), StoreError::Url(url.to_owned()));
    }
    let lost = Store::open("sqlite:/no/such/directory/store.db").await.map(|_| ()).unwrap_err();
    assert!(matches!(lost, StoreError::Unavailable(_)), "{lost}");
}

struct Tmpfs {
    directory: tempfile::TempDir,
}

impl Tmpfs {
    fn new(options: &std::ffi::CStr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), Some(options)).unwrap();
        Self { directory }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(self.directory.path(), UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let disk = Tmpfs::new(c"size=2m");
    let store = Store::open(&sqlite_url(disk.directory.path())).await.unwrap();
    let ballast = disk.directory.path().join("ballast");
    let text = "x".repeat(20_000);
    let mut stored = 0;
    std::fs::write(&ballast, vec![0; 500_000]).unwrap();
    let full = loop {
        match store.commit(Txn::new().insert("k", stored, None, None, json!(text))).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, CommitError::Full(_)), "{full}");
    assert_eq!(model::Error::from(full).kind, model::ErrorKind::OutOfSpace);
    assert!(stored > 0);
    std::fs::remove_file(&ballast).unwrap();
    store.commit(Txn::new().insert("k", "after", None, None, json!(1))).await.unwrap();
    assert_eq!(store.list("k").await.unwrap().len(), stored + 1);
    store.close().await;
}

#[tokio::test]
async fn a_disk_that_others_filled_still_takes_what_makes_room() {
    let disk = Tmpfs::new(c"size=40m");
    let url = sqlite_url(disk.directory.path());
    let store = Store::open(&url).await.unwrap();
    store.commit(Txn::new().insert("k", "goes", None, None, json!("x".repeat(20_000)))).await.unwrap();
    // Ends with the error that the disk is full.
    let _ = std::fs::write(disk.directory.path().join("ballast"), vec![0; 40 << 20]);
    for number in 0..20 {
        store.commit(Txn::new().insert("k", number, None, None, json!("x".repeat(20_000)))).await.unwrap();
    }
    store.close().await;
    let store = Store::open(&url).await.unwrap();
    store.commit(Txn::new().delete("k", "goes", None)).await.unwrap();
    assert_eq!(store.list("k").await.unwrap().len(), 20);
    store.close().await;
}

/// One server for all that concerns PostgreSQL, because starting one takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let server = Postgres::shared().unwrap();
    newer_is_refused(&server.database().unwrap()).await;
    two_servers_agree(&server).await;
    changes_of_others_are_told(&server).await;
    lost_connections_are_survived(&server).await;
}

async fn write(store: Store, server: usize, writer: usize) -> Vec<(String, i64)> {
    let mut written = Vec::new();
    for number in 0..30 {
        let id = format!("{server}-{writer}-{number}");
        let committed =
            store.commit(Txn::new().insert("k", &id, None, Some(&id), json!(number))).await.unwrap();
        written.push((id, committed.seq));
    }
    written
}

async fn two_servers_agree(server: &Arc<Postgres>) {
    let url = server.database().unwrap();
    // Both make the tables at the same time.
    let (one, two) = tokio::join!(Store::open(&url), Store::open(&url));
    let stores = [one.unwrap(), two.unwrap()];
    let followers = stores.each_ref().map(|store| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut watch = store.watch(0).await.unwrap();
            let mut seen = Vec::new();
            while seen.len() < 240 {
                seen.extend(
                    watch.next_batch().await.unwrap().into_iter().map(|change| (change.id, change.seq)),
                );
            }
            seen
        })
    });
    let writers = (0..8).map(|writer| tokio::spawn(write(stores[writer % 2].clone(), writer % 2, writer)));
    let mut written: Vec<_> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    written.sort_by_key(|(_, seq)| *seq);
    assert_eq!(written.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), (1..=240).collect::<Vec<_>>());
    for follower in followers {
        assert_eq!(follower.await.unwrap(), written);
    }
    let counts = (0..40).map(|number| stores[number % 2].counter_next("c"));
    let counts: BTreeSet<u64> = join_all(counts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(counts, (1..=40).collect());
    assert_eq!(stores[0].counter_from("c", 1_000).await.unwrap(), 1_000);
    assert_eq!(stores[1].counter_from("c", 7).await.unwrap(), 1_001);
    join_all(stores.map(Store::close)).await;
}

/// Three servers write, some of what they write is refused, and listeners are cut off: every server sees every
/// change once and in the order of the commits.
async fn changes_of_others_are_told(server: &Arc<Postgres>) {
    let url = server.database().unwrap();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(Store::open(&url).await.unwrap());
    }
    let followers: Vec<_> = stores
        .iter()
        .map(|store| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut watch = store.watch(0).await.unwrap();
                let mut seen = Vec::new();
                while seen.len() < 180 {
                    // A cut connection is an error of this one look.
                    let Ok(batch) = watch.next_batch().await else { continue };
                    seen.extend(batch.into_iter().map(|change| change.seq));
                }
                seen
            })
        })
        .collect();
    let writers = (0..6).map(|writer| {
        let store = stores[writer % 3].clone();
        tokio::spawn(async move {
            write(store.clone(), writer % 3, writer).await;
            let refused = Txn::new().put("k", "x", None, None, json!(1)).check("k", "no such", Some(7));
            store.commit(refused).await.unwrap_err();
        })
    });
    let cut = async {
        for _ in 0..4 {
            let cut = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE datname = current_database() AND query LIKE 'LISTEN%'";
            execute(&url, cut).await;
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
    };
    let (done, ()) = tokio::join!(join_all(writers), cut);
    done.into_iter().for_each(Result::unwrap);
    for follower in followers {
        assert_eq!(follower.await.unwrap(), (1..=180).collect::<Vec<i64>>());
    }
    join_all(stores.into_iter().map(Store::close)).await;
}

/// Connections are cut while commits run; each commit is applied exactly once all the same.
async fn lost_connections_are_survived(server: &Arc<Postgres>) {
    let url = server.database().unwrap();
    let store = Store::open(&url).await.unwrap();
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(write(store.clone(), 0, writer))).collect();
    for _ in 0..5 {
        let cut = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        execute(&url, cut).await;
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    let written: Vec<_> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(written.len(), 120);
    // A read may meet a cut connection; the pool makes a new one.
    let (records, seq) = loop {
        match store.load().await {
            Ok(loaded) => break loaded,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    };
    assert_eq!((records.len(), seq), (120, 120));
    store.close().await;
}

#[tokio::test]
async fn postgres_that_is_gone_is_unavailable() {
    let server = Postgres::start(false).unwrap();
    let store = Store::open(&server.database().unwrap()).await.unwrap();
    drop(server);
    let refused = store.commit(Txn::new().put("k", "a", None, None, json!(1))).await.unwrap_err();
    assert!(matches!(refused, CommitError::Unavailable(_)), "{refused}");
    assert!(matches!(store.get("k", "a").await, Err(StoreError::Unavailable(_))));
    store.close().await;
}
