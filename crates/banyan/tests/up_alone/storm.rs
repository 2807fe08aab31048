//! `banyan up` killed at random points of a storm of creates and deletes: nothing acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Client, InstanceCreate};
use model::{Bytes, Cpu, InstanceSpec};
use rand::{Rng, SeedableRng};

use crate::support::*;

const ROUNDS: u64 = 3;
const WORKERS: u64 = 4;
const CREATES_PER_WORKER: u64 = 5;

/// What the cloud has said yes to, and what it has been asked without an answer.
#[derive(Default)]
struct Book {
    /// Name to id.
    created: BTreeMap<String, String>,
    deleted: BTreeSet<String>,
    unsure: BTreeSet<String>,
}

impl Book {
    fn asked(&mut self, name: &str) {
        self.unsure.insert(name.to_owned());
    }

    fn created(&mut self, name: &str, id: String) {
        self.unsure.remove(name);
        self.created.insert(name.to_owned(), id);
    }

    fn deleted(&mut self, name: &str) {
        self.unsure.remove(name);
        self.deleted.insert(name.to_owned());
    }
}

fn spec() -> InstanceSpec {
    let mut spec = InstanceSpec::new("busybox");
    spec.command =
        ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"].map(String::from).to_vec();
    (spec.cpu, spec.memory) = (Cpu(10), Bytes::mib(8));
    spec
}

/// Creates instances and deletes every third, until the cloud goes away.
async fn worker(client: Client, prefix: String, book: Arc<Mutex<Book>>) {
    for number in 0..CREATES_PER_WORKER {
        let name = format!("{prefix}-{number}");
        book.lock().unwrap().asked(&name);
        let body = InstanceCreate { name: name.parse().unwrap(), spec: spec() };
        let Ok(made) = client.instance_create(&body).await else { return };
        book.lock().unwrap().created(&name, made.id.to_string());
        if number % 3 == 2 {
            book.lock().unwrap().asked(&name);
            if client.instance_delete(&name, None).await.is_err() {
                return;
            }
            book.lock().unwrap().deleted(&name);
        }
    }
}

async fn storm(cloud: &Cloud, round: u64, book: &Arc<Mutex<Book>>, patience: Duration) {
    let client = cloud.client();
    let workers = (0..WORKERS)
        .map(|number| tokio::spawn(worker(client.clone(), format!("r{round}w{number}"), book.clone())));
    let workers: Vec<_> = workers.collect();
    tokio::time::sleep(patience).await;
    match round % 2 {
        0 => cloud.kill(),
        _ => cloud.terminate(),
    }
    for worker in workers {
        worker.await.unwrap();
    }
}

/// The lives of all instances that ran when the cloud ended.
fn lives(cloud: &Cloud) -> BTreeMap<String, (u64, String)> {
    let ids = cloud.remains().folders.into_iter().filter(|id| cloud.folder(id).join("started.json").exists());
    let lives = ids.map(|id| (id.clone(), cloud.life(&id)));
    lives.filter(|(_, (_, start))| start != "gone").collect()
}

/// Everything acknowledged has come true, and nothing else is on the machine.
fn settled(cloud: &Cloud, book: &Book, before: &BTreeMap<String, (u64, String)>) {
    let list = || cloud.json(&["instance", "list"]).as_array().unwrap().clone();
    let all = until("everything runs and nothing is being deleted", || {
        let all = list();
        all.iter().all(|instance| instance["phase"] == "running").then_some(all)
    });
    let found: BTreeMap<_, _> = all
        .iter()
        .map(|i| (i["name"].as_str().unwrap().to_owned(), i["id"].as_str().unwrap().to_owned()))
        .collect();
    for (name, id) in &book.created {
        if book.deleted.contains(name) {
            assert!(!found.contains_key(name), "{name} is back although its delete was acknowledged");
        } else if !book.unsure.contains(name) {
            assert_eq!(found.get(name), Some(id), "{name} is lost although its create was acknowledged");
        }
    }
    for name in found.keys() {
        assert!(book.created.contains_key(name) || book.unsure.contains(name), "{name} was never asked for");
    }
    for instance in &all {
        assert_eq!(instance["restarts"], 0, "{instance:#}");
        let id = instance["id"].as_str().unwrap();
        if let Some(life) = before.get(id) {
            assert_eq!(cloud.life(id), *life, "{} was started again instead of taken over", instance["name"]);
        }
    }
    let ids: Vec<String> = found.values().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    until("the machine holds what the list shows", || {
        let left = cloud.remains();
        (left.shims == ids && left.cgroups == ids && left.namespaces == ids && left.folders == ids)
            .then_some(())
    });
}

/// The seed is shown when it fails.
#[test]
#[allow(clippy::print_stdout)]
fn nothing_acknowledged_is_lost_in_a_storm() {
    let seed: u64 = rand::random();
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let cloud = Cloud::start(&[]);
    let book = Arc::new(Mutex::new(Book::default()));
    for round in 0..ROUNDS {
        let patience = Duration::from_millis(random.random_range(20..1200));
        wait_async(storm(&cloud, round, &book, patience));
        let before = lives(&cloud);
        cloud.up(&[]);
        let book = book.lock().unwrap();
        let count = (book.created.len(), book.deleted.len(), before.len());
        println!("seed {seed}, round {round}: after {patience:?} {count:?} created, deleted, running");
        settled(&cloud, &book, &before);
    }
}

#[test]
fn killed_while_it_starts_it_starts_again() {
    let cloud = Cloud::start(&[]);
    let id = cloud.create("steady", &[], "sleep 100000")["id"].as_str().unwrap().to_owned();
    let life = cloud.life(&id);
    cloud.kill();
    let mut random = rand::rngs::StdRng::seed_from_u64(rand::random());
    for _ in 0..3 {
        let mut child = cloud.up_command(&[]).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.random_range(1..1500)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    cloud.up(&[]);
    let kept = cloud.wait("steady", "running", |i| i["phase"] == "running");
    assert_eq!((kept["restarts"].as_u64(), cloud.life(&id)), (Some(0), life));
}

#[test]
fn killed_in_its_first_start_it_starts_again() {
    let cloud = Cloud::new();
    let mut random = rand::rngs::StdRng::seed_from_u64(rand::random());
    for _ in 0..3 {
        let mut child = cloud.up_command(&[]).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.random_range(1..1500)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    cloud.up(&[]);
    cloud.create("first", &[], "sleep 100000");
}
