//! Machines of another cloud: Keystone, Glance, Neutron, Placement and Nova as they are released, from PyPI, with Nova's own fake
//! hypervisor. So requests, tokens, states, addresses and words of failure are theirs; only that an image's cloud-init
//! lets the key in is not seen here: an sshd of ours stands where the machine would be.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../ssh/bed.rs"]
mod bed;
mod liar;
mod stack;

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use bed::Sshd;
use liar::Liar;
use provision::carry::Carrier;
use provision::ssh::{Identity, Pool};
use provision::task::{Fault, Report, Task};
use serde_json::{Value, json};
use stack::Stack;

fn carrier() -> Carrier {
    Carrier::new(Pool::new(4), PathBuf::from("/nonexistent"))
}

/// Nova on SQLite may find it locked, which it calls an unexpected error. As root does, such a task is asked for again.
async fn carry(carrier: &Carrier, task: &Task) -> Report {
    for _ in 0..4 {
        let report = carrier.carry(task).await;
        if !report.message.contains("Unexpected API Error") {
            return report;
        }
        assert!(report.is_passing, "{}", report.message);
    }
    carrier.carry(task).await
}

/// One node, as root knows it.
struct Node {
    id: &'static str,
    key: Identity,
    config: Value,
}

impl Node {
    fn new(id: &'static str, fields: Value) -> Self {
        let key = Identity::from_seed(&rand::random());
        let config = json!({
            "hostname": format!("{id}.local"), "image": "debian-12", "flavor": "m1.tiny",
            "cluster-key": key.private_text().as_str(),
            "provider": {"providertype": "openstack", "provisioner": fields}
        });
        Self { id, key, config }
    }

    fn of(id: &'static str, stack: &Stack) -> Self {
        Self::new(
            id,
            json!({
                "openstack_auth_url": stack.said["url"], "openstack_username": "banyan",
                "openstack_api_key": stack.said["password"], "openstack_tenant": "shop",
                "openstack_region": "RegionOne", "network_ids": "inner", "ssh_wait": 1
            }),
        )
    }

    fn field(mut self, name: &str, value: Value) -> Self {
        self.config["provider"]["provisioner"][name] = value;
        self
    }

    fn task(&self, verb: &str) -> Task {
        serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c-1", "taskName": verb, "nodeId": self.id, "config": self.config
        }))
        .unwrap()
    }

    async fn carry(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let report = carry(carrier, &self.task(verb)).await;
        if let Some(id) = report.result.get("providerid") {
            self.config["providerid"] = id.clone();
        }
        report
    }

    async fn good(&mut self, carrier: &Carrier, verb: &str) -> Report {
        let report = self.carry(carrier, verb).await;
        assert_eq!((report.status, report.message.as_str()), (0, ""), "{verb} of {}", self.id);
        report
    }
}

/// Nova cannot be started for each of them: it takes half a minute.
#[tokio::test]
async fn machines_of_an_openstack_live() {
    let stack = tokio::task::spawn_blocking(Stack::start).await.unwrap();
    a_machine_is_made_once_found_and_deleted(&stack).await;
    two_at_once_make_one(&stack).await;
    a_floating_address_comes_and_goes(&stack).await;
    what_nova_cannot_make_is_said_in_its_words(&stack).await;
    what_is_wrong_is_said_at_once(&stack).await;
}

