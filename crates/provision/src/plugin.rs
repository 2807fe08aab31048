//! Providers and automators that are programs of their own.
//!
//! The program is started once for each task. It reads one JSON document from
//! standard input and writes one to standard output; what it writes to standard
//! error is kept as the task's log.
//!
//! ```text
//!   in    {"verb": "create", "task": {…}, "resources": "/folder"}
//!   out   {"status": 0, "hostname": "…", "ipaddresses": {"access_v4": "…"}, "result": {"providerid": "…"}}
//! ```
//! A status other than 0 is a failure and `message` says why; 201 means that the credentials are wrong and
//! nothing was made. A program that ends with another code than 0, prints something else, prints too
//! much or takes too long has failed too, and what it printed is in the report. What it started ends with it, and
//! all of it with us; one that is told nothing on its standard input, because we ended just then, must do nothing.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::automator::{Automator, Job};
use crate::child::{Group, gather, prepare};
use crate::provider::{Provider, Setting};
use crate::resource::Resources;
use crate::ssh::{Kept, SshError};
use crate::task::{Action, Fault, Report, Task};

/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;
/// Bytes kept of the beginning and of the end of a log.
const LOG_KEPT: usize = 32 << 10;

/// A program that speaks the protocol.
#[derive(Debug, Clone)]
pub struct Plugin {
    name: String,
    program: PathBuf,
    limit: Duration,
}

#[derive(Serialize)]
struct Question<'a> {
    verb: &'static str,
    task: &'a Task,
    resources: &'a Path,
}

impl Plugin {
    pub fn new(name: impl Into<String>, program: PathBuf, limit: Duration) -> Self {
        Self { name: name.into(), program, limit }
    }

    /// The program is ended when `stop` is.
    async fn ask(
        &self,
        task: &Task,
        resources: &Resources,
        stop: &CancellationToken,
    ) -> Result<Report, Fault> {
        let resources = resources.whole()?;
        let question = Question { verb: task.task_name.word(), task: &task.whole(), resources };
        let question = serde_json::to_vec(&question).map_err(|error| Fault::invalid(error.to_string()))?;
        let mut group = self.start()?;
        let mut heard = Heard { answer: Vec::new(), log: Kept::new(LOG_KEPT) };
        let ended = tokio::select! {
            ended = timeout(self.limit, heard.talk(&mut group, question)) => Some(ended),
            () = stop.cancelled() => None,
        };
        group.end().await;
        let name = &self.name;
        let failed = |message: String| {
            let (stdout, stderr) = (cut(&heard.answer), heard.log.text());
            Fault { stdout, stderr, ..Fault::failed(message) }
        };
        let code = match ended {
            _ if heard.answer.len() > ANSWER_MAX => {
                return Err(failed(format!(
                    "the plugin '{name}' answered more than {} MiB",
                    ANSWER_MAX >> 20
                )));
            }
            Some(Ok(Ok(ended))) => ended.code(),
            Some(Ok(Err(error))) => return Err(failed(format!("the plugin '{name}' broke: {error}"))),
            None => return Err(failed(SshError::Stopped.to_string())),
            Some(Err(_)) => {
                let seconds = self.limit.as_secs();
                return Err(failed(format!("the plugin '{name}' took longer than {seconds} s")));
            }
        };
        let report = serde_json::from_slice(&heard.answer).map_err(|error| match code {
            Some(0) => failed(format!("the plugin '{name}' did not answer as it should: {error}")),
            Some(code) => failed(format!("the plugin '{name}' ended with code {code}")),
            None => failed(format!("the plugin '{name}' was killed")),
        })?;
        self.judge(report, code == Some(0), heard.log.text())
    }

    async fn ask_until(&self, job: &Job<'_>) -> Result<Report, Fault> {
        self.ask(job.task, job.resources, job.machine.stop()).await
    }

    /// What an answer that could be read means.
    fn judge(&self, report: Report, is_well: bool, log: String) -> Result<Report, Fault> {
        let stderr = if report.stderr.is_empty() { log } else { report.stderr.clone() };
        if report.is_good() && is_well {
            return Ok(Report { stderr, ..report });
        }
        let status = if report.is_good() { Fault::FAILED } else { report.status };
        let is_passing = !(200..300).contains(&status) && ![Fault::INVALID, Fault::GONE].contains(&status);
        let message = match report.message.is_empty() {
            false => report.message,
            true => format!("the plugin '{}' failed with status {status}", self.name),
        };
        Err(Fault { status, message, is_passing, stdout: report.stdout, stderr })
    }

    fn start(&self) -> Result<Group, Fault> {
        let mut command = Command::new(&self.program);
        prepare(&mut command);
        Group::start(&mut command).map_err(|error| {
            Fault::invalid(format!(
                "the plugin '{}' cannot be started: {}: {error}",
                self.name,
                self.program.display()
            ))
        })
    }
}

/// What a program has said so far.
struct Heard {
    answer: Vec<u8>,
    log: Kept,
}

impl Heard {
    /// Asks, and listens until the program has ended or says too much.
    async fn talk(&mut self, group: &mut Group, question: Vec<u8>) -> std::io::Result<ExitStatus> {
        let closed = || std::io::Error::other("its standard streams are closed");
        let child = &mut group.child;
        let mut stdin = child.stdin.take().ok_or_else(closed)?;
        let stdout = child.stdout.take().ok_or_else(closed)?;
        let mut stderr = child.stderr.take().ok_or_else(closed)?;
        let give = async move {
            // One that does not listen may still answer.
            let _ = stdin.write_all(&question).await;
            Ok(())
        };
        let hear = async {
            stdout.take(ANSWER_MAX as u64 + 1).read_to_end(&mut self.answer).await?;
            match self.answer.len() > ANSWER_MAX {
                true => Err(std::io::Error::other("it says too much")),
                false => Ok(()),
            }
        };
        let listening = async { tokio::try_join!(give, hear, gather(&mut stderr, &mut self.log)).map(drop) };
        group.hear(listening).await
    }
}

fn cut(answer: &[u8]) -> String {
    let mut kept = Kept::new(1024);
    kept.add(answer);
    kept.text()
}

impl Provider for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.ask(setting.task, setting.resources, setting.stop).boxed()
    }

    fn is_stoppable(&self) -> bool {
        true
    }
}

impl Automator for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.ask_until(job).boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, _: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.ask_until(job).boxed()
    }
}
