//! What may be asked of a cluster: its nodes, their logs, its jobs, its key, and what it would be like.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{
    ClusterJob, ClusterKey, ClusterNode, ClusterPreview, ClusterSolve, JobSummary, JobTask, LayoutGroup,
    NodeAction, Provisioner, TaskStatus, Unsolvable,
};
use model::{ClusterId, Error, ErrorKind, Result, shown};
use store::Txn;
use template::Catalogue;
use work::queue::Stage;

use super::order::{nodes_of, planned};
use super::possible::possible;
use super::{SOLVE_MAX, create, find, journal, view};
use crate::cloud::{Caller, Cloud};
use crate::cluster::plan::{self, Planned, Wish};
use crate::cluster::record::{ClusterRecord, Mark, PlanTask, TaskRecord, Verb, node_id, shown_id};
use crate::cluster::{key_context, load};
use crate::history::{self, Line};
use crate::tables::{RemovedRecord, decode, encode, kind};

pub async fn nodes(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Vec<ClusterNode>> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let catalogue = load::definition(cloud, &row.id, row.shape.definition).await?.catalogue()?;
    let known = view::known(&snapshot, row);
    let nodes = snapshot.cluster_nodes.get(&row.id).into_iter().flatten();
    let user = |image: &str| ssh_user(&catalogue, image, &row.provider);
    Ok(nodes.map(|(_, node)| view::node(&snapshot, row, node, &known, &user(&node.imagetype))).collect())
}

fn ssh_user(catalogue: &Catalogue, image: &str, provider: &str) -> String {
    catalogue.imagetypes.get(image).map_or_else(|| "root".to_owned(), |kind| kind.ssh_user(provider))
}

/// What was done to a node, oldest first.
pub async fn log(cloud: &Cloud, caller: &Caller, name: &str, num: &str) -> Result<Vec<NodeAction>> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let missing = || Error::not_found(format!("node '{}' of the cluster '{}'", shown(num), row.name));
    let num: u32 = num.parse().map_err(|_| missing())?;
    let under = format!("{}/", node_id(&row.id, num));
    let rows = cloud.state.store().list_under(kind::CLUSTER_TASK, &under).await?;
    // A machine that is gone has left what was done to it.
    let is_there = snapshot.cluster_nodes.get(&row.id).is_some_and(|nodes| nodes.contains_key(&num));
    if rows.is_empty() && !is_there {
        return Err(missing());
    }
    let mut actions = Vec::new();
    for kept in rows {
        let task: TaskRecord = decode(&kept.body)?;
        let job = snapshot.cluster_job(&row.id, task.job);
        let is_over = job.is_none_or(|job| job.status.is_over());
        actions.extend(attempts(&row.id, task, is_over));
    }
    actions.sort_by_key(|action| action.began_at.unwrap_or(action.changed_at));
    Ok(actions)
}

/// Each attempt at a task, the last one with what became of the task.
fn attempts(cluster: &ClusterId, task: TaskRecord, is_over: bool) -> Vec<NodeAction> {
    let id = task.shown_id(cluster);
    let last = NodeAction {
        id: id.clone(),
        action: task.verb.word().to_owned(),
        service: task.service.clone(),
        status: if is_over && task.mark == Mark::Again { TaskStatus::Dropped } else { status(task.mark) },
        failures: task.failures,
        began_at: task.began_at,
        changed_at: task.changed_at,
        message: task.message,
        stdout: task.stdout,
        stderr: task.stderr,
    };
    let earlier = task.earlier.into_iter().map(|attempt| NodeAction {
        id: id.clone(),
        action: attempt.verb.word().to_owned(),
        service: task.service.clone(),
        status: if attempt.failed { TaskStatus::Failed } else { TaskStatus::Complete },
        failures: 0,
        began_at: attempt.began_at,
        changed_at: attempt.ended_at,
        message: attempt.message,
        stdout: attempt.stdout,
        stderr: attempt.stderr,
    });
    earlier.chain([last]).collect()
}

const fn status(mark: Mark) -> TaskStatus {
    match mark {
        Mark::Again => TaskStatus::InProgress,
        Mark::Done => TaskStatus::Complete,
        Mark::Passed | Mark::Failed => TaskStatus::Failed,
    }
}

/// Newest first.
pub fn jobs(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Vec<JobSummary>> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let jobs = snapshot.cluster_jobs.get(&row.id).into_iter().flatten();
    let mut all: Vec<JobSummary> = jobs.map(|(_, job)| view::job_summary(row, job)).collect();
    all.reverse();
    Ok(all)
}

