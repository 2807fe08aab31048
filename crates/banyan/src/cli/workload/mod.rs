//! `banyan workload …`: many like instances, kept as many as they should be.

mod act;
mod create;
mod logs;
mod options;
pub mod show;
pub mod why;

use api::{ListQuery, Workload};
use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};
use crate::session::{Session, all, is_id_prefix, pick};

const AFTER_HELP: &str = "\
Examples:
  banyan workload create web --image busybox --replicas 3 --health-tcp 80 -- httpd -f -p 80
  banyan workload scale web 5
  banyan workload update web --memory 64MiB --max-unavailable 1
  banyan workload rollback web
  banyan workload create backup --image busybox --cron '0 3 * * *' -- sh -c 'echo saved'";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ask for a workload and wait until all of it is available.
    Create(Box<create::CreateArguments>),
    /// All workloads of the tenant.
    #[command(visible_alias = "ls")]
    List(show::ListArguments),
    /// One workload with its instances.
    #[command(visible_alias = "show")]
    Get(show::GetArguments),
    /// Change the number of replicas.
    Scale(act::ScaleArguments),
    /// Change what is given and leave the rest; the new takes the place of the old under the update policy.
    Update(Box<create::UpdateArguments>),
    /// Replace every instance under the update policy.
    Restart(act::OneArguments),
    /// Let nothing be made, replaced or removed; what runs goes on.
    Pause(act::OneArguments),
    /// End a pause.
    Resume(act::OneArguments),
    /// Go back to an earlier revision.
    Rollback(act::RollbackArguments),
    /// Let a canary go on to all instances.
    Promote(act::OneArguments),
    /// Begin a run now and wait for its end.
    Run(act::OneArguments),
    /// The templates it has and had, newest first.
    Revisions(show::GetArguments),
    /// Remove workloads with all their instances.
    #[command(visible_alias = "rm")]
    Delete(act::DeleteArguments),
    /// What its instances wrote, each line with the name of its instance.
    Logs(logs::Arguments),
    /// Why it is as it is: what happened, and what is wrong with its instances.
    Why(show::GetArguments),
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    use act::Act;
    match args.verb {
        Verb::Create(args) => create::create(session, *args).await,
        Verb::List(args) => show::list(session, args).await,
        Verb::Get(args) => show::get(session, args).await,
        Verb::Scale(args) => act::scale(session, args).await,
        Verb::Update(args) => create::update(session, *args).await,
        Verb::Restart(args) => act::one(session, Act::Restart, args).await,
        Verb::Pause(args) => act::one(session, Act::Pause, args).await,
        Verb::Resume(args) => act::one(session, Act::Resume, args).await,
        Verb::Rollback(args) => act::rollback(session, args).await,
        Verb::Promote(args) => act::one(session, Act::Promote, args).await,
        Verb::Run(args) => act::one(session, Act::Run, args).await,
        Verb::Revisions(args) => show::revisions(session, args).await,
        Verb::Delete(args) => act::delete(session, args).await,
        Verb::Logs(args) => logs::run(session, args).await,
        Verb::Why(args) => why::run(session, &args.workload).await,
    }
}

/// The workload, by name, id or the beginning of an id, and a hint when there is none.
pub async fn find(session: &Session, text: &str) -> Result<Workload> {
    let name = if is_id_prefix(text, model::WorkloadId::PREFIX) {
        let fetch = |query: ListQuery| async move { session.client.workload_list(&query).await };
        let known = all(ListQuery::new(), None, fetch).await?;
        pick("workload", text, known.into_iter().map(|w| (w.id.to_string(), w.name.to_string())))?
    } else {
        text.to_owned()
    };
    session.client.workload_get(&name).await.map_err(|error| {
        let missing = error.kind == model::ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see what there is with: banyan workload list") } else { failure }
    })
}
