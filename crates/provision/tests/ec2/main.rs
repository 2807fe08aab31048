//! Machines of another cloud: moto, from PyPI, which checks signatures.

#![allow(clippy::unwrap_used)]

mod moto;

use std::path::PathBuf;

use moto::Moto;
use provision::carry::Carrier;
use provision::ssh::{Identity, Pool};
use provision::task::{Fault, Report, Task};
use serde_json::{Value, json};

/// One that moto has.
const IMAGE: &str = "ami-12c6146b";

struct World {
    moto: Moto,
    carrier: Carrier,
    key: Identity,
}

impl World {
    async fn new() -> Self {
        let moto = tokio::task::spawn_blocking(Moto::start).await.unwrap();
        let carrier = Carrier::new(Pool::new(4), PathBuf::from("/nonexistent"));
        Self { moto, carrier, key: Identity::from_seed(&rand::random()) }
    }

    fn task(&self, verb: &str, id: &str) -> Task {
        serde_json::from_value(json!({
            "taskId": id, "jobId": "j", "clusterId": "c-1", "taskName": verb, "nodeId": "c-1-1000",
            "config": {
                "hostname": "web1-1000.local", "image": IMAGE, "flavor": "t2.micro",
                "cluster-key": self.key.private_text().as_str(),
                "provider": {"providertype": "ec2", "provisioner": {
                    "endpoint": self.moto.endpoint, "api_user": self.moto.access, "api_password": self.moto.secret,
                    "aws_region": "us-east-1", "address": "private", "ssh_wait": 1
                }}
            }
        }))
        .unwrap()
    }

    async fn carry(&self, task: &Task) -> Report {
        self.carrier.carry(task).await
    }
}

fn field(task: &mut Task, name: &str, value: Value) {
    task.config["provider"]["provisioner"][name] = value;
}

#[tokio::test]
async fn a_machine_is_made_once_found_and_deleted() {
    let world = World::new().await;
    let create = world.task("CREATE", "t-1");
    let first = world.carry(&create).await;
    assert_eq!((first.status, first.message.as_str()), (0, ""));
    let id = first.result["providerid"].as_str().unwrap().to_owned();
    assert!(id.starts_with("i-"), "{id}");
    // The word of it got lost, and it is asked again.
    assert_eq!(world.carry(&create).await.result["providerid"], json!(id));
    let instances = world.moto.instances();
    assert_eq!(instances.len(), 1, "{instances:?}");
    assert_eq!(instances[0]["Tags"]["banyan:node"], "c-1-1000");
    assert_eq!(instances[0]["Tags"]["Name"], "web1-1000.local");
    let data = instances[0]["UserData"].as_str().unwrap();
    assert!(data.starts_with("#cloud-config\n") && data.contains(&world.key.public_text()), "{data}");
    assert!(!data.contains("PRIVATE"));
    // It runs and has an address; nobody lets us in, because it is none.
    let mut confirm = world.task("CONFIRM", "t-2");
    confirm.config.insert("providerid".into(), json!(id));
    let unreached = world.carry(&confirm).await;
    let address = instances[0]["PrivateIpAddress"].as_str().unwrap();
    assert!(unreached.message.contains(address) && unreached.is_passing, "{}", unreached.message);
    // Its id is not known, only whose it is.
    for _ in 0..2 {
        let gone = world.carry(&world.task("DELETE", "t-3")).await;
        assert_eq!((gone.status, gone.message.as_str()), (0, ""));
    }
    assert!(world.moto.instances().iter().all(|instance| instance["State"] == "terminated"));
    let again = world.carry(&world.task("CREATE", "t-4")).await;
    assert!(again.is_good() && again.result["providerid"] != json!(id), "{}", again.message);
}

#[tokio::test]
async fn what_is_wrong_is_said_at_once() {
    let world = World::new().await;
    let wrong = |name: &str, value: &str| {
        let mut task = world.task("CREATE", "t-1");
        field(&mut task, name, json!(value));
        task
    };
    for (name, value) in [("api_user", "AKIANOBODY"), ("api_password", "not the secret"), ("api_user", "")] {
        let refused = world.carry(&wrong(name, value)).await;
        assert_eq!((refused.status, refused.is_passing), (Fault::CREDENTIALS, false), "{}", refused.message);
        assert!(!refused.message.contains(world.moto.secret.as_str()));
    }
    for (name, value) in [("subnet_id", "subnet-none"), ("endpoint", "ftp://x"), ("aws_region", "a/b")] {
        let refused = world.carry(&wrong(name, value)).await;
        assert_eq!((refused.status, refused.is_passing), (Fault::INVALID, false), "{}", refused.message);
    }
    let nobody = world.carry(&wrong("endpoint", "http://127.0.0.1:1")).await;
    assert!(nobody.is_passing && nobody.message.contains("the cloud cannot be asked"), "{}", nobody.message);
    assert_eq!(world.moto.instances().len(), 0);
}
