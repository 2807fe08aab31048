//! `banyan down`: ends what `banyan up`, or one role by itself, left running on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::mount::{UnmountFlags, unmount};
use work::SystemClock;

use crate::output::note;
use crate::role::node::{self, Claims, Marks};
use crate::terminal;
use crate::up::{DATA_DEFAULT, LOCK_FILE, alone, context_forget, host_check};

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
    /// Purge without asking. A terminal is asked; a script is taken at its word.
    #[arg(long, requires = "purge")]
    pub yes: bool,
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
    let parts = parts_in(&data)?;
    if parts.is_empty() && !is_part(&data) {
        bail!("{} is not the folder of a cloud, nor of a part of one; nothing is done to it", data.display());
    }
    if args.purge && !args.yes && terminal::interactive() {
        let question = format!("Delete {} and everything in it?", data.display());
        if !terminal::confirm(&question)? {
            bail!("nothing was changed");
        }
    }
    let _locks = locks(&data)?;
    // Whatever runs on a part holds its folder.
    let _part_locks = parts.iter().map(|part| stopped(part)).collect::<Result<Vec<_>, _>>()?;
    let nodes = nodes_in(&data)?;
    for node_data in nodes {
        let kept = Marks::read(&node_data);
        let marks = Marks {
            bridge: args.bridge.clone().unwrap_or(kept.bridge),
            cgroup_parent: args.cgroup_parent.clone().unwrap_or(kept.cgroup_parent),
        };
        let claims = Claims::take(&marks, &node_data)?;
        let ended = node::clear(&node_data, "down".parse()?, &marks, Arc::new(SystemClock)).await?;
        claims.end();
        let ended = crate::output::text::plural(ended as u64, "instance");
        note(format!("{}: {ended} ended, the network is gone", node_data.display()));
    }
    if args.purge {
        mounts_end(&data)?;
        for name in context_forget(&data).unwrap_or_default() {
            note(format!("the context '{name}' of the command line is forgotten"));
        }
        note(folder_purge(&data)?);
    }
    Ok(())
}

/// Deletes the folder; where a disk is mounted, what is on it.
fn folder_purge(data: &Path) -> anyhow::Result<String> {
    let error = match std::fs::remove_dir_all(data) {
        Ok(()) => return Ok(format!("{} is deleted", data.display())),
        Err(error) => error,
    };
    let emptied = || std::fs::read_dir(data).is_ok_and(|mut left| left.next().is_none());
    if error.kind() == std::io::ErrorKind::ResourceBusy && emptied() {
        return Ok(format!("{} is empty; the folder stays, because a disk is mounted there", data.display()));
    }
    Err(error).with_context(|| format!("cannot delete {}", data.display()))
}

fn stopped(data: &Path) -> anyhow::Result<std::fs::File> {
    alone(data, "name another folder with --data")
        .context("stop it first, with Ctrl-C in its terminal or with systemctl")
}

/// Nobody may run on the folder, nor a whole cloud of which it is a part.
fn locks(data: &Path) -> anyhow::Result<Vec<std::fs::File>> {
    let above = data.parent().filter(|above| above.join(LOCK_FILE).is_file());
    above.into_iter().chain([data]).map(stopped).collect()
}

/// Whatever runs on a folder leaves its lock there; nodes of `banyan up` leave other traces.
fn is_part(folder: &Path) -> bool {
    folder.join("banyan.lock").is_file() || is_node(folder)
}

fn is_node(folder: &Path) -> bool {
    folder.join("engine").is_dir() || folder.join("leases.json").is_file()
}

/// The nodes whose data is in a folder: the folder itself, or those directly below it.
fn nodes_in(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_node(data) {
        return Ok(vec![data.to_owned()]);
    }
    Ok(parts_in(data)?.into_iter().filter(|folder| is_node(folder)).collect())
}

/// Roots, zones, nodes and provisioners directly below a folder.
fn parts_in(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let below = std::fs::read_dir(data)?.collect::<Result<Vec<_>, _>>()?;
    Ok(below.into_iter().map(|entry| entry.path()).filter(|folder| is_part(folder)).collect())
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
    fn a_folder_of_somebody_else_is_known_by_its_lack_of_traces() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("photos/2026")).unwrap();
        assert!(!is_part(dir.path()) && parts_in(dir.path()).unwrap().is_empty());
        std::fs::create_dir(dir.path().join("root")).unwrap();
        std::fs::write(dir.path().join("root/banyan.lock"), "7").unwrap();
        assert_eq!(parts_in(dir.path()).unwrap(), [dir.path().join("root")]);
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
