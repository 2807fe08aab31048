//! podman and docker with the same program in the same root file system.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::floor::quiet;

/// Flags that let a tool run where the limits of files and processes are fixed from outside.
const PLAIN: &[&str] = &["--ulimit", "nofile=1024:2048", "--ulimit", "nproc=1000:1000"];

pub struct Peer {
    pub name: &'static str,
    before: &'static [&'static str],
    image: String,
    runs: usize,
    problem: Option<String>,
}

impl Peer {
    pub fn podman() -> Result<Self> {
        Self::open("podman", &["--cgroup-manager=cgroupfs"])
    }

    pub fn docker() -> Result<Self> {
        Self::open("docker", &[])
    }

    /// Brings the image in; a tool that is not there or cannot work says so in its row.
    fn open(name: &'static str, before: &'static [&'static str]) -> Result<Self> {
        let image = format!("banyan-bench-{}:latest", std::process::id());
        let mut peer = Self { name, before, image, runs: 0, problem: None };
        let folder = tempfile::tempdir()?;
        let archive = root_archive(folder.path())?;
        if Command::new(name).arg("--version").output().is_err() {
            peer.problem = Some("is not installed".to_owned());
        } else if quiet(peer.command().arg("info")).is_err() {
            peer.problem = Some("is installed, but no daemon of it runs here".to_owned());
        } else if let Err(error) = quiet(peer.command().arg("import").arg(&archive).arg(&peer.image)) {
            peer.problem = Some(format!("cannot import an image: {error:#}"));
        }
        Ok(peer)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.name);
        command.args(self.before);
        command
    }

    pub fn once(&mut self) -> Result<Duration> {
        if let Some(problem) = &self.problem {
            bail!("{problem}");
        }
        self.runs += 1;
        let name = format!("banyan-bench-{}-{}", std::process::id(), self.runs);
        let since = Instant::now();
        let mut command = self.command();
        command.args(["run", "--detach", "--name", &name]).args(PLAIN);
        let started = quiet(command.args([&self.image, "/bin/sleep", "1000"]));
        let time = since.elapsed();
        let _ = quiet(self.command().args(["kill", &name]));
        let _ = quiet(self.command().args(["rm", "--force", &name]));
        started.map(|()| time)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.problem.is_none() {
            let _ = quiet(self.command().args(["rmi", &self.image]));
        }
    }
}

fn root_archive(folder: &Path) -> Result<std::path::PathBuf> {
    let (root, archive) = (folder.join("rootfs"), folder.join("rootfs.tar"));
    std::fs::create_dir_all(root.join("bin"))?;
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    std::fs::copy(busybox.context("busybox-static is not installed")?, root.join("bin/busybox"))?;
    std::os::unix::fs::symlink("busybox", root.join("bin/sleep"))?;
    quiet(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg("."))?;
    Ok(archive)
}
