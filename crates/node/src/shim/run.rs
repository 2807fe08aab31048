//! One container from its start to its exit code.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

use super::log::LogFile;
use super::pump::{control_read, drain};
use super::{Exit, Plan, Report, Started, now_us, rootfs, user};
use crate::dir::{InstanceDir, file_replace, json_read, json_write};
use crate::sys;

/// The most of a runtime's complaint that is passed on.
const MESSAGE_CHARS_MAX: usize = 600;
/// How often, and how far apart, the exit code is written to a disk that is full.
const EXIT_TRIES: u32 = 20;
const EXIT_PAUSE: Duration = Duration::from_millis(500);

pub fn run(dir: &InstanceDir) -> io::Result<i32> {
    sys::descriptors_close_on_exec()?;
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // The lock came as standard input, held by the node until now and by this process from now on.
    file_replace(&dir.shim_pid(), std::process::id().to_string().as_bytes(), false)?;
    match start(dir) {
        Ok(container) => {
            report(&Report::Started(container.started));
            container.watch(dir)?;
            Ok(0)
        }
        Err(message) => {
            report(&Report::Failed(message));
            Ok(1)
        }
    }
}

/// The node may be gone already; then nobody reads it, and the files say the same.
fn report(report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let _ = io::stdout().write_all(&line);
    let _ = io::stdout().flush();
    let silent = File::options().write(true).open("/dev/null");
    if let Ok(silent) = silent {
        let _ = rustix::stdio::dup2_stdout(silent);
    }
}

struct Container {
    began: Instant,
    plan: Plan,
    started: Started,
    init: Pid,
    pidfd: OwnedFd,
    output: OwnedFd,
    control: OwnedFd,
    log: LogFile,
}

fn start(dir: &InstanceDir) -> Result<Container, String> {
    let told = |what: &str, error: io::Error| format!("{what}: {error}");
    let plan: Plan = json_read(&dir.plan())
        .and_then(|plan| plan.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(|e| told("the plan cannot be read", e))?;
    plan.runtime.mounts_prepare().map_err(|e| told("the mount namespace cannot be made", e))?;
    rootfs::mount(dir, &plan.layers).map_err(|e| told("the overlay root cannot be mounted", e))?;
    let config = user::config_complete(dir, &plan)?;
    json_write(&dir.config(), &config, false).map_err(|e| told("the bundle cannot be written", e))?;
    let control = control_make(dir).map_err(|e| told("the control pipe cannot be made", e))?;
    let log = LogFile::open(dir, plan.log_bytes_max).map_err(|e| told("the log cannot be opened", e))?;
    let (output, pid) = runtime_create(dir, &plan)?;
    let init = Pid::from_raw(pid).ok_or("the runtime gave no process number")?;
    let pidfd = rustix::process::pidfd_open(init, PidfdFlags::empty())
        .map_err(|e| told("the process cannot be watched", e.into()))?;
    runtime_start(dir, &plan)?;
    let started = Started { pid, at_us: now_us() };
    json_write(&dir.started(), &started, false).map_err(|e| told("the start cannot be recorded", e))?;
    Ok(Container { began: Instant::now(), plan, started, init, pidfd, output, control, log })
}

fn control_make(dir: &InstanceDir) -> io::Result<OwnedFd> {
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.control(), Mode::from_raw_mode(0o600))?;
    // Open for writing too, so that it never reports an end while no node is there.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir.control(), flags, Mode::empty())?)
}

/// Has the runtime make the container, up to the moment before its program begins; gives the
/// reading end of its output and its first process. Making and starting are two calls, because in
/// one call a runtime may take the exit code of a process that ends at once for itself.
fn runtime_create(dir: &InstanceDir, plan: &Plan) -> Result<(OwnedFd, i32), String> {
    let (reader, writer) = io::pipe().map_err(|e| e.to_string())?;
    let second = writer.try_clone().map_err(|e| e.to_string())?;
    let pid_file = dir.file("init.pid");
    let mut command = runtime_command(dir, plan);
    command.args(["create", "--bundle"]).arg(dir.path()).arg("--pid-file").arg(&pid_file).arg(&plan.id);
    command.stdout(writer).stderr(second);
    runtime_call(command, dir, plan)?;
    let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    let pid = pid.ok_or("the runtime wrote no process number")?;
    rustix::io::ioctl_fionbio(&reader, true).map_err(|e| e.to_string())?;
    Ok((reader.into(), pid))
}

