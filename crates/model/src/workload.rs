//! What a user asks for when asking for many like instances, kept so.
//!
//! A workload is a template of an instance and a [`Mode`] that says how many of it there are
//! and when. Each change of the template is a new *revision*; the [`UpdatePolicy`] says how
//! instances of the old one give way to the new.

mod amount;
mod mode;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::amount::Amount;
use crate::error::{Error, Faults, Result, shown};
use crate::instance::{InstanceSpec, RestartPolicy};
use crate::name::Name;

/// Instances of a workload carry this label with its name.
pub const LABEL: &str = "banyan/workload";
pub const REPLICAS_MAX: u32 = 100_000;
pub const RETRIES_MAX: u32 = 1_000;
pub const KEEP_MAX: u32 = 100;
pub const SCHEDULE_BYTES_MAX: usize = 128;
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
pub const APP_WORKLOADS_MAX: usize = 256;
/// Longest time anything here may be told to wait: a week.
pub const WAIT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
/// So that the names of its instances, with `-` and six more, are names.
pub const WORKLOAD_NAME_MAX: usize = 56;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// What each instance is.
    pub instance: InstanceSpec,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default)]
    pub update: UpdatePolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
    /// While paused nothing is made, replaced or removed; what runs goes on.
    #[serde(default)]
    pub paused: bool,
}

/// How many instances there are, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Mode {
    /// Always so many.
    Service {
        #[serde(default = "one")]
        replicas: u32,
    },
    /// One on every node that matches the constraints.
    Daemon,
    /// Run until so many have ended well, then be done.
    Once {
        #[serde(flatten)]
        run: RunPolicy,
    },
    /// A run at every time of the schedule.
    Cron {
        /// Five fields: minute, hour, day of month, month, day of week; or `@hourly`, `@daily`, `@weekly`, `@monthly`.
        schedule: String,
        /// A name of the time zone database; UTC when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_zone: Option<String>,
        #[serde(default)]
        overlap: Overlap,
        /// Ended runs that are kept to look at.
        #[serde(default = "keep_default")]
        keep: u32,
        #[serde(flatten)]
        run: RunPolicy,
    },
}

/// When a run counts as done, and as failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunPolicy {
    /// Instances that must end with exit code 0.
    #[serde(default = "one")]
    pub completions: u32,
    /// Instances that run at the same time.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Instances that may end badly before the run counts as failed.
    #[serde(default = "retries_default")]
    pub retries: u32,
    /// The whole run fails after so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// What happens when the time of a run comes and the one before is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The new one does not take place.
    #[default]
    Skip,
    Allow,
    /// The old one is ended.
    Replace,
}

/// How a new revision takes the place of the old one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdatePolicy {
    /// Instances above the wanted number while updating.
    pub max_surge: Amount,
    /// Instances below the wanted number while updating, draining or restarting.
    pub max_unavailable: Amount,
    /// An instance counts as available when it ran, and was healthy where it has a check, for so long.
    pub healthy_ms: u64,
    /// An update without progress for so long has failed.
    pub deadline_ms: u64,
    /// Go back to the revision before by itself when an update failed.
    pub rollback: bool,
    /// First try the new revision on a few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// How many get the new revision first.
    pub instances: Amount,
    /// Go on after they were available for so long; without it, wait until somebody promotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
}

/// Keeps the use of CPU or memory per instance near a target by changing their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Autoscale {
    pub min: u32,
    pub max: u32,
    /// Wanted mean use, in hundredths of what each instance asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u32>,
    /// Grow only when more was needed for so long.
    #[serde(default)]
    pub up_after_ms: u64,
    /// Shrink only when less was enough for so long.
    #[serde(default = "down_after_default")]
    pub down_after_ms: u64,
}

const fn one() -> u32 {
    1
}
const fn keep_default() -> u32 {
    3
}
const fn retries_default() -> u32 {
    3
}
const fn down_after_default() -> u64 {
    60_000
}

