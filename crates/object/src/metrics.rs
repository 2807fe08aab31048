//! Numbers for Prometheus: requests as they come, the engine as it is when somebody looks.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::inventory::Condition;

/// Upper bounds in seconds: from a look into the index to an upload of minutes.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    operation: String,
    /// Such as `2xx`.
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: String,
}

type Of = fn(&Condition) -> u64;

/// What only grows while the process runs.
const COUNTERS: [(&str, &str, Of); 3] = [
    ("groups", "Groups of changes made durable by one sync", |now| now.stats.groups),
    ("changes", "Changes in those groups", |now| now.stats.changes),
    ("checkpoints", "Times the index was made durable", |now| now.stats.checkpoints),
];

const GAUGES: [(&str, &str, Of); 22] = [
    ("buckets", "Buckets", |now| now.total.buckets),
    ("objects", "Objects that listings show", |now| now.total.usage.objects),
    ("bytes", "Bytes of all versions", |now| now.total.usage.bytes),
    ("upload_bytes", "Bytes of uploads that are not complete", |now| now.total.usage.upload_bytes),
    ("packed_blobs", "Small blobs, which live in the journal", |now| now.stats.packed.blobs),
    ("packed_bytes", "Bytes of small blobs", |now| now.stats.packed.bytes),
    ("file_blobs", "Large blobs, each a file", |now| now.stats.files.blobs),
    ("file_bytes", "Bytes of large blobs", |now| now.stats.files.bytes),
    ("remote_blobs", "Large blobs in the store behind this one", |now| now.stats.remote.blobs),
    ("remote_bytes", "Bytes of these", |now| now.stats.remote.bytes),
    ("journal_segments", "Segments of the journal", |now| now.stats.segments),
    ("journal_bytes", "Bytes of the journal", |now| now.stats.journal_bytes),
    ("dead_bytes", "Bytes of the journal that hold no blob", |now| now.stats.dead_bytes()),
    ("unsaved_records", "Changed records that wait for a checkpoint", |now| now.stats.unsaved),
    ("damaged_blobs", "Blobs that do not match their checksums", |now| now.stats.damaged),
    ("free_bytes", "Free bytes of the disk", |now| now.stats.free),
    ("reserve_bytes", "Free bytes that are kept for deletes", |now| now.stats.reserve),
    ("stopped", "1 if no change is taken until a restart", |now| u64::from(now.stats.stopped)),
    ("scrub_running", "1 while the scrubber reads", |now| u64::from(now.stats.scrub.running)),
    ("scrub_bytes", "Bytes that the running or the last pass has read", |now| now.stats.scrub.bytes),
    ("scrub_ended_seconds", "When the last pass ended, since 1970", |now| {
        now.stats.scrub.ended.max(0).cast_unsigned() / 1000
    }),
    ("outbox_events", "Length of the queue of events for webhooks", |now| now.outbox),
];

/// The numbers of one store.
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    durations: Family<Operation, Histogram, fn() -> Histogram>,
    received: Counter,
    sent: Counter,
    synced: Counter<f64, AtomicU64>,
    log_lost: Counter,
    log_waiting: Gauge,
    counters: Vec<Counter>,
    gauges: Vec<Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("banyan_object");
        let requests = Family::default();
        let durations: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let (received, sent, synced) = (Counter::default(), Counter::default(), Counter::default());
        let log_lost = Counter::default();
        registry.register("log_lost_lines", "Lines of access logs that were lost", log_lost.clone());
        let log_waiting = Gauge::default();
        let says = "Bytes of access logs that wait for their delivery";
        registry.register("log_waiting_bytes", says, log_waiting.clone());
        registry.register("requests", "Answered requests", requests.clone());
        registry.register("request_seconds", "Time to the head of the answer", durations.clone());
        let says = "Bytes of bodies by their announced length";
        registry.register("received_bytes", says, received.clone());
        registry.register("sent_bytes", says, sent.clone());
        registry.register_with_unit("sync", "Time spent on syncing", Unit::Seconds, synced.clone());
        let counters = COUNTERS.map(|(name, says, _)| {
            let counter = Counter::default();
            registry.register(name, says, counter.clone());
            counter
        });
        let gauges = GAUGES.map(|(name, says, _)| {
            let gauge = Gauge::default();
            registry.register(name, says, gauge.clone());
            gauge
        });
        let (counters, gauges) = (counters.into(), gauges.into());
        Self {
            registry,
            requests,
            durations,
            received,
            sent,
            synced,
            log_lost,
            log_waiting,
            counters,
            gauges,
        }
    }

    pub fn log_lost(&self, lines: u64) {
        self.log_lost.inc_by(lines);
    }

    pub fn log_waiting(&self, bytes: u64) {
        self.log_waiting.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn request(&self, operation: &str, status: u16, took: Duration, received: u64, sent: u64) {
        let operation = operation.to_owned();
        let status = match status {
            ..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            500.. => "5xx",
        };
        self.durations.get_or_create(&Operation { operation: operation.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Request { operation, status }).inc();
        self.received.inc_by(received);
        self.sent.inc_by(sent);
    }

    /// Adds the text of a scrape, without its end.
    pub fn render(&self, now: &Condition, text: &mut String) {
        for ((.., of), counter) in COUNTERS.iter().zip(&self.counters) {
            counter.inc_by(of(now).saturating_sub(counter.get()));
        }
        for ((.., of), gauge) in GAUGES.iter().zip(&self.gauges) {
            gauge.set(i64::try_from(of(now)).unwrap_or(i64::MAX));
        }
        self.synced.inc_by((now.stats.sync.as_secs_f64() - self.synced.get()).max(0.0));
        encode_registry(text, &self.registry).expect("writing to a string does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_requests_and_the_engine() {
        let metrics = Metrics::new();
        metrics.request("PutObject", 200, Duration::from_millis(3), 10, 0);
        metrics.request("GetObject", 404, Duration::from_millis(3), 0, 7);
        metrics.log_lost(3);
        metrics.log_waiting(700);
        let mut now = Condition::default();
        now.stats.groups = 3;
        now.stats.damaged = 2;
        now.stats.sync = Duration::from_millis(1500);
        // What is counted is shown once, however often it is looked at.
        metrics.render(&now, &mut String::new());
        let mut text = String::new();
        metrics.render(&now, &mut text);
        for line in [
            "banyan_object_requests_total{operation=\"PutObject\",status=\"2xx\"} 1",
            "banyan_object_requests_total{operation=\"GetObject\",status=\"4xx\"} 1",
            "banyan_object_received_bytes_total 10",
            "banyan_object_sent_bytes_total 7",
            "banyan_object_groups_total 3",
            "banyan_object_sync_seconds_total 1.5",
            "banyan_object_damaged_blobs 2",
            "banyan_object_log_lost_lines_total 3",
            "banyan_object_log_waiting_bytes 700",
            "banyan_object_request_seconds_count{operation=\"PutObject\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
