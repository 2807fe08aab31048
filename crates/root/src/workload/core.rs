//! What is to be done about one workload, decided without I/O.
//!
//! ```text
//!                     template changed, or a restart was asked for
//!   Available ──────────────────────────────────────────────▶ Updating ──▶ Available
//!      ▲  │ some are missing                                   │      │
//!      │  ▼                                with a canary ▶ Canary     │ no progress for the deadline,
//!   Progressing                               promoted, or held ▲     ▼ or what is new breaks
//!      ▲                                                    RollingBack (the old template as a new revision)
//!      └── Paused (nothing is made or removed)                  │
//!                                                               ▼
//!                                                   Available, with why in the message
//!
//!   one-shot:  Active ──▶ Done | Failed            asked for again ▶ Active
//!   cron:      Waiting ◀─▶ Active                  a failed run is told in the message
//!   anything:  Deleting ─▶ gone, once its instances are
//! ```
//! [`step`] is given a [`Look`] at everything that matters and returns a [`Plan`]. It remembers
//! nothing itself: what must be remembered is in the [`WorkloadState`] that it takes and gives.
//! Instances on their way out do not count; those that are [`Phase::Lost`] are not available and are
//! waited for.

mod daemon;
mod rollout;
mod runs;
mod scale;
mod service;
mod stamps;
#[cfg(test)]
mod tests;

use model::exchange::Health;
use model::{
    InstanceId, LossPolicy, Mode, Moving, Name, Phase, RestartPolicy, Run, Timestamp, WorkloadPhase,
};

use super::record::{Pin, base_of};
use crate::ops::view;
use crate::state::{Entry, Snapshot};
use crate::tables::{WorkloadRecord, WorkloadState};

pub use scale::Usage;

/// An instance that ended sooner than this is not replaced at once.
const SHORT_LIFE_MS: i64 = 60_000;
/// How long such a one stays before it is replaced.
const REPLACE_PAUSE_MS: i64 = 10_000;
/// Restarts of an instance, or starts that failed, after which its revision counts as broken.
const RESTARTS_BROKEN: u64 = 3;

/// One instance of the workload.
#[derive(Debug, Clone)]
pub struct Seen {
    pub id: InstanceId,
    pub name: Name,
    pub revision: u64,
    pub restart: u64,
    pub run: Option<u64>,
    pub counted: bool,
    pub asked: Run,
    pub phase: Phase,
    /// It has a health check.
    pub checked: bool,
    pub health: Option<Health>,
    pub exit_code: Option<i32>,
    pub restarts: u64,
    /// Ends and failed starts in a row.
    pub failures: u64,
    /// It ended, and nobody below starts it again.
    pub finished: bool,
    pub node: Option<Name>,
    /// Its place is emptied, and it may be elsewhere.
    pub leaves: bool,
    pub pin: Option<Pin>,
    pub message: Option<String>,
    pub created_at: Timestamp,
    /// When it last became something else.
    pub changed_at: Timestamp,
}

/// A node that a daemon may belong on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub pin: Pin,
    pub alive: bool,
    /// It takes new instances.
    pub open: bool,
}

/// Everything that matters to the decision.
pub struct Look<'a> {
    pub record: &'a WorkloadRecord,
    /// The version of the record.
    pub version: i64,
    pub state: Option<&'a WorkloadState>,
    pub instances: &'a [Seen],
    /// Of a daemon: the nodes that match; absent while they are not known.
    pub nodes: Option<&'a [Node]>,
    /// Of a workload that scales by itself: what its instances use.
    pub usage: Option<Usage>,
    pub now: Timestamp,
    /// By how much the clock was set since the state was written, as far as that is known.
    pub clock_set_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    pub revision: u64,
    pub run: Option<u64>,
    pub pin: Option<Pin>,
    pub count: u32,
}

/// What is to be done, all at once or not at all.
#[derive(Debug, Clone)]
pub struct Plan {
    pub creates: Vec<Create>,
    pub deletes: Vec<InstanceId>,
    /// Ended instances of a run that are now in its numbers; true for those that are kept to look at.
    pub counted: Vec<(InstanceId, bool)>,
    /// Give up the current revision for this one, and why.
    pub roll_back: Option<(u64, String)>,
    /// Lines for the history: what and why.
    pub lines: Vec<(&'static str, String)>,
    pub state: WorkloadState,
    /// The workload is being deleted and nothing of it is left.
    pub gone: bool,
    /// When to look again if nothing happens before.
    pub next: Option<Timestamp>,
}

impl Plan {
    pub fn look_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn create(&mut self, revision: u64, count: u32) {
        if count > 0 {
            self.creates.push(Create { revision, run: None, pin: None, count });
        }
    }

