//! A tree that is kept up while it works: nodes are emptied under a living workload, certificates are renewed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Cloud, until};
use crate::{Operator, Role, free_port, node_config, root_start_with};

struct Tree<'a> {
    root: Role<'a>,
    zone: Role<'a>,
    operator: Operator<'a>,
    https: u16,
    mqtt: u16,
}

/// A root with these lines in its file, and a zone `east`.
fn tree<'a>(cloud: &'a Cloud, more: &str) -> Tree<'a> {
    tree_with(cloud, more, free_port(), "")
}

/// The same with lines in the file of the zone.
fn tree_with<'a>(cloud: &'a Cloud, more: &str, mqtt: u16, zone_more: &str) -> Tree<'a> {
    let (root, operator, link) = root_start_with(cloud, "\"127.0.0.1\"", more);
    let https = free_port();
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n{zone_more}",
        cloud.data().join("zone").display(),
        operator.good(&["enroll", "zone"]).trim()
    );
    let zone = Role::start(cloud, "zone", &config);
    until("the zone is there", || operator.good(&["zone", "list"]).contains("connected").then_some(()));
    Tree { root, zone, operator, https, mqtt }
}

impl<'a> Tree<'a> {
    fn node(&self, cloud: &'a Cloud, name: &str) -> Role<'a> {
        let token = self.operator.good(&["enroll", "node", "--zone", "east"]);
        Role::start(cloud, "node", &node_config(cloud, name, self.https, self.mqtt, &token))
    }

    fn available(&self) -> u64 {
        let seen = self.operator.good(&["workload", "get", "web", "-o", "json"]);
        let seen: Value = serde_json::from_str(&seen).unwrap();
        seen["status"]["available"].as_u64().unwrap()
    }

    /// How its broker is, and the words for it.
    fn broker_light(&self) -> Option<(String, String)> {
        let health: Value =
            serde_json::from_str(&self.operator.output(&["health", "--all", "-o", "json"])).unwrap();
        let checks = health["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "broker")?;
        let text = |name: &str| check[name].as_str().unwrap().to_owned();
        Some((text("light"), text("message")))
    }

    fn on(&self, node: &str) -> usize {
        let list: Value =
            serde_json::from_str(&self.operator.good(&["instance", "list", "-o", "json"])).unwrap();
        let items = list.as_array().unwrap();
        items.iter().filter(|one| one["node"] == node && one["phase"] == "running").count()
    }

    /// Empties a node and returns how many of the workload were available when they were fewest.
    fn drain(&self, node: &str) -> u64 {
        let (over, fewest) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    fewest.fetch_min(self.available(), Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            self.operator.good(&["node", "drain", node]);
            over.store(true, Ordering::SeqCst);
        });
        fewest.into_inner()
    }
}

#[test]
fn a_workload_stays_available_while_its_node_is_emptied() {
    let (first, second) = (Cloud::new(), Cloud::new());
    let tree = tree(&first, "");
    let _one = tree.node(&first, "one");
    let words = ["workload", "create", "web", "--image", "busybox", "--replicas", "3"];
    tree.operator.good(&[&words[..], &["--max-unavailable", "2", "--", "sleep", "100000"]].concat());
    assert_eq!((tree.available(), tree.on("one")), (3, 3));
    let _two = tree.node(&second, "two");

    // What was asked for later counts for those that are there: now none may be missing.
    tree.operator.good(&["workload", "update", "web", "--max-unavailable", "0", "--max-surge", "1"]);
    assert_eq!(tree.drain("one"), 3, "another is made before one goes");
    until("all run on the other node", || (tree.on("two") == 3 && tree.available() == 3).then_some(()));
    assert_eq!(tree.on("one"), 0);

    // And back, with one that may be missing: they keep their names.
    let names = || tree.operator.good(&["instance", "list", "-o", "name"]);
    let before = names();
    tree.operator.good(&["node", "uncordon", "one"]);
    tree.operator.good(&["workload", "update", "web", "--max-unavailable", "1"]);
    let fewest = tree.drain("two");
    assert!(fewest >= 2, "{fewest} of 3 were available");
    until("all run on the first node", || (tree.on("one") == 3 && tree.available() == 3).then_some(()));
    assert_eq!(names(), before);
    tree.operator.good(&["workload", "delete", "web"]);
    assert!(tree.root.process.is_some() && tree.zone.process.is_some());
}

#[test]
fn certificates_are_renewed_while_everything_goes_on() {
    let cloud = Cloud::new();
    let tree = tree(&cloud, "certificate_valid_s = 15\n");
    let _node = tree.node(&cloud, "one");
    tree.operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    let id = tree.operator.get("web")["id"].as_str().unwrap().to_owned();
    let life = cloud.life(&id);
    let lights = || -> Vec<Value> {
        let health: Value =
            serde_json::from_str(&tree.operator.output(&["health", "--all", "-o", "json"])).unwrap();
        let checks = health["checks"].as_array().unwrap().clone();
        checks.into_iter().filter(|check| check["name"] == "certificate").collect()
    };
    until("root, the CA, the zone and the node tell of their certificates", || {
        (lights().len() == 4).then_some(())
    });
    // Longer than any of them is good that was there at the beginning.
    std::thread::sleep(Duration::from_secs(20));
    let seen = lights();
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.iter().all(|check| check["light"] == "green"), "{seen:?}");
    let said = tree.operator.good(&["instance", "exec", "web", "--", "echo", "hello"]);
    assert_eq!((said.as_str(), cloud.life(&id)), ("hello\n", life));
    tree.operator.good(&["instance", "delete", "web"]);
}

