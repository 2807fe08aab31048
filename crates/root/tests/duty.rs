//! Two root servers on one store: who holds what when one of them is frozen, wakes up, or leaves.
#![allow(clippy::unwrap_used)]

use model::ErrorKind;
use root::State;
use root::duty::{BEAT, Duties, TREE};
use serde_json::json;
use store::{Store, Txn};
use tokio::task::JoinHandle;

async fn server(store: &Store, name: &str) -> (State, Duties) {
    let state = State::open(store.clone()).await.unwrap();
    let duties = Duties::shared(state.clone());
    let url = |scheme: &str| format!("{scheme}://{name}");
    duties.join(url("https"), url("http"), name.to_owned(), Vec::new()).await.unwrap();
    (state, duties)
}

fn beat(duties: &Duties) -> JoinHandle<()> {
    let duties = duties.clone();
    tokio::spawn(async move { duties.run().await })
}

fn write() -> Txn {
    Txn::new().put("k", "a", None, None, json!(1))
}

async fn term(store: &Store) -> u64 {
    store.get("duty", TREE).await.unwrap().unwrap().body.value()["term"].as_u64().unwrap()
}

#[tokio::test]
async fn a_holder_that_slept_through_a_take_over_cannot_write() {
    let store = Store::memory();
    let (first_state, first) = server(&store, "one").await;
    let fence = first.wait_held(TREE).await;
    first_state.commit(fence.guard(write())).await.unwrap();
    let (_, second) = server(&store, "two").await;
    let (beats, _others) = (beat(&first), beat(&second));
    tokio::time::sleep(BEAT * 6).await;
    assert_eq!(first.held(TREE), Some(fence.clone()), "nobody takes what is held");
    assert_eq!((second.held(TREE), term(&store).await), (None, 1));
    assert_eq!(second.holder(TREE).unwrap().link_url, "https://one");

    // Frozen: no more beats.
    beats.abort();
    let newer = second.wait_held(TREE).await;
    assert_eq!(term(&store).await, 2);
    let lost: Vec<_> = second.servers(model::Timestamp(0)).into_iter().map(|s| (s.name, s.lost)).collect();
    assert_eq!(lost, [("one".to_owned(), true), ("two".to_owned(), false)], "a dead one is still shown");
    assert_eq!(first.held(TREE), None, "it does not act on a beat of long ago");
    let refused = first_state.commit(fence.guard(write())).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::VersionMismatch);

    // Awake again: it is one of the servers, and holds nothing.
    let _beats = beat(&first);
    tokio::time::sleep(BEAT * 3).await;
    assert_eq!((first.held(TREE), second.held(TREE)), (None, Some(newer)));
    assert_eq!(second.others().len(), 1);
    let all = second.servers(model::Timestamp(0));
    assert!(all.len() == 2 && all.iter().all(|server| !server.lost), "it is back: {all:?}");
    assert_eq!(first.holder(TREE).unwrap().link_url, "https://two");
}

#[tokio::test]
async fn what_a_server_held_is_taken_when_it_leaves_and_when_it_comes_back() {
    let store = Store::memory();
    let (_, first) = server(&store, "one").await;
    let (_, second) = server(&store, "two").await;
    let (_, _) = (first.wait_held(TREE).await, beat(&second));
    first.leave().await;
    second.wait_held(TREE).await;
    // The same machine and folder after a crash: the record of the earlier life goes at once.
    let (_, again) = server(&store, "two").await;
    again.wait_held(TREE).await;
    assert_eq!(term(&store).await, 3);
}
