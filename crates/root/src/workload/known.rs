//! What the zones must be asked for: the nodes that daemons may stand on or that somebody prefers, and what those use
//! that scale by themselves. Asked only where a workload needs it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use model::exchange::{Ask, InstanceUsage, NodeReport};
use model::{Error, InstanceId, Mode, Name, PlaceMode, Result, Timestamp, WorkloadId, WorkloadSpec, ZoneId};
use work::Wake;

use super::core::{Node, Seen, Usage};
use super::nodes;
use crate::cloud::{Cloud, Shared};
use crate::ops::instance_ask::{ASK_TIMEOUT, late, read};
use crate::state::{Row, Snapshot};
use crate::tables::{WorkloadRecord, ZoneRecord};

/// How often it is looked whether something is to be asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Nodes are asked for again after so long, whatever the zone's facts say.
const NODES_EVERY_MS: i64 = 15_000;
/// After a zone did not answer.
const NODES_RETRY_MS: i64 = 3_000;
const USAGE_EVERY_MS: i64 = 10_000;
/// Instances of one question.
const USAGE_MAX: usize = 1_000;
/// Largest answer of one zone.
const ANSWER_MAX: usize = 64 << 20;
/// Zones that are asked at the same time.
const ZONES_AT_ONCE: usize = 16;

#[derive(Default)]
pub struct Known {
    inner: Mutex<Inner>,
    news: Wake,
}

#[derive(Default)]
struct Inner {
    daemons: BTreeSet<WorkloadId>,
    /// Those that would rather be on some node.
    wishing: BTreeSet<WorkloadId>,
    scaling: BTreeSet<WorkloadId>,
    zones: BTreeMap<ZoneId, ZoneNodes>,
    usage: HashMap<WorkloadId, Usage>,
    usage_at: Option<Timestamp>,
    /// Those to look at because something is newly known.
    fresh: BTreeSet<WorkloadId>,
}

struct ZoneNodes {
    members: u64,
    /// By the steady clock.
    asked_at: Timestamp,
    /// Absent when the zone did not answer yet.
    nodes: Option<Vec<NodeReport>>,
    failed: bool,
}

impl Known {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something is newly known.
    pub async fn news(&self) {
        self.news.wait().await;
    }

    pub fn fresh_take(&self) -> BTreeSet<WorkloadId> {
        std::mem::take(&mut self.inner().fresh)
    }

    pub fn forget(&self, id: &WorkloadId) {
        let mut inner = self.inner();
        inner.daemons.remove(id);
        inner.wishing.remove(id);
        inner.scaling.remove(id);
        inner.usage.remove(id);
    }

    /// Notes what a workload needs to know.
    pub fn interest(&self, id: &WorkloadId, spec: &WorkloadSpec) {
        let mut inner = self.inner();
        if spec.mode == Mode::Daemon {
            inner.daemons.insert(id.clone());
        }
        match nodes::is_wished(&spec.instance) {
            true => drop(inner.wishing.insert(id.clone())),
            false => drop(inner.wishing.remove(id)),
        }
        match spec.autoscale {
            Some(_) => drop(inner.scaling.insert(id.clone())),
            None => drop(inner.scaling.remove(id)),
        }
    }

    pub fn usage(&self, id: &WorkloadId) -> Option<Usage> {
        self.inner().usage.get(id).copied()
    }

    /// The nodes that a daemon belongs on; nothing until every zone that is there was asked.
    pub fn nodes(
        &self,
        cloud: &Cloud,
        snapshot: &Snapshot,
        record: &WorkloadRecord,
        instances: &[Seen],
    ) -> Option<Vec<Node>> {
        let (inner, spec) = (self.inner(), &record.spec.instance);
        let mut all = Vec::new();
        for zone in snapshot.zones.values().filter(|zone| nodes::zone_fits(zone, spec)) {
            match inner.zones.get(&zone.id) {
                Some(ZoneNodes { nodes: Some(reports), .. }) => {
                    all.extend(nodes::told(zone, reports, spec, instances));
                }
                None if !cloud.tree.zone_lapsed(&zone.id) => return None,
                _ => all.extend(nodes::silent(zone, instances)),
            }
        }
        Some(all)
    }

    /// Whether every zone that is there was asked for its nodes.
    pub fn asked(&self, cloud: &Cloud, snapshot: &Snapshot) -> bool {
        let inner = self.inner();
        snapshot.zones.keys().all(|id| inner.zones.contains_key(id) || !cloud.tree.zone_live(id))
    }

    /// The zones that have a node of this name or id which takes instances, as far as they said.
    pub fn zones_with(&self, snapshot: &Snapshot, node: &str) -> Vec<Name> {
        let inner = self.inner();
        let is_it = |report: &NodeReport| {
            let named = report.facts.name.as_str() == node || report.id == node;
            named && report.alive && report.mode == PlaceMode::Open
        };
        let has = |zone: &&Row<ZoneRecord>| {
            let known = inner.zones.get(&zone.id).and_then(|known| known.nodes.as_ref());
            known.is_some_and(|reports| reports.iter().any(is_it))
        };
        snapshot.zones.values().filter(has).map(|zone| zone.name.clone()).collect()
    }

