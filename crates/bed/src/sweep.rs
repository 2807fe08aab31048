//! What a dead bed left behind: a folder and cgroups, named after the process that owned them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const PREFIX: &str = "banyan-bed";
const CGROUPS: &str = "/sys/fs/cgroup";
const ROUNDS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// A name that no other bed has, and which tells who owns it.
pub fn bed_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = sal::process_start_time(pid).unwrap_or_default();
    format!("{PREFIX}-{pid}-{start}-{}", MADE.fetch_add(1, Ordering::Relaxed))
}

/// Whether something of this name belongs to a bed whose owner is dead.
fn is_left_over(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let mut numbers = rest.split('-');
    let pid = numbers.next().and_then(|text| text.parse().ok());
    let start = numbers.next().and_then(|text| text.parse().ok());
    matches!((pid, start), (Some(pid), Some(start)) if !sal::process_alive(pid, start))
}

/// Removes what dead beds left.
pub fn sweep() {
    for root in cgroup_roots() {
        for name in names(&root).into_iter().filter(|name| is_left_over(name)) {
            cgroups_remove(&name);
        }
    }
    for name in names(&std::env::temp_dir()).into_iter().filter(|name| is_left_over(name)) {
        let _ = fs::remove_dir_all(std::env::temp_dir().join(name));
    }
}

/// The root of every hierarchy, in version 1 and 2.
pub fn cgroup_roots() -> Vec<PathBuf> {
    let base = Path::new(CGROUPS);
    let below = names(base).into_iter().map(|name| base.join(name)).filter(|path| path.is_dir());
    let hybrid: Vec<PathBuf> = below.filter(|path| path.join("cgroup.procs").exists()).collect();
    // In version 2 the base is the hierarchy, and what is below it are groups.
    if base.join("cgroup.procs").exists() { vec![base.to_owned()] } else { hybrid }
}

/// Kills what is in the cgroups of this name and removes them.
pub fn cgroups_remove(name: &str) {
    for _ in 0..ROUNDS_MAX {
        let groups: Vec<PathBuf> =
            cgroup_roots().into_iter().map(|root| root.join(name)).filter(|group| group.is_dir()).collect();
        if groups.is_empty() {
            return;
        }
        groups.iter().for_each(|group| group_remove(group));
        std::thread::sleep(PAUSE);
    }
}

fn group_remove(group: &Path) {
    for name in names(group).into_iter().filter(|name| group.join(name).is_dir()) {
        group_remove(&group.join(name));
    }
    for pid in group_pids(group) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = fs::remove_dir(group);
}

/// The processes in one cgroup.
pub fn group_pids(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The names in a folder; none when there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_swept() {
        assert!(!is_left_over(&bed_name()), "this process lives");
        assert!(
            is_left_over(&format!("{PREFIX}-{}-1-0-east", std::process::id())),
            "another process had the pid"
        );
        for other in ["banyan-bed", "banyan-bed-x-y", "banyan-1-1-0", "something"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
