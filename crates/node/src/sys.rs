//! The few calls that no safe wrapper covers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Marks every descriptor above standard error to be closed when another program is executed, so
/// that nothing a parent left open reaches an OCI runtime or a container.
pub fn descriptors_close_on_exec() -> io::Result<()> {
    // SAFETY: the call takes plain numbers and, with this flag, closes nothing in this process.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process its own copy of the mount table.
/// Only for single-threaded processes: the shim's.
pub fn mounts_unshare() -> io::Result<()> {
    // SAFETY: of the flags only FILES would break memory safety (shared descriptors); it is not used.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.map_err(Into::into)
}

/// Lets a task wait for a descriptor.
pub fn descriptor_watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor refers to the same open file until it is dropped with the result.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
