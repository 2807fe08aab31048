//! `banyan user create|list|get|update|delete|password`

use api::{ListQuery, PasswordChange, User, UserCreate, UserUpdate};
use clap::{Args, Subcommand};
use model::{Name, Role};

use super::parse;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{age_now, pair};
use crate::output::{self, note};
use crate::session::{Session, all};
use crate::terminal::secret;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan user create ann --role member\n  echo \"$SECRET\" | banyan user create bot --role viewer --password-stdin"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a user; the password is asked for.
    Create {
        /// Name of the user, unique in the tenant.
        name: Name,
        /// viewer, member, admin or operator.
        #[arg(long, default_value = "member", value_parser = parse::role)]
        role: Role,
        /// E-mail address, by which others may share buckets with the user's tenant.
        #[arg(long)]
        email: Option<String>,
        /// Read the password from standard input, without asking.
        #[arg(long)]
        password_stdin: bool,
    },
    /// All users of the tenant.
    #[command(visible_alias = "ls")]
    List,
    /// One user.
    #[command(visible_alias = "show")]
    Get {
        /// Name or id.
        user: String,
    },
    /// Change the role or set a new password.
    Update {
        /// Name or id.
        user: String,
        /// viewer, member, admin or operator.
        #[arg(long, value_parser = parse::role)]
        role: Option<Role>,
        /// A new e-mail address; an empty one takes it away.
        #[arg(long)]
        email: Option<String>,
        /// Read a new password from standard input, or ask for it on a terminal.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Remove a user with its tokens and keys.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name or id.
        user: String,
    },
    /// Change your own password; both are read from standard input or asked for.
    Password,
}

const COLUMNS: [Column<User>; 5] = [
    Column::new("NAME", |u| u.name.to_string()),
    Column::new("ROLE", |u| u.role.to_string()),
    Column::new("TENANT", |u| u.tenant.to_string()),
    Column::new("AGE", |u| age_now(u.created_at)),
    Column::wide("ID", |u| u.id.to_string()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Create { name, role, email, password_stdin } => {
            let password = new_password(password_stdin)?;
            let user = client.user_create(&UserCreate { name, role, password, email }).await?;
            note(format!("user {}: created", user.name));
            show(session, &user)
        }
        Verb::List => {
            let users =
                all(ListQuery::new(), None, |query| async move { client.user_list(&query).await }).await?;
            output::list(session.format, &users, &COLUMNS)
        }
        Verb::Get { user } => show(session, &client.user_get(&user).await?),
        Verb::Update { user, role, email, password_stdin } => {
            if role.is_none() && email.is_none() && !password_stdin {
                return Err(Failure::new("nothing to change is named")
                    .hint("give --role ROLE, --email ADDRESS or --password-stdin"));
            }
            let password = if password_stdin { Some(secret("new password")?) } else { None };
            let user = client.user_update(&user, &UserUpdate { role, password, email }, None).await?;
            note(format!("user {}: changed", user.name));
            show(session, &user)
        }
        Verb::Delete { user } => {
            client.user_delete(&user, None).await?;
            note(format!("user {user}: deleted"));
            Ok(())
        }
        Verb::Password => {
            let change = PasswordChange { current: secret("current password")?, new: new_password(false)? };
            client.password_change(&change).await?;
            note("password: changed");
            Ok(())
        }
    }
}

/// Asked for twice on a terminal, because it is not shown.
fn new_password(piped: bool) -> Result<String> {
    use std::io::IsTerminal;
    let password = secret("new password")?;
    if !piped && std::io::stdin().is_terminal() && secret("new password again")? != password {
        return Err(Failure::new("the two passwords are not the same"));
    }
    Ok(password)
}

fn show(session: &Session, user: &User) -> Result<()> {
    let name = user.name.to_string();
    output::item(session.format, user, &name, |user, _| {
        vec![
            pair("name", &user.name),
            pair("id", &user.id),
            pair("tenant", &user.tenant),
            pair("role", user.role),
            pair("created", format!("{} ago", age_now(user.created_at))),
        ]
    })
}
