//! `shell`: scripts that run on the machine.
//!
//! Fields: `script`, the name of a staged script, or `code`, its text; `args`;
//! `archive`, the name of a staged archive that is unpacked beside it; `timeout`
//! in seconds. The script runs as root in a folder of its own:
//!
//! ```text
//!   task.json      the task, without credentials
//!   settings/KEY   one file for each value of the cluster's configuration
//!   setting KEY    prints one of them; `setting KEY DEFAULT` if it may be missing
//! ```
//! The variables `BANYAN_ACTION`, `BANYAN_SERVICE`, `BANYAN_HOSTNAME`, `BANYAN_CLUSTER`, `BANYAN_NODE` and
//! `BANYAN_TASK` (the path of `task.json`) are set, and the folder is the first of `PATH`. It is removed afterwards.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Automator, Job};
use crate::machine::COMMAND_MAX;
use crate::ssh::quote;
use crate::task::{Action, Fault, Report, Task};

/// Where tasks have their folders on a machine.
const FOLDER: &str = "/var/lib/banyan/tasks";
const READY_MAX: Duration = Duration::from_secs(60);

const SETTING: &str = r#"#!/bin/sh
# setting KEY [DEFAULT]: a value of the cluster's configuration.
here=$(dirname "$0")
case "$1" in */*|''|.*) echo "setting: '$1' is no key" >&2; exit 2 ;; esac
if [ -f "$here/settings/$1" ]; then cat "$here/settings/$1"
elif [ $# -gt 1 ]; then printf '%s' "$2"
else echo "setting: there is no '$1' in the configuration" >&2; exit 1; fi
"#;

pub struct Shell;

impl Automator for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    /// There must be a shell that is root.
    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        let line = format!("mkdir -p {FOLDER} && chmod 700 {FOLDER} && [ \"$(id -u)\" = 0 ]");
        async move { job.machine.must("making a folder for tasks", &line, READY_MAX).await }.boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            let script = match (action.text("code"), action.text("script")) {
                (Some(code), None) => Bytes::from(code),
                (None, Some(name)) => job.resources.file("scripts", &name)?,
                (Some(_), Some(_)) => {
                    return Err(Fault::invalid("a shell action has either 'script' or 'code'"));
                }
                (None, None) => return Err(Fault::invalid("a shell action needs 'script' or 'code'")),
            };
            let folder = format!("{FOLDER}/{}-{:08x}", name(&job.task.task_id), rand::random::<u32>());
            let done = self.in_folder(job, &action, &folder, script).await;
            // The configuration does not stay behind; the machine may be gone.
            let _ = job.machine.run(&format!("rm -rf {}", quote(&folder)), READY_MAX).await;
            done
        }
        .boxed()
    }
}

impl Shell {
    async fn in_folder(
        &self,
        job: &Job<'_>,
        action: &Action<'_>,
        folder: &str,
        script: Bytes,
    ) -> Result<Report, Fault> {
        let bundle =
            bundle(job.task, script).map_err(|error| Fault::failed(format!("packing the task: {error}")))?;
        let at = quote(folder);
        job.machine.put(&format!("{folder}/bundle.tar"), 0o600, bundle).await?;
        let unpack = format!("cd {at} && tar -xf bundle.tar && rm bundle.tar");
        job.machine.must("unpacking the task", &unpack, READY_MAX).await?;
        if let Some(archive) = action.text("archive") {
            job.machine
                .put(&format!("{folder}/archive"), 0o600, job.resources.file("archives", &archive)?)
                .await?;
            let unpack = format!("cd {at} && tar -xf archive --no-same-owner && rm archive");
            job.machine.must("unpacking the archive", &unpack, READY_MAX).await?;
        }
        let variables = variables(job.task, action, folder);
        // As a user wrote them: words for the shell.
        let args = action.text("args").unwrap_or_default();
        let line = format!("cd {at} && export {variables} && ./script {args}");
        let seconds = action.text("timeout").and_then(|text| text.parse().ok());
        let limit = seconds.map_or(COMMAND_MAX, |seconds| Duration::from_secs(seconds).min(COMMAND_MAX));
        let what = format!("{} of '{}'", job.task.task_name.word(), action.service);
        job.machine.must(&what, &line, limit).await
    }
}

fn variables(task: &Task, action: &Action<'_>, folder: &str) -> String {
    let pairs = [
        ("BANYAN_ACTION", task.task_name.word()),
        ("BANYAN_SERVICE", action.service),
        ("BANYAN_HOSTNAME", task.hostname()),
        ("BANYAN_CLUSTER", &task.cluster_id),
        ("BANYAN_NODE", &task.node_id),
    ];
    let mut all: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
    all.push(format!("BANYAN_TASK={}", quote(&format!("{folder}/task.json"))));
    all.push(format!("PATH={}:\"$PATH\"", quote(folder)));
    all.join(" ")
}

/// A part of a path.
fn name(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .collect()
}

/// All that a script needs, in one file.
fn bundle(task: &Task, script: Bytes) -> std::io::Result<Bytes> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, mode: u32, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes)
    };
    add("script", 0o700, &script)?;
    add("setting", 0o700, SETTING.as_bytes())?;
    add("task.json", 0o600, task.shown_there().to_string().as_bytes())?;
    for (key, value) in task.settings() {
        // A key that is no file's name can still be read from task.json.
        if !key.contains('/') && !key.starts_with('.') && key.len() < 200 {
            add(&format!("settings/{key}"), 0o600, value.as_bytes())?;
        }
    }
    Ok(tar.into_inner()?.into())
}
