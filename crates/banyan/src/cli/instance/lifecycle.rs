//! `banyan instance stop|start|restart|delete`, each for several instances at once.

use api::{Instance, ListQuery};
use clap::Args;
use model::Timestamp;

use super::find;
use crate::cli::Waiting;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};
use crate::wait::{Goal, wait};

#[derive(Args)]
pub struct Arguments {
    /// Names, ids or beginnings of ids.
    #[arg(required = true, value_name = "INSTANCE")]
    instances: Vec<String>,
    #[command(flatten)]
    waiting: Waiting,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub struct DeleteArguments {
    /// Names, ids or beginnings of ids.
    #[arg(required_unless_present_any = ["all", "label"], value_name = "INSTANCE")]
    instances: Vec<String>,
    /// Every instance of the tenant; needs --yes.
    #[arg(long, conflicts_with = "instances", requires = "yes")]
    all: bool,
    /// Those with this label; needs --yes.
    #[arg(short, long, value_name = "KEY=VALUE", conflicts_with = "instances", requires = "yes")]
    label: Option<String>,
    /// Do not ask back.
    #[arg(short, long)]
    yes: bool,
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
    Stop,
    Start,
    Restart,
    Delete,
}

impl Act {
    const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Delete => "delete",
        }
    }

    async fn order(self, session: &Session, instance: &Instance) -> Result<Instance> {
        let (client, id) = (&session.client, instance.id.as_str());
        Ok(match self {
            Self::Stop => client.instance_stop(id, None).await?,
            Self::Start => client.instance_start(id, None).await?,
            Self::Restart => client.instance_restart(id, None).await?,
            Self::Delete => client.instance_delete(id, None).await?,
        })
    }

    /// What to wait for, given the instance before the order.
    fn goal(self, before: &Instance) -> Goal {
        match self {
            Self::Stop => Goal::Stopped,
            Self::Start => Goal::Running { after: None },
            Self::Restart => Goal::Running { after: before.started_at.or(Some(Timestamp(0))) },
            Self::Delete => Goal::Gone,
        }
    }
}

pub async fn run(session: &Session, act: Act, args: Arguments) -> Result<()> {
    let mut targets = Vec::new();
    for text in &args.instances {
        let found = find(session, text).await;
        targets.push(found.map_err(|failure| failure.all_or_none(args.instances.len(), "changed"))?);
    }
    perform(session, act, targets, &args.waiting, args.dry_run).await
}

pub async fn delete(session: &Session, args: DeleteArguments) -> Result<()> {
    let mut targets = Vec::new();
    if args.all || args.label.is_some() {
        let mut query = ListQuery::new();
        if let Some(label) = &args.label {
            query = query.with("label", label);
        }
        targets = all(query, None, |query| async move { session.client.instance_list(&query).await }).await?;
        if targets.is_empty() {
            note("No instances to delete.");
        }
    }
    for text in &args.instances {
        match find(session, text).await {
            Ok(instance) => targets.push(instance),
            Err(failure) if args.ignore_missing && failure.message.starts_with("there is no") => {
                note(format!("instance {text}: there is none"));
            }
            Err(failure) => return Err(failure.all_or_none(args.instances.len(), "deleted")),
        }
    }
    perform(session, Act::Delete, targets, &args.waiting, args.dry_run).await
}

/// Gives all orders first and waits afterwards, so that the waits overlap. One
/// that fails does not keep the others from being done.
async fn perform(
    session: &Session,
    act: Act,
    targets: Vec<Instance>,
    waiting: &Waiting,
    dry_run: bool,
) -> Result<()> {
    if dry_run {
        for instance in &targets {
            note(format!("instance {}: would {} it (nothing was changed)", instance.name, act.word()));
        }
        return Ok(());
    }
    let mut failures = Vec::new();
    let mut ordered = Vec::new();
    for before in targets {
        match act.order(session, &before).await {
            Ok(after) => ordered.push((before, after)),
            Err(failure) => failures.push(failure.or_hint(format!("banyan instance get {}", before.name))),
        }
    }
    for (before, after) in ordered {
        let name = before.name.to_string();
        let outcome = match waiting.limit() {
            None => {
                note(format!("instance {name}: {} asked for", act.word()));
                Ok(Some(after))
            }
            Some(limit) => wait(&session.client, before.id.as_str(), &name, act.goal(&before), limit).await,
        };
        match outcome {
            Ok(instance) => report(session, &name, instance.as_ref())?,
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of_many(failures, &format!("instances could not {}", act.word()))
}

fn report(session: &Session, name: &str, instance: Option<&Instance>) -> Result<()> {
    match (session.format, instance) {
        (Format::Table | Format::Wide, _) => Ok(()),
        (Format::Name, _) => data(&format!("{name}\n")),
        (format, Some(instance)) => output::item(format, instance, name, |_, _| Vec::new()),
        (_, None) => Ok(()),
    }
}
