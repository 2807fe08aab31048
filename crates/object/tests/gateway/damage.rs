//! Wrong bytes there are found, and not served.

use object::engine::EngineError;

use crate::bed::{content, fetch, put};
use crate::remote::{BUCKET, Remote, config, open, until};

#[tokio::test]
async fn wrong_bytes_there_are_found() {
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path(), remote.gateway())).await;
    let size = 3_000_000;
    let mut ids = Vec::new();
    for seed in 0..5 {
        ids.push(put(&engine, &format!("key{seed}"), &content(seed, size)).await.unwrap());
    }
    let [flipped, short, cut, gone, sound] = ids[..] else { panic!("five") };
    let names = remote.blobs().await;
    let name = |id: object::engine::BlobId| {
        names.iter().find(|name| name.contains(&format!("/{:016x}-", id.0))).unwrap()
    };
    let whole = remote.bytes(name(flipped)).await;
    let mut wrong = whole.clone();
    wrong[2_000_000] ^= 1;
    remote.put(name(flipped), wrong).await;
    remote.put(name(short), remote.bytes(name(short)).await[..1_000_000].to_vec()).await;
    remote.put(name(cut), b"x".to_vec()).await;
    remote.client.delete(BUCKET, name(gone), None).await.unwrap();

    let all = 0..size as u64;
    for id in [flipped, short, cut] {
        let read = fetch(&engine, id, all.clone(), None).await;
        assert!(
            matches!(&read, Err(EngineError::Damaged(found)) if *found == id),
            "{id:?}: {:?}",
            read.err()
        );
    }
    assert!(matches!(fetch(&engine, gone, all.clone(), None).await, Err(EngineError::Missing(_))));
    assert!(fetch(&engine, sound, all.clone(), None).await.unwrap() == content(4, size));
    // What of it is sound is still given.
    assert!(fetch(&engine, flipped, 0..100_000, None).await.unwrap() == content(0, size)[..100_000]);
    until(async || engine.damaged().unwrap() == [flipped, short, cut]).await;
    let seen = engine.scrub(None, |_| ()).await.unwrap();
    assert_eq!(seen.damaged, [flipped, short, cut, gone]);
    assert_eq!(engine.stats().unwrap().damaged, 4);
    // Repaired there, it is sound again.
    remote.put(name(flipped), whole).await;
    assert_eq!(engine.scrub(None, |_| ()).await.unwrap().damaged, [short, cut, gone]);
    assert!(fetch(&engine, flipped, all, None).await.unwrap() == content(0, size));
    drop(engine);
    remote.stop().await;
}
