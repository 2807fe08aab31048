//! `banyan down`: ends what `banyan up`, or one role by itself, left running on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::mount::{UnmountFlags, unmount};
use work::SystemClock;

use crate::output::note;
use crate::role::node::{self, Marks};
use crate::up::{DATA_DEFAULT, alone, host_check};

/// Mounts that are undone one after the other; there are never so many.
const MOUNTS_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
pub struct DownArgs {
    /// Data folder of the cloud, or of one node, zone or root [default: /var/lib/banyan].
    #[arg(long, env = "BANYAN_DATA")]
    pub data: Option<PathBuf>,
    /// Name of the bridge that instances are attached to [default: the one that was used].
    #[arg(long, env = "BANYAN_BRIDGE")]
    pub bridge: Option<String>,
    /// Name of the cgroup that instances live under [default: the one that was used].
    #[arg(long, env = "BANYAN_CGROUP_PARENT")]
    pub cgroup_parent: Option<String>,
    /// Also delete the data folder with everything in it.
    #[arg(long)]
    pub purge: bool,
}

/// Ends every instance and takes the network away. The records stay, so that the next start begins the
/// instances again, unless the data goes too.
pub async fn run(args: DownArgs) -> anyhow::Result<()> {
    host_check(false)?;
    let data = args.data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    if !data.is_dir() {
        bail!("there is no cloud in {}; name its folder with --data", data.display());
    }
    let data = data.canonicalize()?;
    let _locks = locks(&data)?;
    let nodes = nodes_in(&data)?;
    // One that runs holds its folder.
    let _node_locks = nodes
        .iter()
        .filter(|node| **node != data)
        .map(|node| stopped(node))
        .collect::<Result<Vec<_>, _>>()?;
    for node_data in nodes {
        let kept = Marks::read(&node_data);
        let marks = Marks {
            bridge: args.bridge.clone().unwrap_or(kept.bridge),
            cgroup_parent: args.cgroup_parent.clone().unwrap_or(kept.cgroup_parent),
        };
        let ended = node::clear(&node_data, "down".parse()?, &marks, Arc::new(SystemClock)).await?;
        let ended = crate::output::text::plural(ended as u64, "instance");
        note(format!("{}: {ended} ended, the network is gone", node_data.display()));
    }
    if args.purge {
        mounts_end(&data)?;
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot delete {}", data.display()))?;
        note(format!("{} is deleted", data.display()));
    }
    Ok(())
}

fn stopped(data: &Path) -> anyhow::Result<std::fs::File> {
    alone(data).context("stop it first, with Ctrl-C in its terminal or with systemctl")
}

/// Nobody may run on the folder, nor a whole cloud of which it is a part.
fn locks(data: &Path) -> anyhow::Result<Vec<std::fs::File>> {
    let above = data.parent().filter(|above| above.join("banyan.lock").is_file());
    above.into_iter().chain([data]).map(stopped).collect()
}

/// The nodes whose data is in a folder: the folder itself, or those directly below it.
fn nodes_in(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_node = |folder: &Path| folder.join("engine").is_dir() || folder.join("leases.json").is_file();
    if is_node(data) {
        return Ok(vec![data.to_owned()]);
    }
    let below = std::fs::read_dir(data)?.collect::<Result<Vec<_>, _>>()?;
    Ok(below.into_iter().map(|entry| entry.path()).filter(|folder| is_node(folder)).collect())
}

/// Nothing that is mounted somewhere in the folder is deleted with it.
fn mounts_end(data: &Path) -> anyhow::Result<()> {
    for _ in 0..MOUNTS_MAX {
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        // The latest mounts stand last and may lie on earlier ones.
        let Some(point) = mounts_under(&table, data).pop() else { return Ok(()) };
        unmount(&point, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", point.display()))?;
    }
    bail!("there are more mounts in {} than can be undone", data.display())
}

fn mounts_under(table: &str, data: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    points.filter(|point| point != data && point.starts_with(data)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_a_node_or_holds_some() {
        let dir = tempfile::tempdir().unwrap();
        assert!(nodes_in(dir.path()).unwrap().is_empty());
        std::fs::create_dir_all(dir.path().join("node/engine")).unwrap();
        std::fs::create_dir_all(dir.path().join("zone/blobs")).unwrap();
        assert_eq!(nodes_in(dir.path()).unwrap(), [dir.path().join("node")]);
        let node = dir.path().join("node");
        assert_eq!(nodes_in(&node).unwrap(), [node]);
    }

    #[test]
    fn only_mounts_inside_the_folder_are_found() {
        let table = "21 1 0:2 / / rw - ext4 x rw\n\
            22 21 0:3 / /var/lib/banyan rw - ext4 x rw\n\
            23 22 0:4 / /var/lib/banyan/node/a\\040b rw - overlay x rw\n\
            24 21 0:5 / /var/lib/banyan2/x rw - tmpfs x rw\n";
        let found = mounts_under(table, Path::new("/var/lib/banyan"));
        assert_eq!(found, [PathBuf::from("/var/lib/banyan/node/a b")]);
    }
}
