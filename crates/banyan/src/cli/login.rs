//! `banyan login`, `logout`, `whoami`

use api::{Client, Login, Whoami};
use clap::Args;
use model::{ErrorKind, Name};

use super::Globals;
use crate::context::{Config, Context, config_path, context_save, resolve};
use crate::failure::{Failure, Result};
use crate::output::text::pair;
use crate::output::{self, note};
use crate::session::Session;
use crate::terminal::secret;

const AFTER_HELP: &str = "\
Examples:
  banyan login http://127.0.0.1:7700 --user admin
  echo \"$PASSWORD\" | banyan login https://cloud.example:7700 --user ann --tenant team-a --password-stdin
  banyan login https://cloud.example:7700 --token TOKEN --context far";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct LoginArguments {
    /// Address of the cloud; that of the current context when absent.
    url: Option<String>,
    /// Name to log in with.
    #[arg(short, long, value_name = "NAME")]
    user: Option<Name>,
    /// Read the password from standard input, without asking.
    #[arg(long)]
    password_stdin: bool,
}

pub async fn login(globals: &Globals, args: LoginArguments) -> Result<()> {
    let (endpoint, name) = destination(globals, args.url)?;
    let client = Client::new(&endpoint, globals.token.clone())?;
    let (token, whoami) = match (&globals.token, &args.user) {
        (Some(token), None) => (token.clone(), client.whoami().await?),
        (_, Some(user)) => {
            let tenant = globals.tenant.as_deref().map(str::parse::<Name>).transpose()?;
            let password = secret("password")?;
            let done = client.login(&Login { tenant, user: user.clone(), password }).await?;
            note(format!("The login ends at {}.", done.expires_at));
            (done.token, done.whoami)
        }
        (None, None) => {
            return Err(
                Failure::new("who to log in as is not named").hint("give --user NAME, or --token TOKEN")
            );
        }
    };
    let context = Context {
        endpoint: client.base().to_owned(),
        token: Some(token),
        user: Some(whoami.user.to_string()),
        tenant: Some(whoami.tenant.to_string()),
        ..Context::default()
    };
    let path = context_save(&name, context)?;
    note(format!("Context '{name}' is saved in {} and current.", path.display()));
    show(globals.output, &whoami)
}

/// The endpoint to log in to, and the name of the context to keep it under.
fn destination(globals: &Globals, url: Option<String>) -> Result<(String, String)> {
    let overrides = globals.overrides();
    if let Some(endpoint) = url.or_else(|| overrides.endpoint.clone()) {
        let name = overrides.context.unwrap_or_else(|| context_name(&endpoint));
        return Ok((endpoint, name));
    }
    let config = Config::load(&config_path()?)?;
    let target = resolve(&config, &overrides)?;
    let name = overrides.context.or(config.current).unwrap_or_else(|| context_name(&target.endpoint));
    Ok((target.endpoint, name))
}

/// A name for the cloud at an address: its host, and its port unless it is the usual one.
fn context_name(endpoint: &str) -> String {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or(host).trim_end_matches(":7700");
    host.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-', "-").to_lowercase()
}

pub async fn logout(globals: &Globals) -> Result<()> {
    let path = config_path()?;
    let mut config = Config::load(&path)?;
    let Some(name) = globals.overrides().context.or_else(|| config.current.clone()) else {
        return Err(Failure::new("no context is current, so there is nothing to log out of"));
    };
    let context = config.get(&name)?.clone();
    if let Some(token) = context.token.clone() {
        let client = Client::new(&context.endpoint, Some(token))?;
        match client.logout().await {
            Ok(()) => {}
            // An ended login and an API token have no session to end; forgetting them here is what is left.
            Err(error) if error.kind != ErrorKind::Unavailable => {}
            Err(error) => note(format!("{error}; the login is only forgotten here")),
        }
    }
    config.contexts.insert(name.clone(), Context { token: None, ..context });
    config.save(&path)?;
    note(format!("Logged out of '{name}'."));
    Ok(())
}

pub async fn whoami(session: &Session) -> Result<()> {
    show(session.format, &session.client.whoami().await?)
}

fn show(format: output::Format, whoami: &Whoami) -> Result<()> {
    let name = whoami.user.to_string();
    output::item(format, whoami, &name, |whoami, _| {
        vec![pair("user", &whoami.user), pair("tenant", &whoami.tenant), pair("role", whoami.role)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_named_after_its_host() {
        for (endpoint, name) in [
            ("http://127.0.0.1:7700", "127.0.0.1"),
            ("https://Cloud.Example/", "cloud.example"),
            ("http://host:81", "host-81"),
        ] {
            assert_eq!(context_name(endpoint), name);
        }
    }
}