    /// Asks, for ever.
    pub async fn keep(&self, cloud: Shared) {
        loop {
            self.nodes_ask(&cloud).await;
            self.usage_ask(&cloud).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn nodes_ask(&self, cloud: &Cloud) {
        {
            let inner = self.inner();
            if inner.daemons.is_empty() && inner.wishing.is_empty() {
                return;
            }
        }
        let (snapshot, now) = (cloud.state.snapshot(), cloud.steady());
        self.inner().zones.retain(|id, _| snapshot.zones.contains_key(id));
        let due: Vec<Row<ZoneRecord>> = {
            let inner = self.inner();
            let due =
                |zone: &&Row<ZoneRecord>| inner.zones.get(&zone.id).is_none_or(|known| known.due(zone, now));
            snapshot.zones.values().filter(due).cloned().collect()
        };
        let live: Vec<_> = due.into_iter().filter(|zone| cloud.tree.zone_live(&zone.id)).collect();
        for some in live.chunks(ZONES_AT_ONCE) {
            let answers = join_all(some.iter().map(|zone| ask(cloud, &zone.id, Ask::Nodes))).await;
            for (zone, answer) in some.iter().zip(answers) {
                self.nodes_take(zone, answer, now);
            }
        }
    }

    fn nodes_take(&self, zone: &ZoneRecord, answer: Result<Vec<NodeReport>>, now: Timestamp) {
        let mut inner = self.inner();
        let known = inner.zones.entry(zone.id.clone()).or_insert(ZoneNodes {
            members: 0,
            asked_at: now,
            nodes: None,
            failed: false,
        });
        known.asked_at = now;
        known.failed = answer.is_err();
        let changed = match answer {
            Ok(nodes) => {
                known.members = members(zone);
                let what = |node: &NodeReport| {
                    (node.facts.name.clone(), node.alive, node.mode, node.facts.labels.clone())
                };
                let same =
                    known.nodes.as_ref().is_some_and(|old| old.iter().map(what).eq(nodes.iter().map(what)));
                known.nodes = Some(nodes);
                !same
            }
            Err(error) => {
                tracing::debug!(zone = %zone.name, %error, "the zone does not report its nodes");
                false
            }
        };
        if changed || known.failed {
            let daemons = inner.daemons.clone();
            inner.fresh.extend(daemons);
            drop(inner);
            self.news.wake();
        }
    }

    async fn usage_ask(&self, cloud: &Cloud) {
        let now = cloud.steady();
        let scaling = {
            let mut inner = self.inner();
            let due = inner.usage_at.is_none_or(|at| at.plus_ms(USAGE_EVERY_MS) <= now);
            if inner.scaling.is_empty() || !due {
                return;
            }
            inner.usage_at = Some(now);
            inner.scaling.clone()
        };
        let snapshot = cloud.state.snapshot();
        let mut measured = HashMap::new();
        for (zone, ids) in running(&snapshot, &scaling) {
            for part in ids.chunks(USAGE_MAX) {
                match ask::<Vec<InstanceUsage>>(cloud, &zone, Ask::Usage { instances: part.to_vec() }).await {
                    Ok(uses) => measured.extend(uses.into_iter().map(|used| (used.id.clone(), used))),
                    Err(error) => tracing::debug!(%zone, %error, "the zone does not say what is used"),
                }
            }
        }
        let mut inner = self.inner();
        for id in scaling {
            let Some(usage) = mean(&snapshot, &id, &measured, cloud.now()) else { continue };
            inner.usage.insert(id.clone(), usage);
            inner.fresh.insert(id);
        }
        drop(inner);
        self.news.wake();
    }
}

impl ZoneNodes {
    fn due(&self, zone: &ZoneRecord, now: Timestamp) -> bool {
        let after = if self.failed { NODES_RETRY_MS } else { NODES_EVERY_MS };
        self.members != members(zone) && !self.failed || self.asked_at.plus_ms(after) <= now
    }
}

fn members(zone: &ZoneRecord) -> u64 {
    zone.facts.as_ref().map_or(0, |facts| facts.members)
}

async fn ask<T: serde::de::DeserializeOwned>(cloud: &Cloud, zone: &ZoneId, ask: Ask) -> Result<T> {
    let asked = cloud.tree.ask(zone, ask);
    let mut stream = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late()))?;
    let body = read(&mut stream, ANSWER_MAX).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Error::internal("the zone's answer cannot be read").because(error))
}

/// Instances that run, of these workloads, by zone.
fn running(snapshot: &Snapshot, workloads: &BTreeSet<WorkloadId>) -> BTreeMap<ZoneId, Vec<InstanceId>> {
    let mut zones: BTreeMap<ZoneId, Vec<InstanceId>> = BTreeMap::new();
    let entries = workloads.iter().filter_map(|id| snapshot.members.get(id)).flat_map(|all| all.values());
    for entry in entries.filter(|entry| entry.phase() == model::Phase::Running) {
        if let Some(zone) = entry.status.as_ref().and_then(|status| status.zone.clone()) {
            zones.entry(zone).or_default().push(entry.instance.id.clone());
        }
    }
    zones
}

fn mean(
    snapshot: &Snapshot,
    id: &WorkloadId,
    measured: &HashMap<InstanceId, InstanceUsage>,
    at: Timestamp,
) -> Option<Usage> {
    let (mut count, mut cpu, mut memory) = (0u64, 0u64, 0u64);
    for (id, entry) in snapshot.members.get(id)? {
        let Some(used) = measured.get(id) else { continue };
        let spec = &entry.instance.spec;
        count += 1;
        cpu += used.cpu_milli * 100 / spec.cpu.0.max(1);
        memory += (u128::from(used.memory_bytes) * 100 / u128::from(spec.memory.0.max(1))) as u64;
    }
    let mean = |sum: u64| (sum / count.max(1)).min(u64::from(u32::MAX)) as u32;
    (count > 0).then(|| Usage {
        measured: count as u32,
        cpu_percent: mean(cpu),
        memory_percent: mean(memory),
        at,
    })
}
