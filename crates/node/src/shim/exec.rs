//! Calls of the runtime that are not the container's own start: a command inside it, and its removal.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use super::{Plan, RuntimeCall};
use crate::dir::{InstanceDir, json_read};
use crate::sys;

/// Becomes the runtime, running the process described in the file `process` in the container. With a
/// terminal, standard input is its host side and becomes the controlling terminal, so that the
/// runtime is told when its size changes.
pub fn exec(dir: &InstanceDir, process: &Path, pid_file: &Path, tty: bool) -> io::Result<i32> {
    sys::descriptors_close_on_exec()?;
    let plan: Plan = json_read(&dir.plan())?.ok_or(io::ErrorKind::NotFound)?;
    rustix::process::setsid()?;
    if tty {
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    plan.runtime.mounts_prepare()?;
    let mut command = plan.runtime.command();
    command.arg("exec").arg("--process").arg(process).arg("--pid-file").arg(pid_file);
    if tty {
        command.arg("--tty");
    }
    Err(command.arg(&plan.id).current_dir("/").exec())
}

/// Removes what a runtime still knows of a container whose shim is gone.
pub fn delete(call: &Path, id: &Path) -> io::Result<i32> {
    sys::descriptors_close_on_exec()?;
    let call: RuntimeCall = serde_json::from_slice(call.as_os_str().as_encoded_bytes())?;
    call.mounts_prepare()?;
    let status = call
        .command()
        .args(["delete", "--force"])
        .arg(id)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.code().unwrap_or(1))
}
