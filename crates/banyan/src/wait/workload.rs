//! Waiting until a workload is what it was asked to be.

use std::time::{Duration, Instant};

use api::{Client, ListQuery, Workload};
use model::workload::{LABEL, WorkloadPhase};
use model::{ErrorKind, Mode, Phase, Timestamp};

use super::{POLL_FIRST, POLL_MAX, Verdict, last_events, last_output, overdue, sentence};
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;

/// Instances that are looked at to say why a workload is not what it should be.
const LOOKED_AT: usize = 100;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// All that is wanted of this revision is there; of what runs to its end, it has ended.
    Settled {
        revision: u64,
        /// Fewer were asked for than before, so those that are too many are waited for until they are gone.
        fewer: bool,
    },
    /// A run that began later than this has ended.
    Ran {
        after: Option<Timestamp>,
    },
    Gone,
}

impl Goal {
    /// The goal of an order that was answered with this workload.
    pub const fn settled(workload: &Workload) -> Self {
        Self::Settled { revision: workload.revision, fewer: false }
    }

    /// The goal of an order that may have asked for fewer instances than `before`.
    pub fn changed(before: &Workload, after: &Workload) -> Self {
        let fewer = replicas(before).zip(replicas(after)).is_some_and(|(before, after)| after < before);
        Self::Settled { revision: after.revision, fewer }
    }

    fn judge(self, workload: &Workload) -> Verdict {
        use WorkloadPhase as P;
        let state = state(workload);
        let status = &workload.status;
        match (self, status.phase) {
            (Self::Gone, _) => Verdict::Waiting(state),
            (_, P::Deleting) => Verdict::Failed(state),
            (Self::Ran { after }, phase) => {
                let begun = status.last_run_at > after;
                match phase {
                    P::Active => Verdict::Waiting(state),
                    // What has a schedule waits for its next time, also when this run failed.
                    _ if begun && unfinished(workload) => Verdict::Failed(state),
                    _ if begun => Verdict::Reached(state),
                    _ => Verdict::Waiting(state),
                }
            }
            (_, P::Failed) => Verdict::Failed(state),
            (_, P::Available) if behind(workload) => Verdict::Waiting(state),
            (_, P::Canary) if held(workload) || short(workload) => Verdict::Waiting(state),
            (_, P::Active) if !matches!(workload.spec.mode, Mode::Cron { .. }) => Verdict::Waiting(state),
            (_, P::Progressing | P::Updating | P::RollingBack) => Verdict::Waiting(state),
            (_, P::Available | P::Canary | P::Paused | P::Active | P::Waiting | P::Done) => {
                Verdict::Reached(state)
            }
        }
    }
}

/// How many a service that does not scale by itself should have.
fn replicas(workload: &Workload) -> Option<u32> {
    match workload.spec.mode {
        Mode::Service { replicas } if workload.spec.autoscale.is_none() => Some(replicas),
        _ => None,
    }
}

/// Whether fewer are available than should be, of whatever revision.
fn short(workload: &Workload) -> bool {
    let status = &workload.status;
    replicas(workload).is_some_and(|replicas| status.wanted != replicas) || status.available < status.wanted
}

/// Whether the status is still that of before the order.
fn behind(workload: &Workload) -> bool {
    let status = &workload.status;
    // What is too much is there until the next look of the one who lets it go.
    let surplus = matches!(workload.spec.mode, Mode::Service { .. }) && status.available > status.wanted;
    surplus || short(workload) || status.updated < status.wanted
}

/// Whether the last run ended before enough of it ended well.
fn unfinished(workload: &Workload) -> bool {
    let wanted = workload.spec.mode.run().map_or(0, |run| run.completions);
    workload.status.succeeded < wanted
}

/// Whether a canary goes on by itself.
fn held(workload: &Workload) -> bool {
    workload.spec.update.canary.as_ref().is_some_and(|canary| canary.hold_ms.is_some())
}

/// Phase, counts and message in a few words.
pub fn state(workload: &Workload) -> String {
    state_with(workload, 0)
}

