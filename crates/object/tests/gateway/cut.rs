//! The remote goes away and comes back.

use std::time::Duration;

use object::engine::EngineError;

use crate::bed::{content, delete, fetch, get, put};
use crate::proxy::{Proxy, Way};
use crate::remote::{Remote, config, gateway, open, until};

#[tokio::test]
async fn what_is_away_is_an_error_and_comes_back() {
    let remote = Remote::ours().await;
    let proxy = Proxy::start(&remote.endpoint).await;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path(), gateway(&proxy.endpoint))).await;
    let large = content(1, 12 << 20);
    let id = put(&engine, "large", &large).await.unwrap();
    put(&engine, "dead", &content(4, 1 << 20)).await.unwrap();
    engine.close().await;
    drop(engine);
    // Waits short enough for a test to see their end.
    let mut impatient = gateway(&proxy.endpoint);
    impatient.timeout = Duration::from_secs(3);
    let engine = open(config(folder.path(), impatient.clone())).await;
    for way in [Way::Cut, Way::Silent] {
        proxy.set(way);
        assert!(matches!(fetch(&engine, id, 0..10, None).await, Err(EngineError::Away(_))), "{way:?}");
        assert!(matches!(put(&engine, "lost", &large).await, Err(EngineError::Away(_))), "{way:?}");
        assert!(
            matches!(put(&engine, "lost", &content(2, 100_000)).await, Err(EngineError::Away(_))),
            "{way:?}"
        );
        // A scrubber does not take what it cannot reach for damaged.
        assert!(matches!(engine.scrub(None, |_| ()).await, Err(EngineError::Away(_))));
        assert!(engine.damaged().unwrap().is_empty());
    }
    // What does not need the remote goes on, and what waits for it is not forgotten.
    delete(&engine, "dead").await.unwrap();
    put(&engine, "small", &content(3, 1000)).await.unwrap();
    engine.close().await;
    drop(engine);
    // It opens without the remote, and nothing is put there before it answered.
    let engine = open(config(folder.path(), impatient)).await;
    let trouble = || engine.gateway().unwrap().trouble;
    assert!(trouble().unwrap().contains("cannot be listed"), "{:?}", trouble());
    assert!(get(&engine, "small", 1000).await.unwrap().unwrap() == content(3, 1000));
    assert!(matches!(put(&engine, "lost", &large).await, Err(EngineError::Away(_))));
    put(&engine, "also small", &content(5, 1000)).await.unwrap();

    proxy.set(Way::Open);
    until(async || put(&engine, "back", &content(6, 100_000)).await.is_ok()).await;
    assert_eq!(trouble(), None);
    delete(&engine, "back").await.unwrap();
    assert!(get(&engine, "large", 12 << 20).await.unwrap().unwrap() == large);
    assert!(get(&engine, "small", 1000).await.unwrap().unwrap() == content(3, 1000));
    assert!(get(&engine, "lost", 1).await.unwrap().is_none());
    until(async || remote.blobs().await.len() == 1 && !remote.uploads().await).await;
    drop(engine);
    remote.stop().await;
}

#[tokio::test]
async fn a_short_cut_is_not_seen() {
    let remote = Remote::ours().await;
    let proxy = Proxy::start(&remote.endpoint).await;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path(), gateway(&proxy.endpoint))).await;
    let large = content(1, 20 << 20);
    let id = put(&engine, "large", &large).await.unwrap();
    let cutting = async {
        for _ in 0..4 {
            proxy.set(Way::Cut);
            tokio::time::sleep(Duration::from_millis(30)).await;
            proxy.set(Way::Open);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let working = async {
        for seed in 2..6 {
            let bytes = content(seed, 9 << 20);
            put(&engine, "other", &bytes).await.unwrap();
            assert!(get(&engine, "other", 9 << 20).await.unwrap().unwrap() == bytes);
            assert!(fetch(&engine, id, 0..20 << 20, None).await.unwrap() == large);
        }
    };
    tokio::join!(cutting, working);
    drop(engine);
    remote.stop().await;
}
