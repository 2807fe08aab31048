//! Every change is in the history, with who and from where.

use api::ListQuery;
use model::Role;

use crate::world::{World, ask_for};

#[tokio::test]
async fn changes_are_told_with_who_and_where() {
    let world = World::with("sqlite:").await;
    let client = world.user("team", Role::Member).await;
    client.instance_create(&ask_for("web")).await.unwrap();
    client.instance_stop("web", None).await.unwrap();
    client.instance_delete("web", None).await.unwrap();
    let page = client.event_list(&ListQuery::new().with("instance", "web")).await.unwrap();
    let what: Vec<&str> = page.items.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(what, ["instance.delete", "instance.stop", "instance.create"]);
    let event = &page.items[0];
    assert_eq!((event.who.as_str(), event.from.as_deref()), ("team-member", Some("127.0.0.1")));

    let mut all = Vec::new();
    let mut query = ListQuery::new().limit(2);
    loop {
        let page = world.admin.with_tenant("team").event_list(&query).await.unwrap();
        all.extend(page.items.into_iter().map(|event| event.what));
        match page.next {
            Some(next) => query = ListQuery::new().limit(2).after(&next),
            None => break,
        }
    }
    let wanted =
        ["instance.delete", "instance.stop", "instance.create", "user.login", "user.create", "tenant.create"];
    assert_eq!(all, wanted);
    let refused = client.instance_create(&ask_for("web")).await;
    assert!(refused.is_err());
    let after = client.event_list(&ListQuery::new().with("instance", "web")).await.unwrap();
    assert_eq!(after.items.len(), 3, "what did not happen is not told");
}
