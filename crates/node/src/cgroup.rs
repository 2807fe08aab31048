//! The cgroups of instances, in version 1, 2, and in hosts that mix them.
//!
//! The OCI runtime makes and removes them; here they are found, read, and cleared when a runtime
//! could not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::InstanceId;
use rustix::process::{Pid, Signal, kill_process};

/// Rounds of killing before a cgroup counts as immortal.
const KILL_ROUNDS_MAX: u32 = 100;
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// Where the controllers of this machine are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroups {
    parent: String,
    /// Version 1 hierarchies by controller.
    v1: BTreeMap<String, PathBuf>,
    v2: Option<PathBuf>,
    /// The machine can account for swap, so that instances can be kept from it.
    pub swap_accounted: bool,
}

/// What one cgroup has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_used_us: u64,
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    pub pids: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
}

impl Cgroups {
    pub fn find(parent: &str) -> io::Result<Self> {
        let mut found = Self::parse(parent, &fs::read_to_string("/proc/self/mountinfo")?);
        found.swap_accounted = match found.v1.get("memory") {
            Some(memory) => memory.join("memory.memsw.limit_in_bytes").exists(),
            None => Path::new("/proc/swaps").exists(),
        };
        Ok(found)
    }

    fn parse(parent: &str, mountinfo: &str) -> Self {
        let mut found = Self { parent: parent.to_owned(), ..Self::default() };
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut kinds = right.split(' ');
            let (kind, options) = (kinds.next().unwrap_or(""), kinds.nth(1).unwrap_or(""));
            let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
            match kind {
                "cgroup2" => found.v2 = found.v2.or(Some(point)),
                "cgroup" => {
                    options.split(',').filter(|word| *word != "rw" && *word != "ro").for_each(|word| {
                        found.v1.entry(word.to_owned()).or_insert_with(|| point.clone());
                    })
                }
                _ => {}
            }
        }
        found
    }

    /// As the OCI configuration wants it.
    pub fn path(&self, id: &str) -> String {
        format!("/{}/{id}", self.parent)
    }

    /// The version 2 mount of a machine whose controllers are in version 1: the one old runtimes stumble over.
    pub fn v2_beside_v1(&self) -> Option<PathBuf> {
        self.v2.clone().filter(|_| !self.v1.is_empty())
    }

    pub fn oom_files(&self, id: &str) -> Vec<PathBuf> {
        match self.v1.get("memory") {
            Some(_) => self.file_v1("memory", id, "memory.oom_control").into_iter().collect(),
            None => self.file_v2(id, "memory.events").into_iter().collect(),
        }
    }

    fn file_v1(&self, controller: &str, id: &str, file: &str) -> Option<PathBuf> {
        self.v1.get(controller).map(|root| root.join(&self.parent).join(id).join(file))
    }

    fn file_v2(&self, id: &str, file: &str) -> Option<PathBuf> {
        self.v2.as_ref().map(|root| root.join(&self.parent).join(id).join(file))
    }

    pub fn usage(&self, id: &str) -> Usage {
        let text = |path: Option<PathBuf>| path.and_then(|path| fs::read_to_string(path).ok());
        let v1 = |controller: &str, file: &str| text(self.file_v1(controller, id, file));
        let v2 = |file: &str| text(self.file_v2(id, file));
        let cpu_used_us = match v1("cpuacct", "cpuacct.usage") {
            Some(ns) => number(&ns) / 1000,
            None => v2("cpu.stat").map_or(0, |stat| field(&stat, "usage_usec")),
        };
        let either = |controller: &str, file_v1: &str, file_v2: &str| {
            v1(controller, file_v1).or_else(|| v2(file_v2)).map_or(0, |text| number(&text))
        };
        // Cached file content that the kernel gives up at once under pressure is not counted.
        let stat = v1("memory", "memory.stat").or_else(|| v2("memory.stat")).unwrap_or_default();
        let cache = field(
            &stat,
            if stat.contains("total_inactive_file") { "total_inactive_file" } else { "inactive_file" },
        );
        let (disk_read_bytes, disk_written_bytes) = match v1("blkio", "blkio.throttle.io_service_bytes") {
            Some(text) => (sum_v1(&text, "Read"), sum_v1(&text, "Write")),
            None => v2("io.stat").map_or((0, 0), |text| (sum_v2(&text, "rbytes="), sum_v2(&text, "wbytes="))),
        };
        Usage {
            cpu_used_us,
            memory_bytes: either("memory", "memory.usage_in_bytes", "memory.current").saturating_sub(cache),
            memory_limit_bytes: either("memory", "memory.limit_in_bytes", "memory.max"),
            pids: either("pids", "pids.current", "pids.current"),
            disk_read_bytes,
            disk_written_bytes,
        }
    }

    /// Every directory of an instance, once each.
    fn directories(&self, id: &str) -> Vec<PathBuf> {
        let mut roots: Vec<_> = self.v1.values().chain(self.v2.as_ref()).collect();
        roots.sort();
        roots.dedup();
        roots.into_iter().map(|root| root.join(&self.parent).join(id)).filter(|dir| dir.exists()).collect()
    }

    pub fn exists(&self, id: &str) -> bool {
        !self.directories(id).is_empty()
    }

    /// The instances that have a cgroup under our parent.
    pub fn ids(&self) -> Vec<InstanceId> {
        let parents = self.v1.values().chain(self.v2.as_ref()).map(|root| root.join(&self.parent));
        let name = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
        let mut ids: Vec<InstanceId> =
            parents.flat_map(|parent| children(&parent)).filter_map(|path| name(&path)).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Kills what is left in an instance's cgroups and removes them.
    pub fn clear(&self, id: &str) -> io::Result<()> {
        for _ in 0..KILL_ROUNDS_MAX {
            let directories = self.directories(id);
            if directories.is_empty() {
                return Ok(());
            }
            let busy = directories.iter().filter(|dir| kill_all(dir)).count() > 0;
            if !busy {
                directories.iter().for_each(|dir| tree_remove(dir));
            }
            if self.directories(id).is_empty() {
                return Ok(());
            }
            std::thread::sleep(KILL_PAUSE);
        }
        Err(io::Error::other(format!("processes of {id} cannot be killed")))
    }

    /// Removes the parent itself, when nothing lives in it.
    pub fn parent_remove(&self) {
        for root in self.v1.values().chain(self.v2.as_ref()) {
            tree_remove(&root.join(&self.parent));
        }
    }
}

