//! What the engine is told at its start, and the limits it keeps by default.

use std::path::PathBuf;
use std::time::Duration;

use model::Name;
use serde::{Deserialize, Serialize};

/// Time between SIGTERM and SIGKILL when an instance is stopped.
pub const STOP_GRACE: Duration = Duration::from_secs(10);
/// The same for an instance that is removed: nothing it could still write is kept.
pub const DELETE_GRACE: Duration = Duration::from_secs(2);
/// The same for one that is no longer ours: elsewhere it may run already.
pub const DROP_GRACE: Duration = Duration::from_millis(700);
/// The most of an instance's output that is kept, in two files of half this size.
pub const LOG_BYTES_MAX: u64 = 10 << 20;
/// Starts that may be under way at once on one machine.
pub const STARTS_MAX: usize = 8;
/// How long an OCI runtime may take to start a container.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A driver that shows no sign of life for so long in the middle of a transition is started again.
pub const STUCK_AFTER: Duration = Duration::from_secs(300);
/// The cgroup all instances of a node live under.
pub const CGROUP_PARENT: &str = "banyan";

/// Pauses before a process is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
    /// After running this long the next pause is the first one again.
    pub reset_after: Duration,
}

impl Backoff {
    pub const DEFAULT: Self = Self {
        first: Duration::from_millis(250),
        max: Duration::from_secs(60),
        reset_after: Duration::from_secs(60),
    };

    /// The pause after `failures` ends in a row.
    pub fn pause(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.max)
    }
}

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Everything of the engine lives below this directory.
    pub data: PathBuf,
    pub node_name: Name,
    /// The OCI runtime to use instead of the first of `crun` and `runc` that works.
    pub oci_runtime: Option<PathBuf>,
    /// The program and its first arguments that end in [`crate::shim_main`]; `banyan __shim` itself.
    pub shim: Vec<PathBuf>,
    pub cgroup_parent: String,
    pub stop_grace: Duration,
    pub log_bytes_max: u64,
    pub starts_max: usize,
    pub backoff: Backoff,
    pub stuck_after: Duration,
}

impl EngineConfig {
    /// The defaults, with this very program as the shim.
    pub fn new(data: impl Into<PathBuf>, node_name: Name) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        Self {
            data: data.into(),
            node_name,
            oci_runtime: None,
            shim: vec![program, PathBuf::from("__shim")],
            cgroup_parent: CGROUP_PARENT.to_owned(),
            stop_grace: STOP_GRACE,
            log_bytes_max: LOG_BYTES_MAX,
            starts_max: STARTS_MAX,
            backoff: Backoff::DEFAULT,
            stuck_after: STUCK_AFTER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u64> =
            [0, 1, 2, 3, 9, 40, u32::MAX].map(|n| Backoff::DEFAULT.pause(n).as_millis() as u64).to_vec();
        assert_eq!(pauses, [250, 250, 500, 1000, 60_000, 60_000, 60_000]);
    }
}
