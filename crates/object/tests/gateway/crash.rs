//! A process with a gateway is killed while it writes; what it acknowledged is there afterwards, here and there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use object::engine::{Engine, EngineConfig};

use crate::bed::{content, delete, get, put};
use crate::remote::{Remote, config, gateway, open, until};

const FOLDER: &str = "GATEWAY_CRASH_FOLDER";
const ENDPOINT: &str = "GATEWAY_CRASH_ENDPOINT";
const TASKS: u64 = 4;
const KEYS: u64 = 5;
const ROUNDS: usize = 4;
const SIZES: [usize; 6] = [300, 60_000, 70_000, 700_000, 9 << 20, 18 << 20];

fn settings(data: &Path, endpoint: &str) -> EngineConfig {
    let mut gateway = gateway(endpoint);
    gateway.settle = Duration::ZERO;
    EngineConfig { segment: 512 << 10, ..config(data, gateway) }
}

/// What a task does at a number: the key, and the size unless it deletes.
fn step(task: u64, number: u64) -> (String, Option<usize>) {
    let hash = (task * 1_000_003 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let size = SIZES[(hash >> 8) as usize % SIZES.len()];
    (format!("f{task}/{}", hash % KEYS), (!(hash >> 16).is_multiple_of(5)).then_some(size))
}

fn seed(task: u64, number: u64) -> u64 {
    task << 32 | number
}

#[tokio::test]
#[ignore = "the process that the next test kills"]
async fn child() {
    let (folder, endpoint) = (std::env::var(FOLDER).unwrap(), std::env::var(ENDPOINT).unwrap());
    let first: u64 = std::env::var("GATEWAY_CRASH_FIRST").unwrap().parse().unwrap();
    let engine = open(settings(folder.as_ref(), &endpoint)).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let say = |word: &str, number: u64| {
                    let line = format!("\n{word} {task} {number}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                };
                for number in first.. {
                    let (key, size) = step(task, number);
                    say("begun", number);
                    match size {
                        Some(size) => {
                            put(&engine, &key, &content(seed(task, number), size)).await.map(drop).unwrap()
                        }
                        None => delete(&engine, &key).await.unwrap(),
                    }
                    say("done", number);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// What the child said of a task: the last step that was done, and the last that was begun.
type Said = BTreeMap<u64, (u64, u64)>;

fn run_and_kill(data: &Path, endpoint: &str, first: u64, after: usize, said: &mut Said) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, data)
        .env(ENDPOINT, endpoint)
        .env("GATEWAY_CRASH_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let [word @ ("begun" | "done"), task, number] = words[..] else { continue };
        let (task, number) = (task.parse().unwrap(), number.parse().unwrap());
        let entry = said.entry(task).or_insert((0, 0));
        entry.1 = number;
        if word == "done" {
            entry.0 = number;
            seen += 1;
            if seen == after {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(seen >= after, "the child ended by itself");
}

/// What a key must hold by the steps of this life; the step under way at the kill may or may not have come through.
async fn check(
    engine: &Engine,
    task: u64,
    first: u64,
    (done, begun): (u64, u64),
    truth: &mut BTreeMap<String, Option<u64>>,
) {
    for number in first..=done {
        let (key, size) = step(task, number);
        truth.insert(key, size.map(|_| number));
    }
    let uncertain = (begun > done).then(|| step(task, begun).0);
    for index in 0..KEYS {
        let key = format!("f{task}/{index}");
        let expected = truth.get(&key).copied().flatten();
        let other = (uncertain.as_ref() == Some(&key)).then(|| step(task, begun).1.map(|_| begun));
        let mut found = None;
        for candidate in std::iter::once(expected).chain(other) {
            let size = candidate.map_or(0, |number| step(task, number).1.unwrap());
            let bytes = get(engine, &key, size as u64).await.ok().flatten();
            if bytes == candidate.map(|number| content(seed(task, number), size).to_vec()) {
                found = Some(candidate);
            }
        }
        let found = found.unwrap_or_else(|| panic!("{key} is neither {expected:?} nor {other:?}"));
        truth.insert(key, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_nothing_else_stays() {
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let mut truth = BTreeMap::new();
    let mut first = 1;
    for round in 0..ROUNDS {
        let mut said = Said::new();
        let (data, endpoint) = (folder.path().to_owned(), remote.endpoint.clone());
        let run = move || {
            run_and_kill(&data, &endpoint, first, 12 + round * 5, &mut said);
            said
        };
        let said = tokio::task::spawn_blocking(run).await.unwrap();
        let engine = open(settings(folder.path(), &remote.endpoint)).await;
        let before = first;
        for (task, said) in said {
            check(&engine, task, before, said, &mut truth).await;
            first = first.max(said.1 + 1);
        }
        // What the killed one left there is found and goes.
        let alive = engine.stats().unwrap().remote.blobs as usize;
        until(async || {
            let stats = engine.stats().unwrap();
            // An upload that began there and was not noted here before the kill is nobody's to end.
            let noted = std::fs::read_dir(folder.path().join("uploads")).unwrap().count();
            remote.blobs().await.len() == stats.remote.blobs as usize && noted == 0
        })
        .await;
        assert!(engine.stats().unwrap().remote.blobs as usize <= alive);
        engine.close().await;
    }
    assert!(truth.values().flatten().count() > 0);
    remote.stop().await;
}
