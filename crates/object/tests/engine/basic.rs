//! Storing, reading, undoing, opening again.

use object::engine::{BlobId, CHUNK, EngineError, PACKED_MAX, SealKey};

use crate::bed::{config, content, delete, fetch, get, open, prepare, put, still};

const SIZES: [usize; 10] = [
    0,
    1,
    4096,
    PACKED_MAX - 1,
    PACKED_MAX,
    PACKED_MAX + 1,
    2 * CHUNK,
    3 * CHUNK - 7,
    (1 << 20) + 1,
    5 * (1 << 20),
];

#[tokio::test]
async fn blobs_come_back_whole_and_in_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let key = SealKey([7; 32].into());
    for seal in [None, Some(&key)] {
        for size in SIZES {
            let bytes = content(size as u64 + 1, size);
            let written = prepare(&engine, &bytes, 70_000, seal).await.unwrap();
            assert_eq!(written.size(), size as u64);
            let id: BlobId = engine.write(move |tx| tx.store(written)).await.unwrap();
            let size = size as u64;
            let chunk = CHUNK as u64;
            for range in
                [0..size, 0..1, size / 2..size, chunk - 1..chunk + 1, chunk..2 * chunk, 5..chunk * 2 + 3]
            {
                if range.end <= size && range.start <= range.end {
                    let part = fetch(&engine, id, range.clone(), seal).await.unwrap();
                    assert!(part == bytes[range.start as usize..range.end as usize], "{size} {range:?}");
                }
            }
            assert!(fetch(&engine, id, 0..size + 1, seal).await.is_err());
            if seal.is_some() && size > 0 {
                let other = SealKey([8; 32].into());
                assert!(matches!(
                    fetch(&engine, id, 0..size, Some(&other)).await,
                    Err(EngineError::Damaged(_))
                ));
                assert!(fetch(&engine, id, 0..size, None).await.is_err());
            }
        }
    }
}

#[tokio::test]
async fn an_error_undoes_one_change_alone() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let bytes = content(1, 1000);
    let id = put(&engine, "a", &bytes).await.unwrap();
    let written = prepare(&engine, &bytes, 1000, None).await.unwrap();
    let failed: Result<(), EngineError> = engine
        .write(move |tx| {
            tx.put(b"b".to_vec(), b"1".to_vec());
            tx.store(written)?;
            tx.release(id)?;
            tx.delete(b"a".to_vec());
            assert!(tx.get(b"a")?.is_none());
            Err(EngineError::Stopped)
        })
        .await;
    assert!(failed.is_err());
    let panicked: Result<(), EngineError> = engine.write(|_| panic!("on purpose")).await;
    assert!(panicked.is_err());
    assert_eq!(get(&engine, "a", 1000).await.unwrap().unwrap(), bytes);
    assert!(engine.read().unwrap().get(b"b").unwrap().is_none());
    let later = put(&engine, "c", &content(2, 500)).await.unwrap();
    assert_eq!(fetch(&engine, later, 0..500, None).await.unwrap(), content(2, 500));
}

#[tokio::test]
async fn what_was_written_is_there_after_a_drop_without_close() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3_u64 {
        let engine = open(if round == 1 { config(folder.path()) } else { still(folder.path()) });
        for old in 0..round * 20 {
            let expected = (old % 5 != 0).then(|| content(old, 100 + 9000 * (old as usize % 10)));
            let size = expected.as_ref().map_or(0, |bytes| bytes.len() as u64);
            assert!(
                get(&engine, &format!("k{old}"), size).await.unwrap() == expected.map(|bytes| bytes.to_vec())
            );
        }
        for number in round * 20..round * 20 + 20 {
            let bytes = content(number, 100 + 9000 * (number as usize % 10));
            put(&engine, &format!("k{number}"), &bytes).await.unwrap();
            if number % 5 == 0 {
                delete(&engine, &format!("k{number}")).await.unwrap();
            }
        }
        if round == 1 {
            engine.close().await;
            assert!(put(&engine, "late", &content(1, 1)).await.is_err());
        }
    }
}

#[tokio::test]
async fn holders_are_counted_and_the_last_one_frees() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    for size in [1000, 200_000_u64] {
        let id = put(&engine, "a", &content(3, size as usize)).await.unwrap();
        engine.write(move |tx| tx.hold(id)).await.unwrap();
        delete(&engine, "a").await.unwrap();
        assert_eq!(fetch(&engine, id, 0..size, None).await.unwrap(), content(3, size as usize));
        engine.write(move |tx| tx.release(id)).await.unwrap();
        let again: Result<(), EngineError> = engine.write(move |tx| tx.release(id)).await;
        assert!(matches!(again, Err(EngineError::Missing(_))));
        while fetch(&engine, id, 0..size, None).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    assert_eq!(crate::bed::files(folder.path()), 0);
}

#[tokio::test]
async fn bytes_without_a_name_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let bytes = content(3, 3_000_000);
    drop(prepare(&engine, &bytes, 1 << 16, None).await.unwrap());
    let mut writer = engine.blob(Some(3_000_000), None);
    writer.write(bytes.clone()).await.unwrap();
    drop(writer);
    let written = prepare(&engine, &bytes, 1 << 16, None).await.unwrap();
    let failed: Result<(), EngineError> = engine
        .write(move |tx| {
            tx.store(written)?;
            Err(EngineError::Stopped)
        })
        .await;
    assert!(failed.is_err());
    while crate::bed::files(folder.path()) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
