//! The options that say how many instances a workload has, when, and how it is updated. What is not
//! given stays as it was.

use std::time::Duration;

use clap::{Args, ValueEnum};
use model::workload::{Autoscale, Canary, Overlap, RunPolicy};
use model::{Amount, Mode, RestartPolicy, UpdatePolicy, WorkloadSpec};

use crate::cli::instance::options::InstanceOptions;
use crate::cli::parse;
use crate::failure::{Failure, Result};

const AUTOSCALE_MIN: u32 = 1;
const AUTOSCALE_MAX: u32 = 10;
const DOWN_AFTER_MS: u64 = 60_000;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OverlapOption {
    Skip,
    Allow,
    Replace,
}

#[derive(Debug, Args)]
pub struct WorkloadOptions {
    /// How many instances there always are [default: 1].
    #[arg(long, value_name = "COUNT", help_heading = "How many")]
    replicas: Option<u32>,
    /// One on every node that matches, instead of a number.
    #[arg(long, conflicts_with_all = ["replicas", "once", "cron"], help_heading = "How many")]
    daemon: bool,
    /// Run until enough have ended well, then be done.
    #[arg(long, conflicts_with_all = ["replicas", "cron"], help_heading = "How many")]
    once: bool,
    /// A run at every time of this schedule, such as "*/5 * * * *" or @daily.
    #[arg(long, value_name = "SCHEDULE", conflicts_with = "replicas", help_heading = "How many")]
    cron: Option<String>,
    /// Name of the time zone of the schedule, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE", help_heading = "Runs")]
    time_zone: Option<String>,
    /// What happens when a run is due and the one before is not done [default: skip].
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Runs")]
    overlap: Option<OverlapOption>,
    /// Ended runs to keep [default: 3].
    #[arg(long, value_name = "COUNT", help_heading = "Runs")]
    keep: Option<u32>,
    /// Instances of a run that must end with 0 [default: 1].
    #[arg(long, value_name = "COUNT", help_heading = "Runs")]
    completions: Option<u32>,
    /// Instances of a run at the same time [default: 1].
    #[arg(long, value_name = "COUNT", help_heading = "Runs")]
    parallelism: Option<u32>,
    /// Instances of a run that may end badly before it has failed [default: 3].
    #[arg(long, value_name = "COUNT", help_heading = "Runs")]
    retries: Option<u32>,
    /// Longest that a run may take.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Runs")]
    deadline: Option<Duration>,
    /// Instances above the number while updating, such as 2 or 25% [default: 25%].
    #[arg(long, value_name = "AMOUNT", value_parser = parse::quantity::<Amount>, help_heading = "Updates")]
    max_surge: Option<Amount>,
    /// Instances below the number while updating, draining or restarting [default: 25%].
    #[arg(long, value_name = "AMOUNT", value_parser = parse::quantity::<Amount>, help_heading = "Updates")]
    max_unavailable: Option<Amount>,
    /// First try a new revision on so many.
    #[arg(long, value_name = "AMOUNT", value_parser = parse::quantity::<Amount>, help_heading = "Updates")]
    canary: Option<Amount>,
    /// Go on from the canary after so long; without it, when somebody promotes it.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Updates")]
    canary_hold: Option<Duration>,
    /// No canary any more.
    #[arg(long, conflicts_with_all = ["canary", "canary_hold"], help_heading = "Updates")]
    no_canary: bool,
    /// An instance is available when it was well for so long [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Updates")]
    healthy_for: Option<Duration>,
    /// An update without progress for so long has failed [default: 5m].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Updates")]
    update_deadline: Option<Duration>,
    /// Go back by itself when an update failed; this is the default.
    #[arg(long, overrides_with = "no_rollback", help_heading = "Updates")]
    rollback: bool,
    /// Leave a failed update as it is.
    #[arg(long, help_heading = "Updates")]
    no_rollback: bool,
    /// Keep the use of CPU per instance near so many hundredths of what it asked for.
    #[arg(long, value_name = "PERCENT", help_heading = "Autoscale")]
    autoscale_cpu: Option<u32>,
    /// Keep the use of memory per instance near so many hundredths of what it asked for.
    #[arg(long, value_name = "PERCENT", help_heading = "Autoscale")]
    autoscale_memory: Option<u32>,
    /// Fewest replicas of the autoscaler [default: 1].
    #[arg(long, value_name = "COUNT", help_heading = "Autoscale")]
    min: Option<u32>,
    /// Most replicas of the autoscaler [default: 10].
    #[arg(long, value_name = "COUNT", help_heading = "Autoscale")]
    max: Option<u32>,
    /// Grow only when more was needed for so long [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Autoscale")]
    scale_up_after: Option<Duration>,
    /// Shrink only when less was enough for so long [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Autoscale")]
    scale_down_after: Option<Duration>,
    /// Keep the number as it is from now on.
    #[arg(long, conflicts_with_all = ["autoscale_cpu", "autoscale_memory"], help_heading = "Autoscale")]
    no_autoscale: bool,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn wrong(option: &str, sentence: &str) -> Failure {
    Failure::new(sentence).at(option)
}

impl WorkloadOptions {
    /// Whether it is said here if an update begins with a canary.
    pub fn names_canary(&self) -> bool {
        self.canary.is_some() || self.no_canary
    }