async fn a_machine_is_made_once_found_and_deleted(stack: &Stack) {
    let carrier = carrier();
    let mut node = Node::of("web1-1000", stack);
    stack.ask("stranger web1-1000.local");
    let id = node.good(&carrier, "CREATE").await.result["providerid"].clone();
    // The word of it got lost, and it is asked again.
    node.config.as_object_mut().unwrap().remove("providerid");
    assert_eq!(node.good(&carrier, "CREATE").await.result["providerid"], id);
    let servers = stack.servers(node.id);
    assert_eq!(servers.len(), 1, "{servers:?}");
    assert_eq!((&servers[0]["id"], &servers[0]["metadata"]["banyan:cluster"]), (&id, &json!("c-1")));
    let data = base64::engine::general_purpose::STANDARD.decode(servers[0]["user_data"].as_str().unwrap());
    let data = String::from_utf8(data.unwrap()).unwrap();
    assert!(data.starts_with("#cloud-config\n") && data.contains(&node.key.public_text()), "{data}");
    assert!(!data.contains("PRIVATE"));
    // It runs and has an address, where nobody is yet.
    let unreached = node.carry(&carrier, "CONFIRM").await;
    let servers = stack.servers(node.id);
    let address = servers[0]["addresses"]["inner"][0]["addr"].as_str().unwrap().to_owned();
    assert!(unreached.message.contains(&address) && unreached.is_passing, "{}", unreached.message);
    let sshd = Sshd::start_at(&address, node.key.clone());
    node.config["ssh-port"] = json!(sshd.port);
    let confirmed = node.good(&carrier, "CONFIRM").await;
    assert_eq!(
        (&confirmed.ipaddresses["access_v4"], &confirmed.ipaddresses["bind_v4"]),
        (&address, &address)
    );
    assert_eq!(confirmed.result["ssh_host_keys"], json!({"ed25519": sshd.host_key()}));
    // The token that is kept is worth nothing any more.
    stack.ask("revoke");
    for _ in 0..2 {
        node.good(&carrier, "DELETE").await;
    }
    assert_eq!(stack.servers(node.id).len(), 0);
    let strangers = stack.ask("servers").as_array().unwrap().len();
    assert_eq!(strangers, 1, "what has the same name only is left alone");
    let gone = node.carry(&carrier, "CONFIRM").await;
    assert!(gone.message.starts_with("the server is gone") && !gone.is_passing, "{}", gone.message);
    // A new one is made though the old one's id is still known.
    assert_ne!(node.good(&carrier, "CREATE").await.result["providerid"], id);
    // Its id is not known, only whose it is.
    node.config.as_object_mut().unwrap().remove("providerid");
    node.good(&carrier, "DELETE").await;
    assert_eq!(stack.servers(node.id).len(), 0);
}

async fn two_at_once_make_one(stack: &Stack) {
    let (one, other) = (carrier(), carrier());
    let node = Node::of("twice", stack);
    let task = node.task("CREATE");
    let (first, second) = tokio::join!(carry(&one, &task), carry(&other, &task));
    assert!(first.is_good() && second.is_good(), "{} {}", first.message, second.message);
    // Nova forgets for a moment that it deletes what it also builds.
    let is_there = |server: &&Value| server["task_state"] != "deleting";
    let left = || -> Vec<Value> { stack.servers(node.id).iter().filter(is_there).cloned().collect() };
    let began = std::time::Instant::now();
    while left().len() > 1 && began.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let left = left();
    assert_eq!(left.len(), 1, "{left:?}");
    let ids = [&first.result["providerid"], &second.result["providerid"]];
    assert!(ids.contains(&&left[0]["id"]), "{ids:?}");
    let mut node = node;
    node.good(&one, "DELETE").await;
}

async fn a_floating_address_comes_and_goes(stack: &Stack) {
    let carrier = carrier();
    let account = &stack.said["application"];
    let mut node = Node::of("outside", stack)
        .field("openstack_username", json!(""))
        .field("openstack_application_credential_id", account["id"].clone())
        .field("openstack_application_credential_secret", account["secret"].clone())
        .field("openstack_interface", json!("internal"))
        .field("floating_ip", json!(true));
    node.good(&carrier, "CREATE").await;
    for _ in 0..2 {
        let unreached = node.carry(&carrier, "CONFIRM").await;
        assert!(unreached.message.contains("127.78."), "{}", unreached.message);
    }
    let given = stack.ask("floatings");
    assert_eq!(given.as_array().unwrap().len(), 1, "{given}");
    let address = given[0]["floating_ip_address"].as_str().unwrap();
    let sshd = Sshd::start_at(address, node.key.clone());
    node.config["ssh-port"] = json!(sshd.port);
    let confirmed = node.good(&carrier, "CONFIRM").await;
    assert_eq!(confirmed.ipaddresses["access_v4"], address);
    assert!(confirmed.ipaddresses["bind_v4"].starts_with("127.77."));
    node.good(&carrier, "DELETE").await;
    assert_eq!(stack.ask("floatings"), json!([]));
}

