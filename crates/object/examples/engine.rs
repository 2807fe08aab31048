//! Measures the engine alone, beside plain files.
//!
//! ```text
//! engine puts FOLDER SECONDS TASKS...    puts of 4 KiB by so many tasks, then gets
//! engine blobs FOLDER COUNT TASKS        blobs of 64 MiB in and out, beside a plain file
//! engine scan FOLDER KEYS                a listing of so many keys, and memory
//! engine churn FOLDER SECONDS            overwrites of 4 KiB: what the journal keeps
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use object::engine::{BlobId, Engine, EngineConfig, EngineError, SealKey};

const LARGE: usize = 64 << 20;
const PIECE: usize = 64 << 10;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match words[..] {
            ["puts", folder, seconds, ref tasks @ ..] => {
                for tasks in tasks {
                    puts(Path::new(folder), number(seconds), number(tasks)).await;
                }
            }
            ["blobs", folder, count, tasks] => blobs(Path::new(folder), number(count), number(tasks)).await,
            ["scan", folder, keys] => scan(Path::new(folder), number(keys)).await,
            ["churn", folder, seconds] => churn(Path::new(folder), number(seconds)).await,
            _ => println!("usage: engine puts|blobs|scan|churn FOLDER ..."),
        }
    });
}

fn open(folder: &Path) -> Engine {
    let _ = std::fs::remove_dir_all(folder);
    Engine::open(EngineConfig::new(folder.to_owned())).unwrap()
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    format!("{} MiB resident, {} MiB at most", of("VmRSS:"), of("VmHWM:"))
}

async fn store(engine: &Engine, key: String, bytes: Bytes) -> Result<BlobId, EngineError> {
    let mut writer = engine.blob(Some(bytes.len() as u64), None);
    writer.write(bytes).await?;
    let written = writer.finish().await?;
    engine
        .write(move |tx| {
            let key = key.into_bytes();
            if let Some(old) = tx.get(&key)? {
                tx.release(BlobId(u64::from_be_bytes(old[..8].try_into().unwrap())))?;
            }
            let id = tx.store(written)?;
            let mut value = vec![0; 300];
            value[..8].copy_from_slice(&id.0.to_be_bytes());
            tx.put(key, value);
            Ok(id)
        })
        .await
}

/// Puts by several tasks for a while; answers how long each took.
async fn load(engine: &Engine, seconds: usize, tasks: usize, keys: u64) -> Vec<Duration> {
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    let bytes = Bytes::from(vec![7; 4096]);
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (engine, bytes) = (engine.clone(), bytes.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                for number in 0_u64.. {
                    let start = Instant::now();
                    if start >= until {
                        break;
                    }
                    let name = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
                    store(&engine, format!("o{task:03}/{name:020}"), bytes.clone()).await.unwrap();
                    times.push(start.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_unstable();
    times
}

async fn puts(folder: &Path, seconds: usize, tasks: usize) {
    let engine = open(folder);
    let times = load(&engine, seconds, tasks, u64::MAX).await;
    println!(
        "puts of 4 KiB by {tasks}: {}/s, median {:?}, p99 {:?}, worst {:?}; {}; {:?}",
        times.len() / seconds,
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1],
        memory(),
        engine.stats().unwrap()
    );
    gets(&engine, seconds, tasks, times.len() as u64).await;
    engine.close().await;
}

async fn gets(engine: &Engine, seconds: usize, tasks: usize, blobs: u64) {
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    let readers = (0..tasks as u64).map(|task| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < until {
                let id = BlobId(1 + (task + count).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blobs);
                let parts: Vec<Bytes> =
                    engine.fetch(id, 0..4096, None).await.unwrap().try_collect().await.unwrap();
                assert_eq!(parts.iter().map(Bytes::len).sum::<usize>(), 4096);
                count += 1;
            }
            count
        })
    });
    let mut count = 0;
    for reader in readers.collect::<Vec<_>>() {
        count += reader.await.unwrap();
    }
    println!("gets of 4 KiB by {tasks}: {}/s", count / seconds as u64);
}

async fn churn(folder: &Path, seconds: usize) {
    let engine = open(folder);
    for _ in 0..seconds.div_ceil(5) {
        let times = load(&engine, 5, 16, 1000).await;
        println!("{} overwrites/s; {}; {:?}", times.len() / 5, memory(), engine.stats().unwrap());
    }
}

