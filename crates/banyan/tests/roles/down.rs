//! `banyan down` on the data of one role that ran by itself.

use std::process::Command;

use crate::support::guard::Remains;
use crate::support::{self, Cloud, until};
use crate::{Role, free_port, node_config, root_start};

/// Bridges, tables and cgroups that carry the name.
fn marks(tag: &str) -> Vec<String> {
    let shown = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let links = shown("ip", &["-o", "link"]);
    let tables = shown("nft", &["list", "tables"]);
    let cgroups = shown("find", &["/sys/fs/cgroup", "-maxdepth", "2", "-name", tag]);
    [links, tables, cgroups]
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains(tag))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_a_node_by_itself_left_behind_is_undone() {
    let cloud = Cloud::new();
    let (_root, operator, link) = root_start(&cloud, "");
    let (https, mqtt) = (free_port(), free_port());
    let token = operator.good(&["enroll", "zone"]);
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = []\n",
        cloud.data().join("zone").display(),
        token.trim()
    );
    let mut zone = Role::start(&cloud, "zone", &config);
    until("the zone is there", || operator.good(&["zone", "list"]).contains("connected").then_some(()));
    let token = operator.good(&["enroll", "node"]);
    let mut node = Role::start(&cloud, "node", &node_config(&cloud, "one", https, mqtt, &token));
    operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    let data = cloud.data().join("node");
    let down = |data: &std::path::Path, purge: bool| {
        let mut command = cloud.command(&["down", "--data"]);
        command.arg(data).args(purge.then_some("--purge")).output().unwrap()
    };

    let said = down(&data, true);
    assert!(!said.status.success() && support::text(&said.stderr).contains("stop it"), "it runs");
    node.kill();
    assert!(!marks(&cloud.tag).is_empty() && Remains::look(&cloud.data(), &cloud.tag) != Remains::default());
    let said = down(&data, true);
    assert!(said.status.success(), "{}", support::text(&said.stderr));
    assert_eq!(Remains::look(&cloud.data(), &cloud.tag), Remains::default());
    assert_eq!(marks(&cloud.tag), Vec::<String>::new());
    assert!(!data.exists());

    let zone_data = cloud.data().join("zone");
    assert!(!down(&zone_data, true).status.success(), "it runs");
    zone.kill();
    assert!(down(&zone_data, true).status.success() && !zone_data.exists());
}