async fn what_nova_cannot_make_is_said_in_its_words(stack: &Stack) {
    let carrier = carrier();
    let mut node = Node::of("huge", stack);
    node.config["flavor"] = json!("m1.huge");
    let created = node.carry(&carrier, "CREATE").await;
    // The quota of memory is asked before a host is looked for.
    assert!(created.message.contains("Quota exceeded for ram"), "{}", created.message);
    assert_eq!((created.status, created.is_passing), (Fault::FAILED, false));
    node.config["flavor"] = json!("m1.wide");
    node.good(&carrier, "CREATE").await;
    let failed = node.carry(&carrier, "CONFIRM").await;
    let start = "the server could not be made: No valid host was found";
    assert!(failed.message.starts_with(start) && !failed.is_passing, "{}", failed.message);
    node.good(&carrier, "DELETE").await;
    assert_eq!(stack.servers(node.id).len(), 0);
}

async fn what_is_wrong_is_said_at_once(stack: &Stack) {
    let carrier = carrier();
    for (name, value) in [
        ("openstack_api_key", "not the password"),
        ("openstack_username", "nobody"),
        ("openstack_tenant", "another"),
        ("openstack_api_key", ""),
    ] {
        let refused = Node::of("wrong", stack).field(name, json!(value)).carry(&carrier, "CREATE").await;
        assert_eq!((refused.status, refused.is_passing), (Fault::CREDENTIALS, false), "{}", refused.message);
        assert!(!refused.message.contains("not the password"), "{}", refused.message);
    }
    for (name, value, why) in [
        ("openstack_region", "Mars", "the cloud has no region 'Mars'; it has RegionOne"),
        ("openstack_auth_url", "ftp://x", "'ftp://x' is no address of Keystone"),
        ("openstack_interface", "secret", "write public or internal"),
        ("network_ids", "none", "none of networks with the name 'none'"),
        ("security_groups", "none", "Unable to find security_group"),
        ("availability_zone", "none", "availability zone is not available"),
        ("ssh_keypair", "none", "key_name"),
    ] {
        let refused = Node::of("wrong", stack).field(name, json!(value)).carry(&carrier, "CREATE").await;
        assert_eq!((refused.status, refused.is_passing), (Fault::INVALID, false), "{}", refused.message);
        assert!(refused.message.contains(why), "{}", refused.message);
    }
    for (property, value, why) in [
        ("image", "windows", "none of images with the name 'windows'"),
        ("flavor", "m1.none", "no flavor 'm1.none'"),
        ("flavor", "m1.diskless", "zero disk"),
    ] {
        let mut node = Node::of("wrong", stack);
        node.config[property] = json!(value);
        let refused = node.carry(&carrier, "CREATE").await;
        assert_eq!((refused.status, refused.is_passing), (Fault::INVALID, false), "{}", refused.message);
        assert!(refused.message.contains(why), "{}", refused.message);
    }
    assert_eq!(stack.servers("wrong").len(), 0);
}

#[tokio::test]
async fn a_cloud_that_misbehaves_is_asked_once_and_bounded() {
    let elsewhere = Liar::start("200 OK", 0).await;
    let redirect = format!("307 Temporary Redirect\r\nlocation: {}/v3/auth/tokens", elsewhere.url);
    for (head, body, status, is_passing, why) in [
        ("401 Unauthorized", 0, Fault::CREDENTIALS, false, "it answered 401"),
        ("429 Too Many Requests", 0, Fault::FAILED, true, "it answered 429"),
        ("503 Service Unavailable", 0, Fault::FAILED, true, "it answered 503"),
        (&redirect, 0, Fault::INVALID, false, "it answered 307"),
        ("201 Created\r\nx-subject-token: t", 0, Fault::FAILED, true, "cannot be read"),
        ("201 Created\r\nx-subject-token: t", 1 << 30, Fault::FAILED, true, "more than 8 MiB"),
    ] {
        let liar = Liar::start(head, body).await;
        let mut node = Node::new(
            "n",
            json!({
                "openstack_auth_url": liar.url, "openstack_username": "u", "openstack_api_key": "p",
                "openstack_tenant": "t"
            }),
        );
        let refused = node.carry(&carrier(), "CREATE").await;
        assert_eq!((refused.status, refused.is_passing), (status, is_passing), "{}", refused.message);
        assert!(refused.message.contains(why), "{}", refused.message);
        assert_eq!(liar.asked(), 1, "{head}");
    }
    assert_eq!(elsewhere.asked(), 0);
}