pub async fn job(cloud: &Cloud, caller: &Caller, name: &str, id: &str) -> Result<ClusterJob> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let number = id.rsplit('-').next().and_then(|number| number.parse().ok());
    let job = number
        .and_then(|number| snapshot.cluster_job(&row.id, number))
        .filter(|job| id == job.id() || id.parse() == Ok(job.number));
    let job =
        job.ok_or_else(|| Error::not_found(format!("job '{}' of the cluster '{}'", shown(id), row.name)))?;
    let plan = load::plan(cloud, job).await?;
    let tasks = load::tasks(cloud, &row.id, job.number).await?;
    let held = cloud.clusters.with(|desk| {
        let (graph, live) = (desk.queue.graph(&job.id())?, desk.lives.get(&job.id())?);
        let is_held = |at: &u32| graph.stage(*at) == Some(Stage::Held);
        let held: Vec<u32> = (0..graph.len() as u32).filter(is_held).collect();
        // A machine that is made anew is deleted first, by the same task.
        let mending = |at: &u32| {
            Some((*at, live.verb(*at).filter(|verb| Some(*verb) != live.plan[*at as usize].verb)?))
        };
        let mending: BTreeMap<u32, Verb> =
            (0..live.plan.len() as u32).filter_map(|at| mending(&at)).collect();
        Some((held, mending))
    });
    let (held, mending) = held.flatten().unwrap_or_default();
    let is_over = job.status.is_over();
    let nodes = snapshot.cluster_nodes.get(&row.id);
    let shown = |at: &u32| {
        let task = &plan.tasks[*at as usize];
        let mut shown = task_view(&job.id(), *at, task, tasks.get(at), &held, is_over);
        if let Some(verb) =
            mending.get(at).filter(|_| tasks.get(at).is_none_or(|row| row.mark == Mark::Again))
        {
            shown.name = verb.word().to_owned();
        }
        if task.verb == Some(Verb::Confirm) && shown.status == TaskStatus::InProgress {
            let waits =
                nodes.and_then(|nodes| view::placeless(&snapshot, &row.tenant, nodes.get(&task.node)?));
            shown.message = waits.or(shown.message);
        }
        shown
    };
    let stages = plan::stages(&plan.tasks).iter().map(|stage| stage.iter().map(shown).collect()).collect();
    Ok(ClusterJob { summary: view::job_summary(row, job), stages })
}

fn task_view(
    job: &str,
    at: u32,
    task: &PlanTask,
    row: Option<&TaskRecord>,
    held: &[u32],
    is_over: bool,
) -> JobTask {
    let status = match row.map(|row| row.mark) {
        Some(Mark::Again) if is_over => TaskStatus::Dropped,
        None if is_over => TaskStatus::Dropped,
        _ if held.binary_search(&at).is_ok() => TaskStatus::InProgress,
        Some(mark) => status(mark),
        None => TaskStatus::NotSubmitted,
    };
    JobTask {
        id: shown_id(job, at),
        name: task.verb.map_or("", |verb| verb.word()).to_owned(),
        node: task.node,
        service: task.service.clone(),
        status,
        failures: row.map_or(0, |row| row.failures),
        changed_at: row.map(|row| row.changed_at),
        message: row.and_then(|row| row.message.clone()),
    }
}

/// The key that the machines let in. That it was asked for is in the history.
pub async fn key(cloud: &Cloud, caller: &Caller, name: &str) -> Result<ClusterKey> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    let private = cloud.master.unseal(&key_context(&row.id), &row.private_key)?;
    let txn =
        journal(Txn::new(), cloud.now(), &caller.actor(), row, "key", "its key was given out".to_owned());
    cloud.state.commit(txn).await?;
    let private_key = String::from_utf8_lossy(&private).into_owned();
    Ok(ClusterKey { public_key: row.public_key.clone(), private_key })
}

