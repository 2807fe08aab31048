//! Damage: torn tails, flipped bits.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::engine::{Engine, EngineError};

use crate::bed::{config, content, fetch, get, open, put, still};

fn last_segment(data: &Path) -> PathBuf {
    let mut paths: Vec<_> =
        fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.pop().unwrap()
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A folder in memory, for tests that open it very often.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Writes two groups; answers where each begins and where the last ends.
async fn two_groups(data: &Path) -> [u64; 3] {
    let engine = open(still(data));
    put(&engine, "zero", &content(0, 60)).await.unwrap();
    let first = fs::metadata(last_segment(data)).unwrap().len();
    put(&engine, "one", &content(1, 60)).await.unwrap();
    let second = fs::metadata(last_segment(data)).unwrap().len();
    put(&engine, "two", &content(2, 60)).await.unwrap();
    [first, second, fs::metadata(last_segment(data)).unwrap().len()]
}

#[tokio::test]
async fn a_tail_torn_at_any_byte_ends_the_journal() {
    let folder = memory();
    let [_, start, end] = two_groups(folder.path()).await;
    for cut in start..end {
        for zeros in [false, true] {
            let copy = memory();
            copy_all(folder.path(), copy.path());
            let file = File::options().write(true).open(last_segment(copy.path())).unwrap();
            file.set_len(cut).unwrap();
            if zeros {
                file.set_len(end + 5000).unwrap();
            }
            let engine = open(still(copy.path()));
            assert_eq!(get(&engine, "one", 60).await.unwrap().unwrap(), content(1, 60), "cut at {cut}");
            // The last byte may be a zero by itself.
            let two = get(&engine, "two", 60).await.unwrap();
            assert!(two.is_none() || (zeros && two.unwrap() == content(2, 60)), "cut at {cut}");
            put(&engine, "three", &content(3, 60)).await.unwrap();
            drop(engine);
            let engine = open(still(copy.path()));
            assert_eq!(get(&engine, "three", 60).await.unwrap().unwrap(), content(3, 60), "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn damage_before_sound_groups_is_an_error() {
    let folder = memory();
    let [first, second, end] = two_groups(folder.path()).await;
    for at in (first..second).step_by(7) {
        let copy = memory();
        copy_all(folder.path(), copy.path());
        flip(&last_segment(copy.path()), at);
        let opened = Engine::open(still(copy.path()));
        assert!(
            matches!(opened, Err(EngineError::Journal { offset, .. }) if offset == first),
            "{at} of {end}"
        );
    }
}

#[tokio::test]
async fn a_lost_segment_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = object::engine::EngineConfig { segment: 4096, ..still(folder.path()) };
    let engine = open(config.clone());
    for number in 0..20 {
        put(&engine, &format!("k{number}"), &content(number, 3000)).await.unwrap();
    }
    drop(engine);
    let mut paths: Vec<_> =
        fs::read_dir(folder.path().join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    fs::remove_file(&paths[paths.len() / 2]).unwrap();
    assert!(matches!(Engine::open(config), Err(EngineError::Journal { .. })));
}

#[tokio::test]
async fn flipped_bits_are_found_by_readers_and_by_the_scrubber() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let small = put(&engine, "small", &content(1, 5000)).await.unwrap();
    let large = put(&engine, "large", &content(2, 1_000_000)).await.unwrap();
    let whole = put(&engine, "whole", &content(3, 1_000_000)).await.unwrap();
    let seen = engine.scrub(None, |_| {}).await.unwrap();
    assert_eq!((seen.blobs, seen.bytes, seen.damaged.len()), (3, 2_005_000, 0));

    flip(&last_segment(folder.path()), 2000);
    let file = folder.path().join(format!("blobs/0/{:x}", large.0));
    flip(&file, 700_000);
    assert!(matches!(fetch(&engine, small, 0..10, None).await, Err(EngineError::Damaged(id)) if id == small));
    assert_eq!(fetch(&engine, large, 0..500_000, None).await.unwrap(), content(2, 1_000_000)[..500_000]);
    assert!(fetch(&engine, large, 0..1_000_000, None).await.is_err());
    while engine.damaged().unwrap() != [small, large] {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let seen = engine.scrub(Some(100 << 20), |_| {}).await.unwrap();
    assert_eq!((seen.blobs, seen.damaged), (3, vec![small, large]));

    // A file that is cut short or gone is damage as well; one that is well again is not.
    flip(&file, 700_000);
    let path = folder.path().join(format!("blobs/0/{:x}", whole.0));
    File::options().write(true).open(&path).unwrap().set_len(1_000_000).unwrap();
    assert_eq!(engine.scrub(None, |_| {}).await.unwrap().damaged, [small, whole]);
    fs::remove_file(path).unwrap();
    assert_eq!(engine.scrub(None, |_| {}).await.unwrap().damaged, [small, whole]);
    assert_eq!(engine.damaged().unwrap(), [small, whole]);
    assert_eq!(engine.stats().unwrap().damaged, 2);
    crate::bed::delete(&engine, "small").await.unwrap();
    while engine.damaged().unwrap() != [whole] {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn sound_bytes_in_the_wrong_place_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(config(folder.path()));
    let size = 300_000;
    let ids = [
        put(&engine, "one", &content(1, size)).await.unwrap(),
        put(&engine, "two", &content(2, size)).await.unwrap(),
    ];
    let [one, two] = files(&folder.path().join("blobs")).try_into().unwrap();
    let aside = folder.path().join("aside");
    for (from, to) in [(&one, &aside), (&two, &one), (&aside, &two)] {
        fs::rename(from, to).unwrap();
    }
    for id in ids {
        assert!(matches!(fetch(&engine, id, 0..10, None).await, Err(EngineError::Damaged(_))));
    }
    assert_eq!(engine.scrub(None, |_| ()).await.unwrap().damaged.len(), 2);
}
