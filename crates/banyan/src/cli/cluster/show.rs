//! `banyan cluster list|get|watch|jobs`.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{Cluster, ClusterNode, ClusterStatus, JobSummary, JobTask, ListQuery, NodeStatus, TaskStatus};
use clap::Args;
use serde::Serialize;

use super::find;
use crate::failure::{Failure, Result};
use crate::output::table::{Column, render, terminal_width};
use crate::output::text::{age_now, clock, now, pair, pair_some};
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};
use crate::wait::cluster::{failed, state};

const WATCH_EVERY: Duration = Duration::from_millis(500);
/// Links that the page of a cluster shows.
const LINKS_SHOWN: usize = 50;
/// Machines that the page of a cluster shows.
const NODES_SHOWN: usize = 100;

#[derive(Args)]
pub struct ListArguments {
    /// Only those with this name; `*` stands for anything.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only those in this status, such as active or pending.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those of this template.
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Show at most so many.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

const COLUMNS: [Column<Cluster>; 9] = [
    Column::new("NAME", |c| c.name.to_string()),
    Column::new("STATUS", |c| c.status.as_str().to_owned()),
    Column::new("TEMPLATE", |c| c.template.clone()),
    Column::new("MACHINES", |c| format!("{}/{}", c.nodes, c.size)),
    Column::new("JOB", |c| c.job.as_ref().map(job_state).unwrap_or_default()),
    Column::new("AGE", |c| age_now(c.created_at)),
    Column::wide("PROVIDER", |c| c.provider.clone()),
    Column::wide("SERVICES", |c| c.services.join(",")),
    Column::wide("ID", |c| c.id.to_string()),
];

const NODE_COLUMNS: [Column<ClusterNode>; 7] = [
    Column::new("NODE", |n| n.num.to_string()),
    Column::new("HOSTNAME", |n| n.hostname.clone()),
    Column::new("STATUS", |n| node_status(n.status).to_owned()),
    Column::new("ADDRESS", |n| address(n).unwrap_or_default().to_owned()),
    Column::new("HARDWARE", |n| format!("{} {}", n.hardwaretype, n.imagetype)),
    Column::new("SERVICES", services),
    Column::new("MESSAGE", |n| n.message.clone().unwrap_or_default()),
];

const JOB_COLUMNS: [Column<JobSummary>; 6] = [
    Column::new("JOB", |j| j.id.clone()),
    Column::new("ACTION", |j| j.action.clone()),
    Column::new("STATUS", job_state),
    Column::new("BY", |j| j.created_by.clone()),
    Column::new("AGE", |j| age_now(j.created_at)),
    Column::new("MESSAGE", |j| j.message.clone().unwrap_or_default()),
];

const fn node_status(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Pending => "pending",
        NodeStatus::Confirmed => "confirmed",
        NodeStatus::Failed => "failed",
        NodeStatus::Missing => "missing",
        NodeStatus::Leaving => "leaving",
    }
}

/// The services of a machine, with what is known of them.
fn services(node: &ClusterNode) -> String {
    let one = |name: &String| match node.stopped.contains(name) {
        true => format!("{name} (stopped)"),
        false => name.clone(),
    };
    node.services.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Where a machine is reached.
pub fn address(node: &ClusterNode) -> Option<&str> {
    node.addresses.get("access_v4").or_else(|| node.addresses.values().next()).map(String::as_str)
}

pub fn machines(count: u32) -> String {
    if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") }
}

/// How far a job is.
pub fn job_state(job: &JobSummary) -> String {
    match job.status.is_over() {
        true => job.status.as_str().to_owned(),
        false => format!("{} {}/{}", job.status.as_str(), job.steps_completed, job.steps_total),
    }
}

pub async fn list(session: &Session, args: ListArguments) -> Result<()> {
    let filters = [("name", args.name), ("status", args.status), ("template", args.template)];
    let given = filters.into_iter().filter_map(|(field, value)| Some((field, value?)));
    let query = given.fold(ListQuery::new(), |query, (field, value)| query.with(field, value));
    let fetch = |query: ListQuery| async move { session.client.cluster_list(&query).await };
    let clusters = all(query, args.limit, fetch).await?;
    if clusters.is_empty() && matches!(session.format, Format::Table | Format::Wide) {
        note("No clusters. Make one with: banyan cluster create NAME --template TEMPLATE --size 3");
        return Ok(());
    }
    output::list(session.format, &clusters, &COLUMNS)
}

/// The page of a cluster, with its machines for people.
pub async fn get(session: &Session, name: &str) -> Result<()> {
    let cluster = find(session, name).await?;
    let machines = session.client.cluster_nodes(cluster.name.as_str()).await?;
    let whole = Whole { cluster, machines };
    output::item(session.format, &whole, whole.cluster.name.as_str(), describe)?;
    if !matches!(session.format, Format::Table | Format::Wide) {
        return Ok(());
    }
    let mut nodes = whole.machines;
    let total = nodes.len();
    nodes.truncate(NODES_SHOWN);
    if total > 0 {
        data(&format!("\n{}", render(&nodes, &NODE_COLUMNS, false, terminal_width())))?;
    }
    if total > nodes.len() {
        note(format!("{} of {total} machines are shown", nodes.len()));
    }
    Ok(())
}

/// A cluster with its machines.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    cluster: Cluster,
    machines: Vec<ClusterNode>,
}

