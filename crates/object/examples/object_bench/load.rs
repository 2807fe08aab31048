//! Clients that put and get in a closed loop.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{FuturesUnordered, TryStreamExt};
use rustix::fs::Advice;

use crate::process;
use crate::times::Times;
use crate::wire::{BLOCK, Connection, Load, Server};

/// Different objects that are read in one case.
const READ_MAX: usize = 4096;
/// Clients that clear up.
const SWEEPERS: usize = 16;

pub struct Case {
    pub put: bool,
    pub size: usize,
    pub clients: usize,
    pub seconds: f64,
    /// Whether the server's files are dropped from memory first.
    pub cold: bool,
}

impl Case {
    /// How many objects are put at most: signing comes before the clock runs.
    fn most(&self) -> usize {
        let a_second = match self.size {
            size if size <= 64 << 10 => 12_000.0,
            size if size <= 1 << 20 => 1200.0,
            _ => 8.0,
        };
        ((a_second * self.seconds) as usize).max(self.clients)
    }
}

pub struct Outcome {
    pub times: Times,
    count: usize,
    size: usize,
    elapsed: Duration,
    cpu: f64,
    pub peak_mb: f64,
}

impl Outcome {
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    pub fn megabytes(&self) -> f64 {
        self.rate() * self.size as f64 / 1e6
    }

    pub fn cpu_ms(&self) -> f64 {
        self.cpu * 1e3 / self.count as f64
    }
}

/// A server and what was put there.
pub struct Stock<'a> {
    pub server: &'a Server,
    filler: Vec<u8>,
    next: u64,
    stored: Vec<(u64, usize)>,
}

/// One request of a case.
struct Task {
    head: Vec<u8>,
    number: u64,
}

impl<'a> Stock<'a> {
    pub fn new(server: &'a Server) -> Self {
        let mut filler = vec![0; BLOCK];
        rand::fill(&mut filler[..]);
        Self { server, filler, next: 1, stored: Vec::new() }
    }

    pub async fn run(&mut self, case: &Case) -> Result<Outcome> {
        let tasks = if case.put { self.puts(case.most(), case.size) } else { self.gets(case)? };
        if case.cold {
            forget(&self.server.folder)?;
        }
        let pid = self.server.pid;
        process::peak_reset(pid)?;
        let before = process::cpu(pid)?;
        let begun = Instant::now();
        let until = begun + Duration::from_secs_f64(case.seconds);
        let next = Cell::new(0_usize);
        let clients = (0..case.clients).map(|_| self.client(case, &tasks, &next, until));
        let done = clients.collect::<FuturesUnordered<_>>().try_collect::<Vec<_>>().await?;
        let elapsed = begun.elapsed();
        let cpu = process::cpu(pid)? - before;
        let (mut times, mut stored) = (Vec::new(), Vec::new());
        for (number, time) in done.into_iter().flatten() {
            times.push(time);
            stored.push((number, case.size));
        }
        if case.put {
            self.stored.extend(stored);
        }
        let peak_mb = process::peak_mb(pid)?;
        Ok(Outcome { count: times.len(), times: Times::new(times), size: case.size, elapsed, cpu, peak_mb })
    }

    fn load(&self, number: u64, size: usize) -> Load<'_> {
        Load { number, size, filler: &self.filler }
    }

    fn puts(&mut self, count: usize, size: usize) -> Vec<Task> {
        let first = self.next;
        self.next += count as u64;
        let numbers = first..self.next;
        let task = |number| Task {
            head: self.server.head("PUT", &key(number), &[], Some(self.load(number, size))),
            number,
        };
        numbers.map(task).collect()
    }

    fn gets(&self, case: &Case) -> Result<Vec<Task>> {
        let stored = self.stored.iter().filter(|(_, size)| *size == case.size);
        let all: Vec<u64> = stored.map(|(number, _)| *number).collect();
        ensure!(!all.is_empty(), "nothing was put");
        let spread = |at: usize| all[at.wrapping_mul(0x9e37_79b9) % all.len()];
        let get = |number| Task { head: self.server.head("GET", &key(number), &[], None), number };
        Ok((0..all.len().min(READ_MAX)).map(|at| get(spread(at))).collect())
    }

    /// Takes tasks until the time is over, and at least one. Gets begin anew when all were had, unless that
    /// would find them in memory.
    async fn client(
        &self,
        case: &Case,
        tasks: &[Task],
        next: &Cell<usize>,
        until: Instant,
    ) -> Result<Vec<(u64, Duration)>> {
        let mut connection = Connection::open(self.server).await?;
        let mut done = Vec::new();
        while done.is_empty() || Instant::now() < until {
            let at = next.replace(next.get() + 1);
            let Some(task) = tasks.get(if case.put || case.cold { at } else { at % tasks.len() }) else {
                break;
            };
            let load = case.put.then(|| self.load(task.number, case.size));
            let since = Instant::now();
            let answer = connection.exchange(&task.head, load, None).await?;
            done.push((task.number, since.elapsed()));
            if !case.put {
                answer.check(task.number, case.size)?;
            }
        }
        Ok(done)
    }

    /// Puts so many small objects.
    pub async fn names(&mut self, count: usize) -> Result<()> {
        let tasks = self.puts(count, 64);
        let next = Cell::new(0);
        let case = Case { put: true, size: 64, clients: SWEEPERS, seconds: 0.0, cold: false };
        let until = Instant::now() + Duration::from_secs(600);
        let clients = (0..SWEEPERS).map(|_| self.client(&case, &tasks, &next, until));
        let done = clients.collect::<FuturesUnordered<_>>().try_collect::<Vec<_>>().await?;
        self.stored.extend(done.into_iter().flatten().map(|(number, _)| (number, 64)));
        Ok(())
    }

    /// Deletes what was put.
    pub async fn empty(&mut self) {
        let stored = std::mem::take(&mut self.stored);
        let next = Cell::new(0);
        let sweep = async || -> Result<()> {
            let mut connection = Connection::open(self.server).await?;
            while let Some((number, _)) = stored.get(next.replace(next.get() + 1)) {
                let head = self.server.head("DELETE", &key(*number), &[], None);
                connection.exchange(&head, None, None).await?;
            }
            Ok(())
        };
        let sweepers = (0..SWEEPERS).map(|_| sweep()).collect::<FuturesUnordered<_>>();
        if let Err(error) = sweepers.try_collect::<Vec<()>>().await {
            println!("{}: what was put could not be deleted: {error:#}", self.server.name);
        }
    }
}

fn key(number: u64) -> String {
    format!("{:03x}/object-{number:010}", number % 1000)
}

/// Drops the files in a folder from the page cache.
fn forget(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget(&entry.path())?;
        } else if kind.is_file()
            && let Ok(file) = std::fs::File::open(entry.path())
        {
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
