//! `banyan cluster …`: many machines with services on them, made from a template.

mod change;
mod create;
mod logs;
mod rollback;
mod show;
mod ssh;

use api::{Cluster, ListQuery};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::template::catalogue::json;
use crate::failure::{Failure, Result};
use crate::session::{Session, all, is_id_prefix, pick};

const AFTER_HELP: &str = "\
Examples:
  banyan catalogue apply -f ./catalogue
  banyan cluster solve --template web --size 3
  banyan cluster create shop --template web --size 3
  banyan cluster expand shop 5
  banyan cluster ssh shop 1001 -- uptime
  banyan cluster delete shop";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a cluster from a template and wait until it stands.
    Create(Box<create::CreateArguments>),
    /// All clusters of the tenant.
    #[command(visible_alias = "ls")]
    List(show::ListArguments),
    /// One cluster with its machines.
    #[command(visible_alias = "show")]
    Get(One),
    /// Follow the job of a cluster, task by task, until it is over.
    Watch(One),
    /// Show the layout, the tasks and the cost of a cluster without making it.
    Solve(create::SolveArguments),
    /// Give it more machines.
    Expand(change::ResizeArguments),
    /// Give it fewer machines; those that the template needs least go.
    Shrink(change::ResizeArguments),
    /// Change its configuration and bring it to its services; without a change, configure them again.
    Configure(change::ConfigureArguments),
    /// Start services and what they need.
    Start(change::OrderArguments),
    /// Stop services and what needs them.
    Stop(change::OrderArguments),
    /// Stop and start services, with what needs them.
    Restart(change::OrderArguments),
    /// Add and remove services.
    Services(change::ServicesArguments),
    /// Install services anew, a few machines at a time.
    Upgrade(change::UpgradeArguments),
    /// Go back to the layout, services and configuration before the last change, or before one that failed half-way.
    Rollback(rollback::Arguments),
    /// Make machines anew that are gone, with their services; those that stay are configured for it.
    Repair(change::RepairArguments),
    /// Ask the provider whether its machines are there; on this cloud that is seen without being asked for.
    Check(change::OneArguments),
    /// Change when it is deleted by itself.
    Lease(change::LeaseArguments),
    /// End the job under way; what it made by half is taken back.
    Abort(change::OneArguments),
    /// Begin no more tasks of its job; those under way go on.
    Pause(One),
    /// End a pause.
    Resume(change::OneArguments),
    /// Delete clusters with all their machines.
    #[command(visible_alias = "rm")]
    Delete(change::DeleteArguments),
    /// Log in to a machine, or run a command there.
    Ssh(ssh::Arguments),
    /// What was done to its machines, with what it printed.
    Logs(logs::Arguments),
    /// The changes it had, newest first.
    Jobs(One),
}

#[derive(Args)]
pub struct One {
    /// Name, id, or the beginning of an id.
    pub cluster: String,
}

pub async fn run(session: &Session, args: Arguments) -> Result<u8> {
    use change::Act;
    match args.verb {
        Verb::Create(args) => create::create(session, *args).await,
        Verb::List(args) => show::list(session, args).await,
        Verb::Get(args) => show::get(session, &args.cluster).await,
        Verb::Watch(args) => show::watch(session, &args.cluster).await,
        Verb::Solve(args) => return create::solve(session, args).await,
        Verb::Expand(args) => change::resize(session, args, true).await,
        Verb::Shrink(args) => change::resize(session, args, false).await,
        Verb::Configure(args) => change::configure(session, args).await,
        Verb::Start(args) => change::order(session, Act::Start, args).await,
        Verb::Stop(args) => change::order(session, Act::Stop, args).await,
        Verb::Restart(args) => change::order(session, Act::Restart, args).await,
        Verb::Services(args) => change::services(session, args).await,
        Verb::Upgrade(args) => change::upgrade(session, args).await,
        Verb::Rollback(args) => rollback::run(session, args).await,
        Verb::Repair(args) => change::repair(session, args).await,
        Verb::Check(args) => change::check(session, args).await,
        Verb::Lease(args) => change::lease(session, args).await,
        Verb::Abort(args) => change::abort(session, args).await,
        Verb::Pause(args) => change::pause(session, &args.cluster).await,
        Verb::Resume(args) => change::resume(session, args).await,
        Verb::Delete(args) => change::delete(session, args).await,
        Verb::Ssh(args) => return ssh::run(session, args).await,
        Verb::Logs(args) => logs::run(session, args).await,
        Verb::Jobs(args) => show::jobs(session, &args.cluster).await,
    }
    .map(|()| 0)
}

