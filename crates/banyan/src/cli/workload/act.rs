//! Orders to workloads that are there: scale, restart, pause, resume, roll back, promote, run, delete.

use std::time::Duration;

use api::Workload;
use clap::Args;

use super::{find, show};
use crate::cli::Waiting;
use crate::failure::{Failure, Result};
use crate::output::text::plural;
use crate::output::{self, Format, data, note};
use crate::session::Session;
use crate::wait::workload::{Goal, state, wait};

/// Waited beyond what a workload allows itself, so that its own word on a failure is heard.
const SLACK: Duration = Duration::from_secs(30);

#[derive(Args)]
pub struct OneArguments {
    /// Name, id, or the beginning of an id.
    workload: String,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
#[command(override_usage = "banyan workload scale [OPTIONS] <WORKLOAD> <COUNT>")]
pub struct ScaleArguments {
    /// Name, id, or the beginning of an id.
    workload: String,
    /// How many there should be; may also be given as --replicas.
    #[arg(required_unless_present = "replicas", conflicts_with = "replicas")]
    count: Option<u32>,
    /// The same, as an option.
    #[arg(long, value_name = "COUNT")]
    replicas: Option<u32>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct RollbackArguments {
    /// Name, id, or the beginning of an id.
    workload: String,
    /// Revision to go back to; when absent, the last of which all instances were once available.
    #[arg(long, value_name = "NUMBER")]
    revision: Option<u64>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub struct DeleteArguments {
    /// Names, ids or beginnings of ids.
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// It is no error when there is none.
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Restart,
    Pause,
    Resume,
    Promote,
    Run,
}

pub async fn one(session: &Session, act: Act, args: OneArguments) -> Result<()> {
    let before = find(session, &args.workload).await?;
    let (client, name) = (&session.client, before.name.as_str());
    let after = match act {
        Act::Restart => client.workload_restart(name).await?,
        Act::Pause => client.workload_pause(name).await?,
        Act::Resume => client.workload_resume(name).await?,
        Act::Promote => client.workload_promote(name).await?,
        Act::Run => client.workload_run(name).await?,
    };
    let goal = match act {
        Act::Run => Goal::Ran { after: before.status.last_run_at },
        _ => Goal::settled(&after),
    };
    if after.version == before.version {
        note(format!("workload {}: nothing was changed; it is so already", after.name));
        return show::show(session, &after).await;
    }
    // A pause holds as soon as it is ordered.
    match act {
        Act::Pause => {
            let line = format!("workload {}: {}", after.name, state(&after));
            output::changed(session.format, &after, after.name.as_str(), &line)
        }
        _ => finish(session, after, goal, &args.waiting).await,
    }
}

pub async fn scale(session: &Session, args: ScaleArguments) -> Result<()> {
    let before = find(session, &args.workload).await?;
    let replicas = args.count.or(args.replicas).expect("clap asks for one of them");
    let after = session.client.workload_scale(before.name.as_str(), replicas).await?;
    if after.version == before.version {
        note(format!("workload {}: nothing was changed; it should have {replicas} already", after.name));
    }
    let goal = Goal::changed(&before, &after);
    finish(session, after, goal, &args.waiting).await
}

pub async fn rollback(session: &Session, args: RollbackArguments) -> Result<()> {
    let before = find(session, &args.workload).await?;
    let after = session.client.workload_rollback(before.name.as_str(), args.revision).await?;
    note(format!("workload {}: going back, as revision {}", after.name, after.revision));
    let goal = Goal::settled(&after);
    finish(session, after, goal, &args.waiting).await
}

/// How long an order may take by the workload's own terms before it has failed; it is waited for longer than that.
fn needs(workload: &Workload) -> Duration {
    let update = &workload.spec.update;
    let hold = update.canary.as_ref().and_then(|canary| canary.hold_ms).unwrap_or(0);
    let run = workload.spec.mode.run().and_then(|run| run.deadline_ms).unwrap_or(0);
    Duration::from_millis(update.deadline_ms.max(run).saturating_add(hold)) + SLACK
}

/// Waits as asked, which says what came of it; programs get the whole.
pub async fn finish(session: &Session, workload: Workload, goal: Goal, waiting: &Waiting) -> Result<()> {
    let name = workload.name.to_string();
    if workload.spec.paused {
        note(format!("workload {name} is paused: this takes effect with: banyan workload resume {name}"));
        return show::show(session, &workload).await;
    }
    let workload = match waiting.limit_or(needs(&workload)) {
        None => {
            note(format!("workload {name}: asked for; see: banyan workload get {name}"));
            workload
        }
        Some(limit) => wait(&session.client, &name, goal, limit).await?.unwrap_or(workload),
    };
    if workload.status.phase == model::WorkloadPhase::Canary {
        note(format!(
            "the new revision is tried on a few; let it go on with: banyan workload promote {name}"
        ));
    }
    match session.format {
        Format::Table | Format::Wide => Ok(()),
        _ => show::show(session, &workload).await,
    }
}

pub async fn delete(session: &Session, args: DeleteArguments) -> Result<()> {
    let mut targets = Vec::new();
    for text in &args.workloads {
        match find(session, text).await {
            Ok(workload) => targets.push(workload),
            Err(failure) if args.ignore_missing && failure.message.starts_with("there is no") => {
                note(format!("workload {text}: there is none"));
            }
            Err(failure) => return Err(failure.all_or_none(args.workloads.len(), "deleted")),
        }
    }
    if args.dry_run {
        for workload in &targets {
            let instances = plural(u64::from(workload.status.instances), "instance");
            note(format!(
                "workload {}: would be deleted with {instances} (nothing was changed)",
                workload.name
            ));
        }
        return Ok(());
    }
    let mut failures = Vec::new();
    let mut ordered = Vec::new();
    for workload in targets {
        match session.client.workload_delete(workload.name.as_str(), None).await {
            Ok(_) => ordered.push(workload.name),
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    for name in ordered {
        if let Some(limit) = args.waiting.limit()
            && let Err(failure) = wait(&session.client, name.as_str(), Goal::Gone, limit).await
        {
            failures.push(failure);
        } else if session.format == Format::Name {
            data(&format!("{name}\n"))?;
        }
    }
    Failure::of_many(failures, "workloads could not be deleted")
}
