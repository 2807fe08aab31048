//! How many instances a service wants: what was asked for, or what their use asks for.
//!
//! More is decided when every sample of `up_after_ms` asked for more, less when every sample of
//! `down_after_ms` was content with less; then by the smallest change that any of them asked for.
//! Within a tenth of the target nothing changes.

use model::Timestamp;
use model::workload::Autoscale;

use super::{Look, Plan};
use crate::tables::Scale;

/// Hundredths of the target by which the use may differ before anything is done.
const TOLERANCE_PERCENT: u64 = 10;

/// What the instances use on average, in hundredths of what they asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub measured: u32,
    pub cpu_percent: u32,
    pub memory_percent: u32,
    pub at: Timestamp,
}

pub fn step(look: &Look<'_>, plan: &mut Plan, replicas: u32, available: u32) -> u32 {
    let Some(policy) = &look.record.spec.autoscale else {
        plan.state.scale = None;
        (plan.state.status.cpu_percent, plan.state.status.memory_percent) = (None, None);
        return replicas;
    };
    let mut scale = plan.state.scale.take().unwrap_or_else(|| Scale {
        replicas: replicas.max(available),
        scaled_at: look.now,
        more_since: None,
        less_since: None,
    });
    scale.replicas = scale.replicas.clamp(policy.min, policy.max);
    if let Some(usage) = look.usage.filter(|usage| usage.measured > 0) {
        plan.state.status.cpu_percent = policy.cpu_percent.map(|_| usage.cpu_percent);
        plan.state.status.memory_percent = policy.memory_percent.map(|_| usage.memory_percent);
        if usage.at > scale.scaled_at && !look.record.spec.paused {
            weigh(look, plan, &mut scale, policy, &usage);
        }
    }
    let wanted = scale.replicas;
    plan.state.scale = Some(scale);
    wanted
}

fn weigh(look: &Look<'_>, plan: &mut Plan, scale: &mut Scale, policy: &Autoscale, usage: &Usage) {
    let now = scale.replicas;
    let (more, less) = needed(policy, usage, now);
    let (more, less) = (more.min(policy.max), less.max(policy.min));
    scale.more_since = (more > now).then(|| match scale.more_since {
        Some((since, least)) => (since, least.min(more)),
        None => (look.now, more),
    });
    scale.less_since = (more <= now && less < now).then(|| match scale.less_since {
        Some((since, most)) => (since, most.max(less)),
        None => (look.now, less),
    });
    let due = |since: Option<(Timestamp, u32)>, after: u64| {
        since.filter(|(since, _)| since.plus_ms(after as i64) <= look.now).map(|(_, count)| count)
    };
    let to = due(scale.more_since, policy.up_after_ms).or(due(scale.less_since, policy.down_after_ms));
    if let Some(to) = to {
        let seen = format!("CPU {} %, memory {} %", usage.cpu_percent, usage.memory_percent);
        plan.lines.push(("workload.scaled", format!("from {now} to {to} instances; mean use: {seen}")));
        *scale = Scale { replicas: to, scaled_at: look.now, more_since: None, less_since: None };
    }
}

/// What is needed by those who count what was not measured as idle, and as on target.
fn needed(policy: &Autoscale, usage: &Usage, now: u32) -> (u32, u32) {
    let unmeasured = u64::from(now.saturating_sub(usage.measured));
    let targets = [(policy.cpu_percent, usage.cpu_percent), (policy.memory_percent, usage.memory_percent)];
    let (mut more, mut less) = (0, 0);
    for (target, mean) in targets {
        let Some(target) = target.map(u64::from) else { continue };
        let sum = u64::from(mean) * u64::from(usage.measured);
        let on_target = target * u64::from(now);
        let much = sum * 100 > on_target * (100 + TOLERANCE_PERCENT);
        more = more.max(if much { sum.div_ceil(target) as u32 } else { now });
        let sum = sum + unmeasured * target;
        let little = sum * 100 < on_target * (100 - TOLERANCE_PERCENT);
        less = less.max(if little { (sum.div_ceil(target) as u32).max(1) } else { now });
    }
    (more, less)
}