impl Default for Mode {
    fn default() -> Self {
        Self::Service { replicas: 1 }
    }
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self { completions: 1, parallelism: 1, retries: retries_default(), deadline_ms: None }
    }
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            max_surge: Amount::Percent(25),
            max_unavailable: Amount::Percent(25),
            healthy_ms: 0,
            deadline_ms: 300_000,
            rollback: true,
            canary: None,
        }
    }
}

impl UpdatePolicy {
    /// Instances that may be missing out of `replicas`, and that may be too many; never both zero.
    pub fn room(&self, replicas: u32) -> (u32, u32) {
        let missing = self.max_unavailable.of_down(replicas).min(replicas);
        let surge = self.max_surge.of_up(replicas);
        if missing == 0 && surge == 0 { (0, 1) } else { (missing, surge) }
    }
}

impl Mode {
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Service { .. } => "service",
            Self::Daemon => "daemon",
            Self::Once { .. } => "once",
            Self::Cron { .. } => "cron",
        }
    }

    /// The policy of its runs, for those that end.
    pub const fn run(&self) -> Option<&RunPolicy> {
        match self {
            Self::Once { run } | Self::Cron { run, .. } => Some(run),
            Self::Service { .. } | Self::Daemon => None,
        }
    }
}

impl WorkloadSpec {
    pub fn new(instance: InstanceSpec) -> Self {
        Self {
            instance,
            mode: Mode::default(),
            update: UpdatePolicy::default(),
            autoscale: None,
            paused: false,
        }
    }

    /// Checks everything that can be checked without looking anything up.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        faults.inside("instance", self.instance.validate());
        faults.inside("mode", self.mode.validate());
        if self.mode.run().is_some() && self.instance.restart == RestartPolicy::Always {
            faults.take(Err(Error::invalid("what always restarts never ends, so this can never be done")
                .hint("set instance.restart to never or on-failure")
                .at("instance.restart")));
        }
        self.validate_possible(&mut faults);
        if self.mode == Mode::Daemon {
            self.validate_daemon(&mut faults);
        }
        faults.inside("update", self.update.validate());
        match (&self.autoscale, &self.mode) {
            (None, _) => {}
            (Some(scale), Mode::Service { .. }) => faults.inside("autoscale", scale.validate()),
            (Some(_), mode) => {
                let kind = mode.word();
                faults.add(
                    "autoscale",
                    format!("only a service can be scaled by itself; this is of kind {kind}"),
                );
            }
        }
        faults.done()
    }

    /// A daemon is replaced in place on the nodes that match: some terms cannot mean anything for it.
    fn validate_daemon(&self, faults: &mut Faults) {
        let (update, default) = (&self.update, UpdatePolicy::default());
        if !update.max_surge.is_zero() && update.max_surge != default.max_surge {
            let sentence = "a daemon has one instance on each node, which goes before the next one comes: there is no \
                            surge; leave max_surge out, or set it to 0";
            faults.add("update.max_surge", sentence);
        }
        if update.max_unavailable.is_zero() {
            let sentence = "a daemon is replaced in place, so one at least must be allowed to be unavailable";
            faults.add("update.max_unavailable", sentence);
        }
        let latency = &self.instance.constraints.latency;
        if latency.iter().any(|term| term.required && term.workload.is_some()) {
            let sentence = "a daemon stands on nodes by what they are, and how near another workload is changes as that \
                            one moves; name a place that nodes measure";
            faults.add("instance.constraints.latency", sentence);
        }
    }

    /// The same together with the name that it is asked for under; fields are `name` and `spec`.
    pub fn validate_as(&self, name: &Name) -> Result<()> {
        let mut faults = Faults::default();
        faults.inside("name", workload_name_validate(name));
        faults.inside("spec", self.validate_for(name));
        faults.done()
    }

    /// The spec alone, for a workload of this name.
    pub fn validate_for(&self, name: &Name) -> Result<()> {
        let mut faults = Faults::default();
        faults.take(self.validate());
        for (index, term) in self.instance.constraints.latency.iter().enumerate() {
            if term.required && term.workload.as_deref() == Some(name.as_str()) {
                let sentence = "this is the workload itself, and its first instance has none to be near to";
                faults.add(&format!("instance.constraints.latency[{index}].workload"), sentence);
            }
        }
        faults.done()
    }

    /// Refuses what several instances can never meet together.
    fn validate_possible(&self, faults: &mut Faults) {
        let (instance, place) = (&self.instance, &self.instance.constraints);
        let several = match (&self.mode, &self.autoscale) {
            (Mode::Service { replicas }, scale) => {
                scale.as_ref().map_or(*replicas, |scale| scale.min.max(*replicas)) > 1
            }
            (Mode::Once { run } | Mode::Cron { run, .. }, _) => run.parallelism > 1,
            (Mode::Daemon, _) => false,
        };
        let demand = |anti: bool| {
            place.affinity.iter().any(|term| {
                term.required && term.anti == anti && instance.labels.get(&term.label) == Some(&term.value)
            })
        };
        if let Some(node) = place.node.as_ref().filter(|_| several && demand(true)) {
            let sentence = format!(
                "the constraints contradict each other: all instances must be on node '{}', and no two on one node",
                shown(node)
            );
            faults.add("instance.constraints.node", sentence);
        }
        let apart =
            place.spread.as_ref().is_some_and(|spread| spread.by.is_none() && spread.max_skew.is_some());
        if several && apart && place.node.is_none() && demand(false) {
            let sentence = "the constraints contradict each other: all instances must share a node, and be spread over nodes";
            faults.add("instance.constraints.spread", sentence);
        }
    }
}

