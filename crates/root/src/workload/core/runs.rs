//! Workloads that end: one-shots, and runs at the times of a schedule.
//!
//! The end of an instance is counted once: its own record is marked in the transaction that
//! changes the numbers of its run.

use std::collections::HashSet;

use model::cron::Schedule;
use model::workload::{Overlap, RunPolicy};
use model::{InstanceId, Mode, Phase, RestartPolicy, WorkloadPhase};

use super::{Create, Look, Plan, Seen};
use crate::tables::RunRecord;
use crate::workload::record::complete_note;

/// Ended instances of a run that are kept to look at.
const KEPT_PER_RUN_MAX: u32 = 10;
/// Ended runs of a one-shot that are kept.
const ONCE_KEEP: u32 = 3;
/// Runs of one workload at the same time.
const ACTIVE_MAX: usize = 100;
/// An instance that cannot be made for so long ended badly.
const UNMADE_MS: i64 = 30_000;
/// Ends that are counted in one step.
const COUNTED_MAX: usize = 1_000;
/// Pause after the first bad end; it doubles with each further one.
const RETRY_FIRST_MS: i64 = 1_000;
const RETRY_MAX_MS: i64 = 60_000;

pub fn step(look: &Look<'_>, plan: &mut Plan, policy: &RunPolicy, cron: Option<&Mode>) {
    let mut runs = std::mem::take(&mut plan.state.runs);
    for seen in look.instances.iter().filter(|seen| !seen.going() && !seen.counted) {
        let run = runs.iter_mut().find(|run| Some(run.number) == seen.run && run.ended_at.is_none());
        match run {
            Some(run) if plan.counted.len() < COUNTED_MAX => count(look, plan, run, seen),
            Some(_) => plan.look_at(look.now),
            None => {}
        }
    }
    if !look.record.spec.paused {
        match cron {
            Some(mode) => tick(look, plan, &mut runs, mode),
            None => ask(look, plan, &mut runs, Overlap::Skip),
        }
    }
    for run in runs.iter_mut().filter(|run| run.ended_at.is_none()) {
        advance(look, plan, run, policy);
    }
    let keep = match cron {
        Some(Mode::Cron { keep, .. }) => *keep,
        _ => ONCE_KEEP,
    };
    prune(look, plan, &mut runs, keep);
    status(look, plan, &runs, policy, cron);
    plan.state.runs = runs;
}

/// Whether an instance ended, and well; and when to ask again if that is not sure yet.
fn end_of(look: &Look<'_>, plan: &mut Plan, seen: &Seen) -> Option<bool> {
    match seen.phase {
        Phase::Exited if seen.exit_code == Some(0) => Some(true),
        Phase::Exited if look.policy() == RestartPolicy::Never => Some(false),
        Phase::Failed => {
            let at = seen.changed_at.plus_ms(UNMADE_MS);
            if at > look.now {
                plan.look_at(at);
                return None;
            }
            Some(false)
        }
        _ => None,
    }
}

fn count(look: &Look<'_>, plan: &mut Plan, run: &mut RunRecord, seen: &Seen) {
    let Some(well) = end_of(look, plan, seen) else { return };
    let bad = seen.restarts as u32 + u32::from(!well);
    run.succeeded += u32::from(well);
    run.failed += bad;
    if bad > 0 {
        run.failed_at = Some(look.now);
    }
    let keep = run.kept < KEPT_PER_RUN_MAX;
    run.kept += u32::from(keep);
    plan.counted.push((seen.id.clone(), keep));
}

/// Begins a run that somebody asked for.
fn ask(look: &Look<'_>, plan: &mut Plan, runs: &mut Vec<RunRecord>, overlap: Overlap) {
    let active = runs.iter().any(|run| run.ended_at.is_none());
    if plan.state.runs_begun >= look.record.runs_asked || (active && overlap == Overlap::Skip) {
        return;
    }
    if active && overlap == Overlap::Replace {
        replace(look, plan, runs);
    }
    plan.state.runs_begun = look.record.runs_asked;
    begin(look, plan, runs, "it was asked for");
}

