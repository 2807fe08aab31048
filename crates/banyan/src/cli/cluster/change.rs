//! Orders to clusters that are there.

use std::time::Duration;

use api::{
    Cluster, ClusterConfigure, ClusterLease, ClusterRepair, ClusterResize, ClusterServiceOrder,
    ClusterServices, ClusterUpgrade,
};
use clap::Args;
use model::{ErrorKind, Timestamp};

use super::{Settings, find, show};
use crate::cli::{Waiting, parse};
use crate::failure::{Failure, Result};
use crate::output::{self, Format, data, note};
use crate::session::Session;
use crate::wait::cluster::{Goal, state, wait};

/// The exit code after Ctrl-C, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;
/// How often a configuration is set upon what somebody else has just changed.
const CONFIGURE_TRIES_MAX: u32 = 5;
/// How long a job is waited for unless said otherwise.
const JOB_WAIT: Duration = Duration::from_secs(3600);

#[derive(Args)]
pub struct OneArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct ResizeArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// How many machines it is to have.
    size: u32,
    /// Allow a layout that cannot keep the machines that stand.
    #[arg(long)]
    anew: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct ConfigureArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    #[command(flatten)]
    settings: Settings,
    /// Leave services running as they are; they see it with their next start.
    #[arg(long)]
    no_restart: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct OrderArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Services; all when none is named.
    services: Vec<String>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct ServicesArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Services to add, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    add: Vec<String>,
    /// Services to remove, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    remove: Vec<String>,
    /// How many machines it is to have then [default: as many as now].
    #[arg(long, value_name = "N")]
    size: Option<u32>,
    /// Allow a layout that cannot keep the machines that stand.
    #[arg(long)]
    anew: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct UpgradeArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Services; all when none is named.
    services: Vec<String>,
    /// Machines at a time [default: 1].
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// Take the template and the services as the catalogue has them now.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct RepairArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Numbers of nodes whose machines are made anew although they may still be there; they are deleted first.
    #[arg(value_name = "NODE")]
    nodes: Vec<u32>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct LeaseArguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// So much later than now planned, such as 12h or 7d.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, required_unless_present = "until")]
    extend: Option<Duration>,
    /// At this time, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "TIMESTAMP", value_parser = timestamp, conflicts_with = "extend")]
    until: Option<Timestamp>,
}

#[derive(Args)]
pub struct DeleteArguments {
    /// Names, ids or beginnings of ids.
    #[arg(required = true, value_name = "CLUSTER")]
    clusters: Vec<String>,
    /// It is no error when there is none.
    #[arg(long)]
    ignore_missing: bool,
    /// Ask for each machine once, and forget those whose provider does not delete them; they may go on, and cost.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Act {
    Start,
    Stop,
    Restart,
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    let wrong = |_| format!("'{text}' is no time: write it as 2026-12-24T18:00:00Z");
    text.parse::<jiff::Timestamp>().map(|at| Timestamp(at.as_microsecond())).map_err(wrong)
}

pub async fn resize(session: &Session, args: ResizeArguments, grow: bool) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let (name, body) = (cluster.name.as_str(), ClusterResize { size: args.size, anew: args.anew });
    let after = match grow {
        true => session.client.cluster_expand(name, &body).await?,
        false => session.client.cluster_shrink(name, &body).await?,
    };
    finish(session, after, &args.waiting).await
}

pub async fn configure(session: &Session, args: ConfigureArguments) -> Result<()> {
    let mut tries = 1;
    let after = loop {
        match configured(session, &args).await? {
            // Somebody changed it meanwhile: what is set is set upon that.
            Err(error) if error.kind == ErrorKind::VersionMismatch && tries < CONFIGURE_TRIES_MAX => {
                tries += 1;
            }
            answer => break answer?,
        }
    };
    finish(session, after, &args.waiting).await
}

/// Configures the cluster as it is seen now.
async fn configured(session: &Session, args: &ConfigureArguments) -> Result<model::Result<Cluster>> {
    let cluster = find(session, &args.cluster).await?;
    // A whole configuration is meant whatever there was.
    let seen = (!args.settings.is_whole()).then_some(cluster.version);
    // Without a change it is configured again: macros know the machines that came or went.
    let config = args.settings.merged(cluster.config.clone())?.unwrap_or(cluster.config);
    let body = ClusterConfigure { config, restart: args.no_restart.then_some(false) };
    Ok(session.client.cluster_order(cluster.name.as_str(), "configure", &body, seen).await)
}

pub async fn order(session: &Session, act: Act, args: OrderArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let (name, body) = (cluster.name.as_str(), ClusterServiceOrder { services: args.services });
    let after = match act {
        Act::Start => session.client.cluster_start(name, &body).await?,
        Act::Stop => session.client.cluster_stop(name, &body).await?,
        Act::Restart => session.client.cluster_restart(name, &body).await?,
    };
    finish(session, after, &args.waiting).await
}

pub async fn services(session: &Session, args: ServicesArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    if args.add.is_empty() && args.remove.is_empty() {
        let lines: String = cluster.services.iter().map(|service| format!("{service}\n")).collect();
        return match session.format {
            Format::Table | Format::Wide | Format::Name => data(&lines),
            format => output::item(format, &cluster.services, "", |_, _| Vec::new()),
        };
    }
    let body = ClusterServices { add: args.add, remove: args.remove, size: args.size, anew: args.anew };
    let after = session.client.cluster_services(cluster.name.as_str(), &body).await?;
    finish(session, after, &args.waiting).await
}

