//! Watches: every change once and in order, one's own tenant only, resumable.

use api::{ListQuery, WatchKind};
use model::{ErrorKind, Phase, Role};
use root::tables::kind;
use store::Txn;

use crate::instance::status_put;
use crate::world::{World, ask_for};

#[tokio::test]
async fn changes_come_once_in_order_and_from_where_one_was() {
    let world = World::new().await;
    let other = world.user("other", Role::Member).await;
    let seq = world.admin.instance_list(&ListQuery::new()).await.unwrap().seq;
    let mut live = world.admin.watch(WatchKind::Instance, Some(seq)).await.unwrap();
    let made = world.admin.instance_create(&ask_for("web")).await.unwrap();
    other.instance_create(&ask_for("theirs")).await.unwrap();
    status_put(&world, "web", Phase::Running).await;
    world.admin.instance_stop("web", None).await.unwrap();
    let txn = Txn::new().delete(kind::INSTANCE, &made.id, None).delete(kind::STATUS, &made.id, None);
    world.cloud.state.commit(txn).await.unwrap();

    let mut seen = Vec::new();
    let mut first = 0;
    for _ in 0..4 {
        let event = live.next().await.unwrap().unwrap();
        if seen.is_empty() {
            first = event.seq;
        }
        let phase = event.object.as_ref().map(|object| format!("{} {}", object["phase"], object["run"]));
        seen.push((event.name, phase));
    }
    let say = |text: &str| ("web".to_owned(), Some(text.to_owned()));
    let wanted = [
        say("\"pending\" \"running\""),
        say("\"running\" \"running\""),
        say("\"running\" \"stopped\""),
        ("web".to_owned(), None),
    ];
    assert_eq!(seen, wanted);

    let mut resumed = world.admin.watch(WatchKind::Instance, Some(first)).await.unwrap();
    let event = resumed.next().await.unwrap().unwrap();
    assert!(event.seq > first);
    assert_eq!(event.object.unwrap()["phase"], "running");
    let mut named = world.admin.watch_named(WatchKind::Instance, Some("w*"), Some(seq)).await.unwrap();
    assert_eq!(named.next().await.unwrap().unwrap().seq, first);
    let mut theirs = other.watch(WatchKind::Instance, Some(seq)).await.unwrap();
    assert_eq!(theirs.next().await.unwrap().unwrap().name, "theirs");
    let late = world.admin.watch(WatchKind::Instance, Some(0)).await.err();
    let future = world.admin.watch(WatchKind::Instance, Some(1 << 40)).await.err().unwrap();
    assert_eq!(future.kind, ErrorKind::Conflict);
    assert!(late.is_none_or(|error| error.hint.unwrap().contains("list again")));
}
