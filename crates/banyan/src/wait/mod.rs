//! Waiting until an instance is what it was asked to be, saying all along what
//! is waited for, and on failure why it did not come. [`workload`] and [`cluster`] do the same for those.

pub mod cluster;
pub mod workload;

use std::time::{Duration, Instant};

use api::{Client, ListQuery, LogsOptions};
use futures::StreamExt;
use model::exchange::Health;
use model::{ErrorKind, Event, Phase, RestartPolicy, Timestamp};

use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::text::{clock, plural};

const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);
/// A process that lives this long did not fail at once.
const SETTLE: Duration = Duration::from_millis(200);
/// The last event is looked up this often while waiting.
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// After so many restarts by its policy an instance that does not run counts as failed.
const RESTARTS_MAX: u64 = 2;
const EVENTS_SHOWN: usize = 6;
const LOG_LINES_SHOWN: u64 = 10;
const LOG_BYTES_SHOWN: usize = 16 * 1024;
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Runs, or ran to its end if it may end. With `after`: was started later than that.
    Running {
        after: Option<Timestamp>,
    },
    Stopped,
    Gone,
}

/// What an instance in this state means for the goal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Reached(String),
    Waiting(String),
    Failed(String),
}

impl Goal {
    fn judge(self, instance: &api::Instance) -> Verdict {
        let state = state(instance);
        match self {
            Self::Stopped if instance.phase == Phase::Stopped => Verdict::Reached(state),
            Self::Gone if instance.phase == Phase::Gone => Verdict::Reached("gone".into()),
            Self::Stopped | Self::Gone => Verdict::Waiting(state),
            Self::Running { after } => judge_running(instance, after, state),
        }
    }
}

fn judge_running(instance: &api::Instance, after: Option<Timestamp>, state: String) -> Verdict {
    let fresh = after.is_none_or(|then| instance.started_at.is_some_and(|at| at > then));
    let may_end = instance.spec.restart != RestartPolicy::Always;
    match (instance.phase, instance.health) {
        (Phase::Running, Some(Health::Unhealthy)) if fresh => Verdict::Failed(state),
        (Phase::Running, Some(Health::Starting)) => Verdict::Waiting(state),
        (Phase::Running, _) if fresh => Verdict::Reached(state),
        (Phase::Exited, _) if fresh && may_end && instance.exit_code == Some(0) => Verdict::Reached(state),
        (Phase::Exited, _) if fresh && instance.spec.restart == RestartPolicy::Never => {
            Verdict::Failed(state)
        }
        (Phase::Exited | Phase::Creating, _) if instance.restarts >= RESTARTS_MAX && after.is_none() => {
            Verdict::Failed(format!("{state}; it was started {} times", instance.restarts + 1))
        }
        (Phase::Failed | Phase::Gone | Phase::Deleting, _) => Verdict::Failed(state),
        _ => Verdict::Waiting(state),
    }
}

/// Phase, exit code, health and message in a few words.
pub fn state(instance: &api::Instance) -> String {
    let mut text = match run_ended(instance) {
        Some(_) => Phase::Exited.to_string(),
        None => instance.phase.to_string(),
    };
    if let (Phase::Exited | Phase::Stopped, Some(code)) = (instance.phase, instance.exit_code) {
        text += &format!(" with code {code}");
    }
    match instance.health {
        Some(Health::Starting) => text += " (health check pending)",
        Some(Health::Unhealthy) => text += " (unhealthy)",
        _ => {}
    }
    match &instance.message {
        // The message of an ended process begins with its exit code.
        Some(message) if message.starts_with(&text) => message.clone(),
        Some(message) if !message.is_empty() => format!("{text}: {message}"),
        _ => text,
    }
}

/// The exit code of one that is kept of a run of a workload: it ended by itself, and is only kept from starting again.
pub fn run_ended(instance: &api::Instance) -> Option<i32> {
    let kept = instance.phase == Phase::Stopped && instance.workload.is_some();
    instance.exit_code.filter(|_| kept)
}

/// What something is, as a sentence.
pub fn sentence(what: &str, name: &str, state: &str) -> String {
    let is = if state.starts_with("failed") { "" } else { "is " };
    format!("{what} {name} {is}{state}")
}

/// That something was not what was waited for when the time was over.
fn overdue(what: &str, name: &str, state: &str, timeout: Duration) -> String {
    format!(
        "the wait for {what} {name} ended after {}s; it goes on, and is now {state}",
        timeout.as_secs_f32()
    )
}

