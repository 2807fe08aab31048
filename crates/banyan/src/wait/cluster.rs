//! Waiting for the job of a cluster, saying all along how far it is.

use std::time::{Duration, Instant};

use api::{Client, Cluster, ClusterStatus, JobStatus, JobSummary, JobTask, TaskStatus};
use model::ErrorKind;

use super::{POLL_FIRST, POLL_MAX};
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;

/// Tasks under way that are named.
const TASKS_NAMED: usize = 3;
/// Failed tasks that are shown.
const FAILURES_SHOWN: usize = 5;
/// Lines of the output of a failed task that are shown.
const LINES_SHOWN: usize = 10;
/// Letters of why a task is tried again.
const WHY_SHOWN: usize = 120;
/// Tasks under way are looked up this often.
const TASKS_EVERY: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The job ended well.
    Done,
    /// The job ended.
    Over,
    /// No machine is left.
    Gone,
}

/// Status, job and message in a few words.
pub fn state(cluster: &Cluster) -> String {
    let mut text = cluster.status.as_str().to_owned();
    if let Some(job) = cluster.job.as_ref().filter(|job| !job.status.is_over()) {
        text += &format!(" ({})", job_text(job));
    }
    match &cluster.message {
        Some(message) if !message.is_empty() => format!("{text}: {message}"),
        _ => text,
    }
}

fn job_text(job: &JobSummary) -> String {
    let action = job.action.to_lowercase().replace('_', " ");
    let back = if job.rolling_back { ", taking back what was made by half" } else { "" };
    let paused = if job.status == JobStatus::Paused { ", paused" } else { "" };
    format!("{action}, {} of {} tasks{back}{paused}", job.steps_completed, job.steps_total)
}

/// Why a job did not end well.
pub fn failed(name: &str, job: &JobSummary) -> String {
    let action = job.action.to_lowercase().replace('_', " ");
    let why = job.message.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("cluster {name}: {action} {}{why}", job.status.as_str())
}

