//! `shell`: scripts that run on the machine.
//!
//! Fields: `script`, the name of a staged script, or `code`, its text; `args`;
//! `archive`, the name of a staged archive that is unpacked beside it; `timeout`
//! in seconds. The script runs as root in a folder of its own, where `setting KEY` prints a value of the cluster's
//! configuration and `task.json` is the task, without credentials. The variables `BANYAN_ACTION`,
//! `BANYAN_SERVICE`, `BANYAN_HOSTNAME`, `BANYAN_CLUSTER`, `BANYAN_NODE` and
//! `BANYAN_TASK` (the path of `task.json`) are set, and the folder is the first of `PATH`. It is removed afterwards.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::place::{self, Bundle, Place};
use super::{Automator, Job};
use crate::task::{Action, Fault, Report};

pub struct Shell;

impl Automator for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        place::ready(job).boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            let script = place::source(job, &action, "script", "scripts")?;
            let place = Place::new(job);
            let done = script_run(&place, job, &action, script).await;
            place.leave().await;
            done
        }
        .boxed()
    }
}

async fn script_run(
    place: &Place<'_>,
    job: &Job<'_>,
    action: &Action<'_>,
    script: Bytes,
) -> Result<Report, Fault> {
    let mut bundle = Bundle::new(job.task)?;
    bundle.add("script", 0o700, &script)?;
    place.fill(bundle).await?;
    if let Some(archive) = action.text("archive") {
        place.unpack("archives", &archive, ".").await?;
    }
    // As a user wrote them: words for the shell.
    let args = action.text("args").unwrap_or_default();
    place.run(action, &format!("./script {args}")).await
}