/// What a cluster would be like; nothing is changed.
pub async fn solve(cloud: &Cloud, caller: &Caller, body: ClusterSolve) -> Result<ClusterPreview> {
    if body.rollback && (body.size.is_some() || !body.add.is_empty() || !body.remove.is_empty()) {
        return Err(Error::invalid("a rollback takes no size and no services").at("rollback"));
    }
    let planned = match (&body.ask, &body.cluster) {
        (Some(_), Some(_)) | (None, None) => {
            let why = "say what a new cluster should be like in 'ask', or name one that stands in 'cluster'";
            return Err(Error::invalid(why).at("ask"));
        }
        (Some(ask), None) => create::preview(cloud, caller, ask).await,
        (None, Some(name)) => {
            let snapshot = cloud.state.snapshot();
            let row = find(&snapshot, caller, name)?;
            let (wish, number) = changed(row, &body);
            let definition = load::definition(cloud, &row.id, number).await?;
            let (nodes, known) = (nodes_of(&snapshot, &row.id), definition.clone());
            let planned = planned(Arc::clone(&row.value), known, nodes, wish, SOLVE_MAX).await;
            planned.and_then(|planned| {
                possible(&snapshot, &row.tenant, &row.provider, &definition, &planned)?;
                Ok(planned)
            })
        }
    };
    match planned {
        Ok(planned) => Ok(preview(planned)),
        Err(error) if error.kind == ErrorKind::Invalid && error.field.is_none() => {
            let conflicts = error.more.into_iter().map(|fault| fault.message).collect();
            let unsolvable = Some(Unsolvable { reason: error.message, conflicts });
            Ok(ClusterPreview { unsolvable, ..ClusterPreview::default() })
        }
        Err(error) => Err(error),
    }
}

/// What a cluster that stands is to become, and the number of the definitions that it is made from then.
fn changed(row: &ClusterRecord, body: &ClusterSolve) -> (Wish, u32) {
    if body.rollback {
        return (Wish::Rollback, row.back().map_or(row.shape.definition, |back| back.definition));
    }
    let mut services = row.shape.services.clone();
    services.retain(|service| !body.remove.contains(service));
    services.extend(body.add.iter().filter(|new| !row.shape.services.contains(new)).cloned());
    let size = body.size.unwrap_or_else(|| row.shape.layout.size());
    (Wish::Become { size, services, anew: true }, row.shape.definition)
}

fn preview(planned: Planned) -> ClusterPreview {
    let group = |group: &template::Group| LayoutGroup {
        count: group.count,
        services: group.services.clone(),
        hardwaretype: group.hardwaretype.clone(),
        imagetype: group.imagetype.clone(),
    };
    let (made, deleted) = plan::moves(&planned.plan);
    ClusterPreview {
        made,
        deleted,
        layout: planned.target.layout.0.iter().map(group).collect(),
        action: Some(planned.action.to_owned()),
        tasks: plan::counts(&planned.plan),
        stages: plan::outline(&planned.plan),
        levels: planned.levels,
        cost: planned.cost,
        anew: planned.anew,
        unsolvable: None,
    }
}

/// Removes a provisioner for good; what it does is given to others.
pub async fn provisioner_remove(cloud: &Cloud, caller: &Caller, name: &str) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = snapshot
        .provisioner_find(name)
        .ok_or_else(|| Error::not_found(format!("provisioner '{}'", shown(name))))?;
    let removed = RemovedRecord { name: row.name.clone(), removed_at: cloud.now(), by: caller.actor().who };
    let txn = Txn::new().delete(kind::PROVISIONER, &row.id, Some(row.version)).insert(
        kind::REMOVED,
        &row.id,
        None,
        None,
        encode(&removed),
    );
    let line = Line {
        tenant: None,
        what: "provisioner.remove",
        kind: kind::PROVISIONER,
        id: row.id.as_str(),
        name: row.name.as_str(),
        message: "its certificate is never let in again".to_owned(),
    };
    cloud.state.commit(history::journal(txn, cloud.now(), &caller.actor(), line)).await.map(drop)
}

/// Whoever carries out tasks, by name. Only the server that gives tasks out knows who is there.
pub fn provisioners(cloud: &Cloud) -> Vec<Provisioner> {
    let snapshot = cloud.state.snapshot();
    let tenant = |id: &model::TenantId| {
        snapshot.tenants.get(id).map_or_else(|| id.to_string(), |tenant| tenant.name.to_string())
    };
    let mut all: Vec<Provisioner> = Vec::new();
    for row in snapshot.provisioners.values() {
        let id = row.id.as_str();
        let hand = cloud.clusters.with(|desk| {
            let workers: BTreeMap<String, u32> =
                desk.workers(id).iter().map(|(of, count)| (tenant(of), *count)).collect();
            (desk.hands.get(id).cloned(), desk.queue.held_all(id) as u32, workers)
        });
        let (hand, tasks, workers) = hand.unwrap_or_default();
        all.push(Provisioner {
            id: row.id.clone(),
            name: row.name.clone(),
            live: hand.is_some(),
            last_heard: hand.as_ref().map(|hand| hand.heard_at),
            enrolled_at: row.enrolled_at,
            capacity: hand.as_ref().map_or(0, |hand| hand.capacity),
            tasks,
            workers,
        });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
