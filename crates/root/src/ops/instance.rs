//! Instances: asked for, changed, listed. What becomes of them is the tree's work.

use std::ops::Bound;
use std::time::Duration;

use api::{Instance, InstanceCreate, InstanceWhy, Page};
use imbl::OrdMap;
use model::{Error, InstanceId, Name, Phase, Result, Run, shown};
use store::{CommitError, Txn};

use super::once::{Once, once};
use super::page::{Query, glob, labels_match};
use super::{DECISIONS_MAX, quota, raced, version_check, view};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Entry, Row, Snapshot, Versioned, commit_error};
use crate::tables::{ImageRecord, InstanceRecord, encode, kind};

/// Longest wait for another's commit before a decision is taken again.
const RACE_PAUSE: Duration = Duration::from_millis(50);

/// The filters of [`list`].
pub const FILTERS: &[&str] = &["phase", "name", "label", "zone", "node", "image", "run", "workload"];

/// One transaction: the record and its line of history. The answer says `pending`.
pub async fn create(
    cloud: &Cloud,
    caller: &Caller,
    body: InstanceCreate,
    key: Option<&Once>,
) -> Result<Instance> {
    body.spec.validate().map_err(|error| error.at("spec"))?;
    once(cloud, key, async || create_now(cloud, caller, &body, key).await).await
}