/// What was wrong with an instance that runs and is not well, where its own state does not say so.
pub async fn last_trouble(client: &Client, instance: &api::Instance) -> Option<String> {
    let silent = instance.phase == Phase::Running && instance.message.is_none();
    if !silent || instance.restarts == 0 {
        return None;
    }
    let query = ListQuery::new().with("subject", format!("instance/{}", instance.name)).limit(EVENTS_SHOWN);
    let page = client.event_list(&query).await.ok()?;
    let ended = |event: &&Event| {
        let of_it = event.subject_id == instance.id.as_str();
        of_it && matches!(event.what.as_str(), "instance.unhealthy" | "instance.exited")
    };
    let last = page.items.iter().find(ended)?;
    let why = if last.what == "instance.unhealthy" { "its health check failed: " } else { "" };
    Some(format!("it was started again {}; last, {why}{}", plural(instance.restarts, "time"), last.message))
}

/// Waits until `goal` holds for the instance with this id. Returns the instance, or none once it is gone.
pub async fn wait(
    client: &Client,
    id: &str,
    name: &str,
    goal: Goal,
    timeout: Duration,
) -> Result<Option<api::Instance>> {
    let mut progress = Progress::new(format!("instance {name}"));
    let deadline = Instant::now() + timeout;
    let mut pause = POLL_FIRST;
    let mut event = LastEvent::default();
    let mut settled: Option<(Instant, u64)> = None;
    loop {
        let instance = match client.instance_get(id).await {
            Ok(instance) => instance,
            Err(error) if error.kind == ErrorKind::NotFound => {
                return gone(progress, name, goal);
            }
            Err(error) if error.kind == ErrorKind::Unavailable && Instant::now() < deadline => {
                progress.now(&format!("{}; trying again", error.message));
                tokio::time::sleep(POLL_MAX).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match goal.judge(&instance) {
            Verdict::Reached(state) => {
                let since = settled.filter(|(_, restarts)| *restarts == instance.restarts).map(|(at, _)| at);
                let lasting = instance.phase != Phase::Running
                    || instance.health == Some(Health::Healthy)
                    || since.is_some_and(|at| at.elapsed() >= SETTLE);
                if lasting {
                    progress.done(&state);
                    return Ok(Some(instance));
                }
                settled = settled.filter(|_| since.is_some()).or(Some((Instant::now(), instance.restarts)));
                pause = pause.min(SETTLE / 4);
            }
            Verdict::Waiting(state) => {
                settled = None;
                let last = event.text(client, name, &state).await;
                progress.now(&if last.is_empty() { state } else { format!("{state} ({last})") });
            }
            Verdict::Failed(state) => {
                progress.clear();
                let message = sentence("instance", name, &state);
                return Err(explain(client, id, name, Failure::new(message)).await);
            }
        }
        if Instant::now() >= deadline {
            progress.clear();
            let message = overdue("instance", name, &state(&instance), timeout);
            return Err(explain(client, id, name, Failure::new(message)).await);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(POLL_MAX);
    }
}

fn gone(progress: Progress, name: &str, goal: Goal) -> Result<Option<api::Instance>> {
    if goal == Goal::Gone {
        progress.done("gone");
        return Ok(None);
    }
    progress.clear();
    Err(Failure::new(format!("instance {name} was deleted while it was waited for"))
        .hint(format!("see who did it with: banyan event list --subject {name}")))
}

/// Adds the last events and the last lines of output, which is where people look next.
async fn explain(client: &Client, id: &str, name: &str, failure: Failure) -> Failure {
    let mut details = last_events(client, &format!("instance/{name}")).await;
    let lines = last_output(client, id).await;
    if !lines.is_empty() {
        details.push("last output:".to_owned());
        details.extend(lines.into_iter().map(|line| format!("  {line}")));
    }
    failure.details(details).hint(format!("banyan why instance {name}   or   banyan instance logs {name}"))
}

/// The latest events of `KIND/NAME`, oldest first, under a heading; nothing when there are none.
pub async fn last_events(client: &Client, subject: &str) -> Vec<String> {
    let query = ListQuery::new().with("subject", subject).limit(EVENTS_SHOWN);
    match client.event_list(&query).await {
        Ok(page) if !page.items.is_empty() => {
            let lines = page.items.iter().rev().map(|event| format!("  {}", event_line(event)));
            std::iter::once("last events:".to_owned()).chain(lines).collect()
        }
        _ => Vec::new(),
    }
}

/// The last lines an instance wrote; nothing when they cannot be had quickly.
pub async fn last_output(client: &Client, id: &str) -> Vec<String> {
    let read = async {
        let options = LogsOptions { follow: false, tail_lines: Some(LOG_LINES_SHOWN) };
        let mut stream = client.instance_logs(id, options).await.ok()?;
        let mut bytes = Vec::new();
        while let Some(Ok(chunk)) = stream.next().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LOG_BYTES_SHOWN {
                break;
            }
        }
        Some(bytes)
    };
    let bytes = tokio::time::timeout(LOG_PATIENCE, read).await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace(|c: char| c.is_control() && c != '\n', " ");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN as usize)..].to_vec()
}

