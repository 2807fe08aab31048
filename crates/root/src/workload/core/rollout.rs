//! How far a revision has come, whether it fails, and what a canary waits for.

use model::{Timestamp, WorkloadPhase};

use super::{Look, Plan, Seen};
use crate::tables::Rollout;
use crate::workload::record::{complete_note, stable};

/// The numbers of one look.
pub struct Counts<'a> {
    pub wanted: u32,
    pub old: &'a [&'a Seen],
    pub new: &'a [&'a Seen],
    pub old_available: u32,
    pub new_available: u32,
}

impl Counts<'_> {
    fn done(&self) -> bool {
        self.old.is_empty() && self.new_available >= self.wanted
    }
}

/// Brings the rollout up to date. Says how many instances may be of the new revision now.
pub fn follow(look: &Look<'_>, plan: &mut Plan, counts: &Counts<'_>) -> u32 {
    let mut rollout = match plan.state.rollout.take() {
        Some(kept) if kept.revision == look.record.revision && kept.restart == look.record.restart_count => {
            kept
        }
        before => begin(look, before.as_ref(), counts),
    };
    clock(look, &mut rollout);
    scaled(&mut rollout, counts.wanted);
    let progress =
        counts.new_available > rollout.available_most || (counts.old.len() as u32) < rollout.old_least;
    rollout.available_most = rollout.available_most.max(counts.new_available);
    rollout.old_least = rollout.old_least.min(counts.old.len() as u32);
    if progress {
        rollout.progress_at = look.now;
        rollout.paused_at = rollout.paused_at.map(|_| look.now);
    }
    let most_new = canary(look, plan, &mut rollout, counts);
    if counts.done() && rollout.whole && !rollout.done {
        rollout.done = true;
        rollout.failed = None;
        if look.record.revision > 1 || look.record.restart_count > 0 {
            plan.lines.push(("workload.updated", format!("all are of revision {}", rollout.revision)));
        }
    }
    if rollout.done && counts.wanted > 0 && counts.done() {
        complete_note(look.record, &mut plan.state.complete);
    }
    if !rollout.done && !look.record.spec.paused && rollout.canary_since.is_none() {
        fails(look, plan, &mut rollout, counts);
    }
    plan.state.rollout = Some(rollout);
    most_new
}

/// A pause stops the time; it goes on where it stood.
fn clock(look: &Look<'_>, rollout: &mut Rollout) {
    if look.record.spec.paused {
        rollout.paused_at.get_or_insert(look.now);
    } else if let Some(since) = rollout.paused_at.take() {
        let stood_ms = look.now.ms_since(since).max(0);
        rollout.progress_at = rollout.progress_at.plus_ms(stood_ms);
        rollout.canary_since = rollout.canary_since.map(|at| at.plus_ms(stood_ms));
    }
}

/// What goes because less is wanted is no progress.
fn scaled(rollout: &mut Rollout, wanted: u32) {
    let fewer = rollout.wanted.saturating_sub(wanted);
    if fewer > 0 {
        rollout.old_least = rollout.old_least.saturating_sub(fewer);
        rollout.available_most = rollout.available_most.min(wanted);
    }
    rollout.wanted = wanted;
}

fn begin(look: &Look<'_>, before: Option<&Rollout>, counts: &Counts<'_>) -> Rollout {
    let record = look.record;
    let restarted = before.is_some_and(|before| before.revision == record.revision);
    let few = record.spec.update.canary.as_ref().map(|canary| canary.instances.of_up(counts.wanted));
    // A template that is back, and still has its instances, was tried already.
    let canary = few.is_some_and(|few| (counts.new.len() as u32) < few.max(1))
        && !counts.old.is_empty()
        && !restarted
        && record.rolled_back.is_none()
        && record.promoted != record.revision;
    Rollout {
        revision: record.revision,
        restart: record.restart_count,
        began_at: look.now,
        progress_at: look.now,
        available_most: counts.new_available,
        old_least: counts.old.len() as u32,
        canary_since: None,
        canaries: few.unwrap_or(0).max(1),
        wanted: counts.wanted,
        paused_at: None,
        whole: !canary,
        done: false,
        failed: None,
    }
}

fn canary(look: &Look<'_>, plan: &mut Plan, rollout: &mut Rollout, counts: &Counts<'_>) -> u32 {
    let Some(policy) = look.record.spec.update.canary.as_ref().filter(|_| !rollout.whole) else {
        rollout.whole = true;
        rollout.canary_since = None;
        return counts.wanted;
    };
    // Those that a new number adds are of the revision that is known to work.
    let few = match rollout.canaries {
        0 => policy.instances.of_up(counts.wanted).max(1),
        canaries => canaries,
    }
    .min(counts.wanted);
    if look.record.spec.paused {
        return few;
    }
    if counts.new_available < few {
        rollout.canary_since = None;
        if look.record.promoted != rollout.revision {
            return few;
        }
    }
    let since = *rollout.canary_since.get_or_insert(look.now);
    rollout.progress_at = look.now;
    let held = policy.hold_ms.map(|hold| since.plus_ms(hold as i64));
    let promoted = look.record.promoted == rollout.revision;
    if promoted || held.is_some_and(|held| held <= look.now) || few == counts.wanted {
        rollout.whole = true;
        rollout.canary_since = None;
        plan.lines.push(("workload.promoted", format!("revision {} goes on to all", rollout.revision)));
        return counts.wanted;
    }
    if let Some(held) = held {
        plan.look_at(held);
    }
    few
}

