//! `banyan down`: ends what `banyan up` left running on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use work::SystemClock;

use crate::output::note;
use crate::role::node;
use crate::up::{DATA_DEFAULT, alone, host_check};

#[derive(Debug, clap::Args)]
pub struct DownArgs {
    /// Folder that holds everything of the cloud [default: /var/lib/banyan].
    #[arg(long, env = "BANYAN_DATA")]
    pub data: Option<PathBuf>,
    /// Name of the bridge that instances are attached to.
    #[arg(long, env = "BANYAN_BRIDGE", default_value = "banyan0")]
    pub bridge: String,
    /// Name of the cgroup that instances live under.
    #[arg(long, env = "BANYAN_CGROUP_PARENT", default_value = "banyan")]
    pub cgroup_parent: String,
    /// Also delete the data folder with everything in it.
    #[arg(long)]
    pub purge: bool,
}

/// Ends every instance and takes the network away. The records stay, so that the next `banyan up` starts the
/// instances again, unless the data goes too.
pub async fn run(args: DownArgs) -> anyhow::Result<()> {
    host_check(false)?;
    let data = args.data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    if !data.is_dir() {
        bail!("there is no cloud in {}; name its folder with --data", data.display());
    }
    let data = data.canonicalize()?;
    let lock = alone(&data).context("stop it first, with Ctrl-C in its terminal")?;
    let node_data = data.join("node");
    if node_data.is_dir() {
        let name = "down".parse()?;
        let ended =
            node::clear(&node_data, name, &args.bridge, &args.cgroup_parent, Arc::new(SystemClock)).await?;
        note(format!("{ended} instances ended, the network is gone"));
    }
    if args.purge {
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot delete {}", data.display()))?;
        note(format!("{} is deleted", data.display()));
    }
    drop(lock);
    Ok(())
}
