//! Whole tasks: machines of a pool, from create to delete, and programs that misbehave.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use provision::carry::Carrier;
use provision::plugin::Plugin;
use provision::ssh::{Identity, Pool};
use provision::task::{Fault, Report, Task};
use serde_json::{Map, Value, json};

use crate::bed::Sshd;

fn carrier() -> Carrier {
    Carrier::new(Pool::new(16), PathBuf::from("/nonexistent"))
}

struct Node {
    id: &'static str,
    cluster_key: Identity,
    config: Map<String, Value>,
}

impl Node {
    fn new(id: &'static str, sshd: &Sshd) -> Self {
        let config = json!({
            "hostname": format!("{id}.local"), "automators": ["shell"],
            "provider": {"providertype": "hosts", "provisioner": {
                "hosts": format!("# ours\n127.0.0.1:{} {}", sshd.port, sshd.host_key().as_str()),
                "ssh_key": sshd.identity.private_text().as_str()
            }},
            "service": {"name": "web", "action": {"type": "shell", "fields": {"code": "#!/bin/sh\necho up"}}}
        });
        let config = config.as_object().unwrap().clone();
        Self { id, cluster_key: Identity::from_seed(&rand::random()), config }
    }

    fn task(&self, verb: &str) -> Task {
        let mut config = self.config.clone();
        config.insert("cluster-key".into(), json!(self.cluster_key.private_text().as_str()));
        serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c", "taskName": verb, "nodeId": self.id, "config": config
        }))
        .unwrap()
    }

    /// Does a task and keeps what it said of the node, as root does.
    async fn carry(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let report = carrier.carry(&self.task(verb)).await;
        self.config.extend(report.result.clone());
        if !report.ipaddresses.is_empty() {
            self.config.insert("ipaddresses".into(), json!(report.ipaddresses));
        }
        report
    }
}

/// The claim and the keys that a pool leaves on its machines are of this one.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ONE.lock().await
}

#[tokio::test]
async fn a_machine_of_a_pool_lives_and_is_given_back() {
    let _alone = alone().await;
    let sshd = Sshd::start();
    let carrier = carrier();
    let (mut first, mut second) = (Node::new("first", &sshd), Node::new("second", &sshd));
    assert_eq!(first.carry(&carrier, "CREATE").await.message, "");
    // The word of it got lost, and it is asked again.
    assert!(first.carry(&carrier, "CREATE").await.is_good());
    let full = second.carry(&carrier, "CREATE").await;
    assert_eq!(full.message, "all 1 machines of the provider are in use");
    assert_eq!((full.status, full.is_passing), (Fault::CREDENTIALS, true));
    for verb in ["CONFIRM", "BOOTSTRAP", "INSTALL"] {
        let report = first.carry(&carrier, verb).await;
        assert_eq!((report.status, report.message.as_str()), (0, ""), "{verb}");
    }
    assert!(sshd.authorized().contains(&first.cluster_key.public_text()));
    for _ in 0..2 {
        assert!(first.carry(&carrier, "DELETE").await.is_good());
    }
    assert!(!sshd.authorized().contains(&first.cluster_key.public_text()));
    assert!(second.carry(&carrier, "CREATE").await.is_good());
    assert!(second.carry(&carrier, "DELETE").await.is_good());
    assert!(!Path::new("/var/lib/banyan/machine").exists());
}

#[tokio::test]
async fn wrong_credentials_are_said_at_once() {
    let sshd = Sshd::start();
    let carrier = carrier();
    let mut node = Node::new("wrong", &sshd);
    node.config["provider"]["provisioner"]["ssh_key"] =
        json!(Identity::from_seed(&[1; 32]).private_text().as_str());
    let refused = node.carry(&carrier, "CREATE").await;
    assert_eq!((refused.status, refused.is_passing), (Fault::CREDENTIALS, false), "{}", refused.message);
    assert!(refused.message.contains("does not know the key"), "{}", refused.message);
    node.config["provider"]["provisioner"]["hosts"] = json!("");
    assert!(node.carry(&carrier, "CREATE").await.message.contains("fill in its field 'hosts'"));
    node.config["provider"]["providertype"] = json!("moon");
    assert_eq!(
        node.carry(&carrier, "CREATE").await.message,
        "this provisioner has no provider 'moon'; it has hosts"
    );
}

fn program(folder: &Path, name: &str, text: &str) -> Plugin {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    Plugin::new(name, path, Duration::from_secs(3))
}

#[tokio::test]
async fn programs_are_providers_and_their_faults_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().display();
    let programs = [
        ("good", r#"grep -q '"verb":"create"' && echo making >&2; echo '{"status":0,"result":{"providerid":"x-1"}}'"#.to_owned()),
        ("denied", r#"cat >/dev/null; echo '{"status":201,"message":"the password is wrong"}'"#.to_owned()),
        ("garbage", "echo this is no JSON".to_owned()),
        ("flood", "yes | head -c 60000000; yes x | head -c 9000000 >&2".to_owned()),
        ("hang", format!("sleep 40 & echo $! > {marks}/child; wait")),
        ("dies", "echo oh no >&2; exit 4".to_owned()),
    ];
    let mut carrier = carrier();
    for (name, text) in &programs {
        carrier.provider_add(Arc::new(program(folder.path(), name, text)));
    }
    carrier.provider_add(Arc::new(Plugin::new(
        "absent",
        folder.path().join("nowhere"),
        Duration::from_secs(1),
    )));
    let ask = async |name: &str| {
        let task = json!({"taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "CREATE", "nodeId": "n",
                          "config": {"provider": {"providertype": name}}});
        carrier.carry(&serde_json::from_value(task).unwrap()).await
    };
    let good = ask("good").await;
    assert_eq!(
        (good.status, good.stderr.as_str(), &good.result["providerid"]),
        (0, "making\n", &json!("x-1"))
    );
    let denied = ask("denied").await;
    assert_eq!(
        (denied.status, denied.message.as_str(), denied.is_passing),
        (201, "the password is wrong", false)
    );
    let garbage = ask("garbage").await;
    assert!(
        garbage.message.starts_with("the plugin 'garbage' did not answer as it should"),
        "{}",
        garbage.message
    );
    assert_eq!(garbage.stdout, "this is no JSON\n");
    let flood = ask("flood").await;
    assert_eq!(flood.message, "the plugin 'flood' answered more than 4 MiB");
    assert!(flood.stdout.len() < 4_000 && flood.stderr.len() < 80_000);
    assert_eq!(ask("hang").await.message, "the plugin 'hang' took longer than 3 s");
    let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
    let is_there = || Path::new(&format!("/proc/{}/cmdline", child.trim())).exists();
    let began = std::time::Instant::now();
    while is_there() && began.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!is_there(), "what it started is ended too");
    let dies = ask("dies").await;
    assert_eq!(
        (dies.message.as_str(), dies.stderr.as_str()),
        ("the plugin 'dies' ended with code 4", "oh no\n")
    );
    assert!(ask("absent").await.message.starts_with("the plugin 'absent' cannot be started"));
}
