//! What goes on in the background: compaction, orphans, pins, statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object::engine::{BlobId, Engine, EngineConfig, EngineError, Tx};

use crate::bed::{config, content, delete, fetch, files, get, open, prepare, put, still};

async fn rest() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

fn segments(engine: &Engine) -> u64 {
    engine.stats().unwrap().segments
}

#[tokio::test]
async fn compaction_gives_back_room_and_keeps_content() {
    let folder = tempfile::tempdir().unwrap();
    let small = EngineConfig { segment: 256 << 10, ..config(folder.path()) };
    let engine = open(small.clone());
    for number in 0..400 {
        put(&engine, &format!("k{number}"), &content(number, 8000)).await.unwrap();
    }
    let before = engine.stats().unwrap();
    assert!(before.segments > 8, "{before:?}");
    assert_eq!((before.packed.blobs, before.packed.bytes), (400, 400 * 8000));
    for number in (0..400).filter(|number| number % 8 != 0) {
        delete(&engine, &format!("k{number}")).await.unwrap();
    }
    while segments(&engine) > 4 || engine.stats().unwrap().packed.blobs > 50 {
        rest().await;
    }
    let check = async |engine: &Engine| {
        for number in (0..400).step_by(8) {
            let bytes = get(engine, &format!("k{number}"), 8000).await.unwrap().unwrap();
            assert!(bytes == content(number, 8000), "{number}");
        }
        let stats = engine.stats().unwrap();
        assert_eq!((stats.packed.blobs, stats.packed.bytes), (50, 50 * 8000));
    };
    check(&engine).await;
    drop(engine);
    check(&open(small)).await;
}

#[tokio::test]
async fn segments_go_when_nothing_is_alive_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(EngineConfig { segment: 64 << 10, ..config(folder.path()) });
    for number in 0..100 {
        put(&engine, "same", &content(number, 8000)).await.unwrap();
    }
    while segments(&engine) > 2 {
        rest().await;
    }
    assert_eq!(get(&engine, "same", 8000).await.unwrap().unwrap(), content(99, 8000));
}

#[tokio::test]
async fn files_that_no_record_names_go_when_the_engine_opens() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let bytes = content(5, 300_000);
    put(&engine, "named", &bytes).await.unwrap();
    // Two uploads that never end, one of them older than the last checkpoint.
    std::mem::forget(prepare(&engine, &bytes, 300_000, None).await.unwrap());
    let checkpoints = engine.stats().unwrap().checkpoints;
    put(&engine, "other", &content(1, 10)).await.unwrap();
    while engine.stats().unwrap().checkpoints == checkpoints {
        rest().await;
    }
    put(&engine, "later", &bytes).await.unwrap();
    std::mem::forget(prepare(&engine, &bytes, 300_000, None).await.unwrap());
    assert_eq!(files(folder.path()), 4);
    drop(engine);
    let engine = open(still(folder.path()));
    assert_eq!(files(folder.path()), 2);
    for key in ["named", "later"] {
        assert!(get(&engine, key, 300_000).await.unwrap().unwrap() == bytes);
    }
}

#[tokio::test]
async fn a_pin_keeps_what_is_let_go_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let id = put(&engine, "a", &content(3, 200_000)).await.unwrap();
    let early = put(&engine, "b", &content(4, 100)).await.unwrap();
    let pin = engine.pin();
    delete(&engine, "a").await.unwrap();
    let checkpoints = engine.stats().unwrap().checkpoints;
    while engine.stats().unwrap().checkpoints < checkpoints + 3 {
        put(&engine, "b", &content(4, 100)).await.unwrap();
        rest().await;
    }
    assert_eq!(fetch(&engine, id, 0..200_000, None).await.unwrap(), content(3, 200_000));
    assert_eq!(fetch(&engine, early, 0..100, None).await.unwrap(), content(4, 100));
    drop(pin);
    while fetch(&engine, id, 0..1, None).await.is_ok() {
        rest().await;
    }
}

#[tokio::test]
async fn only_one_engine_opens_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    assert!(Engine::open(config(folder.path())).is_err());
    drop(engine);
    open(config(folder.path()));
}

#[tokio::test]
async fn the_clock_never_goes_back_and_counters_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = (0, 0);
    for _ in 0..3 {
        let engine = open(still(folder.path()));
        for _ in 0..5 {
            let now: Result<_, object::engine::EngineError> =
                engine.write(|tx| Ok((tx.now(), tx.next("things")?))).await;
            let now = now.unwrap();
            assert!(now.0 >= last.0 && now.1 == last.1 + 1, "{now:?} after {last:?}");
            last = now;
        }
    }
}

/// The keeper forgets dead blobs by changes like everyone's, and the writer waits for the keeper when much has changed.
#[tokio::test(flavor = "multi_thread")]
async fn many_changes_go_on_while_dead_blobs_are_buried() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let ends = Arc::new(AtomicBool::new(false));
    let dying = {
        let (engine, ends) = (engine.clone(), ends.clone());
        tokio::spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                let mut written = Vec::new();
                for seed in 0..300 {
                    written.push(prepare(&engine, &content(seed, 10), 10, None).await?);
                }
                let store =
                    move |tx: &mut Tx<'_>| written.into_iter().map(|written| tx.store(written)).collect();
                let ids: Vec<BlobId> = engine.write(store).await?;
                engine
                    .write(move |tx: &mut Tx<'_>| ids.into_iter().try_for_each(|id| tx.release(id)))
                    .await?;
            }
            Ok::<_, EngineError>(())
        })
    };
    let changing: Vec<_> = (0..3)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for round in 0..6u8 {
                    let change = move |tx: &mut Tx<'_>| {
                        for number in 0..30_000 {
                            tx.put(format!("f{task}/{number}").into_bytes(), vec![round]);
                        }
                        Ok::<_, EngineError>(())
                    };
                    engine.write(change).await?;
                }
                Ok::<_, EngineError>(())
            })
        })
        .collect();
    for task in changing {
        task.await.unwrap().unwrap();
    }
    ends.store(true, Ordering::Relaxed);
    dying.await.unwrap().unwrap();
    for task in 0..3 {
        assert_eq!(engine.read().unwrap().get(format!("f{task}/29999").as_bytes()).unwrap(), Some(vec![5]));
    }
}
