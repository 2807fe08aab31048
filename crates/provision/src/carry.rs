//! One task, from being taken to its report.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::automator::{Ansible, Automator, Chef, Docker, Job, Puppet, Shell};
use crate::hide::Secrets;
use crate::machine::Machine;
use crate::provider::{Banyan, Ec2, Hosts, OpenStack, Provider, Setting};
use crate::resource::{Absent, Resources};
use crate::ssh::{Pool, SshError};
use crate::task::{Fault, Report, Task, Verb};

/// All that tasks are carried out with. The same for all workers of a tenant.
pub struct Carrier {
    pool: Pool,
    /// Staged resources: `FOLDER/providertypes/NAME` and `FOLDER/automatortypes/NAME`.
    staged: PathBuf,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    automators: BTreeMap<String, Arc<dyn Automator>>,
}

impl Carrier {
    /// With what is built in.
    pub fn new(pool: Pool, staged: PathBuf) -> Self {
        let mut carrier = Self { pool, staged, providers: BTreeMap::new(), automators: BTreeMap::new() };
        carrier.provider_add(Arc::new(Banyan));
        carrier.provider_add(Arc::new(Ec2));
        carrier.provider_add(Arc::new(Hosts));
        carrier.provider_add(Arc::new(OpenStack::default()));
        carrier.automator_add(Arc::new(Ansible::default()));
        carrier.automator_add(Arc::new(Chef));
        carrier.automator_add(Arc::new(Docker));
        carrier.automator_add(Arc::new(Puppet));
        carrier.automator_add(Arc::new(Shell));
        carrier
    }

    pub fn provider_add(&mut self, provider: Arc<dyn Provider>) {
        self.providers.insert(provider.name().to_owned(), provider);
    }

    pub fn automator_add(&mut self, automator: Arc<dyn Automator>) {
        self.automators.insert(automator.name().to_owned(), automator);
    }

    /// What it has, by kind and name.
    pub fn plugins(&self) -> BTreeSet<String> {
        let providers = self.providers.keys().map(|name| format!("provider {name}"));
        providers.chain(self.automators.keys().map(|name| format!("automator {name}"))).collect()
    }

    /// The plugins among them that lack a program here.
    pub async fn unready(&self) -> BTreeSet<String> {
        let mut unready = BTreeSet::new();
        for (name, automator) in &self.automators {
            if !automator.is_ready().await {
                unready.insert(format!("automator {name}"));
            }
        }
        unready
    }

    /// Closes sessions that nobody uses; to be called now and then.
    pub fn tidy(&self) {
        self.pool.tidy_idle();
    }

    /// Does a task. Whatever happens, there is a report.
    pub async fn carry(&self, task: &Task) -> Report {
        self.carry_until(task, &CancellationToken::new()).await
    }

    /// The same, unless it is stopped.
    pub async fn carry_until(&self, task: &Task, stop: &CancellationToken) -> Report {
        self.carry_with(task, &Absent::new(), stop).await
    }

    /// The same where files could not be fetched: a task that needs one of them fails. What runs on a machine is ended then; what a provider does is left as it
    /// is, because it may be done again.
    pub async fn carry_with(&self, task: &Task, absent: &Absent, stop: &CancellationToken) -> Report {
        let done = AssertUnwindSafe(self.attempt(task, absent, stop)).catch_unwind().await;
        let secrets = Secrets::of(task);
        let fault = match done {
            Ok(Ok(report)) => return secrets.report(report),
            Ok(Err(fault)) => secrets.fault(fault),
            Err(_) => Fault::invalid("the worker hit a fault of its own; its log says which"),
        };
        tracing::warn!(task = %task.task_id, verb = task.task_name.word(), node = %task.node_id, %fault, "a task failed");
        fault.into()
    }

    async fn attempt(&self, task: &Task, absent: &Absent, stop: &CancellationToken) -> Result<Report, Fault> {
        if task.task_name.is_hardware() {
            let kind = task.provider_type().unwrap_or("banyan");
            let provider =
                self.providers.get(kind).ok_or_else(|| unknown("provider", kind, &self.providers))?;
            let resources = Resources::of(&self.staged, &format!("providertypes/{kind}"), absent);
            let setting = Setting { task, pool: &self.pool, resources: &resources, stop };
            if provider.is_stoppable() {
                return provider.act(&setting).await;
            }
            return tokio::select! {
                done = provider.act(&setting) => done,
                () = stop.cancelled() => Err(SshError::Stopped.into()),
            };
        }
        let machine = Machine::of(task, &self.pool)?.until(stop.clone());
        if task.task_name == Verb::Bootstrap {
            let mut all = Report::default();
            for kind in task.automators() {
                let resources = self.resources(kind, absent);
                let job = Job { machine: &machine, task, resources: &resources };
                let report = self.automator(kind)?.bootstrap(&job).await?;
                all.stdout.push_str(&report.stdout);
                all.stderr.push_str(&report.stderr);
                all.result.extend(report.result);
            }
            return Ok(all);
        }
        let action =
            task.action().ok_or_else(|| Fault::invalid("the task does not say what its service does"))?;
        let resources = self.resources(action.by, absent);
        let job = Job { machine: &machine, task, resources: &resources };
        self.automator(action.by)?.act(&job, action).await
    }

    fn resources(&self, automator: &str, absent: &Absent) -> Resources {
        Resources::of(&self.staged, &format!("automatortypes/{automator}"), absent)
    }

    fn automator(&self, kind: &str) -> Result<&Arc<dyn Automator>, Fault> {
        self.automators.get(kind).ok_or_else(|| unknown("automator", kind, &self.automators))
    }
}

fn unknown<T>(what: &str, kind: &str, known: &BTreeMap<String, T>) -> Fault {
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    let kind = model::shown(kind);
    Fault::invalid(format!("this provisioner has no {what} '{kind}'; it has {}", known.join(", ")))
}
