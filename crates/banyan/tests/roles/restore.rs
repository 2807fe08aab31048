//! What a role kept is lost, or put back from a copy of an earlier time: the others go on from what they know.

use std::path::Path;

use super::*;

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        support::good(Command::new("rm").arg("-r").arg(to));
    }
    support::good(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// A zone with one node.
fn tree<'a>(cloud: &'a Cloud, operator: &Operator, link: u16) -> (Role<'a>, Role<'a>) {
    let (https, mqtt) = (free_port(), free_port());
    let token = operator.good(&["enroll", "zone"]);
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n",
        cloud.data().join("zone").display(),
        token.trim()
    );
    let zone = Role::start(cloud, "zone", &config);
    until("the zone is there", || operator.good(&["zone", "list"]).contains("connected").then_some(()));
    let token = operator.good(&["enroll", "node", "--zone", "east"]);
    (zone, Role::start(cloud, "node", &node_config(cloud, "one", https, mqtt, &token)))
}

#[test]
fn roles_that_were_put_back_from_a_copy_are_heard_and_obeyed() {
    let cloud = Cloud::new();
    let (mut root, operator, link) = root_start(&cloud, "\"127.0.0.1\"");
    let data = cloud.data();
    let (mut zone, mut node) = tree(&cloud, &operator, link);
    let create = |name: &str| {
        operator.good(&["instance", "create", name, "--image", "busybox", "--", "sleep", "100000"]);
        let id = operator.get(name)["id"].as_str().unwrap().to_owned();
        let life = cloud.life(&id);
        (id, life)
    };
    let runs = |name: &str| operator.wait(name, "it is seen running", |seen| seen["phase"] == "running");
    let ledger = data.join("node/ledger.redb");
    let kept = cloud.home.join("kept");

    // A node of an earlier time: what it does not know of goes on, and is its own again.
    let (a, a_life) = create("a");
    node.kill();
    copy(&ledger, &kept);
    node.again();
    let (b, b_life) = create("b");
    for _ in 0..2 {
        node.kill();
        copy(&kept, &ledger);
        node.again();
        runs("b");
    }
    // A node that knows nothing.
    node.kill();
    std::fs::remove_file(&ledger).unwrap();
    node.again();
    let (c, c_life) = create("c");
    runs("a");
    runs("b");
    assert_eq!((cloud.life(&a), cloud.life(&b)), (a_life.clone(), b_life), "adopted, not started again");

    // A zone of an earlier time.
    let zone_data = data.join("zone");
    zone.kill();
    copy(&zone_data, &kept);
    zone.again();
    let (d, _) = create("d");
    operator.good(&["instance", "delete", "b"]);
    zone.kill();
    std::fs::remove_dir_all(&zone_data).unwrap();
    copy(&kept, &zone_data);
    zone.again();
    runs("d");
    until("what was deleted is gone", || (!cloud.folder(&b).exists()).then_some(()));
    let (e, _) = create("e");
    assert_eq!((cloud.life(&a), cloud.life(&c)), (a_life, c_life), "nothing of it was touched");

    // A root of an earlier time: what was made since is forgotten, and ends.
    let root_data = data.join("root");
    root.terminate();
    copy(&root_data, &kept);
    root.again();
    let (f, _) = create("f");
    root.terminate();
    std::fs::remove_dir_all(&root_data).unwrap();
    copy(&kept, &root_data);
    root.again();
    until("what root does not know ends", || (!cloud.folder(&f).exists()).then_some(()));
    let (g, _) = create("g");
    for (name, id) in [("a", a), ("c", c), ("d", d), ("e", e), ("g", g)] {
        runs(name);
        assert!(cloud.folder(&id).exists());
        operator.good(&["instance", "delete", name]);
    }
    assert_eq!(Remains::look(&data, &cloud.tag), Remains::default());
}
