//! A folder of its own for one task on a machine.
//!
//! ```text
//!   task.json      the task, without credentials
//!   settings/KEY   one file for each value of the cluster's configuration
//!   setting KEY    prints one of them; `setting KEY DEFAULT` if it may be missing
//!   running        what runs there
//! ```
//! and what the automator adds. A provisioner that is killed leaves what it ran on the machine running, with its
//! folder; who tries the task again ends that before it begins.

use std::time::Duration;

use bytes::Bytes;

use super::Job;
use crate::machine::COMMAND_MAX;
use crate::ssh::quote;
use crate::task::{Action, Fault, Report, Task};

/// Where tasks have their folders on a machine.
const FOLDER: &str = "/var/lib/banyan/tasks";
/// For small things.
const READY_MAX: Duration = Duration::from_secs(60);
/// For unpacking, and for installing what an automator needs.
pub(super) const INSTALL_MAX: Duration = Duration::from_secs(900);

/// Bytes of a script, a manifest or the like; each task that is under way has a copy of its own.
const SOURCE_MAX: usize = 8 << 20;

const SETTING: &str = r#"#!/bin/sh
# setting KEY [DEFAULT]: a value of the cluster's configuration.
here=$(dirname "$0")
case "$1" in */*|''|.*) echo "setting: '$1' is no key" >&2; exit 2 ;; esac
if [ -f "$here/settings/$1" ]; then cat "$here/settings/$1"
elif [ $# -gt 1 ]; then printf '%s' "$2"
else echo "setting: there is no '$1' in the configuration" >&2; exit 1; fi
"#;

/// There must be a shell that is root.
pub(super) async fn ready(job: &Job<'_>) -> Result<Report, Fault> {
    let line = format!("mkdir -p {FOLDER} && chmod 700 {FOLDER} && [ \"$(id -u)\" = 0 ]");
    job.machine.must("making a folder for tasks", &line, READY_MAX).await
}

/// Installs a package of the machine's system unless the program is there. Another that installs at the same
/// moment is waited for.
pub(super) async fn ready_program(job: &Job<'_>, program: &str, package: &str) -> Result<Report, Fault> {
    ready(job).await?;
    let line = format!(
        "command -v {program} >/dev/null && exit 0\n\
         command -v apt-get >/dev/null || {{ echo '{program} is missing, and there is no apt-get: use an image that has it' >&2; exit 1; }}\n\
         export DEBIAN_FRONTEND=noninteractive\n\
         apt='apt-get -q -y -o DPkg::Lock::Timeout=600'\n\
         $apt install --no-install-recommends {package} || {{ $apt update && $apt install --no-install-recommends {package}; }} || exit\n\
         command -v {program} >/dev/null || {{ echo 'the package {package} has no {program}' >&2; exit 1; }}"
    );
    job.machine.must(&format!("installing {program}"), &line, INSTALL_MAX).await
}

/// How long the action may take: its field `timeout`, in seconds.
pub(super) fn limit(action: &Action<'_>) -> Duration {
    let seconds = action.text("timeout").and_then(|text| text.parse().ok());
    seconds.map_or(COMMAND_MAX, |seconds| Duration::from_secs(seconds).min(COMMAND_MAX))
}

/// The action, for people.
pub(super) fn title(task: &Task, action: &Action<'_>) -> String {
    format!("{} of '{}'", task.task_name.word(), action.service)
}

/// A text that one of two fields names: `file`, a staged resource, or `code`, the text itself.
pub(super) fn source(job: &Job<'_>, action: &Action<'_>, file: &str, kind: &str) -> Result<Bytes, Fault> {
    match (action.text("code"), action.text(file)) {
        (Some(code), None) => Ok(Bytes::from(code)),
        (None, Some(name)) => small(job, kind, &name),
        (Some(_), Some(_)) => {
            Err(Fault::invalid(format!("a {} action has either '{file}' or 'code'", action.by)))
        }
        (None, None) => Err(Fault::invalid(format!("a {} action needs '{file}' or 'code'", action.by))),
    }
}

/// A staged file that goes in one piece with its task.
pub(super) fn small(job: &Job<'_>, kind: &str, name: &str) -> Result<Bytes, Fault> {
    let bytes = job.resources.file(kind, name)?;
    match bytes.len() > SOURCE_MAX {
        true => Err(Fault::invalid(format!(
            "the resource '{name}' of {kind} is larger than {} MiB: put what is large into an archive",
            SOURCE_MAX >> 20
        ))),
        false => Ok(bytes),
    }
}

/// A part of a path.
pub(super) fn name(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .collect()
}

/// All that an action needs, in one file.
pub(super) struct Bundle(tar::Builder<Vec<u8>>);

impl Bundle {
    pub(super) fn new(task: &Task) -> Result<Self, Fault> {
        let mut bundle = Self(tar::Builder::new(Vec::new()));
        bundle.add("setting", 0o700, SETTING.as_bytes())?;
        bundle.add("task.json", 0o600, task.shown_there().to_string().as_bytes())?;
        for (key, value) in task.settings() {
            // A key that is no file's name can still be read from task.json.
            if !key.contains('/') && !key.starts_with('.') && key.len() < 200 {
                bundle.add(&format!("settings/{key}"), 0o600, value.as_bytes())?;
            }
        }
        Ok(bundle)
    }

    pub(super) fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), Fault> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        self.0.append_data(&mut header, path, bytes).map_err(unpacked)
    }

    fn bytes(self) -> Result<Bytes, Fault> {
        self.0.into_inner().map(Bytes::from).map_err(unpacked)
    }
}

fn unpacked(error: std::io::Error) -> Fault {
    Fault::failed(format!("packing the task: {error}"))
}

/// Fields of `/proc/PID/stat` that say which process it is: its session, and when it began.
const WHICH: &str = "sed 's/^.*) //' \"/proc/$1/stat\" 2>/dev/null | cut -d' ' -f4,20";

/// The folder. It is there from [`Place::fill`] to [`Place::leave`].
pub(super) struct Place<'a> {
    job: &'a Job<'a>,
    path: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(job: &'a Job<'a>) -> Self {
        let path = format!("{FOLDER}/{}-{:08x}", name(&job.task.task_id), rand::random::<u32>());
        Self { job, path }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) async fn fill(&self, bundle: Bundle) -> Result<(), Fault> {
        self.job.machine.put(&format!("{}/bundle.tar", self.path), 0o600, bundle.bytes()?).await?;
        let unpack =
            format!("{}cd {} && tar -xf bundle.tar && rm bundle.tar", self.succeed(), quote(&self.path));
        self.job.machine.must("unpacking the task", &unpack, READY_MAX).await.map(drop)
    }

    /// Ends what an earlier attempt at this task left running, and takes its folder away.
    fn succeed(&self) -> String {
        let (mine, all) = (quote(&self.path), format!("{FOLDER}/{}-????????", name(&self.job.task.task_id)));
        format!(
            "which() {{ {WHICH}; }}\n\
             for old in {all}; do\n\
             if [ \"$old\" = {mine} ] || ! [ -d \"$old\" ]; then continue; fi\n\
             if read -r pid session born < \"$old/running\" && [ \"$(which \"$pid\")\" = \"$session $born\" ]; then\n\
             pkill -KILL -s \"$session\" || kill -KILL -- \"-$session\"; fi 2>/dev/null\n\
             rm -rf \"$old\"; done\n"
        )
    }

    /// Unpacks a staged archive into a folder of the folder.
    pub(super) async fn unpack(&self, kind: &str, archive: &str, into: &str) -> Result<(), Fault> {
        let bytes = self.job.resources.file(kind, archive)?;
        self.job.machine.put(&format!("{}/archive", self.path), 0o600, bytes).await?;
        let (at, into) = (quote(&self.path), quote(into));
        let unpack =
            format!("cd {at} && mkdir -p {into} && tar -xf archive --no-same-owner -C {into} && rm archive");
        self.job.machine.must("unpacking the archive", &unpack, INSTALL_MAX).await.map(drop)
    }

    /// Runs a line there. The variables `BANYAN_…` are set, and the folder is the first of `PATH`.
    pub(super) async fn run(&self, action: &Action<'_>, line: &str) -> Result<Report, Fault> {
        let (at, variables) = (quote(&self.path), self.variables(action));
        let line = format!(
            "which() {{ {WHICH}; }}\ncd {at} && echo \"$$ $(which $$)\" > running && export {variables} && {line}"
        );
        self.job.machine.must(&title(self.job.task, action), &line, limit(action)).await
    }

    /// The configuration does not stay behind; the machine may be gone.
    pub(super) async fn leave(self) {
        let line = format!("rm -rf {}", quote(&self.path));
        let _ = self.job.machine.anyway().run(&line, READY_MAX).await;
    }

    fn variables(&self, action: &Action<'_>) -> String {
        let words = words(self.job.task, action);
        let mut all: Vec<String> = words
            .iter()
            .map(|(name, value)| format!("BANYAN_{}={}", name.to_ascii_uppercase(), quote(value)))
            .collect();
        let is_leaving = self.job.task.config.get("leaving").and_then(serde_json::Value::as_bool);
        all.push(format!("BANYAN_LEAVING={}", u8::from(is_leaving == Some(true))));
        all.push(format!("BANYAN_TASK={}", quote(&format!("{}/task.json", self.path))));
        all.push(format!("PATH={}:\"$PATH\"", quote(&self.path)));
        all.join(" ")
    }
}

/// What every action is told, by name.
pub(super) fn words<'a>(task: &'a Task, action: &Action<'a>) -> [(&'static str, &'a str); 5] {
    [
        ("action", task.task_name.word()),
        ("service", action.service),
        ("hostname", task.hostname()),
        ("cluster", &task.cluster_id),
        ("node", &task.node_id),
    ]
}
