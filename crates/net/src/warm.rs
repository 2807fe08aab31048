//! Empty namespaces made ahead of their use, because making one is the slowest part of an attach.
//!
//! They have no name: when this process ends, the kernel removes them.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::netlink::Netlink;
use crate::netns::{thread_netns_new, thread_run};

/// Namespaces that wait for an instance.
const WARM_MAX: usize = 4;
/// Loopback is the first device of every namespace.
const LOOPBACK: u32 = 1;

/// Settings of a new namespace. IPv6 is off on what is made later, so loopback keeps it. As in
/// other container runtimes, no privilege is needed for a low port or a ping of one's own.
const SETTINGS: [(&str, &str); 3] = [
    ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"),
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
];

#[derive(Debug, Default)]
pub struct WarmSpaces {
    spaces: Mutex<Vec<File>>,
    filling: AtomicBool,
}

impl WarmSpaces {
    /// One that waits, else a new one. Blocking.
    pub fn take(&self) -> io::Result<File> {
        let waiting = self.spaces.lock().unwrap_or_else(PoisonError::into_inner).pop();
        waiting.map_or_else(space_new, Ok)
    }

    pub fn is_full(&self) -> bool {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner).len() >= WARM_MAX
    }

    /// Makes as many as should wait, unless somebody is at it already. Blocking.
    pub fn fill(&self) {
        if self.filling.swap(true, Ordering::AcqRel) {
            return;
        }
        while !self.is_full() {
            match space_new() {
                Ok(space) => self.spaces.lock().unwrap_or_else(PoisonError::into_inner).push(space),
                Err(error) => {
                    // The next attach meets the same trouble and reports it to whoever asked.
                    tracing::debug!(%error, "no namespace could be made ahead");
                    break;
                }
            }
        }
        self.filling.store(false, Ordering::Release);
    }
}

/// A namespace with loopback up and nothing else in it.
fn space_new() -> io::Result<File> {
    thread_run(|| {
        thread_netns_new()?;
        for (setting, value) in SETTINGS {
            // A kernel without the setting has nothing to turn off.
            let _ = std::fs::write(setting, value);
        }
        Netlink::open()?.link_up(LOOPBACK, None)?;
        File::open("/proc/thread-self/ns/net")
    })
}
