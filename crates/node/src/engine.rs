//! The engine: a table of instances, each with a driver task that owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use model::exchange::{Assignment, ObservedInstance, Run};
use model::{Error, InstanceId, Phase, Result};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cgroup::Cgroups;
use crate::config::EngineConfig;
use crate::dir::{InstanceDir, json_read};
use crate::driver::Driver;
use crate::network::Network;
use crate::record::Record;
use crate::runtime;
use crate::shim::RuntimeCall;
use crate::source::LayerSource;
use crate::stats::Sample;
use crate::supervise;

/// Makes assignments true with an OCI runtime. Dropping it leaves every container running.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: tokio::runtime::Handle,
}

/// What drivers share.
pub(crate) struct Shared {
    pub config: EngineConfig,
    pub clock: work::SharedClock,
    pub layers: Arc<dyn LayerSource>,
    pub network: Arc<dyn Network>,
    pub runtime: RuntimeCall,
    pub cgroups: Cgroups,
    pub starts: Semaphore,
    /// Things found that nobody asked for.
    pub orphans: AtomicU64,
    /// How the network is that instances are attached to.
    pub network_care: Mutex<NetworkCare>,
    table: Mutex<BTreeMap<InstanceId, Entry>>,
    revision: watch::Sender<u64>,
}

/// What became of the looks at the network.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkCare {
    /// Things that others took away and that were put back, since the start.
    pub mended: u64,
    /// Why it could not be put back.
    pub trouble: Option<String>,
}

pub(crate) struct Entry {
    pub want: watch::Sender<Option<Assignment>>,
    pub observed: ObservedInstance,
    view: View,
    pub task: JoinHandle<()>,
    /// When its driver last showed something.
    pub touched: Instant,
}

/// What the rest of the engine may know of an instance while its driver owns it.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The first process of the running container.
    pub pid: Option<i32>,
    /// The container has a network namespace of its own.
    pub own_network: bool,
    /// No process will come without being asked for.
    pub finished: bool,
    pub sample: Option<Sample>,
}

impl Engine {
    /// Finds a runtime that works, takes over what already runs, and clears away what belongs to nothing.
    /// Instances found go on as last assigned until the first [`Engine::apply`].
    pub async fn start(
        config: EngineConfig,
        clock: work::SharedClock,
        layers: Arc<dyn LayerSource>,
        network: Arc<dyn Network>,
    ) -> Result<Self> {
        let instances = config.data.join("instances");
        sal::folder_private(&instances)?;
        let cgroups = Cgroups::find(&config.cgroup_parent)?;
        let runtime = runtime::probe(&config, &cgroups).await?;
        let shared = Arc::new(Shared {
            starts: Semaphore::new(config.starts_max.max(1)),
            config,
            clock,
            layers,
            network,
            runtime,
            cgroups,
            orphans: AtomicU64::new(0),
            network_care: Mutex::default(),
            table: Mutex::default(),
            revision: watch::Sender::new(0),
        });
        let engine = Self { shared, handle: tokio::runtime::Handle::current() };
        let records = engine.shared.records_load().await?;
        let ids: BTreeSet<_> = records.iter().map(|record| record.assignment.id.clone()).collect();
        engine.shared.network.retain(&ids).await?;
        {
            let mut table = engine.shared.table();
            for record in records {
                engine.driver_spawn(&mut table, record, true);
            }
        }
        engine.orphans_remove().await?;
        Ok(engine)
    }

    /// Takes the whole desired set. What is missing from it is removed; an assignment older than
    /// the one at hand is refused.
    pub fn apply(&self, desired: Vec<Assignment>) {
        let mut table = self.shared.table();
        let named: BTreeSet<_> = desired.iter().map(|assignment| assignment.id.clone()).collect();
        for (id, entry) in table.iter() {
            if !named.contains(id) {
                entry.want.send_if_modified(|want| want.take().is_some());
            }
        }
        self.assign_all(&mut table, desired);
    }

    /// Takes what a ledger says at the start, and removes nothing: the ledger may be a copy of an earlier time. Says how
    /// many instances are here that it does not know.
    pub fn resume(&self, desired: Vec<Assignment>) -> usize {
        let mut table = self.shared.table();
        let named: BTreeSet<_> = desired.iter().map(|assignment| &assignment.id).collect();
        let unknown = table.keys().filter(|id| !named.contains(id)).count();
        self.assign_all(&mut table, desired);
        unknown
    }

    fn assign_all(&self, table: &mut BTreeMap<InstanceId, Entry>, desired: Vec<Assignment>) {
        for assignment in desired {
            match table.get(&assignment.id) {
                Some(entry) => entry.assign(assignment),
                None => self.driver_spawn(table, Record::new(assignment), true),
            }
        }
    }

