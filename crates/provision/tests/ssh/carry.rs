//! Whole tasks: machines of a pool, from create to delete, and such as vanish.

use std::path::{Path, PathBuf};
use std::time::Duration;

use provision::carry::Carrier;
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

const CLAIM: &str = "/var/lib/banyan/machine";

/// The claim that a pool leaves on its machines is on this one: one test at a time, and none leaves it behind.
struct Alone(#[expect(dead_code, reason = "held")] tokio::sync::MutexGuard<'static, ()>);

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(CLAIM);
    }
}

async fn alone() -> Alone {
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let one = ONE.lock().await;
    assert!(!Path::new(CLAIM).exists(), "this machine is taken: {CLAIM} says by whom");
    Alone(one)
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
    assert_eq!((full.status, full.is_passing), (Fault::CREDENTIALS, false), "a pool does not grow by itself");
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
    assert!(!Path::new(CLAIM).exists());
}

#[tokio::test]
async fn no_machine_of_a_pool_is_taken_and_forgotten() {
    let _alone = alone().await;
    let sshd = Sshd::start();
    let carrier = carrier();
    let (mut node, mut other) = (Node::new("half", &sshd), Node::new("other", &sshd));
    // One that cannot take the cluster's key is another's at once.
    let ssh = sshd.folder().join("home/.ssh");
    std::fs::write(&ssh, "").unwrap();
    let failed = node.carry(&carrier, "CREATE").await;
    assert!(failed.message.contains("does not take the cluster's key"), "{}", failed.message);
    assert!(!Path::new(CLAIM).exists());
    std::fs::remove_file(&ssh).unwrap();
    assert_eq!(node.carry(&carrier, "CREATE").await.message, "");
    // The word of it got lost, and one of the pool does not answer.
    node.config.remove("providerid");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for node in [&mut node, &mut other] {
        let hosts = &mut node.config["provider"]["provisioner"]["hosts"];
        *hosts = json!(format!("{},127.0.0.1:{port}", hosts.as_str().unwrap()));
    }
    let unclear = other.carry(&carrier, "DELETE").await;
    assert!(unclear.message.contains("not all machines could be asked"), "{}", unclear.message);
    assert!(unclear.is_passing);
    assert!(Path::new(CLAIM).exists());
    assert_eq!(node.carry(&carrier, "DELETE").await.message, "");
    assert!(!Path::new(CLAIM).exists());
}

#[tokio::test]
async fn what_is_stopped_ends_on_the_machine() {
    let _alone = alone().await;
    let sshd = Sshd::start();
    let carrier = carrier();
    let mut node = Node::new("stopped", &sshd);
    for verb in ["CREATE", "CONFIRM", "BOOTSTRAP"] {
        assert_eq!(node.carry(&carrier, verb).await.message, "", "{verb}");
    }
    let mark = sshd.folder().join("pid");
    let code = format!("#!/bin/sh\necho starting; echo $$ $PWD > {}\nsleep 1000\n", mark.display());
    node.config["service"]["action"]["fields"]["code"] = json!(code);
    let stop = tokio_util::sync::CancellationToken::new();
    let (task, token) = (node.task("INSTALL"), stop.clone());
    let begun = async {
        while std::fs::read_to_string(&mark).unwrap_or_default().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        token.cancel();
    };
    let (report, ()) = tokio::join!(carrier.carry_until(&task, &stop), begun);
    assert_eq!((report.message.as_str(), report.is_passing), ("it was stopped", true));
    assert_eq!(report.stdout, "starting\n", "what it said until then is kept");
    let said = std::fs::read_to_string(&mark).unwrap();
    let (pid, folder) = said.trim().split_once(' ').unwrap();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    for _ in 0..500 {
        if runs() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(!runs(), "the script still runs");
    assert!(!Path::new(folder).exists(), "its folder is still there");
    assert!(node.carry(&carrier, "DELETE").await.is_good());
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
    let unknown = node.carry(&carrier, "CREATE").await;
    assert!(
        unknown.message.starts_with("this provisioner has no provider 'moon'; it has banyan, "),
        "{}",
        unknown.message
    );
}

/// Both ways of a machine to be gone: its sshd dies and says so, or it falls silent.
#[tokio::test]
async fn a_machine_that_vanishes_during_an_install_is_said_and_may_come_back() {
    let _alone = alone().await;
    let mut sshd = Sshd::start();
    let carrier = carrier();
    let mut node = Node::new("vanishing", &sshd);
    for verb in ["CREATE", "CONFIRM", "BOOTSTRAP"] {
        assert_eq!(node.carry(&carrier, verb).await.message, "", "{verb}");
    }
    for is_silent in [false, true] {
        let mark = sshd.folder().join("begun");
        let code = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", mark.display());
        node.config["service"]["action"]["fields"]["code"] = json!(code);
        let began = std::time::Instant::now();
        let vanish = async {
            while std::fs::read_to_string(&mark).unwrap_or_default().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if is_silent { sshd.freeze() } else { sshd.stop() }
        };
        let install = node.task("INSTALL");
        let (lost, ()) = tokio::join!(carrier.carry(&install), vanish);
        assert!(lost.message.starts_with("the connection to 127.0.0.1:"), "{}", lost.message);
        assert_eq!((lost.status, lost.is_passing), (Fault::UNREACHED, true), "{}", lost.message);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let _ = std::process::Command::new("kill")
            .args(["-9", std::fs::read_to_string(&mark).unwrap().trim()])
            .status();
        std::fs::remove_file(&mark).unwrap();
        let gone = carrier.carry(&install).await;
        assert!(gone.is_passing && !gone.is_good(), "{}", gone.message);
        // It is back, and the same task is done.
        sshd.revive();
        node.config["service"]["action"]["fields"]["code"] = json!("#!/bin/sh\necho up");
        assert_eq!(node.carry(&carrier, "INSTALL").await.message, "");
    }
    assert!(node.carry(&carrier, "DELETE").await.is_good());
}