pub fn event_line(event: &Event) -> String {
    let message = if event.message.is_empty() { String::new() } else { format!("  {}", event.message) };
    format!("{}  {}{message}", clock(event.at), event.what)
}

/// What an event says; its kind where it says nothing.
fn said(event: &Event) -> String {
    if event.message.is_empty() { event.what.clone() } else { event.message.clone() }
}

/// The newest event of an instance, fetched when its state changes, and now and then.
#[derive(Default)]
struct LastEvent {
    fetched: Option<Instant>,
    state: String,
    text: String,
}

impl LastEvent {
    async fn text(&mut self, client: &Client, name: &str, state: &str) -> String {
        if self.state != state || self.fetched.is_none_or(|at| at.elapsed() >= EVENT_EVERY) {
            self.fetched = Some(Instant::now());
            state.clone_into(&mut self.state);
            if let Ok(page) = client.event_list(&ListQuery::new().with("instance", name).limit(1)).await {
                self.text = page.items.first().map(said).unwrap_or_default();
            }
        }
        self.text.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(goal: Goal, change: impl FnOnce(&mut api::Instance), expect: &str) {
        let mut instance: api::Instance = serde_json::from_value(serde_json::json!({
            "id": "i-00000000000000001", "name": "web", "tenant": "main", "version": 1, "spec": {"image": "busybox"},
            "run": "running", "restart_count": 0, "image_id": "img-00000000000000001", "phase": "pending",
            "created_at": "2026-01-01T00:00:00Z", "created_by": "admin"
        }))
        .unwrap();
        change(&mut instance);
        let found = format!("{:?}", goal.judge(&instance));
        assert!(found.starts_with(expect), "{found} instead of {expect}");
    }

    const RUN: Goal = Goal::Running { after: None };

    #[test]
    fn running_is_reached_or_failed() {
        check(RUN, |_| {}, "Waiting(\"pending\")");
        check(RUN, |i| i.phase = Phase::Running, "Reached");
        check(RUN, |i| (i.phase, i.health) = (Phase::Running, Some(Health::Starting)), "Waiting");
        check(RUN, |i| (i.phase, i.health) = (Phase::Running, Some(Health::Unhealthy)), "Failed");
        check(RUN, |i| i.phase = Phase::Failed, "Failed");
        check(RUN, |i| (i.phase, i.exit_code) = (Phase::Exited, Some(1)), "Waiting");
        check(RUN, |i| (i.phase, i.exit_code, i.restarts) = (Phase::Exited, Some(1), 2), "Failed");
    }

    #[test]
    fn an_instance_that_may_end_has_happened_when_it_ended_well() {
        for (policy, code, expect) in [
            (RestartPolicy::Never, 0, "Reached"),
            (RestartPolicy::Never, 3, "Failed(\"exited with code 3"),
            (RestartPolicy::OnFailure, 0, "Reached"),
            (RestartPolicy::OnFailure, 3, "Waiting"),
        ] {
            check(
                RUN,
                |i| (i.phase, i.exit_code, i.spec.restart) = (Phase::Exited, Some(code), policy),
                expect,
            );
        }
    }

    #[test]
    fn what_ended_in_a_run_says_how() {
        let mut end: api::Instance = serde_json::from_value(serde_json::json!({
            "id": "i-00000000000000001", "name": "sums-1", "tenant": "main", "version": 1, "workload": "sums",
            "spec": {"image": "busybox"}, "run": "stopped", "restart_count": 0, "phase": "stopped", "exit_code": 3,
            "image_id": "img-00000000000000001", "message": "exited with code 3",
            "created_at": "2026-01-01T00:00:00Z", "created_by": "admin"
        }))
        .unwrap();
        assert_eq!(state(&end), "exited with code 3");
        assert!(!workload::well(&end));
        end.exit_code = Some(0);
        assert!(workload::well(&end));
        (end.workload, end.message) = (None, None);
        assert_eq!(state(&end), "stopped with code 0");
    }

    #[test]
    fn a_restart_waits_for_the_new_process() {
        let goal = Goal::Running { after: Some(Timestamp(100)) };
        check(goal, |i| (i.phase, i.started_at) = (Phase::Running, Some(Timestamp(100))), "Waiting");
        check(goal, |i| (i.phase, i.started_at) = (Phase::Running, Some(Timestamp(101))), "Reached");
    }

    #[test]
    fn stopping_and_deleting_have_their_own_end() {
        check(Goal::Stopped, |i| i.phase = Phase::Stopping, "Waiting");
        check(Goal::Stopped, |i| i.phase = Phase::Stopped, "Reached");
        check(Goal::Gone, |i| i.phase = Phase::Deleting, "Waiting");
        check(Goal::Gone, |i| i.phase = Phase::Gone, "Reached");
    }
}
