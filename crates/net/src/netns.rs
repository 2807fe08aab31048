//! Named network namespaces, mounted where `ip netns` looks for them, and threads that enter one.
//!
//! A thread that entered a namespace is never used for anything else: each of
//! these threads ends with its one task.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub const FOLDER: &str = "/run/netns";
/// What `statfs` says of a mounted namespace.
const NSFS_MAGIC: u64 = 0x6e73_6673;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Mounts of one name that are taken off at most; more than one means somebody mounted over it.
const MOUNTS_MAX: usize = 8;

pub fn netns_path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Runs `task` on a new thread inside the namespace at `path` and waits for it.
///
/// Blocking; from async code call it within `spawn_blocking`.
pub fn netns_run<T: Send>(path: &Path, task: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    thread_run(move || {
        use std::os::fd::AsFd;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(task())
    })
}

/// Runs `task` on a thread of its own and passes a panic on.
pub(crate) fn thread_run<T: Send>(task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, task)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The folder of namespaces, locked; the lock ends when the value is dropped. It also orders
/// those who choose a subnet, and is the lock that `ip netns` takes.
pub struct FolderLock {
    _folder: File,
}

/// Makes the folder as `ip netns` does: a mount of its own that other mount namespaces see.
/// Without it a later `ip netns add` would cover the names that are there already.
pub fn folder_lock() -> Result<FolderLock> {
    let trouble = |error: io::Error| {
        Error::unavailable(format!("{FOLDER} cannot be prepared: {error}"))
            .because(error)
            .hint("run the node as root")
    };
    std::fs::create_dir_all(FOLDER).map_err(trouble)?;
    let folder = File::open(FOLDER).map_err(trouble)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while let Err(error) = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::WOULDBLOCK || Instant::now() > deadline {
            return Err(trouble(error.into()));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(FOLDER, shared) {
        Err(Errno::INVAL) => mount_bind_recursive(FOLDER, FOLDER)
            .and_then(|()| mount_change(FOLDER, shared))
            .map_err(|error| trouble(error.into()))?,
        other => other.map_err(|error| trouble(error.into()))?,
    }
    Ok(FolderLock { _folder: folder })
}

/// True when a namespace is mounted at `path`.
pub fn netns_mounted(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| kind == NSFS_MAGIC))
}

/// Gives the namespace of the calling thread the name `path`.
pub(crate) fn netns_publish(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?;
    let mounted = mount_bind("/proc/thread-self/ns/net", path);
    if mounted.is_err() {
        let _ = std::fs::remove_file(path);
    }
    Ok(mounted?)
}

/// Takes the name away; the kernel ends the namespace when no process is left in it.
pub fn netns_remove(path: &Path) -> io::Result<()> {
    for _ in 0..MOUNTS_MAX {
        match unmount(path, UnmountFlags::DETACH) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The names that begin with `prefix`.
pub fn netns_names(prefix: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(FOLDER)? {
        let name = entry?.file_name();
        names.extend(name.to_str().filter(|name| name.starts_with(prefix)).map(str::to_owned));
    }
    Ok(names)
}

/// Moves the calling thread into a new, empty network namespace.
pub(crate) fn thread_netns_new() -> io::Result<()> {
    Ok(raw::unshare_net()?)
}

mod raw {
    #![allow(unsafe_code)]
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    pub fn unshare_net() -> rustix::io::Result<()> {
        // SAFETY: the call is unsafe only because of `UnshareFlags::FILES`, which would give the
        // thread a table of descriptors of its own; a new network namespace leaves it shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
    }
}
