//! Changes as they happen, filtered to what the caller may see.

use api::{WatchEvent, WatchKind};
use model::{Error, Result};
use serde_json::Value;

use super::page::glob;
use super::view;
use crate::cloud::{Caller, Cloud};
use crate::state::{Notice, NoticeBody, Snapshot};

/// Notices read at a time.
const BATCH_MAX: usize = 256;

/// Where a watch stands.
pub struct Watch {
    kind: WatchKind,
    /// Only things whose name fits this pattern.
    name: Option<String>,
    since: i64,
}

impl Watch {
    /// Without `since` it begins now.
    pub fn new(cloud: &Cloud, kind: WatchKind, name: Option<String>, since: Option<i64>) -> Result<Self> {
        let since = since.unwrap_or_else(|| cloud.state.snapshot().seq);
        let watch = Self { kind, name, since };
        if cloud.state.notices_after(since, 0).is_none() {
            return Err(too_old());
        }
        Ok(watch)
    }

    /// Waits for the next changes; an error when the watch fell too far behind.
    pub async fn next(&mut self, cloud: &Cloud, caller: &Caller) -> Result<Vec<WatchEvent>> {
        let mut changed = cloud.state.changed();
        loop {
            changed.borrow_and_update();
            let (notices, next) = cloud.state.notices_after(self.since, BATCH_MAX).ok_or_else(too_old)?;
            self.since = next;
            let snapshot = cloud.state.snapshot();
            let events: Vec<WatchEvent> = notices
                .into_iter()
                .filter(|notice| {
                    self.name.as_ref().is_none_or(|pattern| glob(pattern, notice.body.name().as_str()))
                })
                .filter_map(|notice| event(cloud, &snapshot, caller, self.kind, notice))
                .collect();
            if !events.is_empty() {
                return Ok(events);
            }
            if changed.changed().await.is_err() {
                return Err(Error::unavailable("the state ended"));
            }
        }
    }
}

fn too_old() -> Error {
    Error::conflict("the changes after this point are no longer kept")
        .at("since")
        .hint("list again and watch from its seq")
}

fn event(
    cloud: &Cloud,
    snapshot: &Snapshot,
    caller: &Caller,
    kind: WatchKind,
    notice: Notice,
) -> Option<WatchEvent> {
    let mine = |tenant: &model::TenantId| caller.all_tenants || *tenant == caller.tenant;
    let seq = notice.seq;
    let tell = |id: &str, name: &model::Name, object: Option<Value>| {
        Some(WatchEvent {
            seq,
            kind,
            id: id.to_owned(),
            name: name.to_string(),
            deleted: object.is_none(),
            object,
        })
    };
    match (kind, notice.body) {
        (WatchKind::Instance, NoticeBody::Instance(entry) | NoticeBody::Status(entry))
            if mine(&entry.instance.tenant) =>
        {
            let object = serde_json::to_value(view::instance(snapshot, &entry)).ok();
            tell(entry.instance.id.as_str(), &entry.instance.name, object)
        }
        (WatchKind::Instance, NoticeBody::InstanceGone(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, None)
        }
        (WatchKind::Image, NoticeBody::Image(row)) if row.public || mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, serde_json::to_value(view::image(snapshot, &row)).ok())
        }
        (WatchKind::Image, NoticeBody::ImageGone(row)) if row.public || mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, None)
        }
        (WatchKind::Zone, NoticeBody::Zone(zone)) => {
            tell(zone.id.as_str(), &zone.name, serde_json::to_value(view::zone(cloud, &zone, None)).ok())
        }
        (WatchKind::Zone, NoticeBody::ZoneGone(zone)) => tell(zone.id.as_str(), &zone.name, None),
        (WatchKind::Workload, NoticeBody::Workload(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, serde_json::to_value(view::workload(snapshot, &row)).ok())
        }
        (WatchKind::Workload, NoticeBody::WorkloadGone(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, None)
        }
        (WatchKind::App, NoticeBody::App(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, serde_json::to_value(view::app(snapshot, &row)).ok())
        }
        (WatchKind::App, NoticeBody::AppGone(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, None)
        }
        (WatchKind::Cluster, NoticeBody::Cluster(row)) if mine(&row.tenant) => {
            let object = serde_json::to_value(super::cluster::view::cluster(snapshot, &row)).ok();
            tell(row.id.as_str(), &row.name, object)
        }
        (WatchKind::Cluster, NoticeBody::ClusterGone(row)) if mine(&row.tenant) => {
            tell(row.id.as_str(), &row.name, None)
        }
        _ => None,
    }
}
