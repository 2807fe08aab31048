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
//! much or takes too long has failed too, and what it printed is in the report.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::automator::{Automator, Job};
use crate::provider::{Provider, Setting};
use crate::ssh::Kept;
use crate::task::{Action, Fault, Report, Task};

/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;
/// Bytes kept of the beginning and of the end of a log.
const LOG_KEPT: usize = 32 << 10;
/// What programs may take over from us; everything else of our environment stays with us.
const ENVIRONMENT: [&str; 4] = ["PATH", "LANG", "TZ", "HOME"];

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

    async fn ask(&self, task: &Task, resources: &Path) -> Result<Report, Fault> {
        let question = Question { verb: task.task_name.word(), task, resources };
        let question = serde_json::to_vec(&question).map_err(|error| Fault::invalid(error.to_string()))?;
        let mut child = self.start()?;
        let said = self.talk(&mut child, question);
        let (answer, log, ended) = match timeout(self.limit, said).await {
            Ok(talked) => {
                talked.map_err(|error| Fault::failed(format!("the plugin '{}' broke: {error}", self.name)))?
            }
            Err(_) => {
                end(&mut child).await;
                let seconds = self.limit.as_secs();
                return Err(Fault::failed(format!(
                    "the plugin '{}' took longer than {seconds} s",
                    self.name
                )));
            }
        };
        end(&mut child).await;
        let (shown, log) = (cut(&answer), log.text());
        let failed =
            |message: String| Fault { stdout: shown.clone(), stderr: log.clone(), ..Fault::failed(message) };
        if answer.len() > ANSWER_MAX {
            return Err(failed(format!(
                "the plugin '{}' answered more than {} MiB",
                self.name,
                ANSWER_MAX >> 20
            )));
        }
        let mut report: Report = serde_json::from_slice(&answer).map_err(|error| match ended {
            0 => failed(format!("the plugin '{}' did not answer as it should: {error}", self.name)),
            code => failed(format!("the plugin '{}' ended with code {code}", self.name)),
        })?;
        if report.is_good() && ended == 0 {
            report.stderr = if report.stderr.is_empty() { log } else { report.stderr };
            return Ok(report);
        }
        let status = if report.is_good() { Fault::FAILED } else { report.status };
        let is_passing = !(200..300).contains(&status) && status != Fault::INVALID;
        let message = match report.message.is_empty() {
            false => report.message,
            true => format!("the plugin '{}' failed with status {status}", self.name),
        };
        let stderr = if report.stderr.is_empty() { log } else { report.stderr };
        Err(Fault { status, message, is_passing, stdout: report.stdout, stderr })
    }

    fn start(&self) -> Result<Child, Fault> {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().process_group(0).kill_on_drop(true);
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.spawn().map_err(|error| {
            Fault::invalid(format!(
                "the plugin '{}' cannot be started: {}: {error}",
                self.name,
                self.program.display()
            ))
        })
    }

    /// The answer, the log, and the code it ended with.
    async fn talk(&self, child: &mut Child, question: Vec<u8>) -> std::io::Result<(Vec<u8>, Kept, i32)> {
        let closed = || std::io::Error::other("its standard streams are closed");
        let mut stdin = child.stdin.take().ok_or_else(closed)?;
        let stdout = child.stdout.take().ok_or_else(closed)?;
        let mut stderr = child.stderr.take().ok_or_else(closed)?;
        let give = async move {
            // One that does not listen may still answer.
            let _ = stdin.write_all(&question).await;
        };
        let mut answer = Vec::new();
        let hear = async {
            let mut stdout = stdout;
            (&mut stdout).take(ANSWER_MAX as u64 + 1).read_to_end(&mut answer).await?;
            // What is too much is not kept, but must not block it.
            tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await.map(drop)
        };
        let mut log = Kept::new(LOG_KEPT);
        let ((), heard, logged) = tokio::join!(give, hear, gather(&mut stderr, &mut log));
        heard.and(logged)?;
        let ended = child.wait().await?;
        Ok((answer, log, ended.code().unwrap_or(-1)))
    }
}

async fn gather(from: &mut (impl AsyncRead + Unpin), into: &mut Kept) -> std::io::Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        match from.read(&mut piece).await? {
            0 => return Ok(()),
            count => into.add(&piece[..count]),
        }
    }
}

/// Ends the program and what it started.
async fn end(child: &mut Child) {
    if let Some(pid) =
        child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait().await;
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
        self.ask(setting.task, setting.resources.folder()).boxed()
    }
}

impl Automator for Plugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.ask(job.task, job.resources.folder()).boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, _: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.ask(job.task, job.resources.folder()).boxed()
    }
}