impl Mode {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if let Self::Service { replicas } = self
            && *replicas > REPLICAS_MAX
        {
            faults.add("replicas", format!("at most {REPLICAS_MAX} replicas are possible"));
        }
        if let Self::Cron { schedule, time_zone, keep, .. } = self {
            if *keep > KEEP_MAX {
                faults.add("keep", format!("at most {KEEP_MAX} ended runs can be kept"));
            }
            faults.take(crate::cron::Schedule::parse(schedule, time_zone.as_deref()).map(drop));
        }
        if let Some(run) = self.run() {
            faults.take(run.validate());
        }
        faults.done()
    }
}

impl RunPolicy {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        for (field, number) in [("completions", self.completions), ("parallelism", self.parallelism)] {
            if !(1..=REPLICAS_MAX).contains(&number) {
                faults.add(field, format!("{field} must be 1 to {REPLICAS_MAX}"));
            }
        }
        if self.retries > RETRIES_MAX {
            faults.add("retries", format!("at most {RETRIES_MAX} retries are possible"));
        }
        faults.take(wait_validate("deadline_ms", self.deadline_ms.unwrap_or(1), 1));
        faults.done()
    }
}

impl UpdatePolicy {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if self.max_surge.is_zero() && self.max_unavailable.is_zero() {
            let sentence = "max_surge and max_unavailable are both zero, so nothing could ever be replaced";
            faults.add("max_unavailable", sentence);
        }
        faults.take(wait_validate("healthy_ms", self.healthy_ms, 0));
        faults.take(wait_validate("deadline_ms", self.deadline_ms, 1));
        if (1..=self.healthy_ms).contains(&self.deadline_ms) {
            faults.add("deadline_ms", "deadline_ms must be longer than healthy_ms");
        }
        if let Some(canary) = &self.canary {
            if canary.instances.is_zero() {
                faults.add("canary.instances", "a canary needs at least one instance");
            }
            faults.inside("canary", wait_validate("hold_ms", canary.hold_ms.unwrap_or(0), 0));
        }
        faults.done()
    }
}