pub async fn upgrade(session: &Session, args: UpgradeArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let body = ClusterUpgrade { services: args.services, batch: args.batch, sync: args.sync };
    let after = session.client.cluster_upgrade(cluster.name.as_str(), &body).await?;
    finish(session, after, &args.waiting).await
}

pub async fn repair(session: &Session, args: RepairArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let body = ClusterRepair { nodes: args.nodes };
    let after = session.client.cluster_repair(cluster.name.as_str(), &body).await?;
    finish(session, after, &args.waiting).await
}

pub async fn check(session: &Session, args: OneArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let after = session.client.cluster_check(cluster.name.as_str()).await?;
    finish(session, after, &args.waiting).await
}

pub async fn lease(session: &Session, args: LeaseArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let extend_ms = args.extend.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let body = ClusterLease { expires_at: args.until, extend_ms };
    let option = if args.until.is_some() { "until" } else { "extend" };
    let after = session.client.cluster_lease(cluster.name.as_str(), &body).await.map_err(|mut error| {
        if matches!(error.field.as_deref(), Some("expires_at" | "extend_ms")) {
            error.field = Some(option.into());
        }
        error
    })?;
    let line = match after.expires_at {
        Some(at) => format!("cluster {}: its lease ends at {at}", after.name),
        None => format!("cluster {}: it has no end", after.name),
    };
    output::changed(session.format, &after, after.name.as_str(), &line)
}

pub async fn pause(session: &Session, cluster: &str) -> Result<()> {
    let cluster = find(session, cluster).await?;
    let after = session.client.cluster_pause(cluster.name.as_str()).await?;
    let line = format!("cluster {}: {}", after.name, state(&after));
    output::changed(session.format, &after, after.name.as_str(), &line)
}

pub async fn resume(session: &Session, args: OneArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let after = session.client.cluster_resume(cluster.name.as_str()).await?;
    finish(session, after, &args.waiting).await
}

/// The job is to end without success, so that is no failure.
pub async fn abort(session: &Session, args: OneArguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let after = session.client.cluster_abort(cluster.name.as_str()).await?;
    finish_with(session, after, Goal::Over, args.waiting.limit_or(JOB_WAIT)).await
}

/// Waits as asked, which says what came of it; programs get the whole.
pub async fn finish(session: &Session, cluster: Cluster, waiting: &Waiting) -> Result<()> {
    finish_with(session, cluster, Goal::Done, waiting.limit_or(JOB_WAIT)).await
}

async fn finish_with(session: &Session, cluster: Cluster, goal: Goal, limit: Option<Duration>) -> Result<()> {
    let name = cluster.name.to_string();
    let cluster = match limit {
        None => {
            note(format!("cluster {name}: asked for; see: banyan cluster watch {name}"));
            cluster
        }
        Some(limit) => waited(session, &cluster, goal, limit).await?.unwrap_or(cluster),
    };
    match session.format {
        Format::Table | Format::Wide => Ok(()),
        format => output::item(format, &cluster, &name, |_, _| Vec::new()),
    }
}

/// Waits, unless Ctrl-C ends that: what was asked for goes on.
async fn waited(
    session: &Session,
    cluster: &Cluster,
    goal: Goal,
    limit: Duration,
) -> Result<Option<Cluster>> {
    tokio::select! {
        waited = wait(&session.client, cluster, goal, limit) => waited,
        Ok(()) = tokio::signal::ctrl_c() => {
            let name = &cluster.name;
            let hint = format!("banyan cluster watch {name} follows it, banyan cluster abort {name} ends it");
            let told = Failure::new(format!("cluster {name}: it is no longer waited for, and goes on"));
            Err(Failure { code: EXIT_INTERRUPTED, ..told.hint(hint) })
        }
    }
}

pub async fn delete(session: &Session, args: DeleteArguments) -> Result<()> {
    let mut targets = Vec::new();
    for text in &args.clusters {
        match find(session, text).await {
            Ok(cluster) => targets.push(cluster),
            Err(failure) if args.ignore_missing && failure.message.starts_with("there is no") => {
                note(format!("cluster {text}: there is none"));
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.dry_run {
        for cluster in &targets {
            let (name, nodes) = (&cluster.name, show::machines(cluster.nodes));
            note(format!("cluster {name}: would be deleted with {nodes} (nothing was changed)"));
        }
        return Ok(());
    }
    let mut failures = Vec::new();
    let mut ordered = Vec::new();
    for cluster in targets {
        let name = cluster.name.as_str();
        let asked = match args.force {
            false => session.client.cluster_delete(name, None).await,
            true => {
                note(format!(
                    "cluster {name}: machines that its provider does not delete are forgotten, and may go on; the history names them"
                ));
                session.client.cluster_delete_forced(name).await
            }
        };
        match asked {
            Ok(cluster) => ordered.push(cluster),
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    for cluster in ordered {
        if let Some(limit) = args.waiting.limit_or(JOB_WAIT)
            && let Err(failure) = waited(session, &cluster, Goal::Gone, limit).await
        {
            failures.push(failure);
        } else if session.format == Format::Name {
            data(&format!("{}\n", cluster.name))?;
        }
    }
    Failure::of_many(failures, "clusters could not be deleted")
}
