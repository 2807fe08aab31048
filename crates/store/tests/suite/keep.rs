//! History and counters.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use store::{JournalEntry, JournalQuery, Options, Store, Txn};

use crate::place::Place;

fn entry(number: i64) -> JournalEntry {
    let tenant = (number % 3 != 0).then(|| format!("t{}", number % 3));
    JournalEntry {
        at_us: number * 1000,
        tenant,
        subject: format!("s{}", number % 2),
        body: json!({ "number": number }).into(),
    }
}

async fn seqs(store: &Store, query: JournalQuery) -> Vec<i64> {
    store.journal(query).await.unwrap().into_iter().map(|row| row.seq).collect()
}

pub async fn journal_is_filtered_and_paged(place: &Place) {
    let store = place.open().await;
    for number in 1..=12 {
        let committed = store.commit(Txn::new().journal(entry(number))).await.unwrap();
        assert_eq!((committed.seq, committed.versions), (0, vec![number]));
    }
    let store = place.reopen(store).await;
    let all = JournalQuery::default();
    assert_eq!(seqs(&store, all.clone()).await, (1..=12).rev().collect::<Vec<_>>());
    let tenant = JournalQuery { tenant: Some("t1".into()), ..all.clone() };
    assert_eq!(seqs(&store, tenant.clone()).await, [10, 7, 4, 1]);
    assert_eq!(seqs(&store, JournalQuery { subject: Some("s0".into()), ..tenant.clone() }).await, [10, 4]);
    assert_eq!(seqs(&store, JournalQuery { before_seq: Some(7), limit: 1, ..tenant }).await, [4]);
    assert_eq!(seqs(&store, JournalQuery { after_seq: Some(10), ..all.clone() }).await, [12, 11]);
    let row = store.journal(JournalQuery { before_seq: Some(4), limit: 1, ..all }).await.unwrap().remove(0);
    let JournalEntry { at_us, tenant, subject, body } = entry(3);
    assert_eq!((row.at_us, row.tenant, row.subject, row.body), (at_us, tenant, subject, body));
    store.close().await;
}

pub async fn journal_is_bounded(place: &Place) {
    let store = place.open_with(Options { journal_kept: 40, ..Options::default() }).await;
    for part in 0..20 {
        let txn = (1..=10).fold(Txn::new(), |txn, number| txn.journal(entry(part * 10 + number)));
        store.commit(txn).await.unwrap();
        let rows = seqs(&store, JournalQuery::default()).await;
        let newest = (part + 1) * 10;
        // The newest are always there; what is above the bound goes soon after.
        let kept = newest.min(40) as usize;
        assert_eq!(rows[..kept], (1..=newest).rev().take(kept).collect::<Vec<_>>());
        assert!(rows.len() <= 40 + 5, "{} rows", rows.len());
    }
    store.close().await;
}

pub async fn counters_never_repeat(place: &Place) {
    let store = place.open().await;
    let values = join_all((0..30).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.counter_next("port").await.unwrap() })
    }));
    let values: BTreeSet<u64> = values.await.into_iter().map(Result::unwrap).collect();
    assert_eq!(values, (1..=30).collect());
    let store = place.reopen(store).await;
    assert_eq!(store.counter_next("port").await, Ok(31));
    assert_eq!(store.counter_next("other").await, Ok(1));
    assert!(store.counter_next("").await.is_err());
    store.close().await;
}
