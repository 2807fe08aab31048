//! `banyan instance …`

mod create;
mod exec;
mod get;
mod lifecycle;
pub mod list;
pub(in crate::cli) mod logs;
pub mod options;
mod stats;

use api::ListQuery;
use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};
use crate::session::{Session, all, is_id_prefix, pick};

pub use create::create;

const AFTER_HELP: &str = "\
Examples:
  banyan instance create web --image busybox --memory 64MiB -- httpd -f -p 80
  banyan instance logs -f web
  banyan instance exec -it web -- sh
  banyan instance delete web";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ask for an instance and wait until it runs.
    #[command(visible_alias = "run")]
    Create(Box<create::Arguments>),
    /// All instances of the tenant.
    #[command(visible_aliases = ["ls", "ps"])]
    List(list::Arguments),
    /// One instance with its latest events.
    #[command(visible_alias = "show")]
    Get(get::Arguments),
    /// What an instance wrote.
    Logs(logs::Arguments),
    /// Run a command in a running instance; its exit code becomes ours.
    Exec(exec::Arguments),
    /// What instances use now.
    #[command(visible_alias = "top")]
    Stats(stats::Arguments),
    /// Stop instances; they keep their place and name.
    Stop(lifecycle::Arguments),
    /// Start stopped instances.
    Start(lifecycle::Arguments),
    /// Stop and start again.
    Restart(lifecycle::Arguments),
    /// Remove instances.
    #[command(visible_alias = "rm")]
    Delete(lifecycle::DeleteArguments),
}

pub async fn run(session: &Session, args: Arguments) -> Result<u8> {
    use lifecycle::Act;
    match args.verb {
        Verb::Create(args) => create::run(session, *args).await?,
        Verb::List(args) => list::run(session, args).await?,
        Verb::Get(args) => get::run(session, args).await?,
        Verb::Logs(args) => logs::run(session, args).await?,
        Verb::Exec(args) => return exec::run(session, args).await,
        Verb::Stats(args) => stats::run(session, args).await?,
        Verb::Stop(args) => lifecycle::run(session, Act::Stop, args).await?,
        Verb::Start(args) => lifecycle::run(session, Act::Start, args).await?,
        Verb::Restart(args) => lifecycle::run(session, Act::Restart, args).await?,
        Verb::Delete(args) => lifecycle::delete(session, args).await?,
    }
    Ok(0)
}

/// A name or a whole id as it is; the beginning of an id becomes the id.
pub async fn resolve(session: &Session, text: &str) -> Result<String> {
    if !is_id_prefix(text, model::InstanceId::PREFIX) {
        return Ok(text.to_owned());
    }
    let instances =
        all(ListQuery::new(), None, |query| async move { session.client.instance_list(&query).await })
            .await?;
    pick("instance", text, instances.into_iter().map(|i| (i.id.to_string(), i.name.to_string())))
}

/// The instance, and a hint when there is none.
pub async fn find(session: &Session, text: &str) -> Result<api::Instance> {
    let name = resolve(session, text).await?;
    let found = session.client.instance_get(&name).await;
    found.map_err(|error| {
        let missing = error.kind == model::ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see what there is with: banyan instance list") } else { failure }
    })
}
