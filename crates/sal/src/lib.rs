//! Facts about, and small acts on, the one host this process runs on.
//!
//! This crate knows nothing of the cloud: it reads `/proc` and `/sys`, looks
//! for programs, and tells processes apart from later ones with the same
//! number. Whoever needs to know what a machine has (the node, the network,
//! the start of the laptop cloud) asks here.
//!
//! Everything that reads files takes the root of the file tree it reads, so
//! that formats of hardware that is not at hand are tested with fixture trees.
//!
//! Reading order: [`facts`], [`gpu`], [`nic`], [`cgroup`], [`usage`],
//! [`process`], [`program`], [`folder`], [`claim`], [`memory`], [`reserve`].

pub mod cgroup;
pub mod claim;
pub mod facts;
pub mod folder;
pub mod gpu;
pub mod memory;
pub mod nic;
pub mod process;
pub mod program;
pub mod reserve;
pub mod usage;

pub use cgroup::{CgroupMode, CgroupMounts};
pub use claim::{Claim, Holder, namespace_id};
pub use facts::{HostFacts, disk_space, host_facts};
pub use folder::folder_private;
pub use gpu::{Gpu, GpuVendor};
pub use memory::program_release;
pub use nic::Nic;
pub use process::{files_max, files_raise, process_alive, process_rss, process_start_time, process_watch};
pub use program::{Missing, missing_programs, missing_sentence, program_find};
pub use reserve::Reserve;
pub use usage::{HostUsage, UsageMeter};

use std::path::Path;

/// The text of a small kernel file without the white space around it, or nothing when it cannot be read.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The names in a folder, sorted; none when there is no such folder.
pub(crate) fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
