//! Blobs go there, come back, and go for good.

use object::engine::{Alive, BlobId, CHUNK, Engine, EngineError, PACKED_MAX, SealKey};

use crate::bed::{content, delete, fetch, files, get, prepare, put};
use crate::remote::{Remote, config, open, refusal, until};

const SIZES: [usize; 8] = [
    100,
    PACKED_MAX,
    PACKED_MAX + 1,
    3 * CHUNK - 7,
    (1 << 20) + 1,
    // With its checksums just below and above one part.
    (8 << 20) - 512,
    8 << 20,
    (20 << 20) + 5,
];

/// Sealing takes its time in a build for tests.
fn sizes(seal: Option<&SealKey>) -> Vec<usize> {
    let sealed = [100, PACKED_MAX + 1, 3 * CHUNK - 7, 9 << 20];
    if seal.is_some() { sealed.to_vec() } else { SIZES.to_vec() }
}

async fn round_trips(remote: Remote) {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path(), remote.gateway())).await;
    let key = SealKey([7; 32].into());
    let mut ids = Vec::new();
    for seal in [None, Some(&key)] {
        for size in sizes(seal) {
            let bytes = content(size as u64 + 1, size);
            let written = prepare(&engine, &bytes, 70_000, seal).await.unwrap();
            let id: BlobId = engine.write(move |tx| tx.store(written)).await.unwrap();
            let (size, chunk) = (size as u64, CHUNK as u64);
            for range in [0..size, 0..1, size / 2..size, chunk - 1..chunk + 1, 5..chunk * 2 + 3] {
                if range.end <= size && range.start <= range.end {
                    let part = fetch(&engine, id, range.clone(), seal).await.unwrap();
                    assert!(part == bytes[range.start as usize..range.end as usize], "{size} {range:?}");
                }
            }
            ids.push(id);
        }
    }
    let all = [None, Some(&key)].map(sizes).concat();
    let large = all.iter().filter(|size| **size > PACKED_MAX).count();
    assert_eq!(remote.blobs().await.len(), large);
    assert_eq!(engine.stats().unwrap().remote.blobs, large as u64);
    assert_eq!(engine.stats().unwrap().files.blobs, 0);
    let seen = engine.scrub(None, |_| ()).await.unwrap();
    assert!(seen.damaged.is_empty() && seen.blobs == ids.len() as u64, "{seen:?}");
    until(async || files(folder.path()) == 0).await;
    assert!(!remote.uploads().await);

    // A sealed one lies there sealed.
    let text = vec![b'x'; 300_000];
    let written = prepare(&engine, &text.clone().into(), 70_000, Some(&key)).await.unwrap();
    let id: BlobId = engine.write(move |tx| tx.store(written)).await.unwrap();
    let name =
        remote.blobs().await.into_iter().find(|name| name.contains(&format!("/{:016x}-", id.0))).unwrap();
    assert!(!remote.bytes(&name).await.windows(32).any(|window| window == [b'x'; 32]));
    ids.push(id);

    let forgotten = prepare(&engine, &content(9, 9 << 20), 100_000, None).await.unwrap();
    drop(forgotten);
    let mut broken = engine.blob(None, None);
    broken.write(content(10, 20 << 20)).await.unwrap();
    drop(broken);
    let released: Result<(), EngineError> =
        engine.write(move |tx| ids.into_iter().try_for_each(|id| tx.release(id))).await;
    released.unwrap();
    until(async || remote.blobs().await.is_empty() && !remote.uploads().await).await;
    until(async || engine.stats().unwrap().remote == Alive::default()).await;
    engine.close().await;
    drop(engine);
    remote.stop().await;
}

#[tokio::test]
async fn blobs_in_a_store_of_ours() {
    round_trips(Remote::ours().await).await;
}

#[tokio::test]
async fn blobs_in_moto() {
    round_trips(Remote::moto().await).await;
}

#[tokio::test]
async fn what_is_read_stays_while_it_is_read() {
    use futures::TryStreamExt;
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path(), remote.gateway())).await;
    let bytes = content(1, 30 << 20);
    let id = put(&engine, "key", &bytes).await.unwrap();
    let mut reading = engine.fetch(id, 0..bytes.len() as u64, None).await.unwrap();
    let mut read = reading.try_next().await.unwrap().unwrap().to_vec();
    // The stamp of a delete in the same millisecond as the start of the reading counts as before it.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    delete(&engine, "key").await.unwrap();
    let checkpoints = engine.stats().unwrap().checkpoints;
    put(&engine, "other", &content(2, 10)).await.unwrap();
    until(async || engine.stats().unwrap().checkpoints > checkpoints).await;
    while let Some(piece) = reading.try_next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert!(read == bytes);
    drop(reading);
    until(async || remote.blobs().await.is_empty()).await;
    drop(engine);
    remote.stop().await;
}

async fn check(engine: &Engine, key: &str, seed: u64) {
    assert!(get(engine, key, 200_000).await.unwrap().unwrap() == content(seed, 200_000), "{key}");
}

#[tokio::test]
async fn a_store_may_change_where_its_blobs_go() {
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(crate::bed::config(folder.path())).await;
    put(&engine, "local", &content(1, 200_000)).await.unwrap();
    drop(engine);

    let engine = open(config(folder.path(), remote.gateway())).await;
    put(&engine, "remote", &content(2, 200_000)).await.unwrap();
    check(&engine, "local", 1).await;
    check(&engine, "remote", 2).await;
    engine.close().await;
    drop(engine);

    // Without the settings the blobs there cannot be read, so nothing is.
    let said = refusal(crate::bed::config(folder.path())).await;
    assert!(
        said.starts_with("1 blobs of this store lie in another store") && said.contains("write = false"),
        "{said}"
    );

    let mut gateway = remote.gateway();
    gateway.write = false;
    let engine = open(config(folder.path(), gateway)).await;
    put(&engine, "again", &content(3, 200_000)).await.unwrap();
    for (key, seed) in [("local", 1), ("remote", 2), ("again", 3)] {
        check(&engine, key, seed).await;
    }
    assert_eq!(remote.blobs().await.len(), 1);
    let stats = engine.stats().unwrap();
    assert_eq!((stats.files.blobs, stats.remote.blobs), (2, 1));
    delete(&engine, "remote").await.unwrap();
    until(async || remote.blobs().await.is_empty()).await;
    drop(engine);
    remote.stop().await;
}
