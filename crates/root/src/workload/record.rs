//! How the record of a workload changes when users, or its controller, change its template. No I/O.

use std::sync::Arc;

use model::workload::LABEL;
use model::{
    AppId, Error, ImageManifest, InstanceSpec, LossPolicy, Mode, Name, Result, Spread, TenantId, Timestamp,
    WorkloadId, WorkloadSpec,
};

use crate::tables::{RolledBack, TemplateRecord, WorkloadRecord, WorkloadState};

/// Earlier templates that are kept.
pub const EARLIER_MAX: usize = 10;
/// Bytes of earlier templates that are kept, as JSON; a record of the store has its limit.
const EARLIER_BYTES_MAX: usize = 512 << 10;

/// Who changes something, and when.
pub struct By<'a> {
    pub who: &'a str,
    pub at: Timestamp,
}

pub fn record_new(
    tenant: &TenantId,
    name: &Name,
    app: Option<AppId>,
    spec: WorkloadSpec,
    image: ImageManifest,
    by: &By<'_>,
) -> WorkloadRecord {
    WorkloadRecord {
        id: WorkloadId::from_random(rand::random()),
        tenant: tenant.clone(),
        name: name.clone(),
        app,
        // A one-shot is there to run.
        runs_asked: u64::from(matches!(spec.mode, Mode::Once { .. })),
        spec: spec.into(),
        image: image.into(),
        revision: 1,
        base: 1,
        revised_at: by.at,
        revised_by: by.who.to_owned(),
        earlier: Vec::new(),
        rolled_back: None,
        restart_count: 0,
        promoted: 0,
        schedule_from: by.at,
        deleting: false,
        created_at: by.at,
        created_by: by.who.to_owned(),
    }
}

/// How many instances may be unavailable at once when they are moved on purpose. Where that is none, they are not moved:
/// the controller makes another first.
pub fn may_be_missing(record: &WorkloadRecord, state: Option<&WorkloadState>) -> u32 {
    match &record.spec.mode {
        Mode::Service { replicas } => {
            let scaled = state.and_then(|state| state.scale.as_ref()).map(|scale| scale.replicas);
            let wanted = scaled.filter(|_| record.spec.autoscale.is_some()).unwrap_or(*replicas);
            record.spec.update.room(wanted).0
        }
        Mode::Daemon => 1,
        Mode::Once { run } | Mode::Cron { run, .. } => run.parallelism,
    }
}

/// Takes a new spec. A changed template is a new revision, and a new run of a one-shot.
pub fn spec_set(
    record: &mut WorkloadRecord,
    spec: WorkloadSpec,
    image: Arc<ImageManifest>,
    by: &By<'_>,
) -> Result<()> {
    let (old, new) = (record.spec.mode.word(), spec.mode.word());
    if old != new {
        return Err(Error::invalid(format!("a workload of kind {old} cannot become one of kind {new}"))
            .at("spec.mode")
            .hint("delete it and make it anew"));
    }
    let timing = |spec: &WorkloadSpec| match &spec.mode {
        Mode::Cron { schedule, time_zone, .. } => Some((schedule.clone(), time_zone.clone())),
        _ => None,
    };
    if timing(&record.spec) != timing(&spec) || (record.spec.paused && !spec.paused) {
        record.schedule_from = by.at;
    }
    if spec.instance != record.spec.instance {
        earlier_push(record, None);
        let same = |t: &&TemplateRecord| *t.instance == spec.instance && t.image.id == image.id;
        let known = record.earlier.iter().rev().find(same).map(|template| template.base);
        revision_next(record, image, known, by);
        record.rolled_back = None;
        if matches!(spec.mode, Mode::Once { .. }) {
            record.runs_asked += 1;
        }
    }
    record.spec = spec.into();
    Ok(())
}