/// The cluster, by name, id or the beginning of an id, and a hint when there is none.
pub async fn find(session: &Session, text: &str) -> Result<Cluster> {
    let name = if is_id_prefix(text, model::ClusterId::PREFIX) {
        let fetch = |query: ListQuery| async move { session.client.cluster_list(&query).await };
        let known = all(ListQuery::new(), None, fetch).await?;
        pick("cluster", text, known.into_iter().map(|c| (c.id.to_string(), c.name.to_string())))?
    } else {
        text.to_owned()
    };
    session.client.cluster_get(&name).await.map_err(|error| {
        let missing = error.kind == model::ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see what there is with: banyan cluster list") } else { failure }
    })
}

type Config = Map<String, Value>;

/// Values of a cluster's configuration.
#[derive(Args)]
pub struct Settings {
    /// JSON file with the whole configuration.
    #[arg(long, value_name = "FILE")]
    file: Option<std::path::PathBuf>,
    /// One value, as PATH=VALUE with dots in the path; JSON, or else text; may be repeated.
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = super::parse::pair)]
    values: Vec<(String, String)>,
}

impl Settings {
    /// The whole configuration, where a file gives it, and single values by their paths.
    fn parts(self) -> Result<(Option<Config>, Config)> {
        let whole = self.file.as_deref().map(object).transpose()?;
        for (path, text) in &self.values {
            set(&mut Config::new(), path, value(text))?;
        }
        Ok((whole, self.values.into_iter().map(|(path, text)| (path, value(&text))).collect()))
    }

    /// Whether what comes of it depends on what there is.
    fn is_whole(&self) -> bool {
        self.file.is_some()
    }

    /// What is given, upon what there is; nothing when nothing is given.
    fn merged(&self, there: Config) -> Result<Option<Config>> {
        if self.file.is_none() && self.values.is_empty() {
            return Ok(None);
        }
        let mut config = match &self.file {
            None => there,
            Some(file) => object(file)?,
        };
        for (path, text) in &self.values {
            set(&mut config, path, value(text))?;
        }
        Ok(Some(config))
    }
}

fn object(file: &std::path::Path) -> Result<Config> {
    match json(file)? {
        Value::Object(config) => Ok(config),
        _ => Err(Failure::new(format!("{} is no JSON object", file.display()))),
    }
}

/// JSON, or else text.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn set(config: &mut Config, path: &str, value: Value) -> Result<()> {
    let wrong = || Failure::new(format!("'{path}' leads through a value that is no object")).at("--set");
    if path.split('.').any(str::is_empty) {
        return Err(Failure::new(format!("'{path}' has an empty part: write it as a.b=VALUE")).at("--set"));
    }
    match path.split_once('.') {
        None => drop(config.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = config.entry(first).or_insert_with(|| Value::Object(Map::new()));
            set(inner.as_object_mut().ok_or_else(wrong)?, rest, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_are_set_by_their_paths() {
        let there = serde_json::json!({"web": {"port": 80}, "name": "x"});
        let given = |values: &[(&str, &str)]| Settings {
            file: None,
            values: values.iter().map(|(path, value)| ((*path).into(), (*value).into())).collect(),
        };
        let there = there.as_object().unwrap();
        let merged = given(&[("web.port", "8080"), ("web.tls.on", "true"), ("motto", "as is")]);
        assert_eq!(
            Value::Object(merged.merged(there.clone()).unwrap().unwrap()),
            serde_json::json!({"web": {"port": 8080, "tls": {"on": true}}, "name": "x", "motto": "as is"})
        );
        assert!(given(&[]).merged(there.clone()).unwrap().is_none());
        for wrong in ["name.first", "x..y", ".x", "x.", ""] {
            assert!(given(&[(wrong, "1")]).merged(there.clone()).is_err(), "{wrong}");
        }
        let (whole, single) = given(&[("web.port", "8080"), ("motto", "as is")]).parts().unwrap();
        assert_eq!(
            (whole, Value::Object(single)),
            (None, serde_json::json!({"web.port": 8080, "motto": "as is"}))
        );
    }
}
