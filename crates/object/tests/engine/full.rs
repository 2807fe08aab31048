//! A disk without room.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object::engine::{Engine, EngineConfig, EngineError};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::bed::{config, content, delete, get, open, put};

/// A small disk, gone when dropped.
struct Disk {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    fn new(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::create_dir(&path).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), options.as_c_str()).expect("mounting needs root");
        Self { _folder: folder, path }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path, UnmountFlags::DETACH).unwrap();
    }
}

/// Puts until the disk is full; answers the keys that are there.
async fn fill(engine: &Engine, name: &str, size: usize) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let key = format!("{name}{}", keys.len());
        match put(engine, &key, &content(keys.len() as u64, size)).await {
            Ok(_) => keys.push(key),
            Err(error) if error.is_full() => return keys,
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn check(engine: &Engine, keys: &[String], size: usize) {
    for (number, key) in keys.iter().enumerate() {
        let bytes = get(engine, key, size as u64).await.unwrap();
        assert!(bytes.is_some_and(|bytes| bytes == content(number as u64, size)), "{key}");
    }
}

/// Puts again until there is room.
async fn put_at_last(engine: &Engine, key: &str, size: usize) {
    loop {
        match put(engine, key, &content(1, size)).await {
            Ok(_) => return,
            Err(error) if error.is_full() => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn settings(data: &Path, reserve: u64) -> EngineConfig {
    EngineConfig { segment: 1 << 20, reserve, ..config(data) }
}

#[tokio::test]
async fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    for size in [4096, 300_000] {
        let disk = Disk::new("32m");
        let data = disk.path.join("data");
        let engine = open(settings(&data, 8 << 20));
        let keys = fill(&engine, "k", size).await;
        assert!(keys.len() > 20);
        check(&engine, &keys, size).await;
        for key in &keys[keys.len() / 2..] {
            delete(&engine, key).await.unwrap();
        }
        put_at_last(&engine, "after", size).await;
        check(&engine, &keys[..keys.len() / 2], size).await;
        drop(engine);
        let engine = open(settings(&data, 8 << 20));
        check(&engine, &keys[..keys.len() / 2], size).await;
        assert!(get(&engine, "after", size as u64).await.unwrap().is_some());
        assert!(get(&engine, keys.last().unwrap(), 0).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_disk_that_others_filled_to_the_last_byte_loses_nothing() {
    let disk = Disk::new("32m");
    let data = disk.path.join("data");
    let engine = open(settings(&data, 0));
    put(&engine, "first", &content(1, 5000)).await.unwrap();
    let filler = disk.path.join("filler");
    for round in 0..4_u64 {
        // Leaves a little, so that the journal or the index is what fails.
        let stat = rustix::fs::statvfs(&disk.path).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        let size = usize::try_from(free.saturating_sub(round * 150_000)).unwrap();
        // The engine takes some meanwhile; then the disk is full before.
        let _ = fs::write(&filler, vec![1; size]);
        let name = format!("r{round}-");
        let keys = fill(&engine, &name, 3000).await;
        let changed: Result<(), EngineError> = engine.write(|_| Ok(())).await;
        assert!(changed.is_ok() || changed.unwrap_err().is_full());
        tokio::time::sleep(Duration::from_millis(200)).await;
        check(&engine, &keys, 3000).await;
        fs::remove_file(&filler).unwrap();
        put_at_last(&engine, &format!("after{round}"), 3000).await;
        check(&engine, &keys, 3000).await;
        for key in &keys {
            delete(&engine, key).await.unwrap();
        }
    }
    let checkpoints = engine.stats().unwrap().checkpoints;
    put(&engine, "last", &content(1, 5000)).await.unwrap();
    while engine.stats().unwrap().checkpoints == checkpoints {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(engine);
    let engine = open(settings(&data, 0));
    for round in 0..4 {
        assert_eq!(get(&engine, &format!("after{round}"), 3000).await.unwrap().unwrap(), content(1, 3000));
    }
    assert_eq!(get(&engine, "first", 5000).await.unwrap().unwrap(), content(1, 5000));
}
