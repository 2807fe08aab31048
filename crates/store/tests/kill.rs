//! What was acknowledged survives SIGKILL at any moment, and nothing is half there.
//!
//! The test runs itself again as the process that is killed, see [`victim`].
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use store::{JournalEntry, JournalQuery, Record, Store, Txn};

const ROUNDS: u64 = 200;
/// A new database now and then, so that creating one is interrupted as well and checking stays quick.
const ROUNDS_PER_DATABASE: u64 = 20;
const WRITERS: u64 = 4;
const URL: &str = "STORE_KILL_URL";
const ROUND: &str = "STORE_KILL_ROUND";

/// Writes until it is killed and tells what was acknowledged. Does nothing as a normal test.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let (Ok(url), Ok(round)) = (std::env::var(URL), std::env::var(ROUND)) else { return };
    let store = Store::open(&url).await.unwrap();
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), format!("{round}-{writer}"))));
    futures::future::join_all(writers).await;
}

async fn write(store: Store, writer: String) {
    for number in 0.. {
        let group = format!("{writer}-{number}");
        let entry = JournalEntry { at_us: 1, tenant: None, subject: group.clone(), body: json!({}).into() };
        let txn = Txn::new()
            .insert("first", &group, None, Some(&group), json!({ "group": group, "text": "x".repeat(200) }))
            .insert("second", &group, None, None, json!({ "group": group }))
            .put("latest", &writer, None, None, json!(number))
            .delete("first", format!("{writer}-{}", number - 20), None)
            .delete("second", format!("{writer}-{}", number - 20), None)
            .journal(entry);
        store.commit(txn).await.unwrap();
        say(&format!("ack {writer} {number}"));
        if number % 3 == 0 {
            let value = store.counter_next("count").await.unwrap();
            say(&format!("count {value}"));
        }
    }
}

/// One write per line, so that no line is cut.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}

/// What the victims of one database said.
#[derive(Default)]
struct Told {
    /// The last acknowledged number of each writer.
    latest: BTreeMap<String, i64>,
    counts: BTreeSet<u64>,
}

impl Told {
    fn hear(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["ack", writer, number] => {
                self.latest.insert(writer.to_owned(), number.parse().unwrap());
                true
            }
            ["count", value] => {
                assert!(self.counts.insert(value.parse().unwrap()), "the counter gave {value} twice");
                false
            }
            // The test harness says something too.
            _ => false,
        }
    }
}

/// Runs a victim and kills it: after some acknowledged commits, or at any time from its start.
fn round(url: &str, number: u64, random: &mut StdRng, told: &mut Told) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--nocapture", "--test-threads=1"])
        .env(URL, url)
        .env(ROUND, number.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    let enough = if random.random_bool(0.3) { 0 } else { random.random_range(1..40) };
    while acknowledged < enough {
        let line = lines.next().expect("the victim runs until it is killed").unwrap();
        acknowledged += u64::from(told.hear(&line));
    }
    let wait = if enough == 0 { 60_000 } else { 4_000 };
    std::thread::sleep(Duration::from_micros(random.random_range(0..wait)));
    child.kill().unwrap();
    // What it still said before it died counts as acknowledged.
    for line in lines {
        acknowledged += u64::from(told.hear(&line.unwrap()));
    }
    child.wait().unwrap();
    acknowledged
}

async fn check(url: &str, told: &Told) {
    let store = Store::open(url).await.unwrap();
    let (records, head) = store.load().await.unwrap();
    check_feed(&store, &records, head).await;
    let of = |kind: &str| -> BTreeMap<&str, &Record> {
        records
            .iter()
            .filter(|record| record.kind == kind)
            .map(|record| (record.id.as_str(), record))
            .collect()
    };
    let (first, second, latest) = (of("first"), of("second"), of("latest"));
    assert!(first.keys().eq(second.keys()), "a transaction is half there");
    let mut groups = 0;
    for (writer, record) in &latest {
        let last = record.body.value().as_i64().unwrap();
        for number in (last - 19).max(0)..=last {
            let group = format!("{writer}-{number}");
            assert_eq!(first[group.as_str()].version + 1, second[group.as_str()].version);
            groups += 1;
        }
        let page = JournalQuery { subject: Some(format!("{writer}-{last}")), ..JournalQuery::default() };
        assert_eq!(store.journal(page).await.unwrap().len(), 1, "history has what was committed");
    }
    assert_eq!(groups, first.len(), "a transaction is half there");
    for (writer, acknowledged) in &told.latest {
        let found = latest.get(writer.as_str()).map(|record| record.body.value().as_i64().unwrap());
        assert!(found >= Some(*acknowledged), "{writer}-{acknowledged} was acknowledged, {found:?} is there");
    }
    store.close().await;
}

/// The feed has every number once, and following it gives what is stored.
async fn check_feed(store: &Store, records: &[Record], head: i64) {
    let mut watch = store.watch(0).await.unwrap();
    let mut replica = BTreeMap::new();
    let mut seq = 0;
    while seq < head {
        for change in watch.next_batch().await.unwrap() {
            seq += 1;
            assert_eq!(change.seq, seq, "the feed has a gap");
            match change.record {
                Some(record) => replica.insert((change.kind, change.id), record),
                None => replica.remove(&(change.kind, change.id)),
            };
        }
    }
    assert!(replica.values().eq(records.iter()), "the feed does not lead to what is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill() {
    if std::env::var(URL).is_ok() {
        return;
    }
    let mut random = StdRng::seed_from_u64(rand::random());
    let mut acknowledged = 0;
    for database in 0..ROUNDS / ROUNDS_PER_DATABASE {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/store.db", directory.path().display());
        let mut told = Told::default();
        for number in 0..ROUNDS_PER_DATABASE {
            let name = database * ROUNDS_PER_DATABASE + number;
            acknowledged += tokio::task::block_in_place(|| round(&url, name, &mut random, &mut told));
            check(&url, &told).await;
        }
    }
    assert!(acknowledged > ROUNDS, "only {acknowledged} commits in {ROUNDS} rounds");
}