fn begin(look: &Look<'_>, plan: &mut Plan, runs: &mut Vec<RunRecord>, why: &str) {
    plan.state.run_last += 1;
    plan.state.status.last_run_at = Some(look.now);
    let number = plan.state.run_last;
    plan.lines.push(("workload.run", format!("run {number} began: {why}")));
    runs.push(RunRecord {
        number,
        began_at: look.now,
        succeeded: 0,
        failed: 0,
        failed_at: None,
        kept: 0,
        ended_at: None,
        error: None,
    });
}

fn replace(look: &Look<'_>, plan: &mut Plan, runs: &mut [RunRecord]) {
    for run in runs.iter_mut().filter(|run| run.ended_at.is_none()) {
        end(look, plan, run, Some("the next run took its place".to_owned()));
    }
}

/// Begins a run when its time has come. Times that were missed count as one.
fn tick(look: &Look<'_>, plan: &mut Plan, runs: &mut Vec<RunRecord>, mode: &Mode) {
    let Mode::Cron { schedule, time_zone, overlap, .. } = mode else { return };
    ask(look, plan, runs, *overlap);
    let Ok(schedule) = Schedule::parse(schedule, time_zone.as_deref()) else { return };
    // A beginning that lies ahead was written under a wrong clock: the schedule begins now.
    let asked = Some(look.record.schedule_from).filter(|from| *from <= look.now);
    if asked.is_none() {
        plan.state.ticked_at.get_or_insert(look.now);
    }
    let from = plan.state.ticked_at.max(asked).unwrap_or(look.now);
    if schedule.next(from).is_some_and(|due| due <= look.now) {
        plan.state.ticked_at = Some(look.now);
        let active = runs.iter().filter(|run| run.ended_at.is_none()).count();
        if active >= ACTIVE_MAX || (active > 0 && *overlap == Overlap::Skip) {
            let message = "its time came while the run before was under way".to_owned();
            plan.lines.push(("workload.run-skipped", message));
        } else {
            if *overlap == Overlap::Replace {
                replace(look, plan, runs);
            }
            begin(look, plan, runs, "its time came");
        }
    }
    let next = schedule.next(look.now);
    plan.state.status.next_run_at = next;
    if let Some(next) = next {
        plan.look_at(next);
    }
}

/// The instances of a run that have not ended.
fn live<'a>(look: &'a Look<'_>, plan: &Plan, run: &RunRecord) -> Vec<&'a Seen> {
    let counted: HashSet<&InstanceId> = plan.counted.iter().map(|(id, _)| id).collect();
    let of_run = look.instances.iter().filter(|seen| seen.run == Some(run.number));
    of_run.filter(|seen| !seen.going() && !seen.counted && !counted.contains(&seen.id)).collect()
}

fn advance(look: &Look<'_>, plan: &mut Plan, run: &mut RunRecord, policy: &RunPolicy) {
    let live = live(look, plan, run);
    let failed = run.failed + live.iter().map(|seen| seen.restarts as u32).sum::<u32>();
    let deadline = policy.deadline_ms.map(|ms| run.began_at.plus_ms(ms as i64));
    if run.succeeded >= policy.completions {
        return end(look, plan, run, None);
    }
    if failed > policy.retries {
        run.failed = failed;
        let error = format!("{failed} ended badly, at most {} may", policy.retries);
        return end(look, plan, run, Some(error));
    }
    if deadline.is_some_and(|deadline| deadline <= look.now) {
        let error = format!("it was not done after {} s", policy.deadline_ms.unwrap_or(0) / 1000);
        return end(look, plan, run, Some(error));
    }
    if let Some(deadline) = deadline {
        plan.look_at(deadline);
    }
    let want = policy.parallelism.min(policy.completions - run.succeeded);
    let missing = want.saturating_sub(live.len() as u32);
    if missing == 0 || look.record.spec.paused {
        return;
    }
    let again_at = run.failed_at.map(|at| at.plus_ms(retry_ms(run.failed)));
    match again_at.filter(|at| *at > look.now) {
        Some(at) => plan.look_at(at),
        None => plan.creates.push(Create {
            revision: look.record.revision,
            run: Some(run.number),
            pin: None,
            count: missing,
        }),
    }
}