/// A mosquitto as docs/roles.md says that it is set up; ends with the test.
struct Mosquitto(std::process::Child);

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mosquitto(cloud: &Cloud, port: u16, zone: &str) -> Mosquitto {
    let dir = cloud.data().join("zone/broker");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roles.md")).unwrap();
    let block = |name: &str| {
        let (_, rest) = text.split_once(&format!("# {name}\n")).expect("it is in docs");
        rest.split_once("```").unwrap().0.to_owned()
    };
    let acl = cloud.home.join("acl");
    std::fs::write(&acl, block("mosquitto.acl").replace("z-EXAMPLE", zone)).unwrap();
    let config = block("mosquitto.conf")
        .replace("listener 7721", &format!("listener {port} 127.0.0.1"))
        .replace("/etc/mosquitto/banyan/acl", &acl.to_string_lossy())
        .replace("/etc/mosquitto/banyan", &dir.to_string_lossy());
    let file = cloud.home.join("mosquitto.conf");
    std::fs::write(&file, format!("user root\n{config}")).unwrap();
    let log = std::fs::File::create(cloud.home.join("mosquitto.log")).unwrap();
    let mut command = std::process::Command::new("mosquitto");
    let command = command.arg("-c").arg(&file).stdout(log.try_clone().unwrap()).stderr(log);
    Mosquitto(command.spawn().expect("Debian has it in the package mosquitto"))
}

#[test]
fn a_zone_with_a_broker_of_somebody_else_keeps_its_promises() {
    let cloud = Cloud::new();
    let port = free_port();
    let tree = tree_with(&cloud, "", port, &format!("broker = \"127.0.0.1:{port}\"\n"));
    let zones: Value = serde_json::from_str(&tree.operator.good(&["zone", "list", "-o", "json"])).unwrap();
    let zone = zones[0]["id"].as_str().unwrap().to_owned();
    until("the zone wrote what a broker needs", || {
        cloud.data().join("zone/broker/broker.key.pem").exists().then_some(())
    });
    let broker = mosquitto(&cloud, port, &zone);
    let mut node = tree.node(&cloud, "one");
    tree.operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    let life = cloud.life(tree.operator.get("web")["id"].as_str().unwrap());

    // The broker dies and comes back, after more than two leases; so does the node. Nothing is begun anew.
    drop(broker);
    let light = || tree.broker_light().map(|(light, _)| light);
    until("health says so", || (light().as_deref() == Some("red")).then_some(()));
    std::thread::sleep(Duration::from_secs(28));
    let _broker = mosquitto(&cloud, port, &zone);
    until("it is well again", || (light().as_deref() == Some("green")).then_some(()));
    node.kill();
    node.again();
    tree.operator.wait("web", "it is seen running again", |seen| seen["phase"] == "running");
    let said = until("it answers", || {
        let out = tree.operator.output(&["instance", "exec", "web", "--", "echo", "hello"]);
        (!out.is_empty()).then_some(out)
    });
    assert_eq!(
        (said.as_str(), cloud.life(tree.operator.get("web")["id"].as_str().unwrap())),
        ("hello\n", life)
    );
    tree.operator.good(&["instance", "delete", "web"]);
}

#[test]
fn a_broker_that_forgets_to_read_its_new_certificate_is_told_of() {
    let cloud = Cloud::new();
    let port = free_port();
    let broker = format!("broker = \"127.0.0.1:{port}\"\n");
    let tree = tree_with(&cloud, "certificate_valid_s = 30\n", port, &broker);
    let zones: Value = serde_json::from_str(&tree.operator.good(&["zone", "list", "-o", "json"])).unwrap();
    let zone = zones[0]["id"].as_str().unwrap().to_owned();
    until("the zone wrote what a broker needs", || {
        cloud.data().join("zone/broker/broker.key.pem").exists().then_some(())
    });
    let broker = mosquitto(&cloud, port, &zone);
    until("the zone is connected", || (tree.broker_light()?.0 == "green").then_some(()));
    until("its certificate comes to an end", || {
        let (light, text) = tree.broker_light()?;
        (light != "green" && text.contains("certificate")).then_some(())
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&broker.0), rustix::process::Signal::HUP)
        .unwrap();
    until("it has the new one", || (tree.broker_light()?.0 == "green").then_some(()));
}