    /// An instance that is not `wanted` is removed and forgotten.
    pub(crate) fn driver_spawn(&self, table: &mut BTreeMap<InstanceId, Entry>, record: Record, wanted: bool) {
        let id = record.assignment.id.clone();
        let (want, wanted) = watch::channel(wanted.then(|| record.assignment.clone()));
        let observed = record.observed(&self.shared.config.node_name);
        let driver = Driver::new(self.shared.clone(), record, wanted);
        let task = self.handle.spawn(driver.run());
        table.insert(id, Entry { want, observed, view: View::default(), task, touched: Instant::now() });
        self.shared.revision.send_modify(|revision| *revision += 1);
    }

    /// Every instance at hand, ordered by id.
    pub fn observed(&self) -> Vec<ObservedInstance> {
        self.shared.table().values().map(|entry| entry.observed.clone()).collect()
    }

    /// How many instances have a process.
    pub fn running_count(&self) -> u64 {
        self.shared.table().values().filter(|entry| entry.view.pid.is_some()).count() as u64
    }

    pub(crate) fn now(&self) -> model::Timestamp {
        self.shared.clock.now()
    }

    /// Changes whenever an observation does.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// The OCI runtime in use.
    pub fn runtime(&self) -> &std::path::Path {
        &self.shared.runtime.program
    }

    /// Ends the drivers; containers keep running.
    pub async fn shutdown(self) {
        let entries = std::mem::take(&mut *self.shared.table());
        for (_, entry) in entries {
            entry.task.abort();
            let _ = entry.task.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for entry in self.shared.table().values() {
            entry.task.abort();
        }
    }
}

impl Entry {
    fn assign(&self, assignment: Assignment) {
        self.want.send_if_modified(|want| {
            if let Some(old) = want.as_ref()
                && old.generation > assignment.generation
            {
                tracing::warn!(instance = %assignment.id, have = %old.generation, refused = %assignment.generation,
                    "an assignment of an older generation was refused");
                return false;
            }
            let changed = want.as_ref() != Some(&assignment);
            *want = Some(assignment);
            changed
        });
    }
}

impl Shared {
    pub fn table(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Entry>> {
        self.table.lock().expect("no holder of the table panics")
    }

    pub fn dir(&self, id: &InstanceId) -> InstanceDir {
        InstanceDir::new(self.config.data.join("instances").join(id.as_str()))
    }

    /// Shows the world a new state of an instance.
    pub fn publish(&self, observed: ObservedInstance, view: View) {
        if let Some(entry) = self.table().get_mut(&observed.id) {
            let sample = entry.view.sample.take().filter(|_| entry.view.pid == view.pid);
            entry.view = View { sample, ..view };
            entry.touched = Instant::now();
            if entry.observed == observed {
                return;
            }
            entry.observed = observed;
        }
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Drops an instance from the table unless somebody wants it again.
    pub fn forget(&self, id: &InstanceId) -> bool {
        let mut table = self.table();
        if table.get(id).is_some_and(|entry| entry.want.borrow().is_some()) {
            return false;
        }
        table.remove(id);
        drop(table);
        self.revision.send_modify(|revision| *revision += 1);
        true
    }

    /// What is known of an instance; an error for one that is not here.
    pub fn look(&self, id: &InstanceId) -> Result<(Phase, View)> {
        let table = self.table();
        let entry = table.get(id).ok_or_else(|| Error::not_found(format!("instance {id} on this node")))?;
        Ok((entry.observed.phase, entry.view.clone()))
    }

    /// The running process of an instance; an error that says what the instance is instead.
    pub fn running(&self, id: &InstanceId) -> Result<(i32, View)> {
        match self.look(id)? {
            (_, view) if view.pid.is_some() => Ok((view.pid.unwrap_or_default(), view)),
            (phase, _) => Err(Error::conflict(format!("instance {id} is {phase}, not running"))
                .hint("start it first: banyan instance start NAME")),
        }
    }

    pub fn sample_put(&self, id: &InstanceId, sample: Sample) {
        if let Some(entry) = self.table().get_mut(id) {
            entry.view.sample = Some(sample);
        }
    }

    /// Some other instance at hand has this image.
    pub fn image_used_beside(&self, id: &InstanceId, image: &model::ImageManifest) -> bool {
        let uses = |entry: &Entry| {
            entry
                .want
                .borrow()
                .as_ref()
                .is_some_and(|want| want.run != Run::Gone && want.image.id == image.id)
        };
        self.table().iter().any(|(other, entry)| other != id && uses(entry))
    }

    /// Reads what earlier lives of the node left; what cannot be read is cleared away.
    async fn records_load(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(self.config.data.join("instances"))? {
            let path: PathBuf = entry?.path();
            let dir = InstanceDir::new(&path);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            match json_read::<Record>(&dir.record()) {
                Ok(Some(record)) if record.readable() && record.assignment.id.as_str() == name => {
                    records.push(record)
                }
                other => {
                    tracing::warn!(instance = name, problem = ?other.err(), "cleared away: no readable record");
                    supervise::sweep(&self.config.shim, &self.runtime, &dir, &name).await?;
                    if name.parse::<InstanceId>().is_ok() {
                        self.cgroups.clear(&name)?;
                    }
                    std::fs::remove_dir_all(&path)?;
                    self.orphans.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(records)
    }
}
