//! What the disk and the kernel do without a server.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::Advice;

use crate::LARGE;
use crate::times::Times;

const PIECE: usize = 1 << 20;
const ROUNDS: usize = 7;
const SYNCS: u64 = 200;

/// In MB/s, the middle of several rounds.
pub struct Floors {
    pub write: f64,
    pub read_warm: f64,
    pub read_cold: f64,
    sync: Times,
}

impl Floors {
    pub fn measure(folder: &Path) -> Result<Self> {
        let path = folder.join("plain");
        let mut piece = vec![0; PIECE];
        rand::fill(&mut piece[..]);
        let (mut write, mut warm, mut cold) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let mut file = File::create(&path)?;
            for _ in 0..LARGE / PIECE {
                file.write_all(&piece)?;
            }
            file.sync_all()?;
            File::open(folder)?.sync_all()?;
            write.push(since.elapsed());
            warm.push(read(&path, &mut piece)?);
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            cold.push(read(&path, &mut piece)?);
        }
        let file = File::create(&path)?;
        let mut sync = Vec::new();
        for at in 0..SYNCS {
            let since = Instant::now();
            file.write_all_at(&piece[..4096], at * 4096)?;
            file.sync_data()?;
            sync.push(since.elapsed());
        }
        std::fs::remove_file(&path)?;
        let middle = |times| LARGE as f64 / 1e3 / Times::new(times).at(0.5);
        let (write, read_warm, read_cold) = (middle(write), middle(warm), middle(cold));
        Ok(Self { write, read_warm, read_cold, sync: Times::new(sync) })
    }

    pub fn print(&self) {
        println!("floors, one thread, a file of 64 MiB on the same disk, middle of {ROUNDS}");
        println!("  write and fsync                {:>8.0} MB/s", self.write);
        println!("  read, in memory                {:>8.0} MB/s", self.read_warm);
        println!("  read, not in memory            {:>8.0} MB/s", self.read_cold);
        println!(
            "  append 4 KiB and fdatasync     {:>8.2} ms p50, {:.2} ms p99",
            self.sync.at(0.5),
            self.sync.at(0.99)
        );
    }
}

fn read(path: &Path, piece: &mut [u8]) -> Result<Duration> {
    let since = Instant::now();
    let mut file = File::open(path)?;
    while file.read(piece)? > 0 {}
    Ok(since.elapsed())
}
