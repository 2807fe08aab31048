//! Random transactions: each engine answers and ends exactly as the memory engine does.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use store::{JournalEntry, JournalQuery, Op, Store, Txn};

use crate::place::Place;

const TRANSACTIONS: usize = 400;

/// Few keys and names, so that most transactions meet one another.
fn op(random: &mut StdRng, head: i64) -> Op {
    let kind = ["k", "l"][random.random_range(0..2)].to_owned();
    let id = random.random_range(0..6).to_string();
    let tenant = [None, Some("t".to_owned())][random.random_range(0..2)].clone();
    let name = random.random_bool(0.7).then(|| format!("n{}", random.random_range(0..5)));
    let version = random.random_range((head - 12).max(0)..=head);
    let body = json!(random.random::<u32>()).into();
    match random.random_range(0..10) {
        0..=1 => Op::Insert { kind, id, tenant, name, body },
        2..=4 => Op::Put { kind, id, tenant, name, body },
        5 => Op::Update { kind, id, expect_version: version, body },
        6..=7 => Op::Delete { kind, id, expect_version: random.random_bool(0.2).then_some(version) },
        8 => Op::Check { kind, id, expect_version: random.random_bool(0.5).then_some(version) },
        _ => Op::Journal(JournalEntry { at_us: 1, tenant, subject: id, body }),
    }
}

pub async fn behaves_as_memory(place: &Place) {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (store, model) = (place.open().await, Store::memory());
    let mut applied = 0;
    for _ in 0..TRANSACTIONS / 8 {
        let head = model.head().await.unwrap();
        let mut txns = Vec::new();
        for _ in 0..8 {
            let mut txn = Txn::new();
            for _ in 0..random.random_range(1..5) {
                txn.push(op(&mut random, head));
            }
            txns.push(txn);
        }
        // Queued in order and without a pause, so that they share a batch.
        let answers = futures::future::join_all(txns.iter().map(|txn| store.commit(txn.clone()))).await;
        for (txn, answer) in txns.into_iter().zip(answers) {
            applied += usize::from(answer.is_ok());
            assert_eq!(answer, model.commit(txn).await);
        }
    }
    assert!((50..TRANSACTIONS - 50).contains(&applied), "{applied} applied: too easy or too hard");
    assert_eq!(store.load().await.unwrap(), model.load().await.unwrap());
    let all = JournalQuery::default();
    assert_eq!(store.journal(all.clone()).await.unwrap(), model.journal(all).await.unwrap());
    store.close().await;
}