async fn create_now(
    cloud: &Cloud,
    caller: &Caller,
    body: &InstanceCreate,
    key: Option<&Once>,
) -> Result<Instance> {
    let id = InstanceId::from_random(rand::random());
    for _ in 0..DECISIONS_MAX {
        let (reservation, snapshot) = quota::reserve(cloud, &caller.tenant, &id, &body.spec).await?;
        let (txn, mut answer) = create_plan(cloud, caller, &snapshot, &id, body, key)?;
        let state = cloud.state.clone();
        // A caller that hangs up must not take the reservation with it while the commit is on its way.
        let commit = tokio::spawn(async move {
            let done = state.try_commit(txn).await;
            drop(reservation);
            done
        });
        match commit.await.map_err(|error| Error::internal("the commit ended early").because(error))? {
            Ok(committed) => {
                answer.version = committed.versions[0];
                cloud.tree.wake();
                return Ok(answer);
            }
            Err(error) if raced(&error) || gate_taken(&error) => race_wait(cloud).await,
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(busy())
}

fn create_plan(
    cloud: &Cloud,
    caller: &Caller,
    snapshot: &Snapshot,
    id: &InstanceId,
    body: &InstanceCreate,
    key: Option<&Once>,
) -> Result<(Txn, Instance)> {
    let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
    let image = image_find(snapshot, caller, &body.spec.image)?;
    let record = InstanceRecord {
        id: id.clone(),
        tenant: caller.tenant.clone(),
        name: body.name.clone(),
        spec: body.spec.clone().into(),
        image: image.manifest.clone().into(),
        owner: None,
        run: Run::Running,
        restart_count: 0,
        created_at: cloud.now(),
        created_by: caller.principal.user_name.to_string(),
    };
    let encoded = encode(&record);
    let entry = Entry { instance: Versioned { version: 0, value: record.into() }, status: None };
    let answer = view::instance(snapshot, &entry);
    let tenant_id = Some(caller.tenant.as_str());
    let mut txn = Txn::new().insert(kind::INSTANCE, id, tenant_id, Some(body.name.as_str()), encoded);
    if let Some(key) = key {
        txn = key.record(txn, cloud, caller, &answer);
    }
    // The quota and the tenant itself must still be as they were seen.
    txn = txn.check(kind::TENANT, &caller.tenant, Some(tenant.version));
    txn = quota::gate_pass(cloud, snapshot, &caller.tenant, txn);
    txn = journal(txn, cloud, caller, &entry.instance, "create", format!("from image {}", body.spec.image));
    Ok((txn, answer))
}

fn image_find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<ImageRecord>> {
    snapshot.image_usable(&caller.tenant, name).ok_or_else(|| {
        Error::invalid(format!("there is no image '{}'", shown(name))).at("spec.image").hint(
            "'banyan image list' shows those there are; 'banyan image import' and 'image pull' bring more",
        )
    })
}

fn gate_taken(error: &CommitError) -> bool {
    matches!(error, CommitError::AlreadyExists { kind, .. } if kind == kind::GATE)
}

pub(super) fn busy() -> Error {
    Error::unavailable("others change the same thing all the time").hint("try again")
}

pub(super) async fn race_wait(cloud: &Cloud) {
    let mut changed = cloud.state.changed();
    let _ = tokio::time::timeout(RACE_PAUSE, changed.changed()).await;
}

fn journal(
    txn: Txn,
    cloud: &Cloud,
    caller: &Caller,
    record: &InstanceRecord,
    verb: &str,
    message: String,
) -> Txn {
    let line = Line {
        tenant: Some(&record.tenant),
        what: &format!("instance.{verb}"),
        kind: kind::INSTANCE,
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

/// The instance of the caller's tenant; another tenant's is not found.
pub fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Entry> {
    snapshot
        .entry(&caller.tenant, name)
        .ok_or_else(|| Error::not_found(format!("instance '{}'", shown(name))))
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Instance> {
    let snapshot = cloud.state.snapshot();
    Ok(view::instance(&snapshot, find(&snapshot, caller, name)?))
}

/// One of a workload is not stopped by hand: the workload would put another in its place.
pub async fn stop(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Instance> {
    let snapshot = cloud.state.snapshot();
    if let Some(workload) = view::instance(&snapshot, find(&snapshot, caller, name)?).workload {
        return Err(Error::conflict(format!(
            "the instance '{name}' belongs to the workload '{workload}', which would replace it"
        ))
        .hint(format!(
            "'banyan workload scale {workload} 0' stops all of it; deleting the instance replaces it"
        )));
    }
    change(cloud, caller, name, seen, "stop", |record| record.run = Run::Stopped).await
}

pub async fn start(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Instance> {
    change(cloud, caller, name, seen, "start", |record| record.run = Run::Running).await
}

/// Also starts a stopped one.
pub async fn restart(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Instance> {
    let again = |record: &mut InstanceRecord| {
        record.run = Run::Running;
        record.restart_count += 1;
    };
    change(cloud, caller, name, seen, "restart", again).await
}

/// Asks for the end; the record goes once the instance is gone everywhere. A workload replaces its own.
pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<Instance> {
    change(cloud, caller, name, seen, "delete", |record| record.run = Run::Gone).await
}

/// One change of what is asked for. A change that changes nothing commits nothing.
async fn change(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    seen: Option<i64>,
    verb: &str,
    edit: impl Fn(&mut InstanceRecord),
) -> Result<Instance> {
    for _ in 0..DECISIONS_MAX {
        let snapshot = cloud.state.snapshot();
        let entry = find(&snapshot, caller, name)?;
        version_check(seen, entry.instance.version, "instance")?;
        let old = &entry.instance;
        let mut new = InstanceRecord::clone(old);
        edit(&mut new);
        if old.run == Run::Gone && new.run != Run::Gone {
            return Err(Error::conflict(format!("the instance '{}' is being deleted", old.name)));
        }
        if new == ***old {
            return Ok(view::instance(&snapshot, entry));
        }
        let mut txn = Txn::new().update(kind::INSTANCE, &old.id, old.version, encode(&new));
        let mut reserved = None;
        if entry.rests() && new.run == Run::Running {
            reserved = Some(quota::reserve_start(cloud, entry).await?);
            txn = quota::gate_pass(cloud, &snapshot, &old.tenant, txn);
        }
        let txn = journal(txn, cloud, caller, &new, verb, format!("{verb} asked for"));
        let done = cloud.state.try_commit(txn).await;
        drop(reserved);
        match done {
            Ok(committed) => {
                let instance = Versioned { version: committed.versions[0], value: new.into() };
                cloud.tree.wake();
                return Ok(view::instance(&snapshot, &Entry { instance, status: entry.status.clone() }));
            }
            Err(error) if (raced(&error) && seen.is_none()) || gate_taken(&error) => race_wait(cloud).await,
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(busy())
}

/// What an instance must be like to be listed.
struct Filter<'a> {
    phase: Option<Phase>,
    run: Option<Run>,
    name: Option<&'a str>,
    labels: Vec<(&'a str, Option<&'a str>)>,
    /// `Some(None)`: a zone that does not exist, which nothing is in.
    zone: Option<Option<model::ZoneId>>,
    node: Option<&'a str>,
    image: Option<&'a str>,
    /// `Some(None)`: a workload that does not exist.
    workload: Option<Option<model::WorkloadId>>,
}

impl<'a> Filter<'a> {
    fn new(snapshot: &Snapshot, caller: &Caller, query: &'a Query) -> Result<Self> {
        let workload = |name: &str| snapshot.workload(&caller.tenant, name).map(|found| found.id.clone());
        Ok(Self {
            phase: query.parsed("phase")?,
            run: query.parsed("run")?,
            name: query.get("name"),
            labels: query.labels(),
            zone: query.get("zone").map(|zone| snapshot.zone_find(zone).map(|zone| zone.id.clone())),
            node: query.get("node"),
            image: query.get("image"),
            workload: query.get("workload").map(workload),
        })
    }

    fn fits(&self, entry: &Entry) -> bool {
        let spec = &entry.instance.spec;
        let status = entry.status.as_ref();
        let node = || status.and_then(|s| s.observed.as_ref()).and_then(|o| o.node.as_ref());
        self.phase.is_none_or(|phase| entry.phase() == phase)
            && self.run.is_none_or(|run| entry.instance.run == run)
            && self.image.is_none_or(|image| spec.image == image)
            && self.workload.as_ref().is_none_or(|workload| {
                workload.is_some() && entry.instance.owner.as_ref().map(|o| &o.workload) == workload.as_ref()
            })
            && labels_match(&spec.labels, &self.labels)
            && self
                .zone
                .as_ref()
                .is_none_or(|zone| zone.is_some() && status.and_then(|s| s.zone.as_ref()) == zone.as_ref())
            && self.node.is_none_or(|wanted| node().is_some_and(|node| node.as_str() == wanted))
    }
}

/// By name, within the tenant; for operators who ask so, tenant by tenant.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Instance>> {
    let snapshot = cloud.state.snapshot();
    let filter = Filter::new(&snapshot, caller, query)?;
    let mut found: Vec<&Entry> = Vec::new();
    if caller.all_tenants {
        let (from, after) = match query.after.as_deref().map(|cursor| cursor.split_once('/')) {
            Some(Some((tenant, name))) => (Some(tenant.parse().map_err(bad_cursor)?), Some(cursor(name)?)),
            Some(None) => return Err(bad_cursor(Error::invalid("no tenant in it"))),
            None => (None, None),
        };
        let start = from.clone().map_or(Bound::Unbounded, Bound::Included);
        for (tenant, _) in snapshot.tenants.range((start, Bound::Unbounded)) {
            let after = after.as_ref().filter(|_| from.as_ref() == Some(tenant));
            collect(snapshot.entries.get(tenant), after, &filter, query.limit, &mut found);
        }
    } else {
        let after = query.after.as_deref().map(cursor).transpose()?;
        collect(snapshot.entries.get(&caller.tenant), after.as_ref(), &filter, query.limit, &mut found);
    }
    let next = (found.len() > query.limit).then(|| {
        found.truncate(query.limit);
        let last = &found[query.limit - 1].instance;
        if caller.all_tenants { format!("{}/{}", last.tenant, last.name) } else { last.name.to_string() }
    });
    let items = found.into_iter().map(|entry| view::instance(&snapshot, entry)).collect();
    Ok(Page { items, next, seq: snapshot.seq })
}

/// One more than the limit, so that a next page is known to exist. Names are sorted, so only those
/// that begin as the pattern does are walked, and only those that fit it are looked into.
fn collect<'a>(
    entries: Option<&'a OrdMap<Name, Entry>>,
    after: Option<&Name>,
    filter: &Filter<'_>,
    limit: usize,
    found: &mut Vec<&'a Entry>,
) {
    let Some(entries) = entries else { return };
    let head = filter.name.and_then(|pattern| pattern.split('*').next()).unwrap_or_default();
    let start = match (after, head.parse::<Name>().ok()) {
        (Some(after), Some(head)) if head > *after => Bound::Included(head),
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(head)) => Bound::Included(head),
        (None, None) => Bound::Unbounded,
    };
    let fitting = entries
        .range((start, Bound::Unbounded))
        .take_while(|(name, _)| head.is_empty() || name.as_str() < head || name.as_str().starts_with(head))
        .filter(|(name, _)| filter.name.is_none_or(|pattern| glob(pattern, name.as_str())))
        .map(|(_, entry)| entry)
        .filter(|entry| filter.fits(entry));
    found.extend(fitting.take(limit + 1 - found.len().min(limit + 1)));
}

fn cursor(text: &str) -> Result<Name> {
    text.parse().map_err(bad_cursor)
}

fn bad_cursor(error: Error) -> Error {
    Error::invalid("after is not a cursor of this list; give the 'next' of the page before")
        .at("after")
        .because(error)
}

pub fn why(cloud: &Cloud, caller: &Caller, name: &str) -> Result<InstanceWhy> {
    let snapshot = cloud.state.snapshot();
    Ok(why_of(find(&snapshot, caller, name)?))
}

/// Where an instance is, and every place that was looked at.
pub(super) fn why_of(entry: &Entry) -> InstanceWhy {
    let status = entry.status.as_ref();
    InstanceWhy {
        name: entry.instance.name.clone(),
        phase: entry.phase(),
        message: view::instance_message(entry).or_else(|| unweighed(entry)),
        root: status.and_then(|status| status.explanation.as_deref().cloned()),
        zone: status
            .and_then(|s| s.observed.as_ref())
            .and_then(|observed| observed.explanation.as_deref().cloned()),
    }
}

/// What root could not weigh when it chose among zones, of which it knows no nodes. Whoever makes the instances of a
/// workload puts a wish for the zone beside the one for the node.
fn unweighed(entry: &Entry) -> Option<String> {
    let place = &entry.instance.spec.constraints;
    let node = place.prefer.iter().find_map(|wish| wish.node.as_deref())?;
    let zoned = place.zone.is_some() || place.prefer.iter().any(|wish| wish.zone.is_some());
    let choice = entry.status.as_ref()?.explanation.as_ref()?.verdicts.len() > 1;
    (choice && !zoned).then(|| {
        format!(
            "the wish for the node '{}' counts only among the nodes of the zone that root chose; say with \
             --prefer zone=NAME which zone that should be",
            shown(node)
        )
    })
}
