//! Records: versions, names, checks, all or nothing.

use futures::future::join_all;
use serde_json::{Value, json};
use store::{BODY_BYTES_MAX, CommitError, JournalEntry, JournalQuery, Store, TXN_OPS_MAX, Txn};

use crate::place::Place;

fn mismatch(kind: &str, id: &str) -> CommitError {
    CommitError::VersionMismatch { kind: kind.into(), id: id.into() }
}

fn exists(kind: &str, id: &str) -> CommitError {
    CommitError::AlreadyExists { kind: kind.into(), id: id.into() }
}

fn missing(kind: &str, id: &str) -> CommitError {
    CommitError::Missing { kind: kind.into(), id: id.into() }
}

fn taken(kind: &str, tenant: Option<&str>, name: &str) -> CommitError {
    CommitError::NameTaken { kind: kind.into(), tenant: tenant.map(Into::into), name: name.into() }
}

async fn body(store: &Store, kind: &str, id: &str) -> Option<Value> {
    store.get(kind, id).await.unwrap().map(|record| record.body.value())
}

pub async fn writes_are_read(place: &Place) {
    let store = place.open().await;
    assert_eq!(store.load().await.unwrap(), (vec![], 0));
    let text = json!({ "text": "ü \u{0} \" ' ; 漢", "list": [1, 2.5, null] });
    let txn = Txn::new().insert("vm", "b", Some("acme"), Some("web"), text.clone()).put(
        "vm",
        "a",
        None,
        None,
        json!(1),
    );
    let committed = store.commit(txn).await.unwrap();
    assert_eq!((committed.seq, committed.versions), (2, vec![1, 2]));
    let committed =
        store.commit(Txn::new().update("vm", "b", 1, json!(2)).delete("vm", "x", None)).await.unwrap();
    assert_eq!((committed.seq, committed.versions), (3, vec![3, 0]));
    let committed = store.commit(Txn::new().check("vm", "b", Some(3)).check("vm", "x", None)).await.unwrap();
    assert_eq!((committed.seq, committed.versions), (3, vec![3, 0]));
    store.commit(Txn::new().put("other", "b", None, None, text.clone())).await.unwrap();

    let store = place.reopen(store).await;
    let record = store.get("vm", "b").await.unwrap().unwrap();
    assert_eq!(
        (record.tenant.as_deref(), record.name.as_deref(), record.version),
        (Some("acme"), Some("web"), 3)
    );
    assert_eq!(body(&store, "other", "b").await, Some(text));
    let ids: Vec<String> = store.list("vm").await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(ids, ["a", "b"]);
    let (records, seq) = store.load().await.unwrap();
    assert_eq!((records.len(), seq, store.head().await.unwrap()), (3, 4, 4));
    let (fewer, seq) = store.load_without(&["other", "none"]).await.unwrap();
    assert_eq!((fewer.as_slice(), seq), (&records[1..], 4));
    let many = ["t/a-1/2", "t/a/10", "t/a/9", "t/a%/1", "t/b/1"];
    let txn = many.iter().fold(Txn::new(), |txn, id| txn.insert("part", id, None, None, json!(0)));
    store.commit(txn).await.unwrap();
    let under: Vec<String> =
        store.list_under("part", "t/a/").await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(under, ["t/a/10", "t/a/9"]);
    assert!(store.list_under("vm", "t/").await.unwrap().is_empty());
    let page = async |after: &str, most| {
        let page = store.page_under("part", "t/a", after, most).await.unwrap();
        page.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    assert_eq!(page("", 2).await, ["t/a%/1", "t/a-1/2"]);
    assert_eq!(page("t/a-1/2", 2).await, ["t/a/10", "t/a/9"]);
    assert_eq!(page("t/a/9", 2).await, [""; 0]);
    store.commit(Txn::new().delete("vm", "b", Some(3))).await.unwrap();
    assert_eq!(body(&store, "vm", "b").await, None);
    store.close().await;
}

pub async fn errors_say_why(place: &Place) {
    let store = place.open().await;
    store.commit(Txn::new().insert("k", "a", None, Some("n"), json!(1))).await.unwrap();
    for (txn, expected) in [
        (Txn::new().insert("k", "a", None, None, json!(2)), exists("k", "a")),
        (Txn::new().insert("k", "b", None, Some("n"), json!(2)), taken("k", None, "n")),
        (Txn::new().put("k", "b", None, Some("n"), json!(2)), taken("k", None, "n")),
        (Txn::new().update("k", "a", 7, json!(2)), mismatch("k", "a")),
        (Txn::new().update("k", "b", 1, json!(2)), missing("k", "b")),
        (Txn::new().delete("k", "a", Some(7)), mismatch("k", "a")),
        (Txn::new().delete("k", "b", Some(1)), missing("k", "b")),
        (Txn::new().check("k", "a", Some(7)), mismatch("k", "a")),
        (Txn::new().check("k", "b", Some(1)), missing("k", "b")),
        (Txn::new().check("k", "a", None), exists("k", "a")),
    ] {
        assert_eq!(store.commit(txn).await, Err(expected));
    }
    assert_eq!(store.head().await.unwrap(), 1);
    store.close().await;
}

pub async fn versions_never_return(place: &Place) {
    let store = place.open().await;
    let stale = store.commit(Txn::new().insert("k", "a", None, None, json!(1))).await.unwrap().versions[0];
    store.commit(Txn::new().delete("k", "a", None)).await.unwrap();
    store.commit(Txn::new().insert("k", "a", None, None, json!(2))).await.unwrap();
    assert_eq!(store.commit(Txn::new().update("k", "a", stale, json!(3))).await, Err(mismatch("k", "a")));
    store.close().await;
}

pub async fn updates_are_not_lost(place: &Place) {
    const WRITERS: u64 = 16;
    const STEPS: u64 = 15;
    let store = place.open().await;
    store.commit(Txn::new().insert("k", "sum", None, None, json!(0))).await.unwrap();
    join_all((0..WRITERS).map(|_| tokio::spawn(increment(store.clone(), STEPS))))
        .await
        .into_iter()
        .for_each(Result::unwrap);
    let store = place.reopen(store).await;
    assert_eq!(body(&store, "k", "sum").await, Some(json!(WRITERS * STEPS)));
    store.close().await;
}

async fn increment(store: Store, steps: u64) {
    for _ in 0..steps {
        loop {
            let record = store.get("k", "sum").await.unwrap().unwrap();
            let next = json!(record.body.value().as_u64().unwrap() + 1);
            match store.commit(Txn::new().update("k", "sum", record.version, next)).await {
                Ok(_) => break,
                Err(error) => assert_eq!(error, mismatch("k", "sum")),
            }
        }
    }
}

pub async fn names_are_unique(place: &Place) {
    let store = place.open().await;
    let insert = |kind: &str, id: &str, tenant, name| Txn::new().insert(kind, id, tenant, name, json!(0));
    for free in [
        insert("k", "1", Some("a"), Some("n")),
        insert("k", "2", Some("b"), Some("n")),
        insert("k", "3", None, Some("n")),
        insert("l", "1", Some("a"), Some("n")),
        insert("k", "4", Some("a"), None),
        insert("k", "5", Some("a"), None),
    ] {
        store.commit(free).await.unwrap();
    }
    assert_eq!(store.commit(insert("k", "6", Some("a"), Some("n"))).await, Err(taken("k", Some("a"), "n")));
    assert_eq!(store.commit(insert("k", "6", None, Some("n"))).await, Err(taken("k", None, "n")));
    // Renaming and deleting both free a name, also for the same transaction.
    let rename = Txn::new().put("k", "1", Some("a"), Some("m"), json!(1)).insert(
        "k",
        "6",
        Some("a"),
        Some("n"),
        json!(2),
    );
    store.commit(rename).await.unwrap();
    let replace = Txn::new().delete("k", "6", None).insert("k", "7", Some("a"), Some("n"), json!(3));
    store.commit(replace).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(store.commit(insert("k", "8", Some("a"), Some("m"))).await, Err(taken("k", Some("a"), "m")));
    assert_eq!(store.commit(insert("k", "8", Some("a"), Some("n"))).await, Err(taken("k", Some("a"), "n")));
    store.close().await;
}

pub async fn names_have_one_winner(place: &Place) {
    let store = place.open().await;
    for name in ["x", "y", "z"] {
        let tries = (0..24).map(|id| {
            let txn = Txn::new().insert("k", format!("{name}{id}"), Some("t"), Some(name), json!(id));
            let store = store.clone();
            tokio::spawn(async move { store.commit(txn).await })
        });
        let results: Vec<_> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        let lost = taken("k", Some("t"), name);
        assert!(results.into_iter().filter_map(Result::err).all(|error| error == lost));
    }
    assert_eq!(store.list("k").await.unwrap().len(), 3);
    store.close().await;
}

/// The names of a batch are written in an order that must never clash on the way.
pub async fn names_move_within_a_batch(place: &Place) {
    let store = place.open().await;
    let start =
        (0..8).fold(Txn::new(), |txn, id| txn.insert("k", id, None, Some(&format!("n{id}")), json!(0)));
    store.commit(start).await.unwrap();
    for round in 0..4 {
        // Everyone takes the next one's name: through an empty name, as one transaction.
        let free = (0..8).fold(Txn::new(), |txn, id| txn.put("k", id, None, None, json!(round)));
        let shift = (0..8).fold(free, |txn, id| {
            txn.put("k", id, None, Some(&format!("n{}", (id + round + 1) % 8)), json!(round))
        });
        // And at the same time others try to get in between.
        let others = (0..8).map(|id| {
            store.commit(Txn::new().insert(
                "k",
                format!("o{round}{id}"),
                None,
                Some(&format!("n{id}")),
                json!(0),
            ))
        });
        let (shifted, others) = tokio::join!(store.commit(shift), join_all(others));
        shifted.unwrap();
        assert!(others.iter().all(Result::is_err), "{others:?}");
    }
    let names: Vec<_> =
        store.list("k").await.unwrap().into_iter().map(|record| record.name.unwrap()).collect();
    assert_eq!(names, ["n4", "n5", "n6", "n7", "n0", "n1", "n2", "n3"]);
    store.close().await;
}

pub async fn transactions_are_whole(place: &Place) {
    let store = place.open().await;
    store.commit(Txn::new().insert("k", "fixed", None, None, json!(0))).await.unwrap();
    let entry = |subject: &str| JournalEntry {
        at_us: 1,
        tenant: None,
        subject: subject.into(),
        body: json!({}).into(),
    };
    let tries = (0..40).map(|number| {
        let good = number % 2 == 0;
        let txn = Txn::new()
            .insert("k", format!("{number}a"), None, Some(&format!("{number}")), json!(number))
            .put("k", format!("{number}b"), None, None, json!(number))
            .journal(entry(&format!("{number}")))
            .check("k", "fixed", Some(if good { 1 } else { 99 }));
        let store = store.clone();
        tokio::spawn(async move { (number, store.commit(txn).await) })
    });
    let mut seqs = Vec::new();
    for result in join_all(tries).await {
        let (number, result) = result.unwrap();
        match result {
            Ok(committed) => {
                assert_eq!(number % 2, 0);
                assert_eq!(committed.versions[..2], [committed.seq - 1, committed.seq], "contiguous");
                seqs.push(committed.seq);
            }
            Err(error) => assert_eq!((number % 2, error), (1, mismatch("k", "fixed"))),
        }
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=20).map(|place| 1 + 2 * place).collect::<Vec<_>>());
    let store = place.reopen(store).await;
    let numbers: Vec<u64> =
        store.list("k").await.unwrap().iter().map(|record| record.body.value().as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), 41);
    assert!(numbers.iter().all(|number| number % 2 == 0));
    let rows = store.journal(JournalQuery::default()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=20).rev().collect::<Vec<_>>());
    store.close().await;
}

pub async fn limits_hold(place: &Place) {
    let store = place.open().await;
    let long = "x".repeat(BODY_BYTES_MAX);
    let large = store.commit(Txn::new().put("k", "a", None, None, json!(long))).await;
    assert!(matches!(large, Err(CommitError::TooLarge(_))));
    let many = (0..=TXN_OPS_MAX).fold(Txn::new(), |txn, id| txn.put("k", id, None, None, json!(0)));
    assert!(matches!(store.commit(many).await, Err(CommitError::TooLarge(_))));
    for wrong in [
        Txn::new().put("k", "a\0", None, None, json!(0)),
        Txn::new().put("", "a", None, None, json!(0)),
        Txn::new().put("k", "a", Some(""), None, json!(0)),
        Txn::new().put("k", "a", None, Some(&"n".repeat(1000)), json!(0)),
    ] {
        assert!(matches!(store.commit(wrong).await, Err(CommitError::Invalid(_))));
    }
    let most = (0..TXN_OPS_MAX).fold(Txn::new(), |txn, id| txn.put("k", id, None, None, json!(0)));
    assert_eq!(store.commit(most).await.unwrap().seq, TXN_OPS_MAX as i64);
    store.close().await;
}