/// Waits until the job that the cluster had when it was given an order reached the goal. Returns the cluster, or none
/// once it is gone.
pub async fn wait(
    client: &Client,
    ordered: &Cluster,
    goal: Goal,
    timeout: Duration,
) -> Result<Option<Cluster>> {
    let (id, name) = (ordered.id.as_str(), ordered.name.as_str());
    let job = ordered.job.as_ref().map(|job| job.id.clone());
    let mut progress = Progress::new(format!("cluster {name}"));
    let deadline = Instant::now() + timeout;
    let mut pause = POLL_FIRST;
    let mut tasks = (String::new(), None);
    loop {
        let cluster = match client.cluster_get(id).await {
            Ok(cluster) => cluster,
            Err(error) if error.kind == ErrorKind::NotFound => {
                if goal == Goal::Done {
                    progress.clear();
                    return Err(Failure::new(format!("cluster {name} was deleted while it was waited for")));
                }
                progress.done("gone");
                return Ok(None);
            }
            Err(error) if error.kind == ErrorKind::Unavailable && Instant::now() < deadline => {
                progress.now(&format!("{}; trying again", error.message));
                tokio::time::sleep(POLL_MAX).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = cluster.job.clone().filter(|now| job.as_ref().is_none_or(|job| *job == now.id));
        match judge(&cluster, now.as_ref(), goal) {
            Some(true) => {
                progress.done(&state(&cluster));
                return Ok(Some(cluster));
            }
            Some(false) => {
                progress.clear();
                return Err(explain(client, &cluster).await);
            }
            None => {
                tasks = under_way(client, &cluster, tasks).await;
                progress.now(&format!("{}{}", state(&cluster), tasks.0));
            }
        }
        if Instant::now() >= deadline {
            progress.clear();
            let text = super::overdue("cluster", name, &state(&cluster), timeout);
            return Err(Failure::new(text).hint(format!("follow it with: banyan cluster watch {name}")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(POLL_MAX);
    }
}

/// Whether the goal is reached, or cannot be any more. A job that is no longer the cluster's last one is over.
fn judge(cluster: &Cluster, job: Option<&JobSummary>, goal: Goal) -> Option<bool> {
    let status = job.map_or(JobStatus::Complete, |job| job.status);
    match (goal, status) {
        _ if !status.is_over() => None,
        (Goal::Over, _) => Some(true),
        (Goal::Gone, _) => Some(cluster.status == ClusterStatus::Terminated),
        (Goal::Done, status) => Some(status == JobStatus::Complete),
    }
}

/// What is being done at the moment, looked up now and then.
async fn under_way(
    client: &Client,
    cluster: &Cluster,
    (text, at): (String, Option<Instant>),
) -> (String, Option<Instant>) {
    if at.is_some_and(|at| at.elapsed() < TASKS_EVERY) {
        return (text, at);
    }
    let Some(job) = &cluster.job else { return (String::new(), Some(Instant::now())) };
    let Ok(job) = client.cluster_job(cluster.name.as_str(), &job.id).await else {
        return (text, Some(Instant::now()));
    };
    let running: Vec<String> = job
        .stages
        .iter()
        .flatten()
        .filter(|task| task.status == TaskStatus::InProgress)
        .map(running_text)
        .collect();
    let more = running.len().saturating_sub(TASKS_NAMED);
    let mut named = running.iter().take(TASKS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    let text = if named.is_empty() { String::new() } else { format!("; {named}") };
    (text, Some(Instant::now()))
}

fn plain(why: &str) -> String {
    why.chars().filter(|letter| !letter.is_control()).take(WHY_SHOWN).collect()
}

/// A task under way, and why it is tried again.
fn running_text(task: &JobTask) -> String {
    let what = format!("{} {} on {}", task.name.to_lowercase(), task.service, task.node).replace("  ", " ");
    match (task.failures, &task.message) {
        (_, None) => what,
        (0, Some(why)) => format!("{what}: {}", plain(why)),
        (failures, Some(why)) => {
            format!("{what} (try {}, after: {})", failures + 1, plain(why))
        }
    }
}

/// Adds what failed, which is where people look next.
async fn explain(client: &Client, cluster: &Cluster) -> Failure {
    let name = cluster.name.as_str();
    let Some(job) = &cluster.job else {
        return Failure::new(format!("cluster {name} is {}", state(cluster)));
    };
    let mut details = Vec::new();
    if let Ok(whole) = client.cluster_job(name, &job.id).await {
        let tasks = whole.stages.iter().flatten();
        for task in tasks.filter(|task| task.status == TaskStatus::Failed).take(FAILURES_SHOWN) {
            let why = task.message.as_deref().unwrap_or("failed");
            let what = format!("{} {} on {}", task.name.to_lowercase(), task.service, task.node);
            details.push(format!("{}: {why}", what.replace("  ", " ")));
            let Ok(log) = client.cluster_node_log(name, task.node).await else { continue };
            let Some(action) = log.iter().rev().find(|action| action.id == task.id) else { continue };
            let printed: Vec<&str> = action.stdout.lines().chain(action.stderr.lines()).collect();
            let last = &printed[printed.len().saturating_sub(LINES_SHOWN)..];
            details.extend(last.iter().map(|line| format!("  {}", line.replace(char::is_control, " "))));
        }
    }
    Failure::new(failed(name, job)).details(details).hint(format!("banyan cluster logs {name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster(status: &str, job: &str) -> Cluster {
        serde_json::from_value(serde_json::json!({
            "id": model::ClusterId::from_random(1), "name": "shop", "tenant": "main", "version": 1, "template": "web",
            "provider": "banyan", "size": 3, "nodes": 3, "services": [], "status": status, "config": {},
            "public_key": "", "created_at": "2026-01-01T00:00:00Z", "created_by": "admin",
            "job": {
                "id": "j", "action": "CLUSTER_CREATE", "status": job, "steps_total": 9, "steps_completed": 4,
                "created_at": "2026-01-01T00:00:00Z", "created_by": "admin"
            }
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_waited_for_to_its_end() {
        for (status, job, goal, expected) in [
            ("pending", "running", Goal::Done, None),
            ("pending", "paused", Goal::Over, None),
            ("active", "complete", Goal::Done, Some(true)),
            ("terminated", "failed", Goal::Done, Some(false)),
            ("active", "aborted", Goal::Over, Some(true)),
            ("terminated", "complete", Goal::Gone, Some(true)),
            ("incomplete", "failed", Goal::Gone, Some(false)),
        ] {
            let cluster = cluster(status, job);
            assert_eq!(judge(&cluster, cluster.job.as_ref(), goal), expected, "{status} {job} {goal:?}");
        }
        assert_eq!(judge(&cluster("active", "running"), None, Goal::Done), Some(true), "another job came");
    }

    #[test]
    fn the_state_says_how_far_the_job_is() {
        assert_eq!(state(&cluster("pending", "running")), "pending (cluster create, 4 of 9 tasks)");
        assert_eq!(state(&cluster("active", "complete")), "active");
    }
}