/// The same, where it is known how many were ordered to go and are not gone.
fn state_with(workload: &Workload, ending: u32) -> String {
    let status = &workload.status;
    let mut text = status.phase.to_string();
    match &workload.spec.mode {
        _ if status.phase == WorkloadPhase::Deleting => {}
        Mode::Service { .. } | Mode::Daemon => {
            text += &format!(", {} of {} available", status.available.min(status.wanted), status.wanted);
            let under_way = status.updated < status.wanted;
            if under_way || status.phase == WorkloadPhase::Updating {
                text += &format!(", {} of {} updated", status.updated.min(status.wanted), status.wanted);
            }
            // Some more are there on purpose while an update is under way.
            let surplus = match workload.spec.mode {
                Mode::Service { .. } if !under_way => status.available.saturating_sub(status.wanted),
                _ => 0,
            };
            let ending = ending.max(surplus);
            if ending > 0 {
                text += &format!(", {ending} still to end");
            }
        }
        Mode::Once { run } | Mode::Cron { run, .. } if status.last_run_at.is_some() => {
            text += &format!(", {} of {} ended well", status.succeeded, run.completions);
            if status.failed > 0 {
                text += &format!(", {} badly", status.failed);
            }
        }
        Mode::Once { .. } | Mode::Cron { .. } => {}
    }
    match &status.message {
        Some(message) if !message.is_empty() => format!("{text}: {message}"),
        _ => text,
    }
}

