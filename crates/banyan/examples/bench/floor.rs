//! The floor: the OCI runtime alone, with the very bundle that the node made for an instance; and the peers.
//!
//! They run below a process of its own in a mount namespace of its own, so that the overlay root and
//! whatever must be hidden from the runtime stay out of the host's sight. The mount is made once,
//! outside the time that is measured.

use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::peer::Peer;

/// The runner that is the OCI runtime itself.
pub const RUNTIME: &str = "runtime";

pub struct Floor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Floor {
    /// Copies the bundle of a living instance; its network namespace and its files are used as they are.
    pub fn open(instance: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for file in ["config.json", "plan.json"] {
            std::fs::copy(instance.join(file), folder.path().join(file))
                .with_context(|| format!("{} has no {file}", instance.display()))?;
        }
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(std::env::current_exe()?)
            .arg("floor")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare (package util-linux)")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("the floor has no output")?);
        Ok(Self { child, input, output, _folder: folder })
    }

    /// Starts one container with `runner`: [`RUNTIME`] or the name of a peer. An error is the other side's own words.
    pub fn once(&mut self, runner: &str) -> Result<Duration> {
        writeln!(self.input.as_mut().context("the floor has no input")?, "{runner}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map(Duration::from_micros).map_err(|_| anyhow::anyhow!("{}", line.trim()))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// The other side of [`Floor`], in its own namespace.
pub fn serve(bundle: &Path) -> Result<()> {
    let plan: Value = serde_json::from_slice(&std::fs::read(bundle.join("plan.json"))?)?;
    let runtime = plan["runtime"]["program"].as_str().context("the plan names no runtime")?;
    if let Some(hide) = plan["runtime"]["hide"].as_str() {
        quiet(Command::new("umount").args(["--lazy", hide]))?;
    }
    root_mount(bundle, &plan)?;
    let mut peers = [Peer::podman()?, Peer::docker()?];
    for (run, line) in std::io::stdin().lock().lines().enumerate() {
        let runner = line?;
        let done = match peers.iter_mut().find(|peer| peer.name == runner) {
            Some(peer) => peer.once(),
            None => runtime_once(runtime, bundle, run),
        };
        match done {
            Ok(time) => println!("{}", time.as_micros()),
            Err(error) => println!("{error:#}"),
        }
    }
    drop(peers);
    quiet(Command::new("umount").arg(bundle.join("rootfs")))
}

fn runtime_once(runtime: &str, bundle: &Path, run: usize) -> Result<Duration> {
    let name = format!("floor-{}-{run}", std::process::id());
    config_write(bundle, &name)?;
    let call = || {
        let mut command = Command::new(runtime);
        command.arg("--root").arg(bundle.join("state"));
        command
    };
    let since = Instant::now();
    quiet(call().args(["run", "--detach", "--bundle"]).arg(bundle).arg(&name))?;
    let time = since.elapsed();
    quiet(call().args(["delete", "--force", &name]))?;
    Ok(time)
}

fn root_mount(bundle: &Path, plan: &Value) -> Result<()> {
    for name in ["upper", "work", "rootfs"] {
        std::fs::create_dir_all(bundle.join(name))?;
    }
    let layers = plan["layers"].as_array().context("the plan has no layers")?;
    let lower: Vec<&str> = layers.iter().rev().filter_map(Value::as_str).collect();
    let path = |name: &str| -> String { bundle.join(name).display().to_string() };
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), path("upper"), path("work"));
    quiet(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(bundle.join("rootfs")))
}

/// The node's own configuration but for the root file system and the cgroup.
fn config_write(bundle: &Path, name: &str) -> Result<()> {
    let path: PathBuf = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    config["root"]["path"] = bundle.join("rootfs").display().to_string().into();
    let group = config["linux"]["cgroupsPath"].as_str().context("the bundle has no cgroup")?;
    let parent = Path::new(group).parent().context("the cgroup has no parent")?;
    config["linux"]["cgroupsPath"] = parent.join(name).display().to_string().into();
    Ok(std::fs::write(path, serde_json::to_vec(&config)?)?)
}

/// Runs a command to its end; its words are told only when it fails. They go to a file, because what a
/// command leaves running would hold a pipe open.
pub fn quiet(command: &mut Command) -> Result<()> {
    let log = tempfile::tempfile()?;
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?).status();
    let status = status.with_context(|| format!("{command:?} cannot be run"))?;
    if !status.success() {
        let (mut said, mut log) = (String::new(), log);
        log.rewind()?;
        log.take(500).read_to_string(&mut said)?;
        bail!(
            "{} failed: {}",
            command.get_program().display(),
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }
    Ok(())
}
