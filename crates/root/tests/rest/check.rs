//! What stands in the way of orders is told before they are given, all of it, and nothing is changed by asking.

use api::{AppCreate, AppWorkload, Check};
use model::{Cpu, Quota};

use crate::world::{World, ask_for};

fn lines(report: &api::CheckReport) -> Vec<String> {
    let line = |fault: &api::CheckFault| {
        let field = fault.field.as_deref().unwrap_or_default();
        let refused = if fault.refused { "refused" } else { "waits" };
        format!("{} {field} {refused}: {}", fault.name, fault.message)
    };
    report.faults.iter().map(line).collect()
}

#[tokio::test]
async fn all_that_stands_in_the_way_is_told() {
    let world = World::new().await;
    let client = &world.admin;
    let mut good = ask_for("good");
    good.spec.image = "later".to_owned();
    let mut bad = ask_for("bad");
    bad.spec.image = "nothere".to_owned();
    bad.spec.cpu = Cpu(0);
    bad.spec.constraints.zone = Some("atlantis".to_owned());
    let mut workload = crate::workload::ask_for("web", 2);
    workload.app = Some("noapp".parse().unwrap());
    let mut member = crate::workload::ask_for("member", 1);
    member.spec.instance.image = "nothere".to_owned();
    let app = AppCreate {
        name: "shop".parse().unwrap(),
        description: String::new(),
        workloads: vec![AppWorkload { name: member.name, spec: member.spec }],
    };
    let mut of_app = crate::workload::ask_for("more", 1);
    of_app.app = Some("shop".parse().unwrap());
    let check = Check {
        images: vec!["later".parse().unwrap()],
        instances: vec![good, bad],
        workloads: vec![workload, of_app],
        apps: vec![app],
    };
    assert_eq!(
        lines(&client.check(&check).await.unwrap()),
        [
            "bad spec.cpu refused: cpu must be 0.01 or more",
            "bad spec.image refused: there is no image 'nothere'",
            "bad spec.constraints.zone waits: there is no zone 'atlantis'",
            "shop workloads[0].spec.instance.image refused: there is no image 'nothere'",
            "web app refused: there is no app 'noapp'",
        ]
    );
    assert!(world.cloud.state.snapshot().instances.is_empty(), "nothing was made");
}

#[tokio::test]
async fn orders_are_counted_together_and_beside_what_there_is() {
    let world = World::new().await;
    let client = &world.admin;
    client.instance_create(&ask_for("old")).await.unwrap();
    let quota = Quota { instances: Some(3), ..Quota::default() };
    client.quota_set("main", &quota, None).await.unwrap();
    let check = |names: &[&str], replicas: u32| Check {
        instances: names.iter().map(|name| ask_for(name)).collect(),
        workloads: vec![crate::workload::ask_for("web", replicas)],
        ..Check::default()
    };
    assert!(
        client.check(&check(&["old", "new"], 1)).await.unwrap().faults.is_empty(),
        "its own is not counted twice"
    );
    let found = lines(&client.check(&check(&["new", "newer"], 1)).await.unwrap());
    assert_eq!(found, ["web spec waits: the tenant may have 3 instances; in use: 3, asked for: 1 more"]);
    let found = lines(&client.check(&check(&["a", "b", "c"], 0)).await.unwrap());
    assert!(found.len() == 1 && found[0].starts_with("c spec refused: the tenant may have"), "{found:?}");
}
