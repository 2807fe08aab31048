//! The programs of `examples/plugins`, as they are shipped, on a real machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use provision::carry::Carrier;
use provision::plugin::Plugin;
use provision::ssh::{Identity, Pool};
use provision::task::{Fault, Report, Task};
use serde_json::{Value, json};

use crate::bed::Sshd;

const LIMIT: Duration = Duration::from_secs(60);

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins").join(name)
}

fn carrier() -> Carrier {
    let mut carrier = Carrier::new(Pool::new(4), PathBuf::from("/nonexistent"));
    carrier.provider_add(Arc::new(Plugin::new("shelf", example("shelf"), LIMIT)));
    carrier.automator_add(Arc::new(Plugin::new("textfile", example("textfile"), LIMIT)));
    carrier
}

/// What root knows of a node.
struct Node {
    id: &'static str,
    config: Value,
    key: Identity,
}

impl Node {
    fn new(id: &'static str, inventory: &Path, sshd: &Sshd) -> Self {
        let key = Identity::from_seed(&rand::random());
        let file = sshd.folder().join("etc/motd");
        let config = json!({
            "hostname": format!("{id}.local"), "automators": ["textfile"],
            "cluster-key": key.private_text().as_str(),
            "provider": {"providertype": "shelf", "provisioner": {
                "inventory": inventory, "ssh_key": sshd.identity.private_text().as_str()
            }},
            "service": {"name": "motd", "action": {"type": "textfile", "fields": {
                "path": file, "text": "it's 'up'\n$HOME\n", "mode": "0600"
            }}}
        });
        Self { id, config, key }
    }

    async fn carry(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let task: Task = serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c", "taskName": verb, "nodeId": self.id, "config": self.config
        }))
        .unwrap();
        let report = carrier.carry(&task).await;
        for (name, value) in &report.result {
            self.config[name] = value.clone();
        }
        if !report.ipaddresses.is_empty() {
            self.config["ipaddresses"] = json!(report.ipaddresses);
        }
        report
    }

    async fn good(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let report = self.carry(carrier, verb).await;
        assert_eq!((report.status, report.message.as_str()), (0, ""), "{verb}: {}", report.stderr);
        report
    }
}

#[tokio::test]
async fn a_machine_of_the_shelf_lives_with_a_file() {
    let sshd = Sshd::start();
    let inventory = sshd.folder().join("inventory");
    let line = format!("# ours\nroot@127.0.0.1 {} {}\n", sshd.port, sshd.host_key().as_str());
    std::fs::write(&inventory, line).unwrap();
    let carrier = carrier();
    let mut node = Node::new("first", &inventory, &sshd);
    let mut other = Node::new("second", &inventory, &sshd);
    for _ in 0..2 {
        let made = node.good(&carrier, "CREATE").await;
        assert_eq!(made.result["providerid"], "root@127.0.0.1");
    }
    let key = node.key.public_text().trim().to_owned();
    assert_eq!(sshd.authorized().matches(&key).count(), 1);
    let full = other.carry(&carrier, "CREATE").await;
    assert_eq!(full.message, "all 1 machines of the shelf are in use");
    assert!(full.is_passing);
    node.good(&carrier, "CONFIRM").await;
    node.good(&carrier, "BOOTSTRAP").await;
    let file = sshd.folder().join("etc/motd");
    for verb in ["INSTALL", "CONFIGURE", "START"] {
        node.good(&carrier, verb).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "it's 'up'\n$HOME\n");
    }
    for _ in 0..2 {
        node.good(&carrier, "REMOVE").await;
    }
    assert!(!file.exists());
    node.config["service"]["action"]["fields"]["path"] = json!("motd");
    let wrong = node.carry(&carrier, "INSTALL").await;
    assert_eq!(wrong.message, "'path' is 'motd': write an absolute path");
    assert_eq!((wrong.status, wrong.is_passing), (Fault::INVALID, false));
    for _ in 0..2 {
        node.good(&carrier, "DELETE").await;
    }
    assert!(!sshd.authorized().contains(&key));
    let gone = node.carry(&carrier, "CONFIRM").await;
    assert_eq!((gone.status, gone.is_passing), (Fault::GONE, false), "{}", gone.message);
    other.good(&carrier, "CREATE").await;
    other.good(&carrier, "DELETE").await;
}

#[tokio::test]
async fn wrong_credentials_of_the_shelf_are_said_at_once() {
    let sshd = Sshd::start();
    let inventory = sshd.folder().join("inventory");
    let mut node = Node::new("wrong", &inventory, &sshd);
    let carrier = carrier();
    let missing = node.carry(&carrier, "CREATE").await;
    assert_eq!((missing.status, missing.is_passing), (Fault::CREDENTIALS, false), "{}", missing.message);
    let line = format!("root@127.0.0.1 {} {}\n", sshd.port, sshd.host_key().as_str());
    std::fs::write(&inventory, line).unwrap();
    let stranger = Identity::from_seed(&[1; 32]).private_text();
    node.config["provider"]["provisioner"]["ssh_key"] = json!(stranger.as_str());
    let refused = node.carry(&carrier, "CREATE").await;
    assert_eq!(refused.message, "127.0.0.1 does not let 'root' in with this key");
    assert_eq!((refused.status, refused.is_passing), (Fault::CREDENTIALS, false));
    // Another machine in its place is not entered.
    let other = Identity::from_seed(&[2; 32]).public_text();
    std::fs::write(&inventory, format!("root@127.0.0.1 {} {other}\n", sshd.port)).unwrap();
    let replaced = node.carry(&carrier, "CREATE").await;
    assert!(
        !replaced.is_good() && replaced.message.contains("Host key verification failed"),
        "{}",
        replaced.message
    );
    let claims = std::fs::read_to_string(sshd.folder().join("inventory.claims")).unwrap();
    assert_eq!(claims, "{}", "what cannot be entered is nobody's");
}

#[test]
fn the_types_name_the_fields_of_the_programs() {
    for (file, program, fields) in [
        ("providertypes/shelf.json", "shelf", ["inventory", "ssh_key"].as_slice()),
        ("automatortypes/textfile.json", "textfile", &["mode", "path", "text"]),
    ] {
        let text = std::fs::read_to_string(example(file)).unwrap();
        let kind: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(kind["name"], program);
        let declared = kind["parameters"]["admin"]["fields"].as_object().unwrap();
        assert_eq!(declared.keys().collect::<Vec<_>>(), fields);
        let code = std::fs::read_to_string(example(program)).unwrap();
        assert!(fields.iter().all(|field| code.contains(&format!("\"{field}\""))), "{program}");
        assert!(
            std::fs::read_to_string(example("provisioner.toml")).unwrap().contains(&format!("{program} = "))
        );
    }
}
