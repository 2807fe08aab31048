//! What nodes used over time: a fine ring for the last hour, a coarse one for the last day.
//!
//! It lives in memory and is saved now and then into one packed file beside the ledger, so that a
//! restart loses minutes and never the day. Its size is bounded per node, and nodes that the zone
//! forgot are forgotten here.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use model::health::{Sample, Usage};
use model::{ChildId, Timestamp};
use serde::{Deserialize, Serialize};

pub const FINE_EVERY_MS: i64 = 15_000;
const FINE_MAX: usize = 240;
const COARSE_EVERY_MS: i64 = 300_000;
const COARSE_MAX: usize = 288;
/// A step is taken for whole when this little is missing: timers are not exact.
const SLACK_MS: i64 = 2_000;
/// Rings grow by so many samples, so that many nodes do not hold twice what they need.
const GROW: usize = 48;
/// The longest line of the file that is read back; a line is one node.
const LINE_BYTES_MAX: usize = 1 << 20;
const PACK_LEVEL: i32 = 1;

/// Samples of one step, oldest first.
#[derive(Debug, Clone, Default)]
struct Ring(VecDeque<Sample>);

impl Ring {
    /// Takes the sample if a step has passed. After a clock that went back, what lies in the future goes.
    fn put(&mut self, sample: &Sample, every_ms: i64, max: usize) {
        while self.0.back().is_some_and(|last| last.at > sample.at) {
            self.0.pop_back();
        }
        if self.0.back().is_some_and(|last| sample.at.ms_since(last.at) < every_ms - SLACK_MS) {
            return;
        }
        if self.0.len() == max {
            self.0.pop_front();
        } else if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(GROW.min(max - self.0.len()));
        }
        self.0.push_back(sample.clone());
    }
}

/// The history of one node, or of the zone as a whole.
#[derive(Debug, Clone, Default)]
struct Track {
    fine: Ring,
    coarse: Ring,
}

impl Track {
    fn put(&mut self, sample: &Sample) {
        self.fine.put(sample, FINE_EVERY_MS, FINE_MAX);
        self.coarse.put(sample, COARSE_EVERY_MS, COARSE_MAX);
    }

    /// Coarse as far as the fine ones do not reach, then the fine ones.
    fn since(&self, since: Timestamp) -> Vec<Sample> {
        let fine_from = self.fine.0.front().map_or(Timestamp(i64::MAX), |first| first.at);
        let coarse = self.coarse.0.iter().filter(|sample| sample.at < fine_from);
        coarse.chain(&self.fine.0).filter(|sample| sample.at >= since).cloned().collect()
    }
}

/// The histories of all nodes, and their sum.
#[derive(Debug, Default)]
pub struct History {
    zone: Track,
    nodes: BTreeMap<ChildId, Track>,
}

impl History {
    /// Takes what every node uses at this moment, and the sum of it for the zone.
    pub fn take(&mut self, now: Timestamp, usages: &[(ChildId, Usage)]) {
        for (node, usage) in usages {
            self.nodes.entry(node.clone()).or_default().put(&Sample { at: now, usage: usage.clone() });
        }
        let sum = usages.iter().fold(Usage::default(), |sum, (_, usage)| plus(&sum, usage));
        self.zone.put(&Sample { at: now, usage: sum });
    }

    pub fn retain(&mut self, known: impl Fn(&ChildId) -> bool) {
        self.nodes.retain(|node, _| known(node));
    }

    /// Of a node or, without one, of the zone; oldest first.
    pub fn since(&self, node: Option<&ChildId>, since: Timestamp) -> Vec<Sample> {
        let track = match node {
            Some(node) => self.nodes.get(node),
            None => Some(&self.zone),
        };
        track.map(|track| track.since(since)).unwrap_or_default()
    }

    /// What a saver goes through one by one, so that it never holds a copy of everything.
    pub fn names(&self) -> Vec<Option<ChildId>> {
        std::iter::once(None).chain(self.nodes.keys().cloned().map(Some)).collect()
    }

    /// One node, or the zone, as a line of the file.
    pub fn line(&self, node: Option<&ChildId>) -> Option<Vec<u8>> {
        let track = match node {
            Some(node) => self.nodes.get(node)?,
            None => &self.zone,
        };
        let rows = |ring: &Ring| ring.0.iter().map(row).collect();
        let line = Line { node: node.cloned(), fine: rows(&track.fine), coarse: rows(&track.coarse) };
        serde_json::to_vec(&line).ok()
    }

    /// What an earlier life saved. A damaged file costs what stands behind the damage.
    pub fn load(path: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(history),
            other => other?,
        };
        let mut lines = BufReader::new(zstd::Decoder::new(file)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = io::Read::take(&mut lines, LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(history);
            }
            let read: Line = serde_json::from_slice(&line)?;
            let ring = |rows: Vec<Row>| Ring(rows.into_iter().map(sample).collect());
            let track = Track { fine: ring(read.fine), coarse: ring(read.coarse) };
            match read.node {
                Some(node) => drop(history.nodes.insert(node, track)),
                None => history.zone = track,
            }
        }
    }
}

