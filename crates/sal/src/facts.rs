//! What a host has: the answer changes only when somebody changes the host.

use std::path::{Path, PathBuf};

use model::{Arch, Bytes, Error, Result};
use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupMounts;
use crate::gpu::{Gpu, gpus};
use crate::nic::{Nic, nics};
use crate::{program, text};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub hostname: String,
    /// Release of the running kernel.
    pub kernel: String,
    pub arch: Arch,
    /// Logical cores that this process may use.
    pub cpu_cores: u32,
    pub cpu_model: String,
    pub memory_total: Bytes,
    pub memory_available: Bytes,
    /// Size of the file system that holds the data folder.
    pub disk_total: Bytes,
    /// What a program without privileges may still write there.
    pub disk_free: Bytes,
    pub gpus: Vec<Gpu>,
    pub nics: Vec<Nic>,
    /// Changes with every boot, so that what was true before one can be told from what is true now.
    pub boot_id: String,
    pub cgroups: CgroupMounts,
    pub has_overlayfs: bool,
    pub has_nftables: bool,
    /// The device is there; whether it works must be tried.
    pub has_kvm_device: bool,
    pub has_user_namespaces: bool,
}

/// Reads the facts of this host; `data_dir` need not exist yet.
pub fn host_facts(data_dir: &Path) -> Result<HostFacts> {
    host_facts_in(Path::new("/"), data_dir)
}

/// As [`host_facts`], with `/proc` and `/sys` looked for under `root`.
pub fn host_facts_in(root: &Path, data_dir: &Path) -> Result<HostFacts> {
    let proc = root.join("proc");
    let kernel = |name: &str| text(proc.join("sys/kernel").join(name)).unwrap_or_default();
    let memory = Memory::read(&proc)?;
    let (disk_total, disk_free) = disk_space(data_dir)?;
    Ok(HostFacts {
        hostname: kernel("hostname"),
        kernel: kernel("osrelease"),
        arch: Arch::HOST,
        cpu_cores: cpu_cores(),
        cpu_model: cpu_model(&text(proc.join("cpuinfo")).unwrap_or_default()),
        memory_total: memory.total,
        memory_available: memory.available,
        disk_total,
        disk_free,
        gpus: gpus(root),
        nics: nics(root),
        boot_id: kernel("random/boot_id"),
        cgroups: CgroupMounts::read(root)?,
        has_overlayfs: file_system_known(&text(proc.join("filesystems")).unwrap_or_default(), "overlay"),
        has_nftables: program::program_find("nft").is_some(),
        has_kvm_device: root.join("dev/kvm").exists(),
        has_user_namespaces: proc.join("self/ns/user").exists(),
    })
}

pub(crate) fn cpu_cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// The first name that `/proc/cpuinfo` gives; some architectures give none.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "uarch", "CPU part"]
        .into_iter()
        .find_map(field)
        .unwrap_or_else(|| "unknown".into())
}

/// A module that is not loaded yet is missing from `/proc/filesystems`; the
/// caller that truly needs the file system tries to mount it.
fn file_system_known(filesystems: &str, wanted: &str) -> bool {
    filesystems.lines().any(|line| line.split_whitespace().last() == Some(wanted))
}

/// Total and free bytes of the file system of `path` or of its nearest parent that exists.
pub fn disk_space(path: &Path) -> Result<(Bytes, Bytes)> {
    let mut at: PathBuf = std::path::absolute(path)?;
    while !at.exists() && at.pop() {}
    let stat = rustix::fs::statvfs(&at).map_err(|error| {
        Error::internal(format!("the file system of {} cannot be examined", path.display())).because(error)
    })?;
    Ok((
        Bytes(stat.f_blocks.saturating_mul(stat.f_frsize)),
        Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)),
    ))
}

/// The two lines of `/proc/meminfo` that matter here.
pub(crate) struct Memory {
    pub total: Bytes,
    pub available: Bytes,
}

impl Memory {
    pub fn read(proc: &Path) -> Result<Self> {
        let path = proc.join("meminfo");
        let meminfo = text(&path).unwrap_or_default();
        let line = |wanted: &str| {
            meminfo.lines().find_map(|line| {
                let value = line.strip_prefix(wanted)?.strip_prefix(':')?;
                let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
                Some(Bytes(kib.saturating_mul(1024)))
            })
        };
        match (line("MemTotal"), line("MemAvailable").or_else(|| line("MemFree"))) {
            (Some(total), Some(available)) => Ok(Self { total, available }),
            _ => Err(Error::internal(format!("{} does not say how much memory there is", path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_host_has_what_any_host_has() {
        let dir = tempfile::tempdir().unwrap();
        let facts = host_facts(&dir.path().join("not/there/yet")).unwrap();
        assert!(!facts.hostname.is_empty() && !facts.kernel.is_empty());
        assert_eq!(facts.boot_id.len(), 36);
        assert!(facts.cpu_cores >= 1 && !facts.cpu_model.is_empty());
        assert!(facts.memory_total.0 > facts.memory_available.0 && facts.memory_available.0 > 0);
        assert!(facts.disk_total.0 >= facts.disk_free.0 && facts.disk_total.0 > 0);
        assert!(facts.nics.iter().all(|nic| nic.name != "lo"));
        assert!(!facts.cgroups.controllers.is_empty() || facts.cgroups.unified.is_some());
    }

    #[test]
    fn the_cpu_is_named_on_each_architecture() {
        for (cpuinfo, name) in [
            ("processor\t: 0\nmodel name\t: AMD EPYC 7B13\n", "AMD EPYC 7B13"),
            ("processor\t: 0\nBogoMIPS : 48.00\nCPU part\t: 0xd0c\n", "0xd0c"),
            ("processor : 0\nhart : 1\nuarch : sifive,u74-mc\n", "sifive,u74-mc"),
            ("", "unknown"),
        ] {
            assert_eq!(cpu_model(cpuinfo), name);
        }
    }

    #[test]
    fn an_unreadable_meminfo_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        std::fs::write(proc.join("meminfo"), "MemTotal: lots\n").unwrap();
        assert!(Memory::read(&proc).is_err());
        std::fs::write(proc.join("meminfo"), "MemTotal:       24682416 kB\nMemAvailable:   1024 kB\n")
            .unwrap();
        let memory = Memory::read(&proc).unwrap();
        assert_eq!((memory.total.0, memory.available.0), (24_682_416 << 10, 1 << 20));
    }

    #[test]
    fn only_a_whole_name_is_a_known_file_system() {
        let filesystems = "nodev\tsysfs\nnodev\toverlay\n\text4\n";
        assert!(file_system_known(filesystems, "overlay") && file_system_known(filesystems, "ext4"));
        assert!(!file_system_known(filesystems, "over"));
    }
}
