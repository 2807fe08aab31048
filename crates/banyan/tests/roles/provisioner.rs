//! A provisioner in a process of its own beside the one of `banyan up`, and clusters that are made while they die.

use serde_json::Value;

use super::Role;
use crate::support::cluster::{catalogue, machines, nodes, page};
use crate::support::{Cloud, image, says, until};

fn config(cloud: &Cloud) -> String {
    let made = cloud.json(&["enroll", "provisioner"]);
    format!(
        "name = \"far\"\ndata = \"{}\"\nroot = {}\ntoken = \"{}\"\nworkers = 8\ndrain_s = 1\n",
        cloud.home.join("far").display(),
        made["parents"],
        made["token"].as_str().unwrap()
    )
}

fn connected(cloud: &Cloud) -> Vec<String> {
    let all = cloud.json(&["provisioner", "list"]);
    let live = all.as_array().unwrap().iter().filter(|one| one["live"] == true);
    live.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn active(cloud: &Cloud, name: &str) -> Value {
    until("the cluster is active", || {
        let cluster = cloud.json(&["cluster", "get", name]);
        let status = cluster["status"].as_str().unwrap().to_owned();
        assert!(["pending", "active"].contains(&status.as_str()), "{cluster:#}\n{}", cloud.log());
        (status == "active").then_some(cluster)
    })
}

/// Some task is under way at this provisioner.
fn works(cloud: &Cloud, name: &str) {
    until("it has something to do", || {
        let all = cloud.json(&["provisioner", "list"]);
        let one = all.as_array().unwrap().iter().find(|one| one["name"] == name)?.clone();
        (one["tasks"].as_u64() > Some(0)).then_some(())
    });
}

#[test]
fn clusters_are_made_whoever_dies() {
    let cloud = Cloud::start(&[]);
    let mut far = Role::start(&cloud, "provisioner", &config(&cloud));
    until("both are there", || (connected(&cloud) == ["far", "local"]).then_some(()));
    let tar = cloud.home.join("machine.tar");
    std::fs::write(&tar, image::machine()).unwrap();
    cloud.good(&["image", "import", "plain", tar.to_str().unwrap()]);
    let folder = cloud.home.join("catalogue");
    catalogue(&folder, "plain");
    cloud.good(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);

    // What a provisioner did that died is done by the other.
    cloud.good(&["cluster", "create", "shop", "--template", "site", "--size", "3", "--no-wait"]);
    works(&cloud, "far");
    far.kill();
    active(&cloud, "shop");
    assert_eq!(machines(&cloud, "shop").len(), 3);
    // So does a cloud that died, when it is back.
    cloud.good(&["cluster", "expand", "shop", "5", "--no-wait"]);
    works(&cloud, "local");
    cloud.kill();
    cloud.up(&[]);
    active(&cloud, "shop");
    let all = nodes(&cloud, "shop");
    assert_eq!((all.len(), machines(&cloud, "shop").len()), (5, 5));
    for node in &all {
        let said = page(&node.addresses["access_v4"]);
        assert!(said.as_deref().is_some_and(|said| said.starts_with("hello of ")), "{said:?}");
    }

    // It needs its token once; one that was removed is never let in again.
    far.again();
    until("it is back", || (connected(&cloud) == ["far", "local"]).then_some(()));
    says(&cloud.bad(&["provisioner", "remove", "far"]), &["--yes"]);
    cloud.good(&["provisioner", "remove", "far", "--yes"]);
    let listed = cloud.json(&["provisioner", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    let log = cloud.home.join("provisioner.log");
    until("it is told so", || {
        std::fs::read_to_string(&log).unwrap().contains("root removed this provisioner").then_some(())
    });
    far.terminate();
    cloud.good(&["cluster", "delete", "shop"]);
    assert_eq!(machines(&cloud, "shop"), Vec::<String>::new());
}
