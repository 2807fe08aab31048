//! What a job leaves behind: the cluster in its old or its new shape, and the machines it has. No I/O.

use api::{ClusterStatus, JobStatus};
use model::Timestamp;

use super::absent::degrade;
use super::definition::service_links;
use super::live::{Live, tail};
use super::plan::CHECK;
use super::record::{ClusterRecord, JobRecord, Machine, Mark, NodeRecord, Purpose, Verb};

/// Of a cluster that has machines it should not have.
const LEFT: &str = "machines of it are left";

/// The records as they are when the job is over.
#[derive(Debug)]
pub struct End {
    /// Nothing when the cluster is gone.
    pub cluster: Option<ClusterRecord>,
    pub job: JobRecord,
    pub kept: Vec<NodeRecord>,
    pub gone: Vec<u32>,
}

/// `cluster` is the record as it is now; users may have changed its lease meanwhile.
pub fn end(live: &Live, cluster: &ClusterRecord, now: Timestamp) -> End {
    let mut cluster = ClusterRecord { paused: false, aborted_by: None, ..cluster.clone() };
    let aborted = live.cluster.aborted_by.is_some();
    let mut job = JobRecord { ended_at: Some(now), ..live.job.clone() };
    let is_good = job.failing.is_none();
    job.status = match (is_good, aborted) {
        (true, _) => JobStatus::Complete,
        (false, true) => JobStatus::Aborted,
        (false, false) => JobStatus::Failed,
    };
    let (mut kept, mut gone) = nodes(live, is_good);
    let stray: Vec<u32> =
        kept.iter().filter(|node| !node.joined || node.leaving).map(|node| node.num).collect();
    let failures = undeleted(live);
    match job.purpose {
        Purpose::Delete if kept.is_empty() || (is_good && job.force) => {
            job.message = Some(given_up(live, &kept));
            gone.extend(kept.drain(..).map(|node| node.num));
            return End { cluster: None, job, kept, gone };
        }
        Purpose::Delete => {
            let why = job.failing.clone().or(failures).unwrap_or_else(|| "it was aborted".to_owned());
            job.status = if aborted { JobStatus::Aborted } else { JobStatus::Failed };
            set(&mut cluster, &mut job, ClusterStatus::Incomplete, Some(why));
        }
        Purpose::Create if is_good => {
            cluster.shape = job.target.clone();
            set(&mut cluster, &mut job, ClusterStatus::Active, None);
        }
        Purpose::Create => {
            let why = job.failing.clone().unwrap_or_default();
            let status = if kept.is_empty() { ClusterStatus::Terminated } else { ClusterStatus::Incomplete };
            let left = left(&stray, failures);
            set(&mut cluster, &mut job, status, Some(format!("{why}{left}")));
        }
        Purpose::Change if is_good => {
            become_target(live, &mut cluster, &job);
            let status = if stray.is_empty() { ClusterStatus::Active } else { ClusterStatus::Incomplete };
            let why = failures.filter(|_| !stray.is_empty());
            if why.is_some() {
                job.status = JobStatus::Failed;
            }
            set(&mut cluster, &mut job, status, why);
        }
        Purpose::Change => {
            let (status, why) = taken_back(live, &stray, failures);
            set(&mut cluster, &mut job, status, Some(why));
        }
        // Who only looked has changed nothing.
        Purpose::Operate if is_good && job.action == CHECK => {
            let (was, why) = (job.was, live.cluster.message.clone());
            set(&mut cluster, &mut job, was, why);
            job.message = None;
        }
        Purpose::Operate if is_good => {
            become_target(live, &mut cluster, &job);
            let (status, why) = match stray.is_empty() {
                true => (ClusterStatus::Active, None),
                false => (
                    ClusterStatus::Incomplete,
                    live.cluster.message.clone().or_else(|| Some(LEFT.to_owned())),
                ),
            };
            set(&mut cluster, &mut job, status, why);
        }
        Purpose::Operate => {
            let why = job.failing.clone();
            let status = if job.action == CHECK { job.was } else { ClusterStatus::Inconsistent };
            set(&mut cluster, &mut job, status, why);
        }
    }
    if is_good && job.cost.is_some() {
        cluster.cost = job.cost;
    }
    degrade(&mut cluster, &kept);
    cluster.machines = kept.len() as u32;
    End { cluster: Some(cluster), job, kept, gone }
}

/// Changes that are the last one even where they led to what was there.
const CHANGES: [&str; 3] = ["CLUSTER_CONFIGURE", "CLUSTER_CONFIGURE_WITH_RESTART", "CLUSTER_UPGRADE"];

