//! A process is killed while it writes; what it acknowledged is there afterwards, and nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use object::engine::{Engine, EngineConfig, EngineError};

use crate::bed::{config, content, fetch, files, id_of, open, prepare};

const FOLDER: &str = "ENGINE_CRASH_FOLDER";
pub const TASKS: u64 = 6;
const KEYS: u64 = 12;
const ROUNDS: u64 = 5;
const SIZES: [usize; 8] = [0, 10, 300, 4096, 5000, 60_000, 100_000, 700_000];

fn settings(data: &std::path::Path) -> EngineConfig {
    EngineConfig { segment: 512 << 10, checkpoint: Duration::from_millis(30), ..config(data) }
}

/// What a task does at a number: the key, and the content unless it deletes.
fn step(task: u64, number: u64) -> (String, Option<Bytes>) {
    let seed = task * 1_000_003 + number;
    let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let key = format!("f{task}/{}", hash % KEYS);
    let size = SIZES[(hash >> 8) as usize % SIZES.len()];
    let deletes = (hash >> 16).is_multiple_of(4);
    (key, (!deletes).then(|| content(seed, size)))
}

fn count_key(task: u64) -> Vec<u8> {
    format!("g{task}").into_bytes()
}

pub fn count(engine: &Engine, task: u64) -> u64 {
    let value = engine.read().unwrap().get(&count_key(task)).unwrap();
    value.map_or(0, |value| id_of(&value).0)
}

/// One step, recorded together with its number.
pub async fn run(engine: &Engine, task: u64, number: u64) -> Result<(), EngineError> {
    let (key, bytes) = step(task, number);
    let written = match &bytes {
        Some(bytes) => Some(prepare(engine, bytes, 50_000, None).await?),
        None => None,
    };
    engine
        .write(move |tx| {
            let key = key.into_bytes();
            if let Some(old) = tx.get(&key)? {
                tx.release(id_of(&old))?;
            }
            match written {
                Some(written) => {
                    let id = tx.store(written)?;
                    tx.put(key, id.0.to_be_bytes().to_vec());
                }
                None => tx.delete(key),
            }
            tx.put(count_key(task), number.to_be_bytes().to_vec());
            Ok(())
        })
        .await
}

#[tokio::test]
#[ignore = "the process that the next test kills"]
async fn child() {
    let engine = open(settings(std::env::var(FOLDER).unwrap().as_ref()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for number in count(&engine, task) + 1.. {
                    run(&engine, task, number).await.unwrap();
                    let line = format!("\nacknowledged {task} {number}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Runs the child and kills it after so many acknowledgements; answers the last one by task.
fn run_and_kill(data: &std::path::Path, after: usize) -> BTreeMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = BTreeMap::new();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(rest) = line.strip_prefix("acknowledged ") else { continue };
        let Some((task, number)) = rest.split_once(' ') else { continue };
        last.insert(task.parse().unwrap(), number.parse().unwrap());
        seen += 1;
        if seen == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= after, "the child ended by itself");
    last
}

/// The keys of a task must be as its first `count` steps leave them; answers how many there are.
pub async fn check(engine: &Engine, task: u64, count: u64) -> u64 {
    let mut expected = BTreeMap::new();
    for number in 1..=count {
        let (key, _) = step(task, number);
        expected.insert(key, number);
    }
    let view = engine.read().unwrap();
    let mut alive = 0;
    for (key, number) in expected {
        let value = view.get(key.as_bytes()).unwrap();
        match step(task, number).1 {
            Some(bytes) => {
                let id = id_of(&value.unwrap_or_else(|| panic!("{key} of step {number} is lost")));
                let found = fetch(engine, id, 0..bytes.len() as u64, None).await.unwrap();
                assert!(found == bytes, "{key} of step {number} has other bytes");
                alive += 1;
            }
            None => assert!(value.is_none(), "{key} of step {number} is there again"),
        }
    }
    alive
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = BTreeMap::new();
    for round in 0..ROUNDS {
        let data = folder.path().to_owned();
        let after = 150 + 170 * usize::try_from(round).unwrap();
        known.extend(tokio::task::spawn_blocking(move || run_and_kill(&data, after)).await.unwrap());
        let engine = open(settings(folder.path()));
        let mut alive = 0;
        for task in 0..TASKS {
            let (count, last) = (count(&engine, task), known.get(&task).copied().unwrap_or(0));
            assert!(count == last || count == last + 1, "task {task}: {last} acknowledged, {count} there");
            known.insert(task, count);
            alive += check(&engine, task, count).await;
        }
        // In the end nothing is left of what was let go.
        loop {
            let stats = engine.stats().unwrap();
            assert!(stats.packed.blobs + stats.files.blobs >= alive);
            if stats.packed.blobs + stats.files.blobs == alive
                && stats.files.blobs == files(folder.path()) as u64
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(engine.scrub(None, |_| {}).await.unwrap().damaged.is_empty());
    }
}