/// Waits until `goal` holds. Returns the workload, or none once it is gone.
pub async fn wait(client: &Client, name: &str, goal: Goal, timeout: Duration) -> Result<Option<Workload>> {
    let mut progress = Progress::new(format!("workload {name}"));
    let deadline = Instant::now() + timeout;
    let mut pause = POLL_FIRST;
    let mut given_up: Option<String> = None;
    loop {
        let workload = match client.workload_get(name).await {
            Ok(workload) => workload,
            Err(error) if error.kind == ErrorKind::NotFound => return gone(progress, name, goal),
            Err(error) if error.kind == ErrorKind::Unavailable && Instant::now() < deadline => {
                progress.now(&format!("{}; trying again", error.message));
                tokio::time::sleep(POLL_MAX).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if workload.status.phase == WorkloadPhase::RollingBack && goal != Goal::Gone {
            given_up = Some(workload.status.message.clone().unwrap_or_default());
        }
        let late = Instant::now() >= deadline;
        let verdict = match goal.judge(&workload) {
            Verdict::Reached(state) => surplus_gone(client, &workload, goal, state).await?,
            other => other,
        };
        let failure = match verdict {
            Verdict::Reached(state) => match abandoned(client, &workload, goal, given_up).await {
                None => {
                    progress.done(&state);
                    return Ok(Some(workload));
                }
                Some(why) => Failure::new(format!("the update of workload {name} failed, {why}")),
            },
            Verdict::Failed(state) => Failure::new(sentence("workload", name, &state)),
            Verdict::Waiting(state) if late => Failure::new(overdue("workload", name, &state, timeout)),
            Verdict::Waiting(state) => {
                progress.now(&state);
                tokio::time::sleep(pause).await;
                pause = (pause * 3 / 2).min(POLL_MAX);
                continue;
            }
        };
        progress.clear();
        return Err(explain(client, name, failure).await);
    }
}

/// Where fewer are wanted than before: whether those that were too many are gone.
async fn surplus_gone(client: &Client, workload: &Workload, goal: Goal, state: String) -> Result<Verdict> {
    if !matches!(goal, Goal::Settled { fewer: true, .. }) {
        return Ok(Verdict::Reached(state));
    }
    let query = ListQuery::new()
        .with("label", format!("{LABEL}={}", workload.name))
        .with("phase", Phase::Deleting.to_string())
        .limit(LOOKED_AT);
    match client.instance_list(&query).await {
        Ok(page) => {
            let ending = page.items.iter().filter(|instance| instance.phase == Phase::Deleting).count();
            Ok(match ending {
                0 => Verdict::Reached(state),
                _ => Verdict::Waiting(state_with(workload, ending as u32)),
            })
        }
        Err(error) if error.kind == ErrorKind::Unavailable => Ok(Verdict::Waiting(error.message)),
        Err(error) => Err(error.into()),
    }
}

/// Why the revision that was waited for is not the one that came, if it was given up.
async fn abandoned(
    client: &Client,
    workload: &Workload,
    goal: Goal,
    given_up: Option<String>,
) -> Option<String> {
    let back = |reason: &str| match reason {
        "" => "and the revision before is back".to_owned(),
        reason => format!("and the revision before is back: {reason}"),
    };
    match goal {
        Goal::Settled { revision, .. } if revision != workload.revision => {
            let revisions = client.workload_revisions(workload.name.as_str()).await.unwrap_or_default();
            let ours = revisions.iter().find(|known| known.revision == revision);
            ours.and_then(|known| known.failed.as_deref()).map(back).or_else(|| given_up.as_deref().map(back))
        }
        _ => given_up.as_deref().map(back),
    }
}

fn gone(progress: Progress, name: &str, goal: Goal) -> Result<Option<Workload>> {
    if goal == Goal::Gone {
        progress.done("gone");
        return Ok(None);
    }
    progress.clear();
    Err(Failure::new(format!("workload {name} was deleted while it was waited for"))
        .hint(format!("see who did it with: banyan event list --subject workload/{name}")))
}

/// The instances of a workload, at most `limit`.
pub async fn instances(client: &Client, name: &str, limit: usize) -> model::Result<Vec<api::Instance>> {
    let query = ListQuery::new().with("label", format!("{LABEL}={name}")).limit(limit);
    Ok(client.instance_list(&query).await?.items)
}

/// Adds the last events, and the state and last output of an instance that is not well.
async fn explain(client: &Client, name: &str, failure: Failure) -> Failure {
    let mut details = last_events(client, &format!("workload/{name}")).await;
    let found = instances(client, name, LOOKED_AT).await.unwrap_or_default();
    if let Some(ill) = found.iter().find(|instance| !well(instance)) {
        let name = ill.name.as_str();
        details.push(sentence("instance", name, &super::state(ill)));
        details.extend(super::last_trouble(client, ill).await.map(|line| format!("  {line}")));
        let lines = last_output(client, ill.id.as_str()).await;
        details.extend(lines.into_iter().map(|line| format!("  {line}")));
    }
    failure.details(details).hint(format!("banyan workload why {name}   or   banyan workload logs {name}"))
}

/// Whether nothing about an instance needs explaining.
pub fn well(instance: &api::Instance) -> bool {
    use model::exchange::Health;
    match instance.phase {
        Phase::Running => {
            let waits = instance.health == Some(Health::Starting) && instance.message.is_some();
            instance.health != Some(Health::Unhealthy) && !waits && instance.restarts == 0
        }
        Phase::Exited => instance.exit_code == Some(0),
        Phase::Stopped => super::run_ended(instance).is_none_or(|code| code == 0),
        Phase::Deleting | Phase::Gone | Phase::Stopping => true,
        Phase::Pending | Phase::Placed | Phase::Creating | Phase::Failed | Phase::Lost => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn workload(mode: serde_json::Value, phase: &str) -> Workload {
        serde_json::from_value(serde_json::json!({
            "id": "w-00000000000000001", "name": "web", "tenant": "main", "version": 1, "revision": 1,
            "spec": {"instance": {"image": "busybox"}, "mode": mode},
            "created_at": "2026-01-01T00:00:00Z", "created_by": "admin",
            "status": {"phase": phase, "wanted": 3, "instances": 3, "updated": 3, "available": 3}
        }))
        .unwrap()
    }

    fn check(mode: serde_json::Value, phase: &str, change: impl FnOnce(&mut Workload), expect: &str) {
        let mut workload = workload(mode, phase);
        change(&mut workload);
        let found = format!("{:?}", Goal::settled(&workload).judge(&workload));
        assert!(found.starts_with(expect), "{phase}: {found} instead of {expect}");
    }

    #[test]
    fn a_service_is_settled_when_all_of_it_is_new_and_available() {
        let service = || serde_json::json!({"kind": "service", "replicas": 3});
        check(service(), "progressing", |_| {}, "Waiting");
        check(
            service(),
            "updating",
            |w| w.status.updated = 1,
            "Waiting(\"updating, 3 of 3 available, 1 of 3",
        );
        check(service(), "available", |_| {}, "Reached(\"available, 3 of 3 available\")");
        check(service(), "available", |w| w.status.wanted = 2, "Waiting");
        check(
            service(),
            "available",
            |w| w.status.available = 5,
            "Waiting(\"available, 3 of 3 available, 2 still",
        );
        check(service(), "available", |w| w.status.updated = 2, "Waiting");
        check(service(), "rolling-back", |_| {}, "Waiting");
        check(
            service(),
            "failed",
            |w| w.status.message = Some("too slow".into()),
            "Failed(\"failed, 3 of 3 available: too slow",
        );
        check(service(), "deleting", |_| {}, "Failed");
        check(service(), "paused", |_| {}, "Reached");
    }

    #[test]
    fn what_is_said_counts_to_what_is_wanted() {
        let mode = serde_json::json!({"kind": "service", "replicas": 3});
        let mut web = workload(mode.clone(), "updating");
        (web.status.instances, web.status.available, web.status.updated) = (5, 4, 2);
        assert_eq!(state(&web), "updating, 3 of 3 available, 2 of 3 updated");
        let mut web = workload(mode, "available");
        assert_eq!(state_with(&web, 2), "available, 3 of 3 available, 2 still to end");
        (web.status.wanted, web.status.updated) = (0, 0);
        assert_eq!(state(&web), "available, 0 of 0 available, 3 still to end");
    }

    #[test]
    fn fewer_than_before_are_waited_for_until_the_others_are_gone() {
        let of = |replicas: u32| {
            workload(serde_json::json!({"kind": "service", "replicas": replicas}), "available")
        };
        let fewer = |before: u32, after: u32| Goal::changed(&of(before), &of(after));
        assert_eq!(fewer(5, 2), Goal::Settled { revision: 1, fewer: true });
        assert_eq!(fewer(2, 2), Goal::Settled { revision: 1, fewer: false });
        assert_eq!(fewer(2, 5), Goal::settled(&of(5)));
    }

    #[test]
    fn a_canary_without_a_time_waits_for_a_person_and_so_we_do_not() {
        let service = || serde_json::json!({"kind": "service", "replicas": 3});
        let canary = |hold_ms| Some(model::workload::Canary { instances: model::Amount::Count(1), hold_ms });
        check(service(), "canary", |w| w.spec.update.canary = canary(None), "Reached");
        check(service(), "canary", |w| w.spec.update.canary = canary(Some(500)), "Waiting");
        check(service(), "canary", |w| w.status.available -= 1, "Waiting");
    }

    #[test]
    fn what_ends_is_waited_for_and_what_has_a_schedule_is_not() {
        let once = || serde_json::json!({"kind": "once", "completions": 2});
        let cron = || serde_json::json!({"kind": "cron", "schedule": "@daily"});
        let one = |w: &mut Workload| (w.status.succeeded, w.status.last_run_at) = (1, Some(Timestamp(1)));
        check(once(), "active", one, "Waiting(\"active, 1 of 2 ended well");
        check(once(), "done", |w| w.status.succeeded = 2, "Reached");
        check(cron(), "waiting", |_| {}, "Reached(\"waiting\")");
        check(cron(), "active", |_| {}, "Reached");
        let mut run = workload(cron(), "waiting");
        let goal = Goal::Ran { after: Some(Timestamp(5)) };
        run.status.last_run_at = Some(Timestamp(5));
        assert!(matches!(goal.judge(&run), Verdict::Waiting(_)));
        run.status.last_run_at = Some(Timestamp(6));
        assert!(matches!(goal.judge(&run), Verdict::Failed(_)), "none has ended well");
        run.status.succeeded = 1;
        assert!(matches!(goal.judge(&run), Verdict::Reached(_)));
    }
}
