//! The power goes while the engine writes: a file system of its own drops everything that was not synced.
//!
//! An ext4 image on a loop device is shut down by the kernel without writing its log; what stands in the image after
//! that is what a disk would hold. Mounted again, everything acknowledged must be there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object::engine::{Engine, EngineConfig};

use crate::bed::{config, content, files, get, open, put};
use crate::crash::{TASKS, check, count, run};

/// `EXT4_IOC_SHUTDOWN` with the flag that leaves the log unwritten.
const SHUTDOWN: &str = r#"
    open(my $folder, "<", $ARGV[0]) or die "open: $!";
    my $flag = pack("L", 2);
    ioctl($folder, 0x8004587d, $flag) or die "ioctl: $!";
"#;
const SIZE: u64 = 256 << 20;
const ROUNDS: usize = 4;

fn shell(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A disk whose power can go.
struct Disk {
    folder: tempfile::TempDir,
    mounted: bool,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Self { folder, mounted: false };
        std::fs::create_dir(disk.path()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(SIZE).unwrap();
        // Without waiting for the rest of the inode tables, which would be written in the background.
        let options = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        shell(Command::new("mkfs.ext4").args(options).arg(disk.image()));
        disk.mount();
        disk
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// The log is written when somebody syncs, not now and then.
    fn mount(&mut self) {
        let options = ["-t", "ext4", "-o", "loop,commit=3600"];
        shell(Command::new("mount").args(options).arg(self.image()).arg(self.path()));
        self.mounted = true;
    }

    fn power_off(&self) {
        shell(Command::new("perl").args(["-e", SHUTDOWN]).arg(self.path()));
    }

    /// Waits until nobody has a file open.
    fn power_on(&mut self) {
        while !Command::new("umount").arg(self.path()).output().unwrap().status.success() {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.mounted = false;
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

fn settings(data: &Path) -> EngineConfig {
    EngineConfig { segment: 1 << 20, reserve: 8 << 20, checkpoint: Duration::from_millis(40), ..config(data) }
}

/// Works until the disk fails under it; answers for each task the last step that was acknowledged before that, and the
/// last of all. A real loss of power ends the process as well; here it may still hear good news while the disk dies,
/// and what it hears then counts for nothing.
async fn work_until_dark(engine: Engine, disk: &Disk, unsynced: &Path, after: u64) -> Vec<(u64, u64)> {
    let first: Vec<u64> = (0..TASKS).map(|task| count(&engine, task)).collect();
    let heard: Vec<_> = first.iter().map(|count| Arc::new(AtomicU64::new(*count))).collect();
    let tasks: Vec<_> = (0..TASKS)
        .zip(heard.clone())
        .map(|(task, heard)| {
            let engine = engine.clone();
            tokio::spawn(async move {
                while run(&engine, task, heard.load(Ordering::Acquire) + 1).await.is_ok() {
                    heard.fetch_add(1, Ordering::Release);
                }
            })
        })
        .collect();
    let now = || heard.iter().map(|heard| heard.load(Ordering::Acquire)).collect::<Vec<_>>();
    while now().iter().sum::<u64>() < first.iter().sum::<u64>() + after {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = now();
    tokio::task::block_in_place(|| {
        // In the last moment: a busy kernel, or anyone's `sync`, may write it by itself.
        std::fs::write(unsynced, content(9, 100_000)).unwrap();
        disk.power_off();
    });
    for task in tasks {
        task.await.unwrap();
    }
    before.into_iter().zip(now()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_the_loss_of_power() {
    let mut disk = Disk::new();
    let data = disk.path().join("data");
    for round in 0..ROUNDS {
        let engine = open(settings(&data));
        let unsynced = disk.path().join(format!("unsynced{round}"));
        let known = work_until_dark(engine, &disk, &unsynced, 60 + 130 * round as u64).await;
        disk.power_on();
        let found = std::fs::read(&unsynced).unwrap_or_default();
        assert!(found != content(9, 100_000), "the power did not go: what was not synced is there");

        let engine = open(settings(&data));
        let mut alive = 0;
        for (task, (acknowledged, last)) in (0..).zip(known) {
            let there = count(&engine, task);
            let fits = (acknowledged..=last + 1).contains(&there);
            assert!(fits, "task {task}: {acknowledged} to {last} acknowledged, {there} there");
            alive += check(&engine, task, there).await;
        }
        loop {
            let stats = engine.stats().unwrap();
            assert!(stats.packed.blobs + stats.files.blobs >= alive);
            if stats.packed.blobs + stats.files.blobs == alive && stats.files.blobs == files(&data) as u64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(engine.scrub(None, |_| {}).await.unwrap().damaged.is_empty());
    }
}

/// The very first writes, when folders, index and journal are new themselves.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_store_survives_the_loss_of_power() {
    let mut disk = Disk::new();
    for (round, size) in [100, 200_000].into_iter().enumerate() {
        let data = disk.path().join(format!("data{round}"));
        let engine = open(settings(&data));
        put(&engine, "first", &content(1, size)).await.unwrap();
        disk.power_off();
        drop(engine);
        disk.power_on();
        let engine = open(settings(&data));
        assert_eq!(get(&engine, "first", size as u64).await.unwrap().unwrap(), content(1, size));
        drop(engine);
    }
}
