//! Bytes from the container to its log, and signals from the node to the container.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Signal;

use super::log::LogFile;

/// Reads after the end of the process; more means that a stranger holds the pipe.
const DRAIN_READS_MAX: usize = 1024;

/// What is still in the pipe.
pub fn drain(output: &OwnedFd, log: &mut LogFile) {
    for _ in 0..DRAIN_READS_MAX {
        if !log.take(output.as_fd()).unwrap_or(false) || log.starved() {
            return;
        }
    }
}

/// Each byte is the number of a signal.
pub fn control_read(control: &OwnedFd) -> Vec<Signal> {
    let mut bytes = [0u8; 16];
    let count = rustix::io::read(control, &mut bytes).unwrap_or(0);
    bytes[..count].iter().filter_map(|byte| Signal::from_named_raw(i32::from(*byte))).collect()
}