/// Whether there was something to kill.
fn kill_all(dir: &Path) -> bool {
    let mut found = false;
    for child in children(dir) {
        found |= kill_all(&child);
    }
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in text.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        found = true;
        let _ = kill_process(pid, Signal::KILL);
    }
    found
}

fn tree_remove(dir: &Path) {
    children(dir).iter().for_each(|child| tree_remove(child));
    let _ = fs::remove_dir(dir);
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// How often the kernel killed a process of a cgroup for want of memory.
pub fn oom_kills(file: &Path) -> u64 {
    fs::read_to_string(file).map_or(0, |text| field(&text, "oom_kill"))
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// The number after a key, in `key number` lines.
fn field(text: &str, key: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' ')).map(number);
    text.lines().find_map(value).unwrap_or(0)
}

fn sum_v1(text: &str, operation: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' ')?.1.strip_prefix(operation)?.trim().parse::<u64>().ok())
        .sum()
}

fn sum_v2(text: &str, key: &str) -> u64 {
    text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd";

    #[test]
    fn controllers_are_found_in_a_hybrid_host() {
        let found = Cgroups::parse("p", HYBRID);
        assert_eq!(found.v2_beside_v1(), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(found.file_v1("cpuacct", "i", "x"), Some("/sys/fs/cgroup/cpu,cpuacct/p/i/x".into()));
        assert_eq!(found.oom_files("i"), [PathBuf::from("/sys/fs/cgroup/memory/p/i/memory.oom_control")]);
    }

    #[test]
    fn controllers_are_found_in_a_version_2_host() {
        let found = Cgroups::parse("p", "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(found.v2_beside_v1(), None);
        assert_eq!(found.oom_files("i"), [PathBuf::from("/sys/fs/cgroup/p/i/memory.events")]);
    }

    #[test]
    fn numbers_are_read_from_both_versions() {
        assert_eq!(field("low 0\noom 3\noom_kill 2\n", "oom_kill"), 2);
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill"), 5);
        assert_eq!(sum_v1("8:0 Read 10\n8:0 Write 5\n8:16 Read 1\nTotal 16", "Read"), 11);
        assert_eq!(sum_v2("8:0 rbytes=10 wbytes=5\n8:16 rbytes=1 wbytes=2", "rbytes="), 11);
    }
}
