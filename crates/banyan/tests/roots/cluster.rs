//! A cluster that is being made when the server dies that gives its tasks out.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::until;
use crate::world::World;

const SIZE: usize = 3;
const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMuba15h5CY0NtpPhSRcfkd25AZdOh86MIYuz61kqLKT";

/// A program that takes a second for everything. A machine is a folder named by its node.
fn program(world: &World, machines: &Path, name: &str) -> PathBuf {
    let path = world.cloud.home.join(name);
    let answer = json!({
        "status": 0, "ipaddresses": {"access_v4": "192.0.2.9", "bind_v4": "192.0.2.9"},
        "result": {"providerid": "it", "ssh_host_keys": {"ed25519": HOST_KEY}}
    });
    let text = format!(
        "#!/bin/sh\nasked=$(cat)\nnode=$(printf %s \"$asked\" | sed 's/.*\"nodeId\":\"\\([^\"]*\\)\".*/\\1/')\nsleep 1\n\
         case \"$asked\" in\n*'\"verb\":\"create\"'*) mkdir -p '{machines}'/\"$node\" ;;\n\
         *'\"verb\":\"delete\"'*) rm -rf '{machines}'/\"$node\" ;;\n*) ls -d '{machines}'/\"$node\" >&2 || exit 1 ;;\nesac\n\
         printf %s '{answer}'\n",
        machines = machines.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn catalogue(folder: &Path) {
    let act = json!({"type": "slow", "fields": {}});
    let all = json!({
        "providers": [{"name": "lab", "providertype": "slow", "provisioner": {}}],
        "hardwaretypes": [{"name": "small", "providermap": {"lab": {"flavor": "any"}}}],
        "imagetypes": [{"name": "plain", "providermap": {"lab": {"image": "any"}}}],
        "services": [{"name": "page", "provisioner": {"actions": {"install": act, "configure": act, "start": act}}}],
        "clustertemplates": [{"name": "site", "defaults": {"services": ["page"], "provider": "lab"}}]
    });
    std::fs::write(folder.join("export.json"), all.to_string()).unwrap();
}

fn folders(machines: &Path) -> usize {
    std::fs::read_dir(machines).unwrap().count()
}

pub fn is_made_although_its_server_dies(world: &mut World) {
    let machines = world.cloud.home.join("machines");
    std::fs::create_dir_all(&machines).unwrap();
    let (provider, automator) =
        (program(world, &machines, "slow-cloud"), program(world, &machines, "slow-tool"));
    let _hand = world.provisioner(&provider, &automator);
    catalogue(&world.cloud.home);
    let export = world.cloud.home.join("export.json");
    world.good(0, &["catalogue", "apply", "-f", export.to_str().unwrap()]);
    let holder = world.holder_of("clusters");
    let other = (holder + 1) % 3;
    let size = SIZE.to_string();
    world.good(other, &["cluster", "create", "shop", "--template", "site", "--size", &size, "--no-wait"]);
    let seen = |world: &World| world.json(other, &["cluster", "get", "shop"]);
    let steps = |seen: &Value| seen["job"]["steps_completed"].as_u64().unwrap();
    until("some of it is done", || (steps(&seen(world)) >= SIZE as u64).then_some(()));
    world.roots[holder].kill();
    let before = seen(world);
    assert_eq!(before["status"], "pending", "it is in the middle of it: {before}");
    until("another server finishes it", || (seen(world)["status"] == "active").then_some(()));
    let after = seen(world);
    assert_eq!((&after["nodes"], &after["job"]["status"]), (&json!(SIZE), &json!("complete")), "{after}");
    assert!(world.holder_of("clusters") != holder && folders(&machines) == SIZE);
    world.roots[holder].again();
    world.good(holder, &["cluster", "delete", "shop"]);
    assert_eq!(folders(&machines), 0);
}
