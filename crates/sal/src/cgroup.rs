//! Which kind of cgroups a host has and where each controller is mounted.
//!
//! Version 1 has a tree per controller, version 2 one tree for all. A hybrid
//! host has both, each controller bound to one of them. Making groups and
//! setting limits is the business of whoever runs instances.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupMode {
    /// A tree per controller and no unified tree.
    V1,
    /// Trees per controller and a unified tree beside them.
    Hybrid,
    /// One unified tree.
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMounts {
    pub mode: CgroupMode,
    /// Mount point of each version 1 controller, `cpu`, `memory` and so on.
    pub controllers: BTreeMap<String, PathBuf>,
    /// Mount point of the unified tree.
    pub unified: Option<PathBuf>,
    /// Controllers that the unified tree has.
    pub unified_controllers: Vec<String>,
    /// The path of this process in each version 1 tree and, under the empty name, in the unified one.
    pub own: BTreeMap<String, String>,
}

impl CgroupMounts {
    /// Reads the mounts of this process under `root` (`/` outside tests).
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("proc/self/mountinfo");
        let mountinfo = text(&path).unwrap_or_default();
        let mut mounts = Self::parse(&mountinfo).ok_or_else(|| {
            Error::internal("no cgroups are mounted on this host")
                .hint("mount them, on most systems with: mount -t cgroup2 none /sys/fs/cgroup")
        })?;
        if let Some(unified) = &mounts.unified {
            let inside = unified.strip_prefix("/").unwrap_or(unified);
            let list = text(root.join(inside).join("cgroup.controllers")).unwrap_or_default();
            mounts.unified_controllers = list.split_whitespace().map(str::to_owned).collect();
        }
        mounts.own = own_paths(&text(root.join("proc/self/cgroup")).unwrap_or_default());
        Ok(mounts)
    }

    /// Where limits of `controller` are set: its own tree, or the unified one when that has it.
    pub fn mount_of(&self, controller: &str) -> Option<&Path> {
        let unified =
            self.unified.as_deref().filter(|_| self.unified_controllers.iter().any(|c| c == controller));
        self.controllers.get(controller).map(PathBuf::as_path).or(unified)
    }

    fn parse(mountinfo: &str) -> Option<Self> {
        let mut controllers = BTreeMap::new();
        let mut unified = None;
        for line in mountinfo.lines() {
            let Some((mount, kind, options)) = mount_line(line) else { continue };
            match kind {
                // The first mount is the one that others rely on; later ones are copies of it.
                "cgroup2" => unified = unified.or(Some(mount)),
                "cgroup" => {
                    for name in options.split(',').filter(|name| controller_known(name)) {
                        let name = name.strip_prefix("name=").unwrap_or(name);
                        controllers.entry(name.to_owned()).or_insert_with(|| mount.clone());
                    }
                }
                _ => {}
            }
        }
        let mode = match (controllers.is_empty(), unified.is_some()) {
            (true, false) => return None,
            (true, true) => CgroupMode::V2,
            (false, true) => CgroupMode::Hybrid,
            (false, false) => CgroupMode::V1,
        };
        Some(Self { mode, controllers, unified, unified_controllers: Vec::new(), own: BTreeMap::new() })
    }
}

/// Mount point, kind and super options of a line of mountinfo.
fn mount_line(line: &str) -> Option<(PathBuf, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mount = PathBuf::from(unescape(before.split(' ').nth(4)?));
    let mut after = after.split(' ');
    let kind = after.next()?;
    Some((mount, kind, after.nth(1).unwrap_or("")))
}

/// The kernel writes a space in a path as `\040`.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Super options of version 1 mix controllers with flags such as `rw` and `xattr`.
fn controller_known(option: &str) -> bool {
    const FLAGS: [&str; 6] = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"];
    !option.is_empty() && !FLAGS.contains(&option) && !option.starts_with("release_agent=")
}

fn own_paths(cgroup: &str) -> BTreeMap<String, String> {
    let mut own = BTreeMap::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else { continue };
        for name in names.split(',') {
            own.insert(name.strip_prefix("name=").unwrap_or(name).to_owned(), path.to_owned());
        }
    }
    own
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const V1: &str = "\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd";
    const UNIFIED: &str = "26 25 0:24 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn each_mode_is_told_apart() {
        let hybrid = format!("{V1}\n40 30 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
        for (mountinfo, mode) in
            [(V1, CgroupMode::V1), (UNIFIED, CgroupMode::V2), (hybrid.as_str(), CgroupMode::Hybrid)]
        {
            assert_eq!(CgroupMounts::parse(mountinfo).unwrap().mode, mode);
        }
        assert!(CgroupMounts::parse("25 1 0:1 / /proc rw - proc proc rw").is_none());
    }

    #[test]
    fn a_mount_with_two_controllers_serves_both() {
        let mounts = CgroupMounts::parse(V1).unwrap();
        let cpu = Path::new("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(mounts.mount_of("cpu"), Some(cpu));
        assert_eq!(mounts.mount_of("cpuacct"), Some(cpu));
        assert_eq!(mounts.mount_of("pids"), None);
        assert_eq!(mounts.controllers.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "memory", "systemd"]);
    }

    #[test]
    fn the_unified_tree_serves_the_controllers_it_has() {
        let root = tempfile::tempdir().unwrap();
        let cgroup = root.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(&cgroup).unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/mountinfo"), UNIFIED).unwrap();
        std::fs::write(root.path().join("proc/self/cgroup"), "0::/user.slice\n").unwrap();
        std::fs::write(cgroup.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let mounts = CgroupMounts::read(root.path()).unwrap();
        assert_eq!(mounts.mount_of("memory"), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(mounts.mount_of("io"), None);
        assert_eq!(mounts.own[""], "/user.slice");
    }

    #[test]
    fn this_host_has_a_memory_controller() {
        let mounts = CgroupMounts::read(Path::new("/")).unwrap();
        assert!(mounts.mount_of("memory").unwrap().is_dir());
    }
}