    pub fn created(&self) -> u32 {
        self.creates.iter().map(|create| create.count).sum()
    }

    fn say(&mut self, phase: WorkloadPhase, message: Option<String>) {
        self.state.status.phase = phase;
        self.state.status.message = message;
    }
}

impl Seen {
    pub fn of(snapshot: &Snapshot, entry: &Entry) -> Option<Self> {
        let record = &entry.instance;
        let owner = record.owner.as_ref()?;
        let status = entry.status.as_ref();
        let zone = status.and_then(|status| snapshot.zones.get(status.zone.as_ref()?));
        let zone_left = zone.is_some_and(|zone| {
            let free = record.spec.lost == LossPolicy::Replace || zone.forced;
            zone.mode.empties() && free && record.spec.constraints.node.is_none()
        });
        let observed = status.and_then(|status| status.observed.as_ref());
        let pin = match (&record.spec.constraints.zone, &record.spec.constraints.node) {
            (Some(zone), Some(node)) => zone.parse().ok().zip(node.parse().ok()),
            _ => None,
        };
        let phase = entry.phase();
        Some(Self {
            id: record.id.clone(),
            name: record.name.clone(),
            revision: owner.revision,
            restart: owner.restart,
            run: owner.run,
            counted: owner.counted,
            asked: record.run,
            phase,
            checked: record.spec.health.is_some(),
            health: observed.and_then(|seen| seen.health),
            exit_code: observed.and_then(|seen| seen.exit_code),
            restarts: observed.map_or(0, |seen| seen.restarts),
            failures: observed.map_or(0, |seen| seen.failures),
            finished: observed.is_some_and(|seen| seen.finished),
            node: observed.and_then(|seen| seen.node.clone()),
            leaves: zone_left
                || observed.is_some_and(|seen| seen.handed_up || seen.moving == Some(Moving::Asks)),
            pin: pin.map(|(zone, node)| Pin { zone, node }),
            // Of one that runs only what its health check meets is worth telling.
            message: match (phase, observed.and_then(|seen| seen.health)) {
                (Phase::Running, None | Some(Health::Healthy)) => None,
                _ => view::instance_message(entry),
            },
            created_at: record.created_at,
            changed_at: status.map_or(record.created_at, |status| status.changed_at),
        })
    }

    fn going(&self) -> bool {
        self.asked == Run::Gone
    }

    /// Whether it has a place in its zone, as far as that has said.
    pub(super) fn placed(&self) -> bool {
        self.node.is_some() || !matches!(self.phase, Phase::Pending | Phase::Exited | Phase::Stopped)
    }

    fn well(&self) -> bool {
        self.phase == Phase::Running
            && self.asked == Run::Running
            && (!self.checked || self.health == Some(Health::Healthy))
    }

    /// Ended for good: nobody below starts it again.
    fn ended(&self, policy: RestartPolicy) -> bool {
        let over = self.phase == Phase::Exited
            && match policy {
                RestartPolicy::Never => true,
                RestartPolicy::OnFailure => self.exit_code == Some(0),
                RestartPolicy::Always => false,
            };
        over || self.asked == Run::Stopped
    }

    /// Something is wrong with what it runs, not with where it is.
    fn broken(&self) -> bool {
        self.health == Some(Health::Unhealthy)
            || self.restarts.max(self.failures) >= RESTARTS_BROKEN
            || (self.phase == Phase::Exited && self.finished)
            || (self.phase == Phase::Exited && self.exit_code.is_some_and(|code| code != 0))
    }

    fn says(&self) -> String {
        let message = match (&self.message, self.exit_code) {
            (Some(message), _) => message.clone(),
            (None, Some(code)) if self.phase != Phase::Running => format!("it ended with {code}"),
            _ if self.health == Some(Health::Unhealthy) => "its health check fails".to_owned(),
            _ => format!("it is {}", self.phase),
        };
        format!("{}: {message}", self.name)
    }
}

impl Look<'_> {
    fn policy(&self) -> RestartPolicy {
        self.record.spec.instance.restart
    }

