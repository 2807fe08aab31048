//! `banyan server list|remove`, for operators: the root servers of a cloud.

use api::Server;
use clap::Subcommand;

use super::place::remove_sure;
use crate::failure::Result;
use crate::output::table::Column;
use crate::output::text::age_now;
use crate::output::{self, note};
use crate::session::Session;

#[derive(Subcommand)]
pub enum Verb {
    /// All root servers, also those that fell silent, and what each of them does.
    #[command(visible_alias = "ls")]
    List,
    /// Forget a root server that fell silent and does not come back.
    #[command(visible_alias = "rm")]
    Remove {
        /// Its name, as 'server list' shows it.
        server: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
    },
}

const COLUMNS: [Column<Server>; 6] = [
    Column::new("NAME", |server| server.name.clone()),
    Column::new("STATE", |server| if server.lost { "silent" } else { "there" }.to_owned()),
    Column::new("DUTIES", |server| server.duties.join(", ")),
    Column::new("HEARD", |server| format!("{} ago", age_now(server.last_heard))),
    Column::new("SINCE", |server| format!("{} ago", age_now(server.since))),
    Column::wide("ENDPOINT", |server| server.endpoint.clone().unwrap_or_default()),
];

pub async fn run(session: &Session, verb: Verb) -> Result<()> {
    match verb {
        Verb::List => output::list(session.format, &session.client.server_list().await?, &COLUMNS),
        Verb::Remove { server, yes } => {
            let what = format!("root server {server}");
            remove_sure(&what, yes)?;
            session.client.server_remove(&server).await?;
            note(format!("{what}: removed"));
            Ok(())
        }
    }
}