fn rate(bytes: usize, time: Duration) -> String {
    format!("{:.0} MiB/s", bytes as f64 / f64::from(1 << 20) / time.as_secs_f64())
}

async fn blobs(folder: &Path, count: usize, tasks: usize) {
    let engine = open(folder);
    let piece = Bytes::from((0..PIECE).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    plain(folder, count, &piece);
    for seal in [None, Some(SealKey([3; 32].into()))] {
        let start = Instant::now();
        let mut ids = Vec::new();
        for _ in 0..count.div_ceil(tasks) {
            let writers = (0..tasks).map(|_| {
                let (engine, seal, piece) = (engine.clone(), seal.clone(), piece.clone());
                tokio::spawn(async move {
                    let mut writer = engine.blob(Some(LARGE as u64), seal.as_ref());
                    for _ in 0..LARGE / PIECE {
                        writer.write(piece.clone()).await.unwrap();
                    }
                    let written = writer.finish().await.unwrap();
                    let id: Result<_, EngineError> = engine.write(move |tx| tx.store(written)).await;
                    id.unwrap()
                })
            });
            for writer in writers.collect::<Vec<_>>() {
                ids.push(writer.await.unwrap());
            }
        }
        let sealed = seal.is_some();
        println!("write, sealed {sealed}: {}; {}", rate(LARGE * ids.len(), start.elapsed()), memory());
        let start = Instant::now();
        for id in &ids {
            let mut stream = engine.fetch(*id, 0..LARGE as u64, seal.as_ref()).await.unwrap();
            let mut size = 0;
            while let Some(bytes) = stream.try_next().await.unwrap() {
                size += bytes.len();
            }
            assert_eq!(size, LARGE);
        }
        println!("read, sealed {sealed}: {}; {}", rate(LARGE * ids.len(), start.elapsed()), memory());
    }
}

/// What the disk does without us.
fn plain(folder: &Path, count: usize, piece: &[u8]) {
    let paths: Vec<_> = (0..count).map(|number| folder.join(format!("plain{number}"))).collect();
    let megabyte = piece.repeat((1 << 20) / PIECE);
    let start = Instant::now();
    for path in &paths {
        let mut file = File::create(path).unwrap();
        for _ in 0..LARGE >> 20 {
            file.write_all(&megabyte).unwrap();
        }
        file.sync_data().unwrap();
    }
    println!("plain file, write and fdatasync: {}", rate(LARGE * count, start.elapsed()));
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    for path in &paths {
        let mut file = File::open(path).unwrap();
        while file.read(&mut buffer).unwrap() > 0 {}
    }
    println!("plain file, read: {}", rate(LARGE * count, start.elapsed()));
    for path in &paths {
        std::fs::remove_file(path).unwrap();
    }
}

async fn scan(folder: &Path, keys: usize) {
    let engine = open(folder);
    let start = Instant::now();
    for batch in 0..keys.div_ceil(1000) {
        let put: Result<(), EngineError> = engine
            .write(move |tx| {
                for number in 0..1000 {
                    let key = format!("o/folder{:04}/object{:08}", batch % 1000, batch * 1000 + number);
                    tx.put(key.into_bytes(), vec![7; 300]);
                }
                Ok(())
            })
            .await;
        put.unwrap();
    }
    println!("{keys} keys in {:?}; {}", start.elapsed(), memory());
    for round in ["right after", "again", "after a checkpoint"] {
        let view = engine.read().unwrap();
        let (mut count, start) = (0, Instant::now());
        view.scan(b"o".to_vec()..b"p".to_vec(), |_, value| {
            count += usize::from(value.len() == 300);
            true
        })
        .unwrap();
        println!("{round}: {count} keys in {:?}; {}", start.elapsed(), memory());
        if round == "again" {
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
    }
    let start = Instant::now();
    let view = engine.read().unwrap();
    for number in 0..10_000 {
        let number = number * 7919 % keys;
        let key = format!("o/folder{:04}/object{number:08}", number / 1000 % 1000);
        assert!(view.get(key.as_bytes()).unwrap().is_some());
    }
    println!("a read by key: {:?}", start.elapsed() / 10_000);
    engine.close().await;
    drop(view);
    drop(engine);
    let start = Instant::now();
    let engine = Engine::open(EngineConfig::new(folder.to_owned())).unwrap();
    println!("opened in {:?}; {}", start.elapsed(), memory());
    drop(engine);
}
