//! Prometheus metrics: requests, state, build.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::cloud::Objects;
use crate::cluster::Board;
use crate::state::{Snapshot, State};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds: from an in-memory read to a slow commit.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: &'static str,
    route: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPhase {
    phase: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCheck {
    name: String,
    subject: String,
}

/// Checks shown at most, worst first.
const CHECKS_MAX: usize = 10_000;

pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    durations: Family<Route, Histogram, fn() -> Histogram>,
    instances: Family<ByPhase, Gauge>,
    workloads: Family<ByPhase, Gauge>,
    clusters: Family<ByPhase, Gauge>,
    cluster_tasks: Family<ByPhase, Gauge>,
    provisioners: Gauge,
    zones: Gauge,
    tenants: Gauge,
    seq: Gauge,
    commits: Counter,
    checks: Family<ByCheck, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("banyan");
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running version", build);
        let mut made = Self {
            registry,
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            instances: Family::default(),
            workloads: Family::default(),
            clusters: Family::default(),
            cluster_tasks: Family::default(),
            provisioners: Gauge::default(),
            zones: Gauge::default(),
            tenants: Gauge::default(),
            seq: Gauge::default(),
            commits: Counter::default(),
            checks: Family::default(),
        };
        let registry = &mut made.registry;
        registry.register("http_requests", "Answered requests", made.requests.clone());
        registry.register("http_request_seconds", "Time to the head of the answer", made.durations.clone());
        registry.register("instances", "Instances by phase", made.instances.clone());
        registry.register("workloads", "Workloads by phase", made.workloads.clone());
        registry.register("clusters", "Clusters by status", made.clusters.clone());
        let says = "Tasks of clusters under way, where this server gives them out";
        registry.register("cluster_tasks", says, made.cluster_tasks.clone());
        registry.register("provisioners_live", "Provisioners that are heard here", made.provisioners.clone());
        registry.register("zones", "Enrolled zones", made.zones.clone());
        registry.register("tenants", "Tenants", made.tenants.clone());
        registry.register("store_seq", "The last change that the snapshot includes", made.seq.clone());
        registry.register("store_commits", "Transactions committed by this process", made.commits.clone());
        let says = "How the platform is: 0 green, 1 yellow, 2 red";
        registry.register("platform_check", says, made.checks.clone());
        made
    }

    /// Shows these checks from now on. Of several with one name and subject the worst counts.
    pub fn platform_set(&self, health: &api::PlatformHealth) {
        self.checks.clear();
        for check in health.checks.iter().take(CHECKS_MAX) {
            let label = ByCheck { name: check.name.clone(), subject: check.subject.clone() };
            let gauge = self.checks.get_or_create(&label);
            gauge.set(gauge.get().max(check.light as i64));
        }
    }

    pub fn request(&self, method: &'static str, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Request { method, route, status: u32::from(status) }).inc();
        self.durations.get_or_create(&Route { method, route }).observe(took.as_secs_f64());
    }

    fn clusters_count(&self, snapshot: &Snapshot, board: &Board) {
        let mut statuses: BTreeMap<&str, i64> = BTreeMap::new();
        for row in snapshot.clusters.values() {
            *statuses.entry(row.status.as_str()).or_default() += 1;
        }
        self.clusters.clear();
        for (status, count) in statuses {
            self.clusters.get_or_create(&ByPhase { phase: status.to_owned() }).set(count);
        }
        self.cluster_tasks.clear();
        let (load, live) = board.with(|desk| (desk.load(), desk.hands.len())).unwrap_or_default();
        for (phase, count) in [("ready", load.ready), ("held", load.held), ("waiting", load.waiting)] {
            self.cluster_tasks.get_or_create(&ByPhase { phase: phase.to_owned() }).set(count.into());
        }
        self.provisioners.set(live as i64);
    }

    /// The text of a scrape; what is counted from the state is counted now.
    pub fn render(&self, state: &State, clusters: &Board, objects: Option<&Objects>) -> String {
        let snapshot = state.snapshot();
        self.clusters_count(&snapshot, clusters);
        let mut phases: BTreeMap<String, i64> = BTreeMap::new();
        for entry in snapshot.entries.values().flat_map(|entries| entries.values()) {
            *phases.entry(entry.phase().to_string()).or_default() += 1;
        }
        self.instances.clear();
        for (phase, count) in phases {
            self.instances.get_or_create(&ByPhase { phase }).set(count);
        }
        let mut phases: BTreeMap<String, i64> = BTreeMap::new();
        for row in snapshot.workloads.values() {
            let phase = crate::ops::view::workload_status(&snapshot, row).phase;
            *phases.entry(phase.to_string()).or_default() += 1;
        }
        self.workloads.clear();
        for (phase, count) in phases {
            self.workloads.get_or_create(&ByPhase { phase }).set(count);
        }
        self.zones.set(snapshot.zones.len() as i64);
        self.tenants.set(snapshot.tenants.len() as i64);
        self.seq.set(snapshot.seq);
        self.commits.inc_by(state.commits().saturating_sub(self.commits.get()));
        let mut text = String::new();
        let sound = "writing to a string does not fail";
        encode_registry(&mut text, &self.registry).expect(sound);
        if let Some(objects) = objects {
            match object::inventory::condition(&objects.service) {
                Ok(now) => objects.service.metrics.render(&now, &mut text),
                Err(error) => tracing::warn!(%error, "the object store does not say how it is"),
            }
        }
        encode_eof(&mut text).expect(sound);
        text
    }
}
