//! Commands inside running instances, with and without a terminal.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use model::{Error, InstanceId, Result};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Child;

use crate::dir::{InstanceDir, json_read, json_write};
use crate::engine::{Engine, Shared};
use crate::pty::Pty;
use crate::supervise::shim_command;

/// What a killed command is said to have exited with.
const CODE_KILLED: i32 = 137;
/// How often a runtime that is still starting is looked at before it is killed.
const KILL_LOOKS_MAX: u32 = 250;
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// Processes of one command that are killed with it.
const FAMILY_MAX: usize = 4096;
/// Rows and columns of a terminal that was asked for without a size.
const SIZE_DEFAULT: (u16, u16) = (24, 80);
/// The kernel's device numbers for terminals made by programs.
const PTY_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub command: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub rows: u16,
    pub cols: u16,
}

/// A command under way. Dropping `exit` before it is ready kills the command.
pub struct ExecSession {
    /// Dropping it ends the command's input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Absent with a terminal, which has one output only.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub terminal: Option<Terminal>,
    /// The exit code of the command.
    pub exit: BoxFuture<'static, Result<i32>>,
}

/// The size of a terminal, to be changed while a command runs.
#[derive(Clone)]
pub struct Terminal {
    host: Arc<OwnedFd>,
    pid_file: PathBuf,
}

impl Terminal {
    /// Tells the runtime, which passes it on, and the command's own terminal, because crun does not.
    pub fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&*self.host, size)?;
        if let Some(inner) = pid_read(&self.pid_file).and_then(terminal_of) {
            rustix::termios::tcsetwinsize(inner, size)?;
        }
        Ok(())
    }
}

fn pid_read(file: &Path) -> Option<Pid> {
    let pid: i32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Pid::from_raw(pid).filter(|_| pid > 1)
}

/// The terminal that a process has as its input. What the process put there instead is never
/// opened: opening a stranger's device may already act on it.
fn terminal_of(pid: Pid) -> Option<OwnedFd> {
    let link = format!("/proc/{}/fd/0", pid.as_raw_nonzero());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(link, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&found).ok()?;
    let is_pty = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && PTY_MAJORS.contains(&rustix::fs::major(stat.st_rdev));
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    is_pty.then(|| rustix::fs::open(again, flags, Mode::empty()).ok()).flatten()
}

impl Engine {
    /// Runs a command in an instance that runs.
    pub async fn exec(&self, id: &InstanceId, request: ExecRequest) -> Result<ExecSession> {
        self.shared.running(id)?;
        if request.tty {
            with_terminal(&self.shared, id, &request)
        } else {
            with_pipes(&self.shared, id, &request)
        }
    }
}

fn with_pipes(shared: &Shared, id: &InstanceId, request: &ExecRequest) -> Result<ExecSession> {
    let input = if request.stdin { Stdio::piped() } else { Stdio::null() };
    let io = [input, Stdio::piped(), Stdio::piped()];
    let mut running = Running::spawn(shared, id, &request.command, None, io)?;
    let gone = || Error::internal("a pipe of the command is missing");
    let child = running.child.as_mut().ok_or_else(gone)?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().ok_or_else(gone)?;
    let stderr = child.stderr.take().ok_or_else(gone)?;
    Ok(ExecSession {
        stdin: stdin.map(|pipe| Box::new(pipe) as Box<_>),
        stdout: Box::new(stdout),
        stderr: Some(Box::new(stderr)),
        terminal: None,
        exit: Box::pin(running.exit()),
    })
}

fn with_terminal(shared: &Shared, id: &InstanceId, request: &ExecRequest) -> Result<ExecSession> {
    let host = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .map_err(io::Error::from)?;
    rustix::pty::grantpt(&host).and_then(|()| rustix::pty::unlockpt(&host)).map_err(io::Error::from)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let inner = rustix::pty::ioctl_tiocgptpeer(&host, flags).map_err(io::Error::from)?;
    let (rows, cols) =
        if request.rows > 0 && request.cols > 0 { (request.rows, request.cols) } else { SIZE_DEFAULT };
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&host, size).map_err(io::Error::from)?;
    let io = [Stdio::from(inner.try_clone()?), Stdio::from(inner.try_clone()?), Stdio::from(inner)];
    let running = Running::spawn(shared, id, &request.command, Some((rows, cols)), io)?;
    let terminal = Terminal { host: Arc::new(host.try_clone()?), pid_file: running.pid_file.clone() };
    let pty = Pty::new(host)?;
    Ok(ExecSession {
        stdin: Some(Box::new(pty.clone())),
        stdout: Box::new(pty),
        stderr: None,
        terminal: Some(terminal),
        exit: Box::pin(running.exit()),
    })
}

