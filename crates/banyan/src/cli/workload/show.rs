//! `banyan workload list|get|revisions`.

use api::{Instance, ListQuery, Workload, WorkloadRevision};
use clap::Args;
use model::{Mode, Name};
use serde::Serialize;

use super::find;
use crate::cli::instance::list::status;
use crate::failure::Result;
use crate::output::table::{Column, render, terminal_width};
use crate::output::text::{age_now, command, pair, pair_some};
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};
use crate::wait::workload::{instances, state};

/// Instances that the page of a workload shows.
const INSTANCES_SHOWN: usize = 50;

#[derive(Args)]
pub struct ListArguments {
    /// Only those of this app.
    #[arg(long, value_name = "NAME")]
    app: Option<Name>,
    /// Only those with this name; `*` stands for anything.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only those in this phase, such as available or updating.
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Show at most so many.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Args)]
pub struct GetArguments {
    /// Name, id, or the beginning of an id.
    pub workload: String,
}

/// A thing as the API shows it, with its kind, so that `apply` takes it.
#[derive(Serialize)]
pub struct Export<T> {
    pub kind: &'static str,
    #[serde(flatten)]
    pub thing: T,
}

const fn export<T>(workload: T) -> Export<T> {
    Export { kind: "Workload", thing: workload }
}

const COLUMNS: [Column<Export<Workload>>; 10] = [
    Column::new("NAME", |w| w.thing.name.to_string()),
    Column::new("MODE", |w| mode(&w.thing.spec.mode)),
    Column::new("PHASE", |w| w.thing.status.phase.to_string()),
    Column::new("AVAILABLE", |w| count(&w.thing)),
    Column::new("IMAGE", |w| w.thing.spec.instance.image.clone()),
    Column::new("APP", |w| w.thing.app.as_ref().map(ToString::to_string).unwrap_or_default()),
    Column::new("AGE", |w| age_now(w.thing.created_at)),
    Column::wide("REVISION", |w| w.thing.revision.to_string()),
    Column::wide("ID", |w| w.thing.id.to_string()),
    Column::wide("MESSAGE", |w| w.thing.status.message.clone().unwrap_or_default()),
];

const INSTANCE_COLUMNS: [Column<Instance>; 8] = [
    Column::new("INSTANCE", |i| i.name.to_string()),
    Column::new("PHASE", status),
    Column::new("ZONE", |i| i.zone.as_ref().map(ToString::to_string).unwrap_or_default()),
    Column::new("NODE", |i| i.node.as_ref().map(ToString::to_string).unwrap_or_default()),
    Column::new("ADDRESS", |i| i.address.map(|address| address.to_string()).unwrap_or_default()),
    Column::new("RESTARTS", |i| i.restarts.to_string()),
    Column::new("AGE", |i| age_now(i.created_at)),
    Column::new("MESSAGE", |i| i.message.clone().unwrap_or_default()),
];

const REVISION_COLUMNS: [Column<WorkloadRevision>; 9] = [
    Column::new("REVISION", |r| r.revision.to_string()),
    Column::new("INSTANCES", |r| r.instances.to_string()),
    Column::new("IMAGE", |r| r.instance.image.clone()),
    Column::new("COMMAND", |r| command(&r.instance.command)),
    Column::new("BY", |r| r.created_by.clone()),
    Column::new("AGE", |r| age_now(r.created_at)),
    Column::new("COMPLETE", |r| if r.complete { "yes" } else { "no" }.to_owned()),
    Column::new("CHANGES", |r| r.changes.join("; ")),
    Column::new("FAILED", |r| r.failed.clone().unwrap_or_default()),
];

fn mode(mode: &Mode) -> String {
    match mode {
        Mode::Cron { schedule, .. } => format!("cron {schedule}"),
        mode => mode.word().to_owned(),
    }
}

fn count(workload: &Workload) -> String {
    let status = &workload.status;
    match workload.spec.mode.run() {
        Some(run) => format!("{}/{}", status.succeeded, run.completions),
        None => format!("{}/{}", status.available, status.wanted),
    }
}

