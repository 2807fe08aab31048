//! `banyan token create|list|delete`

use std::time::Duration;

use api::{ListQuery, Token, TokenCreate};
use clap::{Args, Subcommand};
use model::{Name, Role};

use super::parse;
use crate::failure::Result;
use crate::output::table::Column;
use crate::output::text::{age_now, pair, pair_some};
use crate::output::{self, note};
use crate::session::{Session, all, pick};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan token create ci --role member --expires 30d\n  banyan token create ci -o json | jq -r .secret"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a token for yourself; its secret is shown this once.
    Create {
        /// Name of the token.
        name: Name,
        /// The most the token may do: viewer, member, admin or operator; your own role when absent.
        #[arg(long, value_parser = parse::role)]
        role: Option<Role>,
        /// Time until it ends, such as 30d; for ever when absent.
        #[arg(long, value_name = "TIME", value_parser = parse::duration)]
        expires: Option<Duration>,
    },
    /// All tokens you may see.
    #[command(visible_alias = "ls")]
    List,
    /// End a token.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name, id, or the beginning of an id.
        name: String,
    },
}

const COLUMNS: [Column<Token>; 6] = [
    Column::new("NAME", |t| t.name.to_string()),
    Column::new("USER", |t| t.user.to_string()),
    Column::new("ROLE", |t| t.role.to_string()),
    Column::new("EXPIRES", |t| t.expires_at.map_or("never".into(), |at| at.to_string())),
    Column::new("AGE", |t| age_now(t.created_at)),
    Column::new("ID", |t| t.id.to_string()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    let list = || all(ListQuery::new(), None, |query| async move { client.token_list(&query).await });
    match args.verb {
        Verb::Create { name, role, expires } => {
            let body = TokenCreate { name, role, expires_in_s: expires.map(|time| time.as_secs()) };
            let created = client.token_create(&body).await?;
            note("The secret is shown only this once.");
            let name = created.token.name.to_string();
            output::item(session.format, &created, &name, |created, _| {
                vec![
                    pair("name", &created.token.name),
                    pair("id", &created.token.id),
                    pair("role", created.token.role),
                    pair_some("expires", created.token.expires_at),
                    pair("secret", &created.secret),
                ]
            })
        }
        Verb::List => output::list(session.format, &list().await?, &COLUMNS),
        Verb::Delete { name } => {
            let tokens = list().await?;
            let id =
                pick("token", &name, tokens.into_iter().map(|t| (t.id.to_string(), t.name.to_string())))?;
            client.token_delete(&id).await?;
            note(format!("token {name}: ended"));
            Ok(())
        }
    }
}