fn describe(whole: &Whole, wide: bool) -> Vec<(String, String)> {
    let Whole { cluster, machines } = whole;
    let own = cluster.links.iter().map(|link| format!("{} {}", link.label, link.url));
    let of_node = |node: &ClusterNode| {
        let num = node.num;
        let shown = node.links.iter().map(move |link| format!("{} {} ({num})", link.label, link.url));
        shown.collect::<Vec<_>>()
    };
    let links = own.chain(machines.iter().flat_map(of_node)).take(LINKS_SHOWN);
    // One that could not be made costs nothing, and is not deleted by its lease.
    let stands = cluster.status != ClusterStatus::Terminated;
    let mut page = vec![
        pair("name", &cluster.name),
        pair("id", &cluster.id),
        pair("description", &cluster.description),
        pair("status", state(cluster)),
        pair("template", &cluster.template),
        pair("provider", &cluster.provider),
        pair("machines", format!("{} of {}", cluster.nodes, cluster.size)),
        pair("services", cluster.services.join(", ")),
        pair("links", links.collect::<Vec<_>>().join("\n")),
        pair_some("cost", cluster.cost.filter(|_| stands).map(|cost| format!("{cost} an hour"))),
        pair_some("lease ends", cluster.expires_at.filter(|_| stands)),
        pair("created", format!("{} ago by {}", age_now(cluster.created_at), cluster.created_by)),
    ];
    if wide {
        page.push(pair("tenant", &cluster.tenant));
        page.push(pair("version", cluster.version));
        page.push(pair("key", &cluster.public_key));
        page.push(pair("config", output::yaml(&cluster.config)));
    }
    page
}

pub async fn jobs(session: &Session, name: &str) -> Result<()> {
    let cluster = find(session, name).await?;
    output::list(session.format, &session.client.cluster_jobs(cluster.name.as_str()).await?, &JOB_COLUMNS)
}

/// Says what happens to each task, until the job is over.
pub async fn watch(session: &Session, name: &str) -> Result<()> {
    let cluster = find(session, name).await?;
    let name = cluster.name.to_string();
    let Some(first) = cluster.job else {
        note(format!("cluster {name}: there is no job to follow"));
        return Ok(());
    };
    let mut seen: BTreeMap<String, (TaskStatus, u32, bool)> = BTreeMap::new();
    loop {
        let job = match session.client.cluster_job(&name, &first.id).await {
            Ok(job) => job,
            Err(error) if error.kind == model::ErrorKind::NotFound => {
                note(format!("cluster {name}: gone"));
                return Ok(());
            }
            Err(error) if error.kind == model::ErrorKind::Unavailable => {
                note(format!("{}; trying again", error.message));
                tokio::time::sleep(WATCH_EVERY).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for task in job.stages.iter().flatten() {
            // What is said of one under way is new; how it is said may change all the time.
            let is = (task.status, task.failures, task.message.is_some());
            let was = seen.insert(task.id.clone(), is).unwrap_or_default();
            if was != is {
                line(session, task)?;
            }
        }
        if job.summary.status.is_over() {
            let text = format!("{} {}", job.summary.action, job_state(&job.summary));
            note(format!("cluster {name}: {text}"));
            return match job.summary.status {
                api::JobStatus::Complete => Ok(()),
                _ => Err(Failure::new(failed(&name, &job.summary))),
            };
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

fn line(session: &Session, task: &JobTask) -> Result<()> {
    if !matches!(session.format, Format::Table | Format::Wide) {
        let line = serde_json::to_string(task).map_err(|error| Failure::new(error.to_string()))?;
        return data(&format!("{line}\n"));
    }
    let message = task.message.as_deref().unwrap_or_default();
    let (name, service, status) = (&task.name, &task.service, task.status.as_str());
    // What is under way is seen now; of all else it is known when it came about.
    let is_now = matches!(task.status, TaskStatus::InProgress | TaskStatus::NotSubmitted);
    let at = task.changed_at.filter(|_| !is_now).unwrap_or_else(now);
    let text = format!("{}  {}  {name} {service}  {status}  {message}", clock(at), task.node);
    data(&format!("{}\n", text.replace(char::is_control, " ").trim_end()))
}
