//! Commits per second on SQLite and PostgreSQL, both syncing their disk:
//! `cargo bench -p store`. The directory is the first argument that is one, or the system's temporary one.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use store::testing::Postgres;
use store::{Store, Txn};

const COMMITS_PER_WRITER: usize = 150;

#[tokio::main]
async fn main() {
    let place = std::env::args().find(|argument| std::path::Path::new(argument).is_dir());
    let place = place.map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(place).unwrap();
    let server = Postgres::start(true).unwrap();
    for (engine, url) in [
        ("sqlite", format!("sqlite:{}/bench.db", directory.path().display())),
        ("postgres", server.database().unwrap()),
    ] {
        let store = Store::open(&url).await.unwrap();
        for writers in [1, 8, 64, 256] {
            measure(engine, &store, writers).await;
        }
        store.close().await;
    }
}

async fn measure(engine: &str, store: &Store, writers: usize) {
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..COMMITS_PER_WRITER {
                    let id = format!("{writers}-{writer}-{number}");
                    let body = serde_json::json!({ "id": id, "spec": { "image": "nginx:1.27", "cpu": 2, "memory": "512MiB" } });
                    store.commit(Txn::new().insert("instance", &id, Some("acme"), Some(&id), body)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let commits = (writers * COMMITS_PER_WRITER) as f64;
    println!("{engine:9} {writers:4} writers {:8.0} commits/s", commits / start.elapsed().as_secs_f64());
}
