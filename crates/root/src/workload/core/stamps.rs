//! The times in a state, after somebody set the clock.

use model::Timestamp;

use crate::tables::WorkloadState;

/// Moves every time from which a span is counted by as much as the clock was set. One that still lies ahead was
/// written under a wrong clock by somebody who is gone, and counts as now.
pub fn put_right(state: &mut WorkloadState, set_ms: i64, now: Timestamp) {
    let right = |at: &mut Timestamp| *at = at.plus_ms(set_ms).min(now);
    if let Some(rollout) = &mut state.rollout {
        right(&mut rollout.began_at);
        right(&mut rollout.progress_at);
        rollout.canary_since.iter_mut().chain(&mut rollout.paused_at).for_each(right);
    }
    if let Some(scale) = &mut state.scale {
        right(&mut scale.scaled_at);
        scale.more_since.iter_mut().chain(&mut scale.less_since).for_each(|(since, _)| right(since));
    }
    for run in state.runs.iter_mut().filter(|run| run.ended_at.is_none()) {
        right(&mut run.began_at);
        run.failed_at.iter_mut().for_each(right);
    }
    // A schedule goes by the clock on the wall, whatever that says.
    state.ticked_at = state.ticked_at.map(|at| at.min(now));
}