/// What it was is kept beside what it is now. To start, to stop, to look and to make machines anew is no change.
fn become_target(live: &Live, cluster: &mut ClusterRecord, job: &JobRecord) {
    if cluster.shape == job.target {
        if CHANGES.contains(&job.action.as_str()) {
            cluster.before = Some(job.target.clone());
        }
        return;
    }
    cluster.before = Some(std::mem::replace(&mut cluster.shape, job.target.clone()));
    if let Ok(template) = live.catalogue.template(&cluster.template) {
        cluster.links.clone_from(&template.links);
        cluster.service_links = service_links(&live.catalogue);
    }
}

/// What a change that failed leaves, and how that is said.
fn taken_back(live: &Live, stray: &[u32], failures: Option<String>) -> (ClusterStatus, String) {
    let why = live.job.failing.clone().unwrap_or_default();
    let undo = live.job.undo.unwrap_or(u32::MAX);
    // What is left on a machine that went is no matter of the cluster.
    let stays = |num: &u32| live.rows.get(num).is_some_and(|row| row.before.is_some());
    let is_clean = !live.tasks.range(undo..).any(|(_, row)| row.mark == Mark::Passed && stays(&row.node));
    let (status, then) = match (stray.is_empty(), is_clean) {
        (true, true) => (live.job.was, "; the cluster is as it was".to_owned()),
        (true, false) => (ClusterStatus::Inconsistent, "; not all of it could be taken back".to_owned()),
        (false, _) => (ClusterStatus::Incomplete, left(stray, failures)),
    };
    (status, format!("{why}{then}"))
}

fn set(cluster: &mut ClusterRecord, job: &mut JobRecord, status: ClusterStatus, why: Option<String>) {
    cluster.status = status;
    cluster.message.clone_from(&why);
    job.message = why;
}

/// The nodes after the job, and the numbers of those that are gone.
fn nodes(live: &Live, is_good: bool) -> (Vec<NodeRecord>, Vec<u32>) {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for node in live.nodes.values() {
        match settled(live, node, is_good) {
            Some(node) => kept.push(node),
            None => gone.push(node.num),
        }
    }
    (kept, gone)
}

/// A node as it is after the job, or nothing when it is gone.
fn settled(live: &Live, node: &NodeRecord, is_good: bool) -> Option<NodeRecord> {
    let row = live.rows.get(&node.num);
    let is_new = row.is_some_and(|row| row.before.is_none());
    let goes = row.is_some_and(|row| row.gone);
    let has_machine = node.machine != Machine::None;
    let is_delete = live.job.purpose == Purpose::Delete;
    let mut node = NodeRecord { mending: None, spent: 0, ..node.clone() };
    if is_delete || (goes && is_good) {
        node.leaving = true;
        return has_machine.then_some(node);
    }
    if is_new && !is_good {
        node.leaving = true;
        return has_machine.then_some(node);
    }
    if is_good {
        node.joined = true;
        node.message = None;
        if let Some(row) = row {
            node.services.clone_from(&row.services);
        }
    }
    Some(node)
}

/// What the machines said that could not be deleted.
fn undeleted(live: &Live) -> Option<String> {
    let failed = live.tasks.values().find(|row| row.verb == Verb::Delete && row.mark == Mark::Failed)?;
    let why = failed.message.as_deref().unwrap_or("it failed");
    Some(format!("the machine of node {} could not be deleted: {why}", failed.node))
}

/// Machines that one line names.
const NAMED_MAX: usize = 10;

/// What became of the machines of a cluster that is gone; those that were given up as their provider calls them.
fn given_up(live: &Live, kept: &[NodeRecord]) -> String {
    let one = |node: &NodeRecord| {
        let id = node.result.get("providerid").and_then(serde_json::Value::as_str).unwrap_or(&node.hostname);
        format!("{} of node {}", tail(id, PLACE_SHOWN), node.num)
    };
    let mut named = kept.iter().take(NAMED_MAX).map(one).collect::<Vec<_>>().join(", ");
    if kept.len() > NAMED_MAX {
        named += &format!(" and {} more", kept.len() - NAMED_MAX);
    }
    let was_asked = live.tasks.values().any(|row| row.verb == Verb::Delete);
    let nobody = || "no provisioner was there that could have asked for their end".to_owned();
    match (named.is_empty(), undeleted(live).or_else(|| (!was_asked).then(nobody))) {
        (true, _) => "all machines are deleted".to_owned(),
        (false, why) => {
            let why = why.map(|why| format!("; {why}")).unwrap_or_default();
            format!("given up, and maybe still there: {named}{why}")
        }
    }
}

/// Bytes of the name of a machine that a line shows.
const PLACE_SHOWN: usize = 100;

fn left(stray: &[u32], failures: Option<String>) -> String {
    match (stray.is_empty(), failures) {
        (true, _) => String::new(),
        (false, Some(why)) => format!("; {why}"),
        (false, None) => format!("; {LEFT}"),
    }
}
