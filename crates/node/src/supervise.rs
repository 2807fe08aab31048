//! The node's side of a shim: started or found again, watched, signalled, and its word taken.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use model::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::config::START_TIMEOUT;
use crate::dir::{InstanceDir, json_read, json_write};
use crate::shim::{Exit, Plan, Report, RuntimeCall, Started};

/// The longest report of a shim.
const REPORT_BYTES_MAX: u64 = 64 * 1024;
/// How often a shim that was found in the middle of a start is looked at again.
const ADOPT_PAUSE: Duration = Duration::from_millis(20);
/// The environment of shims and runtimes; nothing of the node's own reaches them.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A living shim.
#[derive(Debug)]
pub struct Shim {
    dir: InstanceDir,
    pidfd: AsyncFd<OwnedFd>,
    /// Absent when another life of the node started it.
    child: Option<Child>,
    pub started: Started,
}

/// The program of the shim with the node's environment kept from it.
pub(crate) fn shim_command(shim: &[PathBuf]) -> Result<Command> {
    let (program, rest) =
        shim.split_first().ok_or_else(|| Error::internal("no shim program is configured"))?;
    let mut command = Command::new(program);
    command.args(rest).env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null());
    Ok(command)
}

impl Shim {
    /// Starts a container and returns once its first process runs. No shim may live in `dir`.
    pub async fn start(shim: &[PathBuf], dir: &InstanceDir, plan: &Plan) -> Result<Self> {
        let complaints = File::create(dir.file("shim.err"))?;
        // The lock goes to the shim as its standard input, so that it is held without a gap from
        // before the shim lives until after it ends.
        let lock = File::create(dir.lock())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::conflict("another supervisor of this instance is still alive"))?;
        dir.run_files_remove()?;
        json_write(&dir.plan(), plan, false)?;
        let mut child = shim_command(shim)?
            .arg("run")
            .arg(dir.path())
            .stdin(lock)
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()
            .map_err(|error| {
                Error::internal(format!("the shim cannot be started: {error}")).because(error)
            })?;
        match tokio::time::timeout(START_TIMEOUT, report_read(&mut child)).await {
            Ok(Ok(Report::Started(started))) => {
                let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
                let pid = pid.ok_or_else(|| Error::internal("the shim ended at once"))?;
                Ok(Self { dir: dir.clone(), pidfd: pidfd_open(pid)?, child: Some(child), started })
            }
            Ok(Ok(Report::Failed(message))) => {
                let _ = child.wait().await;
                Err(Error::unavailable(message))
            }
            Ok(Err(error)) => {
                let _ = child.wait().await;
                let said = std::fs::read_to_string(dir.file("shim.err")).unwrap_or_default();
                Err(Error::internal(format!("the shim ended before it reported: {}", said.trim()))
                    .because(error))
            }
            Err(_) => {
                let _ = child.kill().await;
                Err(Error::unavailable(format!("the start took longer than {} s", START_TIMEOUT.as_secs())))
            }
        }
    }

    /// Finds the living shim of an earlier life of the node. Nothing when there is none.
    pub async fn adopt(dir: &InstanceDir) -> Result<Option<Self>> {
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        while locked(dir)? {
            let pid = std::fs::read_to_string(dir.shim_pid()).ok().and_then(|text| text.trim().parse().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw)
                && let Ok(pidfd) = pidfd_open(pid)
                // Still locked: the number belonged to the shim while the descriptor was opened.
                && locked(dir)?
                && let Some(started) = json_read(&dir.started())?
            {
                return Ok(Some(Self { dir: dir.clone(), pidfd, child: None, started }));
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::unavailable("a shim was found that never finished its start"));
            }
            tokio::time::sleep(ADOPT_PAUSE).await;
        }
        Ok(None)
    }

    /// Waits for the end of the shim, which is the end of the container.
    pub async fn ended(&self) {
        let _ = self.pidfd.readable().await;
    }

    /// What the shim left behind; nothing when it was killed itself. Call after its end.
    pub async fn finish(mut self) -> Option<Exit> {
        if let Some(child) = &mut self.child {
            let _ = child.wait().await;
        }
        let exit = json_read(&self.dir.exit()).ok().flatten();
        if exit.is_none() {
            let said = std::fs::read_to_string(self.dir.file("shim.err")).unwrap_or_default();
            tracing::warn!(dir = %self.dir.path().display(), said = said.trim(), "a shim ended without a last word");
        }
        exit
    }

    /// Has the shim signal the container's first process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let control = rustix::fs::open(self.dir.control(), flags, Mode::empty())?;
        rustix::io::write(&control, &[signal.as_raw() as u8])?;
        Ok(())
    }

    /// Ends the shim itself: for one that no longer answers.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }

    /// The kernel drops a signal that the first process of a container has no handler for, so there
    /// is nothing to wait for after sending it.
    pub fn term_is_heard(&self) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.started.pid)).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        let mask = mask.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        mask & (1 << (Signal::TERM.as_raw() - 1)) != 0
    }
}

async fn report_read(child: &mut Child) -> io::Result<Report> {
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = Vec::new();
    BufReader::new(stdout.take(REPORT_BYTES_MAX)).read_until(b'\n', &mut line).await?;
    Ok(serde_json::from_slice(&line)?)
}

fn pidfd_open(pid: Pid) -> Result<AsyncFd<OwnedFd>> {
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from)?;
    Ok(crate::sys::descriptor_watch(pidfd, tokio::io::Interest::READABLE)?)
}

/// A living shim holds the lock.
fn locked(dir: &InstanceDir) -> io::Result<bool> {
    let lock = match File::open(dir.lock()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Ends a shim that nobody knows more of, and has the runtime forget its container.
pub async fn sweep(shim: &[PathBuf], call: &RuntimeCall, dir: &InstanceDir, id: &str) -> Result<()> {
    if locked(dir)? {
        let pid = std::fs::read_to_string(dir.shim_pid()).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pidfd) = pid.and_then(Pid::from_raw).and_then(|pid| pidfd_open(pid).ok())
            && locked(dir)?
        {
            let _ = rustix::process::pidfd_send_signal(pidfd.get_ref(), Signal::KILL);
            let _ = tokio::time::timeout(START_TIMEOUT, pidfd.readable()).await;
        }
    }
    if !call.root.join(id).exists() {
        return Ok(());
    }
    let call_json = serde_json::to_string(call).map_err(io::Error::from)?;
    let mut command = shim_command(shim)?;
    command.arg("delete").arg(call_json).arg(id).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = tokio::time::timeout(START_TIMEOUT, command.status()).await;
    if call.root.join(id).exists() {
        std::fs::remove_dir_all(call.root.join(id))?;
    }
    Ok(())
}
