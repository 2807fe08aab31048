//! Waiting until a machine lets us in.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::machine::Machine;
use crate::task::{Fault, Report, Task};

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const LOOK_MAX: Duration = Duration::from_secs(20);
/// How long a machine that stood is waited for.
const STANDING_MAX: Duration = Duration::from_secs(15);

/// How long a task waits for its machine: one that is new is given so much.
pub(super) fn patience(task: &Task, new: Duration) -> Duration {
    if task.is_look() { new.min(STANDING_MAX) } else { new }
}

/// Waits for the machine's sshd, learns its key, and sees that we can be root. A machine that shows another
/// key than the one that is known, or does not know ours after a while, is not waited for.
pub async fn confirm(machine: &Machine, wait: Duration) -> Result<Report, Fault> {
    let began = Instant::now();
    let mut pause = PAUSE_FIRST;
    let session = loop {
        match machine.pool().session(machine.target()).await {
            Ok(session) => break session,
            // A machine that just started may let us in before it has our key.
            Err(error) if began.elapsed() < wait && (error.is_passing() || is_young(&error, began)) => {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let key = session.host_key().clone();
    let known =
        key.as_str().split(' ').next().and_then(|kind| kind.strip_prefix("ssh-")).unwrap_or("key").to_owned();
    machine.must("becoming root", "[ \"$(id -u)\" = 0 ]", LOOK_MAX).await?;
    let mut report = Report::default();
    report.result.insert("ssh_host_keys".to_owned(), json!({ known: key }));
    Ok(report)
}

/// How long a refusal may be for want of a key that is on its way.
const YOUNG: Duration = Duration::from_secs(15);

fn is_young(error: &crate::ssh::SshError, began: Instant) -> bool {
    matches!(error, crate::ssh::SshError::Denied { .. }) && began.elapsed() < YOUNG
}
