//! Instances of this cloud as machines of clusters: made, reached over SSH, deleted.

use std::path::PathBuf;

use provision::carry::Carrier;
use provision::ssh::{Identity, Pool};
use provision::task::{Fault, Report, Task};
use serde_json::{Map, Value, json};

use crate::support::{Cloud, image, wait_async};

struct Node {
    config: Map<String, Value>,
    id: &'static str,
}

impl Node {
    fn new(cloud: &Cloud, id: &'static str, key: &Identity) -> Self {
        let admin = cloud.admin();
        let config = json!({
            "hostname": "machine-test-1000.local", "image": "machine", "flavor": "100m/64MiB",
            "automators": ["shell"], "cluster-key": key.private_text().as_str(),
            "provider": {"providertype": "banyan", "provisioner": {
                "banyan-endpoint": cloud.endpoint(), "banyan-token": admin["token"]
            }},
            "service": {"name": "web", "action": {"type": "shell", "fields": {"code": "#!/bin/sh\nhostname; id -u"}}}
        });
        Self { config: config.as_object().unwrap().clone(), id }
    }

    /// Does a task and keeps what it said of the node, as root does.
    fn carry(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let task: Task = serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c", "taskName": verb, "nodeId": self.id, "config": self.config
        }))
        .unwrap();
        let report = wait_async(carrier.carry(&task));
        self.config.extend(report.result.clone());
        if !report.ipaddresses.is_empty() {
            self.config.insert("ipaddresses".into(), json!(report.ipaddresses));
        }
        report
    }
}

#[test]
fn an_instance_is_a_machine_that_lets_its_cluster_in() {
    let cloud = Cloud::shared();
    // The client and this test's own SSH need it.
    let _ = cloud.client();
    let tar = cloud.home.join("machine.tar");
    std::fs::write(&tar, image::machine()).unwrap();
    cloud.good(&["image", "import", "machine", tar.to_str().unwrap()]);
    let key = Identity::from_seed(&[9; 32]);
    let carrier = Carrier::new(Pool::new(4), PathBuf::from("/nonexistent"));
    let mut node = Node::new(&cloud, "n1", &key);
    let made = node.carry(&carrier, "CREATE");
    assert_eq!((made.status, made.message.as_str()), (0, ""));
    // The word of it got lost, and it is asked again; another node does not get the same machine.
    assert_eq!(node.carry(&carrier, "CREATE").result, made.result);
    let mut other = Node::new(&cloud, "n2", &key);
    let taken = other.carry(&carrier, "CREATE");
    assert!(taken.message.contains("another instance has the name") && !taken.is_passing, "{taken:?}");
    let confirmed = node.carry(&carrier, "CONFIRM");
    assert_eq!(
        (confirmed.status, confirmed.message.as_str()),
        (0, ""),
        "{}",
        cloud.logs("machine-test-1000")
    );
    assert!(confirmed.result["ssh_host_keys"]["ed25519"].as_str().unwrap().starts_with("ssh-ed25519 "));
    for verb in ["BOOTSTRAP", "INSTALL"] {
        let report = node.carry(&carrier, verb);
        assert_eq!((report.status, report.message.as_str()), (0, ""), "{verb}");
        if verb == "INSTALL" {
            assert_eq!(report.stdout, "machine-test-1000\n0\n");
        }
    }
    // Another node's delete leaves it alone.
    assert!(other.carry(&carrier, "DELETE").is_good());
    assert_eq!(cloud.get("machine-test-1000")["phase"], "running");
    for _ in 0..2 {
        assert_eq!(node.carry(&carrier, "DELETE").message, "");
        cloud.bad(&["instance", "get", "machine-test-1000"]);
    }

    node.config["provider"]["provisioner"]["banyan-token"] = json!("wrong");
    let refused = node.carry(&carrier, "CREATE");
    assert_eq!((refused.status, refused.is_passing), (Fault::CREDENTIALS, false), "{refused:?}");
    cloud.good(&["image", "delete", "machine"]);
}