fn retry_ms(failed: u32) -> i64 {
    (RETRY_FIRST_MS << failed.saturating_sub(1).min(16)).min(RETRY_MAX_MS)
}

fn end(look: &Look<'_>, plan: &mut Plan, run: &mut RunRecord, error: Option<String>) {
    let going = live(look, plan, run).into_iter().map(|seen| seen.id.clone()).collect::<Vec<_>>();
    plan.deletes.extend(going);
    plan.lines.push(match &error {
        None => ("workload.run-done", format!("run {}: {} ended well", run.number, run.succeeded)),
        Some(error) => ("workload.run-failed", format!("run {}: {error}", run.number)),
    });
    if error.is_none() {
        complete_note(look.record, &mut plan.state.complete);
    }
    run.ended_at = Some(look.now);
    run.error = error;
}

/// Lets go of ended runs beyond those that are kept, and of instances of no run that is known.
fn prune(look: &Look<'_>, plan: &mut Plan, runs: &mut Vec<RunRecord>, keep: u32) {
    let ended: Vec<u64> =
        runs.iter().rev().filter(|run| run.ended_at.is_some()).map(|run| run.number).collect();
    let known = |number: u64| runs.iter().any(|run| run.number == number);
    let too_many = |number: u64| ended.iter().skip(keep as usize).any(|ended| *ended == number);
    let done: HashSet<&InstanceId> =
        plan.deletes.iter().chain(plan.counted.iter().map(|(id, _)| id)).collect();
    let leaving = |seen: &&Seen| {
        let unneeded =
            |number| !known(number) || too_many(number) || (ended.contains(&number) && !seen.counted);
        !seen.going() && !done.contains(&seen.id) && seen.run.is_none_or(unneeded)
    };
    let gone: Vec<InstanceId> = look.instances.iter().filter(leaving).map(|seen| seen.id.clone()).collect();
    plan.deletes.extend(gone);
    // One is kept for what it says, also where its instances are not.
    let old: Vec<u64> = ended.iter().skip(keep.max(1) as usize).copied().collect();
    runs.retain(|run| !old.contains(&run.number));
}

fn status(look: &Look<'_>, plan: &mut Plan, runs: &[RunRecord], policy: &RunPolicy, cron: Option<&Mode>) {
    let active: Vec<&RunRecord> = runs.iter().filter(|run| run.ended_at.is_none()).collect();
    let wanted = |run: &&RunRecord| policy.parallelism.min(policy.completions.saturating_sub(run.succeeded));
    let running = |seen: &&Seen| !seen.going() && !seen.counted && seen.well();
    let current = |seen: &&Seen| !seen.going() && look.current(seen);
    let status = &mut plan.state.status;
    status.wanted = active.iter().map(wanted).sum();
    status.available = look.instances.iter().filter(running).count() as u32;
    status.updated = look.instances.iter().filter(current).count() as u32;
    let last = active.last().copied().or(runs.last());
    (status.succeeded, status.failed) = last.map_or((0, 0), |run| (run.succeeded, run.failed));
    let error = last.and_then(|run| run.error.as_ref().map(|error| format!("run {}: {error}", run.number)));
    let phase = match last {
        _ if look.record.spec.paused => WorkloadPhase::Paused,
        _ if !active.is_empty() => WorkloadPhase::Active,
        _ if cron.is_some() => WorkloadPhase::Waiting,
        None => WorkloadPhase::Progressing,
        Some(run) if run.error.is_some() => WorkloadPhase::Failed,
        Some(_) => WorkloadPhase::Done,
    };
    let trouble = || {
        let stuck = look.instances.iter().filter(|seen| !seen.going() && !seen.counted && !seen.well());
        stuck.filter(|seen| seen.message.is_some()).map(Seen::says).next()
    };
    let message = match phase {
        WorkloadPhase::Active => trouble(),
        WorkloadPhase::Paused => Some("no run begins until it is resumed".to_owned()),
        _ => error,
    };
    plan.say(phase, message);
}
