//! The change feed: every change once, in order, from any point that is kept.

use std::collections::BTreeMap;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use store::{Change, Options, Record, Store, StoreError, Txn, Watch};

use crate::place::Place;

type Replica = BTreeMap<(String, String), Record>;

fn apply(replica: &mut Replica, change: Change) {
    assert_eq!(change.version, change.seq);
    match change.record {
        Some(record) => {
            assert_eq!((&record.kind, &record.id, record.version), (&change.kind, &change.id, change.seq));
            replica.insert((change.kind, change.id), record)
        }
        None => replica.remove(&(change.kind, change.id)),
    };
}

/// Follows a watch up to `end`, checking that nothing is missing or repeated.
async fn follow(mut watch: Watch, mut replica: Replica, end: i64) -> Replica {
    let mut seq = watch.seq();
    while seq < end {
        for change in watch.next_batch().await.unwrap() {
            assert_eq!(change.seq, seq + 1, "the feed has a gap or a repetition");
            seq = change.seq;
            apply(&mut replica, change);
        }
        assert_eq!(watch.seq(), seq);
    }
    replica
}

fn replica_of(records: Vec<Record>) -> Replica {
    records.into_iter().map(|record| ((record.kind.clone(), record.id.clone()), record)).collect()
}

/// Two changes per transaction.
async fn write(store: Store, writer: u64, transactions: u64) {
    for number in 0..transactions {
        let other = format!("{writer}-{}", number / 2);
        let txn = Txn::new().put("k", format!("{writer}-{number}"), None, None, json!({ "number": number }));
        let txn = if number % 2 == 1 {
            txn.delete("k", other, None).put("l", writer, None, None, json!(number))
        } else {
            txn
        };
        store.commit(txn).await.unwrap();
    }
}

pub async fn order_under_concurrency(place: &Place) {
    let store = place.open().await;
    let early = tokio::spawn(follow(store.watch(0).await.unwrap(), Replica::new(), 200));
    let writers = join_all((0..8).map(|writer| tokio::spawn(write(store.clone(), writer, 40))));
    let middle = async {
        let (records, seq) = store.load().await.unwrap();
        (replica_of(records), store.watch(seq).await.unwrap())
    };
    let (writers, (snapshot, watch)) = tokio::join!(writers, middle);
    writers.into_iter().for_each(Result::unwrap);
    let (records, end) = store.load().await.unwrap();
    let expected = replica_of(records);
    assert!(end > 300);
    assert_eq!(follow(watch, snapshot, end).await, expected);
    assert_eq!(follow(store.watch(0).await.unwrap(), Replica::new(), end).await, expected);
    early.await.unwrap();
    store.close().await;
}

pub async fn goes_on_after_reopen(place: &Place) {
    let store = place.open().await;
    write(store.clone(), 1, 30).await;
    let middle = store.head().await.unwrap() / 2;
    let half = follow(store.watch(0).await.unwrap(), Replica::new(), middle).await;
    let mut seen = 0;
    for record in half.values() {
        seen = seen.max(record.version);
    }
    let store = place.reopen(store).await;
    let head = store.head().await.unwrap();
    let live = tokio::spawn(follow(
        store.watch(head).await.unwrap(),
        replica_of(store.load().await.unwrap().0),
        head + 20,
    ));
    write(store.clone(), 2, 30).await;
    let (records, end) = store.load().await.unwrap();
    let replayed = follow(store.watch(0).await.unwrap(), Replica::new(), end).await;
    assert_eq!(replayed, replica_of(records));
    assert!(seen > 0);
    live.await.unwrap();

    let stream = store.watch(end - 3).await.unwrap().into_stream();
    let last: Vec<Change> = stream.take(3).try_collect().await.unwrap();
    assert_eq!(last.iter().map(|change| change.seq).collect::<Vec<_>>(), [end - 2, end - 1, end]);
    store.close().await;
}

pub async fn lapses_clearly(place: &Place) {
    let store = place.open_with(Options { changes_kept: 32, ..Options::default() }).await;
    let ahead = store.watch(1).await.map(|_| ());
    assert_eq!(ahead, Err(StoreError::Ahead { since: 1, head: 0 }));
    let mut slow = store.watch(0).await.unwrap();
    // More than a database engine also keeps in memory, so that the slow one has really lapsed.
    for part in 0..5_i64 {
        let txn = (0..1000).fold(Txn::new(), |txn, id| txn.put("k", id, None, None, json!(part)));
        store.commit(txn).await.unwrap();
    }
    let head = store.head().await.unwrap();
    assert!(matches!(store.watch(0).await.map(|_| ()), Err(StoreError::Lapsed { since: 0, .. })));
    let lapsed = loop {
        if let Err(error) = slow.next_batch().await {
            break error;
        }
    };
    assert!(matches!(lapsed, StoreError::Lapsed { .. }), "{lapsed:?}");
    let kept = follow(store.watch(head - 32).await.unwrap(), Replica::new(), head).await;
    assert_eq!(kept.len(), 32);
    store.close().await;
}

/// Two records that are always written together are never seen apart.
pub async fn load_is_one_moment(place: &Place) {
    let store = place.open().await;
    let pair = |number: u64| {
        Txn::new().put("k", "a", None, None, json!(number)).put("k", "b", None, None, json!(number))
    };
    store.commit(pair(0)).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 1..100 {
                store.commit(pair(number)).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let (records, seq) = store.load().await.unwrap();
        assert_eq!(records[0].body, records[1].body);
        assert_eq!((records[0].version, records[1].version), (seq - 1, seq));
    }
    writer.await.unwrap();
    store.close().await;
}

pub async fn ends_with_the_store(place: &Place) {
    let store = place.open().await;
    let mut watch = store.watch(0).await.unwrap();
    let other = store.clone();
    other.commit(Txn::new().put("k", "a", None, None, json!(0))).await.unwrap();
    assert_eq!(watch.next_batch().await.unwrap().len(), 1);
    store.close().await;
    if !place.is_memory() {
        assert_eq!(watch.next_batch().await, Err(StoreError::Closed));
        let refused = other.commit(Txn::new().put("k", "a", None, None, json!(0))).await;
        assert!(matches!(refused, Err(store::CommitError::Unavailable(_))));
        assert_eq!(other.get("k", "a").await, Err(StoreError::Closed));
    }
}