pub async fn list(session: &Session, args: ListArguments) -> Result<()> {
    let app = args.app.map(|name| name.to_string());
    let filters = [("app", app), ("name", args.name), ("phase", args.phase)];
    let given = filters.into_iter().filter_map(|(field, value)| Some((field, value?)));
    let query = given.fold(ListQuery::new(), |query, (field, value)| query.with(field, value));
    let fetch = |query: ListQuery| async move { session.client.workload_list(&query).await };
    let workloads = all(query, args.limit, fetch).await?;
    if workloads.is_empty() && matches!(session.format, Format::Table | Format::Wide) {
        note("No workloads. Make one with: banyan workload create NAME --image busybox -- sleep 1000");
        return Ok(());
    }
    let shown: Vec<_> = workloads.into_iter().map(export).collect();
    output::list(session.format, &shown, &COLUMNS)
}

pub async fn get(session: &Session, args: GetArguments) -> Result<()> {
    let workload = find(session, &args.workload).await?;
    show(session, &workload).await
}

/// The page of a workload, with its instances for people.
pub async fn show(session: &Session, workload: &Workload) -> Result<()> {
    let name = workload.name.as_str();
    output::item(session.format, &export(workload), name, |export, wide| describe(export.thing, wide))?;
    if !matches!(session.format, Format::Table | Format::Wide) {
        return Ok(());
    }
    let found = instances(&session.client, name, INSTANCES_SHOWN).await?;
    if found.is_empty() {
        return Ok(());
    }
    data(&format!("\n{}", render(&found, &INSTANCE_COLUMNS, false, terminal_width())))?;
    let total = workload.status.instances as usize;
    if total > found.len() {
        note(format!("{} of {total} instances are shown", found.len()));
    }
    Ok(())
}

pub fn describe(workload: &Workload, wide: bool) -> Vec<(String, String)> {
    let (spec, status) = (&workload.spec, &workload.status);
    let instance = &spec.instance;
    let mut page = vec![
        pair("name", &workload.name),
        pair("id", &workload.id),
        pair_some("app", workload.app.as_ref()),
        pair("phase", state(workload)),
        pair("mode", described_mode(workload)),
        pair("revision", workload.revision),
        pair("image", &instance.image),
        pair("command", command(&instance.command)),
        pair("resources", format!("{} CPU, {} memory", instance.cpu, instance.memory)),
        pair("update", described_update(workload)),
        pair("autoscale", described_autoscale(workload)),
        pair_some("last run", status.last_run_at.map(|at| format!("{} ago", age_now(at)))),
        pair_some("next run", status.next_run_at),
        pair("created", format!("{} ago by {}", age_now(workload.created_at), workload.created_by)),
    ];
    if wide {
        page.push(pair("tenant", &workload.tenant));
        page.push(pair("version", workload.version));
        page.push(pair("spec", output::yaml(spec)));
    }
    page
}

fn described_mode(workload: &Workload) -> String {
    match &workload.spec.mode {
        Mode::Service { .. } if workload.spec.autoscale.is_some() => {
            "service that scales by itself".to_owned()
        }
        Mode::Service { replicas } => format!("service of {replicas}"),
        Mode::Daemon => "daemon, one on every node that matches".to_owned(),
        Mode::Once { run } => format!("once, {} to end well, {} at a time", run.completions, run.parallelism),
        Mode::Cron { schedule, time_zone, .. } => {
            format!("cron {schedule} {}", time_zone.as_deref().unwrap_or("UTC"))
        }
    }
}

fn described_update(workload: &Workload) -> String {
    let update = &workload.spec.update;
    if workload.spec.mode.run().is_some() {
        return String::new();
    }
    let mut text =
        format!("at most {} above and {} below the number", update.max_surge, update.max_unavailable);
    if let Some(canary) = &update.canary {
        text += &format!(", canary of {}", canary.instances);
    }
    if !update.rollback {
        text += ", no rollback";
    }
    text
}

fn described_autoscale(workload: &Workload) -> String {
    let Some(scale) = &workload.spec.autoscale else { return String::new() };
    let mut parts = vec![format!("{} to {}", scale.min, scale.max)];
    let status = &workload.status;
    for (what, target, seen) in [
        ("CPU", scale.cpu_percent, status.cpu_percent),
        ("memory", scale.memory_percent, status.memory_percent),
    ] {
        let seen = seen.map(|percent| format!(" (now {percent}%)")).unwrap_or_default();
        parts.extend(target.map(|target| format!("{what} near {target}%{seen}")));
    }
    parts.join(", ")
}

pub async fn revisions(session: &Session, args: GetArguments) -> Result<()> {
    let workload = find(session, &args.workload).await?;
    let revisions = session.client.workload_revisions(workload.name.as_str()).await?;
    output::list(session.format, &revisions, &REVISION_COLUMNS)
}
