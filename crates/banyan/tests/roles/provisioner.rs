//! A provisioner in a process of its own beside the one of `banyan up`, and clusters that are made while they die.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

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

/// A provider whose first try never ends, in a process that it starts; the second says which of the first still runs.
fn slow_provider(folder: &Path) -> String {
    std::fs::create_dir_all(folder).unwrap();
    let at = folder.display();
    let text = format!(
        "#!/bin/sh\nif cat | grep -q '\"verb\":\"delete\"'; then echo '{{\"status\":0}}'; exit; fi\n\
         if [ -e {at}/first ]; then\n\
         for pid in $(cat {at}/first); do grep -s '^State' /proc/$pid/status | grep -v Z >> {at}/beside; done\n\
         touch {at}/second; echo '{{\"status\":201,\"message\":\"that is enough\"}}'; exit\nfi\n\
         sh -c 'echo $PPID $$ > {at}/part; mv {at}/part {at}/first; while :; do sleep 1; done'\n"
    );
    let program = folder.join("slow");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    program.display().to_string()
}

#[test]
fn programs_of_a_provisioner_that_is_killed_end_before_their_task_is_tried_again() {
    let cloud = Cloud::start(&[]);
    let marks = cloud.home.join("marks");
    let program = slow_provider(&marks);
    let mut far =
        Role::start(&cloud, "provisioner", &format!("{}[providers]\nslow = \"{program}\"\n", config(&cloud)));
    until("both are there", || (connected(&cloud) == ["far", "local"]).then_some(()));
    let folder = cloud.home.join("catalogue");
    catalogue(&folder, "plain");
    std::fs::create_dir_all(folder.join("providers")).unwrap();
    let write = |path: &str, entity: Value| std::fs::write(folder.join(path), entity.to_string()).unwrap();
    write("providers/slow.json", json!({"name": "slow", "providertype": "slow", "provisioner": {}}));
    write(
        "hardwaretypes/tiny.json",
        json!({"name": "tiny", "providermap": {"banyan": {"flavor": "tiny"}, "slow": {"flavor": "x"}}}),
    );
    write(
        "imagetypes/plain.json",
        json!({"name": "plain", "providermap": {"banyan": {"image": "x"}, "slow": {"image": "x"}}}),
    );
    cloud.good(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);
    let ask =
        ["cluster", "create", "shop", "--template", "site", "--size", "1", "--provider", "slow", "--no-wait"];
    cloud.good(&ask);
    until("the first try goes on", || marks.join("first").exists().then_some(()));
    let first = std::fs::read_to_string(marks.join("first")).unwrap();
    assert!(first.split_whitespace().all(|pid| Path::new("/proc").join(pid).exists()), "{first}");
    far.kill();
    far.again();
    until("the second try is over", || marks.join("second").exists().then_some(()));
    let beside = std::fs::read_to_string(marks.join("beside")).unwrap();
    assert_eq!(beside, "", "the first try went on beside the second");
    until("the job is over", || {
        let cluster = cloud.json(&["cluster", "get", "shop"]);
        (cluster["status"] == "terminated").then(|| says(cluster["message"].as_str().unwrap(), &["enough"]))
    });
    far.terminate();
}