impl Autoscale {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if self.min == 0 {
            faults.add("min", "min must be 1 or more");
        }
        if self.max > REPLICAS_MAX {
            faults.add("max", format!("max must be at most {REPLICAS_MAX}"));
        }
        if self.min > self.max {
            faults.add("max", "max must not be less than min");
        }
        let targets = [("cpu_percent", self.cpu_percent), ("memory_percent", self.memory_percent)];
        if targets.iter().all(|(_, target)| target.is_none()) {
            faults.add("cpu_percent", "a target is needed: cpu_percent, memory_percent or both");
        }
        for (field, target) in targets {
            if target.is_some_and(|percent| !(1..=1000).contains(&percent)) {
                faults.add(field, format!("{field} must be 1 to 1000"));
            }
        }
        faults.take(wait_validate("up_after_ms", self.up_after_ms, 0));
        faults.take(wait_validate("down_after_ms", self.down_after_ms, 0));
        faults.done()
    }
}

/// Whether the instances of a workload of this name can be named.
pub fn workload_name_validate(name: &Name) -> Result<()> {
    if name.as_str().len() <= WORKLOAD_NAME_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the name of a workload has at most {WORKLOAD_NAME_MAX} characters, because those of its instances are longer"
    )))
}

fn wait_validate(field: &str, ms: u64, min: u64) -> Result<()> {
    if (min..=WAIT_MS_MAX).contains(&ms) {
        return Ok(());
    }
    Err(Error::invalid(format!("{field} must be {min} to {WAIT_MS_MAX} milliseconds")).at(field))
}

/// Where the instances of a workload are on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadPhase {
    /// Not all that is wanted is available yet.
    #[default]
    Progressing,
    /// All that is wanted is available, in the newest revision.
    Available,
    /// A new revision is taking the place of an old one.
    Updating,
    /// The new revision runs on a few and waits to be promoted.
    Canary,
    /// An update failed and the revision before takes its place again.
    RollingBack,
    Paused,
    /// A run is under way.
    Active,
    /// A cron workload waits for its next time.
    Waiting,
    /// All its runs ended well.
    Done,
    /// A run or an update failed; see the message.
    Failed,
    Deleting,
}

