//! Workloads of every mode: made, scaled, changed and deleted, and what must be true of them in the end.

use anyhow::Result;
use api::{Workload, WorkloadCreate, WorkloadUpdate};
use bed::Bed;
use model::workload::{Overlap, RunPolicy};
use model::{Amount, Bytes, ErrorKind, Mode, RestartPolicy, UpdatePolicy, WorkloadSpec};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{CALM_WAIT, NODES, Soak, outcome};
use crate::sleeper;

const WORKLOADS_MAX: usize = 5;
const REPLICAS_MAX: u32 = 6;
const COMPLETIONS: u32 = 3;
/// Hosts die under runs again and again; that must not make one fail.
const RETRIES: u32 = 1_000;
/// Longer than a soak: no update is given up for want of progress.
const DEADLINE_MS: u64 = 24 * 3_600_000;

impl Soak {
    pub(super) fn workload(&mut self) -> Result<()> {
        let known: Vec<String> = self.workloads.keys().cloned().collect();
        match (self.rng.random_range(0..10), known.choose(&mut self.rng).cloned()) {
            (0..3, Some(name)) => self.workload_scale(&name),
            (3..6, Some(name)) => self.workload_update(&name),
            (6..8, Some(name)) => self.workload_delete(&name),
            _ if known.len() < WORKLOADS_MAX => self.workload_create(),
            _ => Ok(()),
        }
    }

    fn workload_create(&mut self) -> Result<()> {
        self.made += 1;
        let name = format!("w{}", self.made);
        let spec = self.workload_spec();
        let body = WorkloadCreate { name: name.parse()?, app: None, spec: spec.clone() };
        let done = self.bed.ask(|client| async move { client.workload_create(&body).await });
        self.workload_note("load", &name, Some(spec), &done);
        Ok(())
    }

    fn workload_scale(&mut self, name: &str) -> Result<()> {
        let replicas = self.rng.random_range(0..=REPLICAS_MAX);
        let Some(Some(mut spec)) = self.workloads.get(name).cloned() else { return Ok(()) };
        if !matches!(spec.mode, Mode::Service { .. }) {
            return Ok(());
        }
        spec.mode = Mode::Service { replicas };
        let done = self.bed.ask(|client| async move { client.workload_scale(name, replicas).await });
        self.workload_note("scale", name, Some(spec), &done);
        Ok(())
    }

    /// A new revision: another size, which every instance must have in the end.
    fn workload_update(&mut self, name: &str) -> Result<()> {
        let Some(Some(mut spec)) = self.workloads.get(name).cloned() else { return Ok(()) };
        if spec.mode.run().is_some() {
            return Ok(());
        }
        spec.instance.memory = Bytes::mib(self.rng.random_range(16..32));
        let body = WorkloadUpdate { spec: spec.clone() };
        let done = self.bed.ask(|client| async move { client.workload_update(name, &body, None).await });
        self.workload_note("update", name, Some(spec), &done);
        Ok(())
    }

    fn workload_delete(&mut self, name: &str) -> Result<()> {
        let done = self.bed.ask(|client| async move { client.workload_delete(name, None).await });
        self.workload_note("unload", name, None, &done);
        Ok(())
    }

    /// Remembers what was acknowledged. Where the answer was lost, nothing is expected any more.
    fn workload_note(
        &mut self,
        kind: &'static str,
        name: &str,
        spec: Option<WorkloadSpec>,
        done: &model::Result<Workload>,
    ) {
        let told = spec
            .as_ref()
            .map_or_else(String::new, |spec| format!(" as {:?} with {}", spec.mode, spec.instance.memory));
        match done {
            Ok(_) if spec.is_none() => drop(self.workloads.remove(name)),
            Ok(_) => drop(self.workloads.insert(name.to_owned(), spec)),
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) => {
                self.workloads.insert(name.to_owned(), None);
            }
            Err(_) => {}
        }
        self.note(kind, &format!("{name}{told}: {}", outcome(done)));
    }

    fn workload_spec(&mut self) -> WorkloadSpec {
        let mut instance = sleeper();
        let mode = match self.rng.random_range(0..10) {
            0..5 => Mode::Service { replicas: self.rng.random_range(0..=REPLICAS_MAX) },
            5..7 => Mode::Daemon,
            ending => {
                instance.restart = RestartPolicy::Never;
                instance.command = ["sleep", "1"].map(str::to_owned).to_vec();
                let run = RunPolicy { completions: COMPLETIONS, retries: RETRIES, ..RunPolicy::default() };
                match ending {
                    7..9 => Mode::Once { run },
                    _ => Mode::Cron {
                        schedule: "* * * * *".to_owned(),
                        time_zone: None,
                        overlap: Overlap::Skip,
                        keep: 1,
                        run,
                    },
                }
            }
        };
        let missing = self.rng.random_range(0..3);
        let update = UpdatePolicy {
            max_unavailable: Amount::Count(missing),
            max_surge: Amount::Count(self.rng.random_range(u32::from(missing == 0)..3)),
            deadline_ms: DEADLINE_MS,
            ..UpdatePolicy::default()
        };
        WorkloadSpec { instance, mode, update, autoscale: None, paused: false }
    }

    pub(super) fn workloads_check(&self) -> Result<()> {
        for (name, spec) in &self.workloads {
            let Some(spec) = spec else { continue };
            let mut last = "it was not looked at".to_owned();
            let kept = self.bed.until(&format!("workload {name} keeps its terms"), CALM_WAIT, || {
                last = finding(&self.bed, name, spec)?;
                last.is_empty().then_some(())
            });
            kept.map_err(|error| error.context(last))?;
        }
        self.bed.settle(CALM_WAIT)
    }
}

/// What is not as a workload asks; empty when all is well, nothing when nobody answered.
fn finding(bed: &Bed, name: &str, spec: &WorkloadSpec) -> Option<String> {
    let seen = bed.ask(|client| async move { client.workload_get(name).await }).ok()?;
    let status = &seen.status;
    let instances = bed.instances().ok()?;
    let own = instances.iter().filter(|one| one.workload.as_ref().is_some_and(|of| of.as_str() == name));
    if let Some(old) = own.clone().find(|one| one.spec.memory != spec.instance.memory) {
        return Some(format!("{} has {}, not {}", old.name, old.spec.memory, spec.instance.memory));
    }
    let well = match &spec.mode {
        Mode::Service { replicas } => (status.available, status.instances) == (*replicas, *replicas),
        Mode::Daemon => {
            let nodes: std::collections::BTreeSet<_> = own.filter_map(|one| one.node.clone()).collect();
            nodes.len() == NODES.len() && status.available as usize == NODES.len()
        }
        // Each end counts once, so never more ended well than were asked for.
        Mode::Once { run } => status.succeeded == run.completions,
        Mode::Cron { run, .. } => {
            status.succeeded <= run.completions && status.last_run_at.is_some() && status.failed == 0
        }
    };
    Some(if well { String::new() } else { format!("{:?} is {status:?}", spec.mode) })
}