    /// Puts what is given into the spec; what it then says is checked by the model.
    pub fn change(self, spec: &mut WorkloadSpec, instance: InstanceOptions) -> Result<()> {
        let restart_given = instance.restart_given();
        instance.change(&mut spec.instance)?;
        self.change_mode(spec)?;
        // What always restarts never ends; who asks for a run means that it ends.
        if spec.mode.run().is_some() && !restart_given && spec.instance.restart == RestartPolicy::Always {
            spec.instance.restart = RestartPolicy::Never;
        }
        self.change_update(&mut spec.update)?;
        self.change_autoscale(spec)
    }

    fn change_mode(&self, spec: &mut WorkloadSpec) -> Result<()> {
        let mut run = spec.mode.run().cloned().unwrap_or_default();
        if self.daemon {
            spec.mode = Mode::Daemon;
        } else if self.once {
            spec.mode = Mode::Once { run: run.clone() };
        } else if let Some(schedule) = &self.cron {
            let kept = match &spec.mode {
                Mode::Cron { time_zone, overlap, keep, .. } => (time_zone.clone(), *overlap, *keep),
                _ => (None, Overlap::default(), 3),
            };
            let (time_zone, overlap, keep) = kept;
            spec.mode = Mode::Cron { schedule: schedule.clone(), time_zone, overlap, keep, run: run.clone() };
        }
        if let Some(wanted) = self.replicas {
            match &mut spec.mode {
                Mode::Service { replicas } => *replicas = wanted,
                mode => {
                    let sentence = format!("a workload of kind {} has no number of replicas", mode.word());
                    return Err(wrong("--replicas", &sentence));
                }
            }
        }
        let changed = self.change_run(&mut run);
        match &mut spec.mode {
            Mode::Once { run: old } | Mode::Cron { run: old, .. } => *old = run,
            Mode::Service { .. } | Mode::Daemon if changed => {
                return Err(wrong("--completions", "runs are only of what has --once or --cron"));
            }
            Mode::Service { .. } | Mode::Daemon => {}
        }
        self.change_schedule(&mut spec.mode)
    }

    /// Whether anything about runs was given.
    fn change_run(&self, run: &mut RunPolicy) -> bool {
        run.completions = self.completions.unwrap_or(run.completions);
        run.parallelism = self.parallelism.unwrap_or(run.parallelism);
        run.retries = self.retries.unwrap_or(run.retries);
        run.deadline_ms = self.deadline.map(ms).or(run.deadline_ms);
        let numbers = [self.completions, self.parallelism, self.retries];
        self.deadline.is_some() || numbers.iter().any(Option::is_some)
    }

    fn change_schedule(&self, mode: &mut Mode) -> Result<()> {
        let given = self.time_zone.is_some() || self.overlap.is_some() || self.keep.is_some();
        match mode {
            Mode::Cron { time_zone, overlap, keep, .. } => {
                *time_zone = self.time_zone.clone().or_else(|| time_zone.take());
                *overlap = self.overlap.map_or(*overlap, Overlap::from);
                *keep = self.keep.unwrap_or(*keep);
                Ok(())
            }
            _ if given => {
                Err(wrong("--time-zone", "a time zone, overlap and keep are only of what has --cron"))
            }
            _ => Ok(()),
        }
    }