/// A runtime's `exec` under way, with its two files.
pub(crate) struct Running {
    /// Taken when it is waited for or left to be killed.
    child: Option<Child>,
    process: PathBuf,
    pid_file: PathBuf,
    id: InstanceId,
}

impl Running {
    /// With a size it gets a terminal of that many rows and columns.
    pub fn spawn(
        shared: &Shared,
        id: &InstanceId,
        command: &[String],
        size: Option<(u16, u16)>,
        io: [Stdio; 3],
    ) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let dir = shared.dir(id);
        std::fs::create_dir_all(dir.file("exec"))?;
        let stem = format!("exec/{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (process, pid_file) = (dir.file(&format!("{stem}.json")), dir.file(&format!("{stem}.pid")));
        json_write(&process, &process_of(&dir, command, size)?, false)?;
        let [stdin, stdout, stderr] = io;
        let child = shim_command(&shared.config.shim)?
            .arg("exec")
            .args([dir.path(), &process, &pid_file, Path::new(if size.is_some() { "tty" } else { "-" })])
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child: Some(child), process, pid_file, id: id.clone() })
    }

    /// Waits for the end of the command.
    pub async fn exit(mut self) -> Result<i32> {
        let child = self.child.as_mut().ok_or_else(|| Error::internal("the command was waited for twice"))?;
        let status = child.wait().await?;
        self.child = None;
        Ok(status.code().unwrap_or(CODE_KILLED))
    }
}

/// Killing the runtime would leave the command behind; so the command itself is killed, when its
/// number still belongs to a process of the instance. The runtime may be about to write it.
async fn command_kill(mut child: Child, process: PathBuf, pid_file: PathBuf, id: InstanceId) {
    for _ in 0..KILL_LOOKS_MAX {
        if let Some(pid) = pid_read(&pid_file) {
            let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
            if std::fs::read_to_string(path).unwrap_or_default().contains(id.as_str()) {
                for pid in family(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            break;
        }
        if !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        tokio::time::sleep(KILL_PAUSE).await;
    }
    let _ = child.kill().await;
    files_remove(&process, &pid_file);
}

fn files_remove(process: &Path, pid_file: &Path) {
    let _ = std::fs::remove_file(process);
    let _ = std::fs::remove_file(pid_file);
}

/// A process and all it has started, as far as they still belong together.
fn family(first: Pid) -> Vec<Pid> {
    let mut all = vec![first];
    let mut at = 0;
    while at < all.len() && all.len() < FAMILY_MAX {
        let pid = all[at].as_raw_nonzero();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(
            children.split_whitespace().filter_map(|text| text.parse().ok()).filter_map(Pid::from_raw),
        );
        at += 1;
    }
    all
}

impl Drop for Running {
    fn drop(&mut self) {
        match (self.child.take(), tokio::runtime::Handle::try_current()) {
            (Some(child), Ok(handle)) => {
                let (process, pid_file) = (self.process.clone(), self.pid_file.clone());
                handle.spawn(command_kill(child, process, pid_file, self.id.clone()));
            }
            _ => files_remove(&self.process, &self.pid_file),
        }
    }
}

/// The container's own process with another command: same user, environment, and limits.
fn process_of(dir: &InstanceDir, command: &[String], size: Option<(u16, u16)>) -> Result<Value> {
    if command.is_empty() {
        return Err(Error::invalid("there is no command to run").at("command"));
    }
    let config: Option<Value> = json_read(&dir.config())?;
    let process = config.and_then(|mut config| config.get_mut("process").map(Value::take));
    let mut process = process.ok_or_else(|| Error::conflict("the instance is not running"))?;
    process["args"] = json!(command);
    process["terminal"] = json!(size.is_some());
    let Some((rows, cols)) = size else { return Ok(process) };
    process["consoleSize"] = json!({ "height": rows, "width": cols });
    if let Some(env) = process.get_mut("env").and_then(Value::as_array_mut) {
        let named = env.iter().any(|pair| pair.as_str().is_some_and(|text| text.starts_with("TERM=")));
        if !named {
            env.push(json!("TERM=xterm"));
        }
    }
    Ok(process)
}
