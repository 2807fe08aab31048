//! What nobody asked for, and what does not move: found now and then, and put right.
//!
//! An *orphan* is a trace of an instance that no record knows: its folder, its container in the
//! runtime's own state, its cgroup, its shim, its port on the network. It gets a driver like any other
//! instance, one that is told to remove it. So a wish for the same instance that comes in meanwhile
//! finds a driver to talk to, and nothing is removed under the hands of another.
//!
//! A *stuck* driver is one that has not shown a sign of life for too long in the middle of a
//! transition. It is started again and finds on the disk what the last one left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{Error, InstanceId, Phase, Result};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::dir::json_read;
use crate::driver::Driver;
use crate::engine::{Engine, Shared};
use crate::record::Record;
use crate::runtime::PROBE_ID;

/// How often it is looked for.
const HEAL_EVERY: Duration = Duration::from_secs(60);
/// An image that is being fetched may take so many times longer than anything else.
const PULL_FACTOR: u32 = 10;
/// Between two looks whether a driver that was told to end did.
const END_PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// Heals every minute, until dropped.
    pub async fn tend(&self) {
        loop {
            tokio::time::sleep(HEAL_EVERY).await;
            self.heal().await;
        }
    }

    /// One look at everything; what cannot be put right now is tried again with the next.
    pub async fn heal(&self) {
        if let Err(error) = self.orphans_remove().await {
            tracing::warn!(%error, "leftovers could not be looked for");
        }
        self.network_mend().await;
        self.drivers_restart();
    }

    /// Puts back what others took away of the bridge and its rules.
    async fn network_mend(&self) {
        let mended = self.shared.network.mend().await;
        let mut care = self.shared.network_care.lock().unwrap_or_else(PoisonError::into_inner);
        care.trouble = None;
        match mended {
            Ok(mended) => {
                for what in &mended {
                    tracing::warn!(%what, "the network was put back");
                }
                care.mended += mended.len() as u64;
            }
            Err(error) => {
                tracing::error!(%error, "the network cannot be put back");
                care.trouble = Some(error.to_string());
            }
        }
    }

    /// How often something of the network was put back, and why it cannot be now.
    pub fn network_care(&self) -> (u64, Option<String>) {
        let care = self.shared.network_care.lock().unwrap_or_else(PoisonError::into_inner);
        (care.mended, care.trouble.clone())
    }

    /// Things found that nobody asked for, and removed, since the start.
    pub fn orphans_removed(&self) -> u64 {
        self.shared.orphans.load(Ordering::Relaxed)
    }

    /// Has everything removed that no record knows of.
    pub(crate) async fn orphans_remove(&self) -> Result<()> {
        let shared = self.shared.clone();
        let found = tokio::task::spawn_blocking(move || shared.traces()).await;
        let found =
            found.map_err(|error| Error::internal("looking for leftovers broke off").because(error))?;
        self.orphans_end(found);
        let swept = self.shared.network.sweep().await?;
        self.shared.orphans.fetch_add(swept as u64, Ordering::Relaxed);
        Ok(())
    }

    fn orphans_end(&self, found: BTreeSet<InstanceId>) {
        let mut table = self.shared.table();
        for id in found {
            // A driver leaves the table only when nothing is left, so what is still there belongs to none.
            if table.contains_key(&id) || !self.shared.trace_left(&id) {
                continue;
            }
            tracing::warn!(instance = %id, "nobody knows of it: removed");
            self.shared.orphans.fetch_add(1, Ordering::Relaxed);
            self.shared.shim_lost_kill(&id);
            let record = self.shared.record_or_blank(&id);
            self.driver_spawn(&mut table, record, false);
        }
    }

    /// Starts drivers again that ended by a fault or have not moved for too long.
    pub(crate) fn drivers_restart(&self) {
        let limit = self.shared.config.stuck_after;
        let mut table = self.shared.table();
        for (id, entry) in table.iter_mut() {
            let moving = matches!(entry.observed.phase, Phase::Creating | Phase::Stopping | Phase::Deleting);
            let pulling = entry.observed.events.last().is_some_and(|event| event.kind == "pulling");
            let limit = if pulling { limit.saturating_mul(PULL_FACTOR) } else { limit };
            let stuck = moving && entry.touched.elapsed() > limit;
            if !stuck && !entry.task.is_finished() {
                continue;
            }
            tracing::warn!(instance = %id, phase = %entry.observed.phase, "does not move: its driver is started again");
            let last = entry.task.abort_handle();
            last.abort();
            entry.touched = tokio::time::Instant::now();
            let (shared, id, want) = (self.shared.clone(), id.clone(), entry.want.subscribe());
            entry.task = self.handle.spawn(async move {
                while !last.is_finished() {
                    tokio::time::sleep(END_PAUSE).await;
                }
                let known = want.borrow().clone();
                let record = match (json_read::<Record>(&shared.dir(&id).record()), known) {
                    (Ok(Some(record)), _) if record.readable() => record,
                    (_, Some(assignment)) => Record::new(assignment),
                    (_, None) => shared.record_or_blank(&id),
                };
                Driver::new(shared, record, want).run().await;
            });
        }
    }
}

