//! `banyan provisioner list|remove`, for operators, and the role itself with `--config`.

use api::Provisioner;
use clap::{Args, Subcommand};

use super::place::remove_sure;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::age_now;
use crate::output::{self, note};
use crate::session::Session;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Run this machine as a provisioner, set up by a file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// All provisioners, and for whom they work.
    #[command(visible_alias = "ls")]
    List,
    /// Forget a provisioner for good; what it does is given to others, and its certificate is never let in again.
    #[command(visible_alias = "rm")]
    Remove {
        /// Name or id.
        provisioner: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
    },
}

const COLUMNS: [Column<Provisioner>; 6] = [
    Column::new("NAME", |p| p.name.to_string()),
    Column::new("STATE", |p| if p.live { "connected" } else { "away" }.to_owned()),
    Column::new("TASKS", |p| format!("{}/{}", p.tasks, p.capacity)),
    Column::new("WORKERS", workers),
    Column::new("HEARD", |p| p.last_heard.map(|at| format!("{} ago", age_now(at))).unwrap_or_default()),
    Column::wide("ID", |p| p.id.to_string()),
];

fn workers(provisioner: &Provisioner) -> String {
    let all: Vec<String> =
        provisioner.workers.iter().map(|(tenant, count)| format!("{tenant} {count}")).collect();
    all.join(", ")
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let Some(verb) = args.verb else { return Err(Failure::new("say what to do; see --help")) };
    match verb {
        Verb::List => output::list(session.format, &session.client.provisioner_list().await?, &COLUMNS),
        Verb::Remove { provisioner, yes } => {
            let what = format!("provisioner {provisioner}");
            remove_sure(&what, yes)?;
            session.client.provisioner_remove(&provisioner).await?;
            note(format!("{what}: removed"));
            Ok(())
        }
    }
}