/// Goes back to an earlier template, as a new revision: the one asked for, or the last that was `complete`.
/// `failed` says why the current one is given up.
pub fn roll_back(
    record: &mut WorkloadRecord,
    complete: &[u64],
    to: Option<u64>,
    failed: Option<String>,
    by: &By<'_>,
) -> Result<u64> {
    let template = match to {
        Some(to) => record.earlier.iter().find(|template| template.revision == to),
        None => stable(record, complete),
    };
    let Some(template) = template.cloned() else {
        return Err(match to {
            Some(to) if to == record.revision => {
                Error::conflict(format!("revision {to} is the current one")).at("revision")
            }
            Some(to) => Error::not_found(format!("revision {to} of '{}'", record.name)).at("revision"),
            None => {
                Error::conflict("no other revision of it was ever complete, so there is none to go back to")
                    .hint("name one with revision; GET …/revisions and 'banyan workload revisions' list them")
            }
        });
    };
    if template.base == record.base {
        return Err(Error::conflict(format!(
            "revision {} has the template that is current now; nothing would change",
            template.revision
        ))
        .at("revision"));
    }
    record.rolled_back = failed.clone().map(|why| RolledBack { revision: record.revision, why });
    earlier_push(record, failed);
    let mut spec = WorkloadSpec::clone(&record.spec);
    spec.instance = InstanceSpec::clone(&template.instance);
    record.spec = spec.into();
    revision_next(record, template.image, Some(template.base), by);
    // It was tried before, so it is not tried on a few first.
    record.promoted = record.revision;
    Ok(template.revision)
}

fn revision_next(record: &mut WorkloadRecord, image: Arc<ImageManifest>, base: Option<u64>, by: &By<'_>) {
    record.image = image;
    record.revision += 1;
    record.base = base.unwrap_or(record.revision);
    record.revised_at = by.at;
    record.revised_by = by.who.to_owned();
}

/// Earlier templates that are others than the current one and were not given up, newest first.
fn others(record: &WorkloadRecord) -> impl Iterator<Item = &TemplateRecord> {
    let other = |template: &&TemplateRecord| template.base != record.base && template.failed.is_none();
    record.earlier.iter().rev().filter(other)
}

/// The newest other template of which all instances were once available.
pub fn stable<'a>(record: &'a WorkloadRecord, complete: &[u64]) -> Option<&'a TemplateRecord> {
    others(record).find(|template| complete.contains(&template.base))
}

/// What instances are made from that are not to be of the current template: the stable one, or the newest other
/// while nothing was ever complete.
pub fn before<'a>(record: &'a WorkloadRecord, complete: &[u64]) -> Option<&'a TemplateRecord> {
    stable(record, complete).or_else(|| others(record).next())
}

/// Notes that all instances of the current template are available, and forgets templates that are not known any more.
pub fn complete_note(record: &WorkloadRecord, complete: &mut Vec<u64>) {
    if !complete.contains(&record.base) {
        complete.push(record.base);
        let known = |base: &u64| *base == record.base || record.earlier.iter().any(|t| t.base == *base);
        complete.retain(known);
    }
}

fn earlier_push(record: &mut WorkloadRecord, failed: Option<String>) {
    record.earlier.push(TemplateRecord {
        revision: record.revision,
        base: record.base,
        created_at: record.revised_at,
        created_by: record.revised_by.clone(),
        instance: record.spec.instance.clone().into(),
        image: record.image.clone(),
        failed,
    });
    let size = |all: &[TemplateRecord]| serde_json::to_vec(all).map_or(0, |text| text.len());
    while record.earlier.len() > EARLIER_MAX
        || (record.earlier.len() > 1 && size(&record.earlier) > EARLIER_BYTES_MAX)
    {
        record.earlier.remove(0);
    }
}

/// The first revision that had the template of this one.
pub fn base_of(record: &WorkloadRecord, revision: u64) -> u64 {
    if revision == record.revision {
        return record.base;
    }
    record.earlier.iter().find(|t| t.revision == revision).map_or(revision, |template| template.base)
}

/// The only node that will do, by names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin {
    pub zone: Name,
    pub node: Name,
}

/// What an instance of a template is asked to be.
pub fn instance_spec(name: &Name, template: &InstanceSpec, pin: Option<&Pin>) -> InstanceSpec {
    let mut spec = template.clone();
    spec.labels.insert(LABEL.to_owned(), name.to_string());
    match pin {
        Some(pin) => {
            spec.constraints.zone = Some(pin.zone.to_string());
            spec.constraints.node = Some(pin.node.to_string());
            // There is no other node that it could go to.
            spec.lost = LossPolicy::Wait;
        }
        None if spec.constraints.spread.is_none() => {
            spec.constraints.spread = Some(Spread { group: name.to_string(), by: None, max_skew: None });
        }
        None => {}
    }
    spec
}