/// Writes the lines into a new file and puts it in place of the old one.
pub fn save(path: &Path, lines: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let written = (|| {
        let mut packer = zstd::Encoder::new(BufWriter::new(File::create(&draft)?), PACK_LEVEL)?;
        for line in lines {
            packer.write_all(&line)?;
            packer.write_all(b"\n")?;
        }
        packer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&draft, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

#[derive(Serialize, Deserialize)]
struct Line {
    node: Option<ChildId>,
    fine: Vec<Row>,
    coarse: Vec<Row>,
}

/// A sample as plain numbers: seconds, then the fields of the usage in order.
type Row = (i64, u64, u64, u64, u64, u64, u64, u64);

fn row(sample: &Sample) -> Row {
    let usage = &sample.usage;
    (
        sample.at.0 / 1_000_000,
        usage.cpu_milli,
        usage.memory_bytes,
        usage.disk_used_bytes,
        usage.disk_total_bytes,
        usage.net_received_bytes,
        usage.net_sent_bytes,
        usage.instances,
    )
}

fn sample(row: Row) -> Sample {
    let (at_s, cpu_milli, memory_bytes, disk_used_bytes, disk_total_bytes, received, sent, instances) = row;
    let usage = Usage {
        cpu_milli,
        memory_bytes,
        disk_used_bytes,
        disk_total_bytes,
        net_received_bytes: received,
        net_sent_bytes: sent,
        instances,
    };
    Sample { at: Timestamp(at_s.saturating_mul(1_000_000)), usage }
}

fn plus(a: &Usage, b: &Usage) -> Usage {
    Usage {
        cpu_milli: a.cpu_milli.saturating_add(b.cpu_milli),
        memory_bytes: a.memory_bytes.saturating_add(b.memory_bytes),
        disk_used_bytes: a.disk_used_bytes.saturating_add(b.disk_used_bytes),
        disk_total_bytes: a.disk_total_bytes.saturating_add(b.disk_total_bytes),
        net_received_bytes: a.net_received_bytes.saturating_add(b.net_received_bytes),
        net_sent_bytes: a.net_sent_bytes.saturating_add(b.net_sent_bytes),
        instances: a.instances.saturating_add(b.instances),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_milli: u64) -> Usage {
        Usage { cpu_milli, memory_bytes: 7, instances: 1, ..Usage::default() }
    }

    fn day(history: &mut History, start: Timestamp) -> Timestamp {
        let steps = 26 * 3600 * 1000 / FINE_EVERY_MS;
        for step in 0..steps {
            let usages = [("a".into(), usage(step as u64)), ("b".into(), usage(1))];
            history.take(start.plus_ms(step * FINE_EVERY_MS), &usages);
        }
        start.plus_ms((steps - 1) * FINE_EVERY_MS)
    }

    #[test]
    fn a_day_is_kept_coarsely_and_an_hour_finely_and_no_more() {
        let mut history = History::default();
        let end = day(&mut history, Timestamp(1_800_000_000_000_000));
        let all = history.since(Some(&"a".into()), Timestamp(0));
        assert!(all.is_sorted_by_key(|sample| sample.at));
        assert_eq!(all.last().map(|sample| sample.at), Some(end));
        let hour = history.since(Some(&"a".into()), end.plus_ms(-3_599_000));
        assert_eq!(hour.len(), FINE_MAX);
        assert_eq!(all.len(), FINE_MAX + COARSE_MAX - 12, "the last hour stands there once");
        let span_h = end.ms_since(all[0].at) / 3_600_000;
        assert_eq!(span_h, 23, "a day less the coarse step");
        let zone = history.since(None, Timestamp(0));
        assert_eq!(zone.last().map(|s| s.usage.instances), Some(2));
        assert_eq!(history.since(Some(&"nobody".into()), Timestamp(0)), Vec::new());
    }

    #[test]
    fn a_clock_that_went_back_leaves_no_sample_of_the_future() {
        let mut history = History::default();
        let now = Timestamp(1_800_000_000_000_000);
        history.take(now.plus_ms(3_600_000), &[("a".into(), usage(1))]);
        history.take(now, &[("a".into(), usage(2))]);
        let all = history.since(Some(&"a".into()), Timestamp(0));
        assert_eq!(all, [Sample { at: now, usage: usage(2) }]);
    }

    #[test]
    fn it_reads_back_and_a_damaged_file_is_an_error_not_a_panic() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("history.zst");
        let mut history = History::default();
        day(&mut history, Timestamp(1_800_000_000_000_000));
        history.retain(|node| node.as_str() == "a");
        let lines = history.names().into_iter().filter_map(|node| history.line(node.as_ref()));
        save(&path, lines).expect("saves");
        assert!(std::fs::metadata(&path).expect("there").len() < 64 << 10, "packed");
        let read = History::load(&path).expect("reads");
        for node in [None, Some("a".into())] {
            assert_eq!(read.since(node.as_ref(), Timestamp(0)), history.since(node.as_ref(), Timestamp(0)));
        }
        std::fs::write(&path, b"nothing of ours").expect("writes");
        assert!(History::load(&path).is_err());
        assert!(History::load(&dir.path().join("missing")).is_ok());
    }
}