fn runtime_start(dir: &InstanceDir, plan: &Plan) -> Result<(), String> {
    let mut command = runtime_command(dir, plan);
    command.args(["start", &plan.id]).stdout(Stdio::null()).stderr(Stdio::null());
    runtime_call(command, dir, plan)
}

fn runtime_command(dir: &InstanceDir, plan: &Plan) -> Command {
    let mut command = plan.runtime.command();
    command
        .args(["--log-format", "json", "--log"])
        .arg(dir.runtime_log())
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Runs the runtime to its end; its own complaint when it fails, and then nothing is left of the container.
fn runtime_call(mut command: Command, dir: &InstanceDir, plan: &Plan) -> Result<(), String> {
    let result = command.status();
    drop(command);
    match result {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let message = runtime_complaint(&dir.runtime_log());
            runtime_delete(plan);
            Err(message.unwrap_or_else(|| format!("the OCI runtime failed with {status}")))
        }
        Err(error) => Err(format!("{} cannot be run: {error}", plan.runtime.program.display())),
    }
}

/// The last error in the runtime's own log.
fn runtime_complaint(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| line.contains("\"level\":\"error\""))?;
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = value.get("msg")?.as_str()?.trim();
    Some(message.chars().take(MESSAGE_CHARS_MAX).collect())
}

fn runtime_delete(plan: &Plan) {
    let _ = plan
        .runtime
        .command()
        .args(["delete", "--force", &plan.id])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

impl Container {
    /// Passes output and signals until the process ends, then records how and clears up.
    fn watch(mut self, dir: &InstanceDir) -> io::Result<()> {
        let status = self.pump()?;
        drain(&self.output, &mut self.log);
        let ran_ms = u64::try_from(self.began.elapsed().as_millis()).ok();
        let exit = Exit { code: exit_code(status), oom: self.oom(), at_us: now_us(), ran_ms };
        let written = json_write(&dir.exit(), &exit, true);
        runtime_delete(&self.plan);
        if written.is_err() {
            exit_write(dir, &exit)?;
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        Ok(())
    }

    fn pump(&mut self) -> io::Result<WaitStatus> {
        let mut output_open = true;
        loop {
            let (ended, spoke, asked) = {
                let mut fds = [
                    PollFd::new(&self.pidfd, PollFlags::IN),
                    PollFd::new(&self.control, PollFlags::IN),
                    PollFd::new(&self.output, PollFlags::IN),
                ];
                let count = if output_open { 3 } else { 2 };
                match poll(&mut fds[..count], None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    other => other?,
                };
                let ready = |at: usize| !fds[at].revents().is_empty();
                (ready(0), output_open && ready(2), ready(1))
            };
            if spoke {
                output_open = self.log.take(self.output.as_fd())?;
            }
            if asked {
                for signal in control_read(&self.control) {
                    let _ = rustix::process::kill_process(self.init, signal);
                }
            }
            if ended
                && let Some((_, status)) = rustix::process::waitpid(Some(self.init), WaitOptions::empty())?
            {
                return Ok(status);
            }
        }
    }

    fn oom(&self) -> bool {
        self.plan.oom_files.iter().any(|path| crate::cgroup::oom_kills(path) > 0)
    }
}

/// A full disk may have room again in a moment; the exit code is worth waiting for.
fn exit_write(dir: &InstanceDir, exit: &Exit) -> io::Result<()> {
    for _ in 0..EXIT_TRIES {
        match json_write(&dir.exit(), exit, true) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => std::thread::sleep(EXIT_PAUSE),
            done => return done,
        }
    }
    json_write(&dir.exit(), exit, true)
}

fn exit_code(status: WaitStatus) -> i32 {
    let killed = status.terminating_signal().unwrap_or(Signal::KILL.as_raw());
    status.exit_status().unwrap_or(128 + killed)
}
