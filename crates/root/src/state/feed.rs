//! The latest changes, kept for watches: a bounded ring that a watch reads from any point it still holds.

use std::collections::VecDeque;
use std::sync::Arc;

use model::Name;

use super::snapshot::{Entry, Row};
use crate::cluster::record::ClusterRecord;
use crate::tables::{AppRecord, ImageRecord, InstanceRecord, WorkloadRecord, ZoneRecord};

/// Most changes kept; a watch that is further behind must list again.
pub const FEED_MAX: usize = 8192;

#[derive(Debug, Clone)]
pub struct Notice {
    pub seq: i64,
    pub body: NoticeBody,
}

#[derive(Debug, Clone)]
pub enum NoticeBody {
    Instance(Entry),
    /// Only what became of it is new.
    Status(Entry),
    InstanceGone(Row<InstanceRecord>),
    Image(Row<ImageRecord>),
    ImageGone(Row<ImageRecord>),
    Zone(Arc<ZoneRecord>),
    ZoneGone(Arc<ZoneRecord>),
    /// Also when only what became of it is new.
    Workload(Row<WorkloadRecord>),
    WorkloadGone(Row<WorkloadRecord>),
    App(Row<AppRecord>),
    AppGone(Row<AppRecord>),
    /// Also when only its job went on.
    Cluster(Row<ClusterRecord>),
    ClusterGone(Row<ClusterRecord>),
}

impl NoticeBody {
    pub fn name(&self) -> &Name {
        match self {
            Self::Instance(entry) | Self::Status(entry) => &entry.instance.name,
            Self::InstanceGone(row) => &row.name,
            Self::Image(row) | Self::ImageGone(row) => &row.name,
            Self::Zone(zone) | Self::ZoneGone(zone) => &zone.name,
            Self::Workload(row) | Self::WorkloadGone(row) => &row.name,
            Self::App(row) | Self::AppGone(row) => &row.name,
            Self::Cluster(row) | Self::ClusterGone(row) => &row.name,
        }
    }
}

#[derive(Debug, Default)]
pub struct Feed {
    /// Everything after this seq is in the ring.
    floor: i64,
    head: i64,
    ring: VecDeque<Notice>,
}

impl Feed {
    pub fn starting_at(seq: i64) -> Self {
        Self { floor: seq, head: seq, ring: VecDeque::new() }
    }

    pub fn push(&mut self, notice: Notice) {
        if self.ring.len() == FEED_MAX
            && let Some(dropped) = self.ring.pop_front()
        {
            self.floor = dropped.seq;
        }
        self.ring.push_back(notice);
    }

    pub fn head_set(&mut self, seq: i64) {
        self.head = seq;
    }

    /// Up to `limit` notices after `since`, with the seq to go on from; `None` when `since` is no longer held.
    pub fn after(&self, since: i64, limit: usize) -> Option<(Vec<Notice>, i64)> {
        if since < self.floor || since > self.head {
            return None;
        }
        let start = self.ring.partition_point(|notice| notice.seq <= since);
        let found: Vec<Notice> = self.ring.iter().skip(start).take(limit).cloned().collect();
        let next = if found.len() == limit {
            found.last().map_or(self.head, |notice| notice.seq)
        } else {
            self.head
        };
        Some((found, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Timestamp, ZoneId};

    fn notice(seq: i64) -> Notice {
        let record = ZoneRecord {
            id: ZoneId::from_random(seq as u128),
            name: "z".parse().expect("a name"),
            enrolled_at: Timestamp(0),
            facts: None,
            mode: model::PlaceMode::Open,
            forced: false,
            hosts: Vec::new(),
            granted: Vec::new(),
        };
        Notice { seq, body: NoticeBody::Zone(Arc::new(record)) }
    }

    #[test]
    fn a_reader_gets_every_notice_once_or_is_told_that_it_is_too_late() {
        let mut feed = Feed::starting_at(10);
        let count = FEED_MAX as i64 + 5;
        for seq in 11..11 + count {
            feed.push(notice(seq));
            feed.head_set(seq);
        }
        assert!(feed.after(10, 5).is_none(), "dropped");
        assert!(feed.after(11 + count, 5).is_none(), "the future");
        let mut since = 10 + 5;
        let mut seen = Vec::new();
        loop {
            let (found, next) = feed.after(since, 1000).expect("held");
            if found.is_empty() {
                break;
            }
            seen.extend(found.iter().map(|n| n.seq));
            since = next;
        }
        assert_eq!(seen, (16..11 + count).collect::<Vec<_>>());
    }
}