impl Shared {
    /// Every instance of which this machine has a trace that is this node's own by its place or name.
    fn traces(&self) -> BTreeSet<InstanceId> {
        let mut found: BTreeSet<InstanceId> = ids_in(&self.instances()).into_iter().collect();
        found.extend(ids_in(&self.runtime.root));
        found.extend(self.network.attached());
        let mut in_cgroups: BTreeSet<InstanceId> = self.cgroups.ids().into_iter().collect();
        in_cgroups.remove(&*PROBE_ID);
        // Looked at after the cgroups: whoever made one had its shim running before.
        for shim in shims() {
            if shim.folder == self.instances() {
                found.insert(shim.id);
            } else {
                // Another node of this machine uses the same parent cgroup.
                in_cgroups.remove(&shim.id);
            }
        }
        found.extend(in_cgroups);
        found
    }

    /// Whether anything of it is there that its removal would take away.
    fn trace_left(&self, id: &InstanceId) -> bool {
        self.dir(id).path().exists()
            || self.runtime.root.join(id.as_str()).exists()
            || self.cgroups.exists(id.as_str())
            || self.network.attached().contains(id)
            || shims().iter().any(|shim| shim.id == *id && shim.folder == self.instances())
    }

    /// A shim whose folder is gone cannot be spoken to.
    fn shim_lost_kill(&self, id: &InstanceId) {
        if self.dir(id).path().exists() {
            return;
        }
        let ours = |shim: &ShimFound| shim.id == *id && shim.folder == self.instances();
        for shim in shims().iter().filter(|shim| ours(shim)) {
            let Ok(pidfd) = rustix::process::pidfd_open(shim.pid, PidfdFlags::empty()) else { continue };
            // Still the same one: the number was not given to another while the descriptor was opened.
            if shim_at(shim.pid).as_ref() == Some(shim) {
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            }
        }
    }

    /// What is kept of an instance, or enough of a record to remove what is left of it.
    fn record_or_blank(&self, id: &InstanceId) -> Record {
        match json_read::<Record>(&self.dir(id).record()) {
            Ok(Some(record))
                if record.readable() && record.assignment.id == *id && record.phase != Phase::Gone =>
            {
                record
            }
            _ => {
                let mut blank = crate::runtime::probe_assignment();
                blank.id = id.clone();
                Record::new(blank)
            }
        }
    }

    fn instances(&self) -> PathBuf {
        self.config.data.join("instances")
    }
}

fn ids_in(folder: &Path) -> Vec<InstanceId> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A living shim of this machine, perhaps of another node.
#[derive(Debug, PartialEq, Eq)]
struct ShimFound {
    pid: Pid,
    id: InstanceId,
    /// The folder of instances that it works for.
    folder: PathBuf,
}

fn shims() -> Vec<ShimFound> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    pids.filter_map(shim_at).collect()
}

fn shim_at(pid: Pid) -> Option<ShimFound> {
    let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let (id, folder) = shim_of(&command)?;
    Some(ShimFound { pid, id, folder })
}

/// Reads `… run <folder>/<id>` from the words of a process.
fn shim_of(command: &[u8]) -> Option<(InstanceId, PathBuf)> {
    let text = std::str::from_utf8(command).ok()?;
    let mut words = text.trim_end_matches('\0').rsplit('\0');
    let (dir, verb) = (Path::new(words.next()?), words.next()?);
    let folder = dir.parent().filter(|folder| verb == "run" && folder.ends_with("instances"))?;
    Some((dir.file_name()?.to_str()?.parse().ok()?, folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_is_known_by_its_words() {
        let id = InstanceId::from_random(7);
        let words = |dir: &str| format!("/usr/bin/banyan\0__shim\0run\0{dir}/{id}\0");
        let found = shim_of(words("/data/engine/instances").as_bytes());
        assert_eq!(found, Some((id.clone(), PathBuf::from("/data/engine/instances"))));
        for other in [words("/data/engine/elsewhere"), format!("vi\0/instances/{id}\0"), String::new()] {
            assert_eq!(shim_of(other.as_bytes()), None, "{other}");
        }
    }
}
