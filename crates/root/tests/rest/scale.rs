//! Many at once and many there.

use api::ListQuery;

use root::tables::{encode, kind};
use store::Txn;

use crate::world::{World, ask_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_creates_is_all_there() {
    let world = World::with("sqlite:").await;
    let bodies: Vec<_> = (0..300).map(|index| ask_for(&format!("b-{index}"))).collect();
    let answers =
        futures::future::join_all(bodies.iter().map(|body| world.admin.instance_create(body))).await;
    assert!(answers.iter().all(Result::is_ok));
    let mut versions: Vec<i64> = answers.into_iter().map(|answer| answer.unwrap().version).collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 300, "each has its own version");
    let page = world.admin.instance_list(&ListQuery::new().limit(1000)).await.unwrap();
    assert_eq!(page.items.len(), 300);
    let usage = world.admin.quota().await.unwrap().usage;
    assert_eq!(usage.instances, 300);
}

/// Prints how long lists take; `cargo test -p root --test rest lists_of_many -- --nocapture` shows it.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_many_are_whole() {
    const COUNT: usize = 20_000;
    let world = World::new().await;
    let made = world.admin.instance_create(&ask_for("seed")).await.unwrap();
    let seed = world.cloud.state.snapshot().instances.get(&made.id).unwrap().value.as_ref().clone();
    for chunk in (0..COUNT).collect::<Vec<_>>().chunks(1000) {
        let mut txn = Txn::new();
        for index in chunk {
            let mut record = seed.clone();
            record.id = model::InstanceId::from_random(*index as u128);
            record.name = format!("many-{index:06}").parse().unwrap();
            let (tenant, name) = (record.tenant.to_string(), record.name.to_string());
            txn = txn.insert(kind::INSTANCE, &record.id, Some(&tenant), Some(&name), encode(&record));
        }
        world.cloud.state.commit(txn).await.unwrap();
    }
    for (filter, value, count) in
        [("phase", "failed", 0), ("name", "many-0199*", 100), ("phase", "pending", 1000), ("label", "a=b", 0)]
    {
        let begun = std::time::Instant::now();
        let query = ListQuery::new().limit(1000).with(filter, value);
        let page = world.admin.instance_list(&query).await.unwrap();
        eprintln!("{COUNT} instances, {filter}={value}: {} in {:?}", page.items.len(), begun.elapsed());
        assert_eq!(page.items.len(), count, "{filter}={value}");
    }
}