    fn change_update(&self, update: &mut UpdatePolicy) -> Result<()> {
        update.max_surge = self.max_surge.unwrap_or(update.max_surge);
        update.max_unavailable = self.max_unavailable.unwrap_or(update.max_unavailable);
        update.healthy_ms = self.healthy_for.map_or(update.healthy_ms, ms);
        update.deadline_ms = self.update_deadline.map_or(update.deadline_ms, ms);
        update.rollback = (update.rollback || self.rollback) && !self.no_rollback;
        if self.no_canary {
            update.canary = None;
        }
        let hold_ms = self.canary_hold.map(ms);
        match (self.canary, &mut update.canary) {
            (Some(instances), canary) => {
                let kept = canary.as_ref().and_then(|canary| canary.hold_ms);
                *canary = Some(Canary { instances, hold_ms: hold_ms.or(kept) });
            }
            (None, Some(canary)) => canary.hold_ms = hold_ms.or(canary.hold_ms),
            (None, None) if hold_ms.is_some() => {
                return Err(wrong("--canary-hold", "there is no canary to hold: give --canary too"));
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn change_autoscale(&self, spec: &mut WorkloadSpec) -> Result<()> {
        if self.no_autoscale {
            spec.autoscale = None;
        }
        let target = self.autoscale_cpu.is_some() || self.autoscale_memory.is_some();
        let bounds = self.min.is_some() || self.max.is_some();
        let times = self.scale_up_after.is_some() || self.scale_down_after.is_some();
        if spec.autoscale.is_none() && !target {
            return match bounds || times {
                true => {
                    Err(wrong("--autoscale-cpu", "give a target too: --autoscale-cpu or --autoscale-memory"))
                }
                false => Ok(()),
            };
        }
        let scale = spec.autoscale.get_or_insert(Autoscale {
            min: AUTOSCALE_MIN,
            max: AUTOSCALE_MAX,
            cpu_percent: None,
            memory_percent: None,
            up_after_ms: 0,
            down_after_ms: DOWN_AFTER_MS,
        });
        scale.min = self.min.unwrap_or(scale.min);
        scale.max = self.max.unwrap_or(scale.max);
        scale.cpu_percent = self.autoscale_cpu.or(scale.cpu_percent);
        scale.memory_percent = self.autoscale_memory.or(scale.memory_percent);
        scale.up_after_ms = self.scale_up_after.map_or(scale.up_after_ms, ms);
        scale.down_after_ms = self.scale_down_after.map_or(scale.down_after_ms, ms);
        Ok(())
    }
}

impl From<OverlapOption> for Overlap {
    fn from(option: OverlapOption) -> Self {
        match option {
            OverlapOption::Skip => Self::Skip,
            OverlapOption::Allow => Self::Allow,
            OverlapOption::Replace => Self::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::FromArgMatches;
    use model::InstanceSpec;

    fn change(spec: &mut WorkloadSpec, words: &str) -> Result<()> {
        let command = InstanceOptions::augment_args(WorkloadOptions::augment_args(clap::Command::new("x")));
        let words = ["x"].into_iter().chain(words.split('|').filter(|word| !word.is_empty()));
        let matches = command.try_get_matches_from(words).map_err(|error| Failure::new(error.to_string()))?;
        let instance = InstanceOptions::from_arg_matches(&matches).unwrap();
        WorkloadOptions::from_arg_matches(&matches).unwrap().change(spec, instance)
    }

    fn made(words: &str) -> WorkloadSpec {
        let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
        change(&mut spec, words).unwrap();
        spec.validate().unwrap();
        spec
    }

    #[test]
    fn options_give_every_mode() {
        assert_eq!(made(""), WorkloadSpec::new(InstanceSpec::new("busybox")));
        assert_eq!(made("--replicas|3").mode, Mode::Service { replicas: 3 });
        assert_eq!(made("--daemon").mode, Mode::Daemon);
        let spec = made("--once|--completions|4|--parallelism|2|--deadline|1m");
        assert_eq!(spec.instance.restart, RestartPolicy::Never);
        let run = RunPolicy { completions: 4, parallelism: 2, retries: 3, deadline_ms: Some(60_000) };
        assert_eq!(spec.mode, Mode::Once { run });
        let spec = made("--cron|*/5 * * * *|--time-zone|Europe/Berlin|--overlap|replace");
        assert!(matches!(spec.mode, Mode::Cron { overlap: Overlap::Replace, keep: 3, .. }));
    }

    #[test]
    fn only_what_is_given_changes() {
        let mut spec =
            made("--replicas|3|--max-surge|1|--canary|1|--canary-hold|30s|--autoscale-cpu|70|--cpu|1");
        let before = spec.clone();
        change(&mut spec, "").unwrap();
        assert_eq!(spec, before);
        change(&mut spec, "--canary|2|--max|5|--no-rollback").unwrap();
        let canary = Canary { instances: Amount::Count(2), hold_ms: Some(30_000) };
        assert_eq!(
            spec.update,
            UpdatePolicy { canary: Some(canary), rollback: false, ..before.update.clone() }
        );
        assert_eq!(spec.autoscale, Some(Autoscale { max: 5, ..before.autoscale.clone().unwrap() }));
        assert_eq!((&spec.instance, &spec.mode), (&before.instance, &before.mode));
        change(&mut spec, "--rollback|--no-canary|--no-autoscale").unwrap();
        assert_eq!((spec.update.rollback, spec.update.canary, spec.autoscale), (true, None, None));
        let mut cron = made("--cron|@daily|--keep|7");
        change(&mut cron, "--cron|@hourly|--retries|0").unwrap();
        assert!(matches!(cron.mode, Mode::Cron { ref schedule, keep: 7, .. } if schedule == "@hourly"));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        for words in [
            "--daemon|--replicas|2",
            "--once|--cron|@daily",
            "--completions|2",
            "--overlap|skip",
            "--canary-hold|5s",
            "--min|2",
            "--max-surge|lots",
        ] {
            let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
            assert!(change(&mut spec, words).is_err(), "{words}");
        }
        let mut daemon = made("--daemon");
        assert!(change(&mut daemon, "--replicas|2").unwrap_err().message.contains("daemon"));
    }
}
