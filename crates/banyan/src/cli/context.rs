//! `banyan context list|use|current|delete`

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::context::{Config, config_path};
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::{self, Format, data, note};

#[derive(Args)]
#[command(after_help = "Make a context with: banyan login ENDPOINT --user NAME --context NAME")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// All contexts.
    #[command(visible_alias = "ls")]
    List,
    /// Make a context the current one.
    #[command(visible_alias = "switch")]
    Use {
        /// Name of the context.
        name: String,
    },
    /// Print the name of the current context.
    Current,
    /// Forget a context.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the context.
        name: String,
    },
}

/// A context as it is shown: without its token.
#[derive(Serialize)]
struct Row {
    name: String,
    current: bool,
    endpoint: String,
    user: Option<String>,
    tenant: Option<String>,
    logged_in: bool,
}

const COLUMNS: [Column<Row>; 6] = [
    Column::new("NAME", |r| r.name.clone()),
    Column::new("CURRENT", |r| if r.current { "*".into() } else { String::new() }),
    Column::new("ENDPOINT", |r| r.endpoint.clone()),
    Column::new("USER", |r| r.user.clone().unwrap_or_default()),
    Column::new("TENANT", |r| r.tenant.clone().unwrap_or_default()),
    Column::wide("LOGGED IN", |r| if r.logged_in { "yes".into() } else { "no".into() }),
];

pub fn run(format: Format, args: Arguments) -> Result<()> {
    let path = config_path()?;
    let mut config = Config::load(&path)?;
    match args.verb {
        Verb::List => output::list(format, &rows(&config), &COLUMNS),
        Verb::Use { name } => {
            config.get(&name)?;
            config.current = Some(name.clone());
            config.save(&path)?;
            note(format!("Context '{name}' is current."));
            Ok(())
        }
        Verb::Current => match &config.current {
            Some(name) => data(&format!("{name}\n")),
            None => Err(Failure::new("no context is current")
                .hint("choose one with: banyan context use NAME   or log in with: banyan login ENDPOINT")),
        },
        Verb::Delete { name } => {
            config.get(&name)?;
            config.contexts.remove(&name);
            if config.current.as_ref() == Some(&name) {
                config.current = None;
            }
            config.save(&path)?;
            note(format!("Context '{name}' is forgotten."));
            Ok(())
        }
    }
}

fn rows(config: &Config) -> Vec<Row> {
    let row = |(name, context): (&String, &crate::context::Context)| Row {
        name: name.clone(),
        current: config.current.as_ref() == Some(name),
        endpoint: context.endpoint.clone(),
        user: context.user.clone(),
        tenant: context.tenant.clone(),
        logged_in: context.token.is_some(),
    };
    config.contexts.iter().map(row).collect()
}
