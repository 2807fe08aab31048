//! What every engine must do, run on memory, SQLite and PostgreSQL.
#![allow(clippy::unwrap_used)]

mod keep;
mod place;
mod random;
mod record;
mod watch;

use place::Place;
use store::testing::Postgres;

/// Each case is a test of its own on memory and SQLite; PostgreSQL runs them all in one, on one server.
macro_rules! suite {
    ($($file:ident :: $case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$file::$case(&super::Place::memory()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$file::$case(&super::Place::sqlite()).await;
            })*
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn postgres() {
            let server = Postgres::shared().unwrap();
            $(eprintln!("postgres: {}", stringify!($case));
            $file::$case(&Place::postgres(&server)).await;)*
        }
    };
}

suite! {
    record::writes_are_read,
    record::errors_say_why,
    record::versions_never_return,
    record::updates_are_not_lost,
    record::names_are_unique,
    record::names_have_one_winner,
    record::names_move_within_a_batch,
    record::transactions_are_whole,
    record::limits_hold,
    watch::order_under_concurrency,
    watch::goes_on_after_reopen,
    watch::lapses_clearly,
    watch::load_is_one_moment,
    watch::ends_with_the_store,
    keep::journal_is_filtered_and_paged,
    keep::journal_is_bounded,
    keep::counters_never_repeat,
    random::behaves_as_memory,
}

/// The simulation drives the memory engine without a runtime and expects an answer at the first poll.
#[test]
fn memory_answers_at_once() {
    use futures::FutureExt;
    let store = store::Store::memory();
    let mut watch = store.watch(0).now_or_never().unwrap().unwrap();
    let txn = store::Txn::new().put("k", "a", None, None, serde_json::json!(1));
    assert_eq!(store.commit(txn).now_or_never().unwrap().unwrap().seq, 1);
    assert_eq!(watch.next_batch().now_or_never().unwrap().unwrap().len(), 1);
    assert!(watch.next_batch().now_or_never().is_none());
    assert_eq!(store.load().now_or_never().unwrap().unwrap().1, 1);
    assert_eq!(store.counter_next("c").now_or_never(), Some(Ok(1)));
}