fn fails(look: &Look<'_>, plan: &mut Plan, rollout: &mut Rollout, counts: &Counts<'_>) {
    let policy = &look.record.spec.update;
    let goal = policy.rollback && look.record.rolled_back.is_none();
    let known = stable(look.record, &plan.state.complete).filter(|_| !is_restart(look, rollout));
    let back = known.filter(|_| goal).map(|template| template.revision);
    let deadline = rollout.progress_at.plus_ms(policy.deadline_ms as i64);
    if rollout.failed.is_none() {
        let broken = counts.new.iter().filter(|seen| seen.broken()).count();
        // Where another revision is known to work, what breaks at once need not be waited for.
        if known.is_some() && broken > 0 && broken * 2 >= counts.new.len() {
            rollout.failed = Some(sentence(look, counts, "of the new instances broke", broken));
        } else if deadline <= look.now {
            let missing = counts.wanted.saturating_sub(counts.new_available) as usize;
            let after = format!("wanted instances were not available after {} s", policy.deadline_ms / 1000);
            rollout.failed = Some(sentence(look, counts, &after, missing));
        } else {
            plan.look_at(deadline);
            return;
        }
        let why = rollout.failed.clone().unwrap_or_default();
        plan.lines.push(("workload.update-failed", format!("revision {}: {why}", rollout.revision)));
    }
    if let Some(to) = back {
        let why = rollout.failed.clone().unwrap_or_default();
        plan.lines
            .push(("workload.rolled-back", format!("from revision {} to {to}: {why}", rollout.revision)));
        plan.roll_back = Some((to, why));
    }
}

/// A restart of a revision that was once reached has no other template to go back to.
fn is_restart(look: &Look<'_>, rollout: &Rollout) -> bool {
    let mut reached = look.instances.iter().filter(|seen| seen.restart < rollout.restart);
    reached.any(|seen| crate::workload::record::base_of(look.record, seen.revision) == look.record.base)
}

fn sentence(look: &Look<'_>, counts: &Counts<'_>, what: &str, count: usize) -> String {
    let all = counts.new.iter().filter(|seen| !look.available(seen));
    let worst = all.max_by_key(|seen| (seen.broken(), seen.message.is_some()));
    match worst {
        Some(worst) => format!("{count} {what}; {}", worst.says()),
        None => format!("{count} {what}"),
    }
}

/// The phase and the message that follow from where the rollout stands.
pub fn phase(look: &Look<'_>, plan: &mut Plan, counts: &Counts<'_>) {
    let available = counts.old_available + counts.new_available;
    let Some(rollout) = &plan.state.rollout else { return };
    let first = look.record.revision == 1 && look.record.restart_count == 0;
    let back = look.record.rolled_back.as_ref();
    let phase = match rollout {
        _ if look.record.spec.paused => WorkloadPhase::Paused,
        Rollout { done: true, .. } if available >= counts.wanted => WorkloadPhase::Available,
        Rollout { done: true, .. } => WorkloadPhase::Progressing,
        Rollout { failed: Some(_), .. } => WorkloadPhase::Failed,
        Rollout { canary_since: Some(_), .. } => WorkloadPhase::Canary,
        _ if back.is_some() => WorkloadPhase::RollingBack,
        _ if first => WorkloadPhase::Progressing,
        _ => WorkloadPhase::Updating,
    };
    let message = match (&rollout.failed, back, phase) {
        (_, _, WorkloadPhase::Paused) => paused(counts),
        (Some(why), ..) => Some(why.clone()),
        (None, Some(back), WorkloadPhase::RollingBack) => {
            Some(format!("revision {} was given up: {}", back.revision, back.why))
        }
        (None, _, WorkloadPhase::Progressing | WorkloadPhase::Updating) => trouble(look, counts),
        (None, _, WorkloadPhase::Canary) => Some(match held_until(look, rollout) {
            Some(at) => format!("goes on to all at {at}"),
            None => "waits to be promoted".to_owned(),
        }),
        _ => None,
    };
    plan.say(phase, message);
}

fn held_until(look: &Look<'_>, rollout: &Rollout) -> Option<Timestamp> {
    let hold = look.record.spec.update.canary.as_ref()?.hold_ms?;
    Some(rollout.canary_since?.plus_ms(hold as i64))
}

/// What a pause holds up.
fn paused(counts: &Counts<'_>) -> Option<String> {
    let (old, new) = (counts.old.len() as u32, counts.new.len() as u32);
    let mut held = Vec::new();
    if old + new != counts.wanted {
        held.push(format!("{} instances are wanted and {} are there", counts.wanted, old + new));
    }
    if old > 0 {
        held.push(format!("{old} are not of the newest revision"));
    }
    (!held.is_empty()).then(|| format!("{}; nothing is made or removed until it is resumed", held.join(", ")))
}

/// What the first one that is not available says.
fn trouble(look: &Look<'_>, counts: &Counts<'_>) -> Option<String> {
    let all = counts.new.iter().chain(counts.old);
    let worst = all.filter(|seen| !look.available(seen) && seen.message.is_some());
    worst.min_by_key(|seen| seen.created_at).map(|seen| seen.says())
}