    /// Whether it counts: it runs well, and did for long enough.
    fn available(&self, seen: &Seen) -> bool {
        seen.well() && seen.changed_at.plus_ms(self.healthy_ms()) <= self.now
    }

    fn healthy_ms(&self) -> i64 {
        self.record.spec.update.healthy_ms as i64
    }

    /// Whether it is what the newest revision and the last restart ask for.
    fn current(&self, seen: &Seen) -> bool {
        base_of(self.record, seen.revision) == self.record.base && seen.restart == self.record.restart_count
    }

    /// Whether it is to be replaced by another because its place is emptied and none may be missing. An update that is
    /// under way comes first, so that its end says something of the new template alone.
    fn displaced(&self, seen: &Seen, wanted: u32) -> bool {
        let settled = self.state.and_then(|state| state.rollout.as_ref()).is_some_and(|rollout| {
            rollout.done
                && rollout.revision == self.record.revision
                && rollout.restart == self.record.restart_count
        });
        seen.leaves && settled && self.record.spec.update.room(wanted).0 == 0
    }

    /// Whether an instance that ended may be replaced now; if not, says when.
    fn replaceable(&self, seen: &Seen) -> Result<(), Timestamp> {
        let short = seen.changed_at.ms_since(seen.created_at) < SHORT_LIFE_MS;
        let at = seen.changed_at.plus_ms(REPLACE_PAUSE_MS);
        if short && seen.asked == Run::Running && at > self.now { Err(at) } else { Ok(()) }
    }

    /// Takes ended ones out of `instances`: those that are to be replaced go, the others wait.
    fn ended_out(&self, plan: &mut Plan, instances: &mut Vec<&Seen>) {
        let policy = self.policy();
        instances.retain(|seen| {
            if !seen.ended(policy) {
                return true;
            }
            match self.replaceable(seen) {
                Ok(()) => {
                    plan.lines.push(("workload.replaced", format!("{}, which ended", seen.says())));
                    plan.deletes.push(seen.id.clone());
                    false
                }
                Err(at) => {
                    plan.look_at(at);
                    true
                }
            }
        });
    }

    /// Asks to be called when what runs well has done so for long enough.
    fn look_when_available(&self, plan: &mut Plan, instances: &[&Seen]) {
        let waiting = instances.iter().filter(|seen| seen.well() && !self.available(seen));
        if let Some(first) = waiting.map(|seen| seen.changed_at).min() {
            plan.look_at(first.plus_ms(self.healthy_ms()));
        }
    }
}

/// Decides. The caller commits all of the plan, or none of it and looks again.
pub fn step(look: &Look<'_>) -> Plan {
    let state = look.state.cloned().unwrap_or_else(|| WorkloadState {
        id: look.record.id.clone(),
        seen: 0,
        rollout: None,
        scale: None,
        runs: Vec::new(),
        runs_begun: 0,
        run_last: 0,
        ticked_at: None,
        complete: Vec::new(),
        status: api::WorkloadStatus::default(),
    });
    let mut plan = Plan {
        creates: Vec::new(),
        deletes: Vec::new(),
        counted: Vec::new(),
        roll_back: None,
        lines: Vec::new(),
        state,
        gone: false,
        next: None,
    };
    stamps::put_right(&mut plan.state, look.clock_set_ms, look.now);
    plan.state.seen = look.version;
    plan.state.status.instances = look.instances.iter().filter(|seen| !seen.going()).count() as u32;
    if look.record.deleting {
        delete(look, &mut plan);
        return plan;
    }
    match &look.record.spec.mode {
        Mode::Service { replicas } => service::step(look, &mut plan, *replicas),
        Mode::Daemon => daemon::step(look, &mut plan),
        Mode::Once { run } => runs::step(look, &mut plan, run, None),
        Mode::Cron { run, .. } => runs::step(look, &mut plan, run, Some(&look.record.spec.mode)),
    }
    plan
}

fn delete(look: &Look<'_>, plan: &mut Plan) {
    plan.deletes.extend(look.instances.iter().filter(|seen| !seen.going()).map(|seen| seen.id.clone()));
    plan.gone = look.instances.is_empty();
    let left = look.instances.len();
    plan.say(
        WorkloadPhase::Deleting,
        (left > 0).then(|| format!("{} still to go", model::counted(left as u64, "instance"))),
    );
    let status = &mut plan.state.status;
    (status.wanted, status.available, status.updated) = (0, 0, 0);
    status.next_run_at = None;
}
