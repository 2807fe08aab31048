//! The shim: one small process per instance that outlives the node.
//!
//! ```text
//!  node ──spawns──▶ shim ──runs──▶ crun run --detach ──▶ container's first process
//!    │   plan.json   │ own mount namespace: overlay root       │
//!    │◀── report ────┤ parent of the process (subreaper) ◀─────┘ reparented
//!    │─── ctl ──────▶│ signals
//!    │◀── pidfd ─────┤ exit.json, then `crun delete`, then its own end
//! ```
//!
//! It is single-threaded and knows nothing of assignments. Its lock file tells a living shim from
//! a process that merely got the same number. The overlay is mounted in its own mount namespace
//! alone, so it ends with shim and container whatever is killed, and nothing is left on the host.

mod exec;
mod log;
mod pump;
mod rootfs;
mod run;
mod user;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::dir::InstanceDir;
use crate::sys;

/// All a shim needs to know to run one container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub id: String,
    pub runtime: RuntimeCall,
    /// Lowest first.
    pub layers: Vec<PathBuf>,
    /// Files of the memory controller that count OOM kills.
    pub oom_files: Vec<PathBuf>,
    /// `user`, `uid`, `user:group` or `uid:gid`, resolved in the image.
    pub user: Option<String>,
    pub log_bytes_max: u64,
    /// The OCI configuration but for the user's numbers and home.
    pub config: serde_json::Value,
}

/// How the OCI runtime of this node is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeCall {
    pub program: PathBuf,
    /// Where the runtime keeps its state.
    pub root: PathBuf,
    /// The cgroup2 mount that is taken out of the runtime's sight: old versions of crun refuse to
    /// work where controllers are spread over both versions.
    pub hide: Option<PathBuf>,
}

impl RuntimeCall {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.root);
        command
    }

    /// A mount table of our own, as the runtime needs to see it.
    fn mounts_prepare(&self) -> std::io::Result<()> {
        use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
        sys::mounts_unshare()?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        if let Some(hide) = &self.hide {
            unmount(hide, UnmountFlags::DETACH)?;
        }
        Ok(())
    }
}

/// The shim's one message to the node that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    Started(Started),
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The container's first process.
    pub pid: i32,
    pub at_us: i64,
}

/// How the container's first process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As a shell would say it: 128 and the signal for a killed process.
    pub code: i32,
    /// The kernel killed a process of the container for want of memory.
    pub oom: bool,
    pub at_us: i64,
    /// How long it ran, by a clock that nobody sets.
    #[serde(default)]
    pub ran_ms: Option<u64>,
}

fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Runs the shim with the arguments that follow `__shim`; the result is the exit code.
/// Must be called before any thread is started.
pub fn shim_main(args: impl IntoIterator<Item = std::ffi::OsString>) -> i32 {
    let args: Vec<_> = args.into_iter().collect();
    let words: Vec<&Path> = args.iter().map(Path::new).collect();
    let result = match words.as_slice() {
        [verb, dir] if *verb == Path::new("run") => run::run(&InstanceDir::new(*dir)),
        [verb, dir, process, pid_file, tty] if *verb == Path::new("exec") => {
            exec::exec(&InstanceDir::new(*dir), process, pid_file, *tty == Path::new("tty"))
        }
        [verb, call, id] if *verb == Path::new("delete") => exec::delete(call, id),
        _ => return 64,
    };
    result.unwrap_or_else(|error| {
        // Standard error is a file beside the instance, read by the node when a shim is lost.
        eprintln!("{error}");
        1
    })
}