impl fmt::Display for WorkloadPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Progressing => "progressing",
            Self::Available => "available",
            Self::Updating => "updating",
            Self::Canary => "canary",
            Self::RollingBack => "rolling-back",
            Self::Paused => "paused",
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_numbers_and_shares() {
        let read = |text: &str| serde_json::from_str::<Amount>(text);
        assert_eq!(read("3").expect("a number"), Amount::Count(3));
        assert_eq!(read("\"25%\"").expect("a share"), Amount::Percent(25));
        assert!(read("\"101%\"").is_err());
        assert!(read("-1").is_err());
        assert_eq!(Amount::Percent(25).of_up(3), 1);
        assert_eq!(Amount::Percent(25).of_down(3), 0);
    }

    #[test]
    fn what_can_never_be_done_is_refused() {
        let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
        assert!(spec.validate().is_ok());
        spec.mode = Mode::Once { run: RunPolicy::default() };
        assert!(spec.validate().expect_err("never ends").message.contains("never"));
        spec.instance.restart = RestartPolicy::Never;
        assert!(spec.validate().is_ok());
        spec.autoscale = Some(Autoscale {
            min: 1,
            max: 2,
            cpu_percent: Some(50),
            memory_percent: None,
            up_after_ms: 0,
            down_after_ms: 0,
        });
        assert!(spec.validate().is_err());
    }

    #[test]
    fn several_that_keep_apart_are_not_put_on_one_node() {
        let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
        spec.instance.labels.insert("app".into(), "db".into());
        spec.instance.constraints.affinity.push(crate::Affinity {
            label: "app".into(),
            value: "db".into(),
            anti: true,
            required: true,
        });
        spec.instance.constraints.node = Some("n1".into());
        assert!(spec.validate().is_ok(), "one fits");
        spec.mode = Mode::Service { replicas: 2 };
        assert!(spec.validate().expect_err("two do not").message.contains("contradict"));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut spec = InstanceSpec::new("busybox");
        spec.priority = i32::MIN;
        assert!(spec.validate().is_err());
        spec.priority = 0;
        spec.constraints.zone = Some("z".repeat(1_000_000));
        assert!(spec.validate().is_err());
        spec.constraints.zone = None;
        let probe = crate::instance::HealthProbe::Command(vec!["true".into(), "x".repeat(1_000_000)]);
        spec.health = serde_json::from_value(serde_json::json!({ "probe": probe })).expect("reads");
        assert!(spec.validate().is_err());
    }

    #[test]
    fn modes_read_with_their_defaults() {
        let mode: Mode = serde_json::from_str(r#"{"kind":"cron","schedule":"*/5 * * * *"}"#).expect("reads");
        assert!(matches!(mode, Mode::Cron { keep: 3, overlap: Overlap::Skip, .. }));
        let mode: Mode = serde_json::from_str(r#"{"kind":"service"}"#).expect("reads");
        assert_eq!(mode, Mode::Service { replicas: 1 });
        let wrong = |text: &str| serde_json::from_str::<Mode>(text).expect_err("refused").to_string();
        assert!(wrong(r#"{"kind":"daemon","replicas":2}"#).contains("unknown field `replicas`"));
        assert!(wrong(r#"{"kind":"cron"}"#).contains("missing field `schedule`"));
        for kind in ["service", "daemon", "once"] {
            let mode: Mode = serde_json::from_value(serde_json::json!({ "kind": kind })).expect("reads");
            let back = serde_json::from_value(serde_json::to_value(&mode).expect("writes"));
            assert_eq!(back.ok(), Some(mode));
        }
    }

    #[test]
    fn every_fault_is_told_under_its_own_name() {
        let spec: WorkloadSpec = serde_json::from_value(serde_json::json!({
            "instance": {"image": "", "cpu": 0, "constraints": {"latency": [{"workload": "web", "max_ms": 5}]}},
            "mode": {"kind": "cron", "schedule": "* *", "keep": 1000, "parallelism": 0},
            "update": {"healthy_ms": 10, "deadline_ms": 5, "canary": {"instances": 0}},
            "autoscale": {"min": 2, "max": 1, "cpu_percent": 50}
        }))
        .expect("reads");
        let faults = spec.validate_as(&"web".parse().expect("a name")).expect_err("wrong").faults();
        let fields: Vec<_> = faults.iter().filter_map(|fault| fault.field.as_deref()).collect();
        assert_eq!(
            fields,
            [
                "spec.instance.image",
                "spec.instance.cpu",
                "spec.mode.keep",
                "spec.mode.schedule",
                "spec.mode.parallelism",
                "spec.instance.restart",
                "spec.update.deadline_ms",
                "spec.update.canary.instances",
                "spec.autoscale",
                "spec.instance.constraints.latency[0].workload",
            ]
        );
    }

    #[test]
    fn what_shares_a_node_is_not_spread_over_nodes() {
        let spec = |replicas: u32| -> WorkloadSpec {
            serde_json::from_value(serde_json::json!({
                "instance": {"image": "a", "labels": {"app": "db"}, "constraints": {
                    "affinity": [{"label": "app", "value": "db", "required": true}],
                    "spread": {"group": "db", "max_skew": 1}}},
                "mode": {"kind": "service", "replicas": replicas}
            }))
            .expect("reads")
        };
        assert!(spec(1).validate().is_ok(), "one fits");
        let error = spec(2).validate().expect_err("two do not");
        assert_eq!(error.field.as_deref(), Some("instance.constraints.spread"));
    }
}
