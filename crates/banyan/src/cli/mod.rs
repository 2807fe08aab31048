//! The command line: one file per noun, a verb per function.
//!
//! `mod.rs` owns the options that every command has and the table of commands.
//! Every option can also be set as `BANYAN_<OPTION>`; [`command`] sees to that,
//! so that a new option cannot forget it.

pub mod app;
pub mod apply;
pub mod bucket;
pub mod catalogue;
pub mod cluster;
pub mod completion;
pub mod context;
pub mod delete;
pub mod enroll;
pub mod event;
pub mod health;
pub mod image;
pub mod instance;
pub mod key;
pub mod login;
pub mod node;
pub mod object;
pub mod object_store;
pub mod parse;
pub mod place;
pub mod provisioner;
pub mod quota;
pub mod resource;
pub mod server;
pub mod template;
pub mod tenant;
pub mod token;
pub mod usage;
pub mod user;
pub mod version;
pub mod why;
pub mod workload;
pub mod zone;

use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::context::Overrides;
use crate::failure::Result;
use crate::output::Format;
use crate::role::config as role;
use crate::session::Session;

const AFTER_HELP: &str = "\
Examples:
  banyan up                                        a whole cloud on this machine
  banyan instance create web --image busybox -- sleep 1000
  banyan instance list
  banyan workload create web --image busybox --replicas 3 -- httpd -f -p 80
  banyan why instance web                          why it is where it is, or nowhere

Every option can be set in the environment as BANYAN_<OPTION>, such as BANYAN_TOKEN or BANYAN_OUTPUT.
BANYAN_CONFIG names the file of contexts, BANYAN_LOG filters the log on standard error.";

/// One cloud out of the machines you have.
#[derive(Parser)]
#[command(name = "banyan", version, about, after_help = AFTER_HELP, max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

/// Which cloud, as whom, and how to show it.
#[derive(Debug, Clone, Args)]
pub struct Globals {
    /// Named context to use instead of the current one.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cloud")]
    pub context: Option<String>,
    /// Address of the cloud, such as http://127.0.0.1:7700.
    #[arg(long, global = true, value_name = "URL", help_heading = "Cloud")]
    pub endpoint: Option<String>,
    /// API token to act with.
    #[arg(long, global = true, value_name = "TOKEN", help_heading = "Cloud", hide_env_values = true)]
    pub token: Option<String>,
    /// Tenant to act in; only operators may choose another than their own.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cloud")]
    pub tenant: Option<String>,
    /// How to show data.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub output: Format,
}

impl Globals {
    pub fn overrides(&self) -> Overrides {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Overrides {
            context: given(&self.context),
            endpoint: given(&self.endpoint),
            token: given(&self.token),
            tenant: given(&self.tenant),
        }
    }
}

/// How long an order is waited for when nobody says and nothing takes longer by its own terms.
const WAIT_DEFAULT: Duration = Duration::from_secs(120);

/// Options of commands that wait until what they asked for has happened.
#[derive(Debug, Clone, Args)]
pub struct Waiting {
    /// Wait until it has happened; this is the default.
    #[arg(long, help_heading = "Waiting", overrides_with = "no_wait")]
    wait: bool,
    /// Return as soon as the cloud has taken the order.
    #[arg(long, help_heading = "Waiting")]
    no_wait: bool,
    /// Longest to wait, such as 90s or 5m [default: 2m, of a workload as long as its own deadline, of a cluster 1h].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Waiting")]
    timeout: Option<Duration>,
}

impl Waiting {
    /// How long to wait; none when not at all.
    pub fn limit(&self) -> Option<Duration> {
        self.limit_or(WAIT_DEFAULT)
    }

    /// The same, with another time where none is given, if that is longer.
    pub fn limit_or(&self, needed: Duration) -> Option<Duration> {
        let limit = self.timeout.unwrap_or(needed.max(WAIT_DEFAULT));
        (self.wait || !self.no_wait).then_some(limit)
    }
}

#[derive(Args)]
pub struct RootArguments {
    /// Configuration of root.
    #[arg(long, value_name = "FILE")]
    config: std::path::PathBuf,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a whole cloud on this machine: root, zone, node and provisioner.
    Up(crate::up::UpArgs),
    /// End every instance that `up` left on this machine, and its network.
    Down(crate::down::DownArgs),
    /// Run this machine as root alone, set up by a file.
    Root(RootArguments),
    /// Containers: create, watch, enter, stop, delete.
    #[command(visible_aliases = ["instances", "i"])]
    Instance(instance::Arguments),
    /// Many like instances: replicas, updates, runs, daemons.
    #[command(visible_aliases = ["workloads", "w"])]
    Workload(workload::Arguments),
    /// Workloads that belong together.
    #[command(visible_alias = "apps")]
    App(app::Arguments),
    /// What instances boot from: import, pull, list, delete.
    #[command(visible_alias = "images")]
    Image(image::Arguments),
    /// Many machines with services on them, from a template: create, change, log in, delete.
    #[command(visible_alias = "clusters")]
    Cluster(cluster::Arguments),
    /// What clusters are made from: templates, services, providers, kinds of machines.
    #[command(visible_alias = "catalog")]
    Catalogue(catalogue::Arguments),
    /// Files that plugins use on machines of clusters: scripts, archives, keys.
    #[command(visible_alias = "resources")]
    Resource(resource::Arguments),
    /// Clusters from templates, offline: layouts, plans, checks, macros.
    #[command(visible_alias = "templates")]
    Template(template::Arguments),
    /// Buckets of the object store (S3).
    #[command(visible_alias = "buckets")]
    Bucket(bucket::Arguments),
    /// Objects in buckets: put, get, list, sync, share by a link.
    #[command(visible_alias = "objects")]
    Object(object::Arguments),
    /// The store behind buckets: how it is, and whether all it keeps is sound (for operators).
    ObjectStore(object_store::Arguments),
    /// Create and change what files describe; run it again and nothing changes.
    Apply(apply::Arguments),
    /// Remove what files describe.
    Delete(delete::Arguments),
    /// Explain a decision: why a thing is where it is, or nowhere.
    Why(why::Arguments),
    /// The history: who did what to what, when and from where.
    #[command(visible_alias = "events")]
    Event(event::Arguments),
    /// How the platform itself is: links, leases, disks, clocks, certificates (for operators).
    Health(health::Arguments),
    /// Machines that run instances.
    #[command(visible_alias = "nodes")]
    Node(node::Arguments),
    /// Sets of nodes under one controller.
    #[command(visible_alias = "zones")]
    Zone(zone::Arguments),
    /// Those who carry out tasks of clusters.
    #[command(visible_alias = "provisioners")]
    Provisioner(provisioner::Arguments),
    /// The root servers of this cloud (for operators).
    #[command(subcommand, visible_alias = "servers")]
    Server(server::Verb),
    /// Who pays and owns (for operators).
    #[command(visible_alias = "tenants")]
    Tenant(tenant::Arguments),
    /// Who acts in a tenant.
    #[command(visible_alias = "users")]
    User(user::Arguments),
    /// API tokens.
    #[command(visible_alias = "tokens")]
    Token(token::Arguments),
    /// Access keys, for signing S3 and EC2 requests.
    #[command(visible_alias = "keys")]
    Key(key::Arguments),
    /// What a tenant may have, and has.
    #[command(visible_alias = "quotas")]
    Quota(quota::Arguments),
    /// Print a one-time token with which a zone, node or provisioner joins (for operators).
    Enroll(enroll::Arguments),
    /// Log in to a cloud and remember it as a context.
    Login(login::LoginArguments),
    /// End the login of the current context.
    Logout,
    /// Who the current context acts as.
    Whoami,
    /// Clouds you have logged in to.
    #[command(visible_alias = "contexts")]
    Context(context::Arguments),
    /// Print the completion script for a shell.
    Completion(completion::Arguments),
    /// Print the version.
    Version,
    /// Short for `instance list`.
    #[command(hide = true, visible_alias = "ls")]
    Ps(instance::list::Arguments),
}

impl Command {
    /// Whether this is one role in its own process, whose log somebody keeps.
    pub const fn is_role(&self) -> bool {
        match self {
            Self::Root(_) => true,
            Self::Node(args) => args.config.is_some(),
            Self::Zone(args) => args.config.is_some(),
            Self::Provisioner(args) => args.config.is_some(),
            _ => false,
        }
    }
}

/// The whole command line, with an environment variable for every option.
pub fn command() -> clap::Command {
    with_environment(Cli::command())
}

/// `BANYAN_CONFIG` names the file of contexts, so a role's `--config` has another name.
fn variable(long: &str) -> String {
    match long {
        "config" => "BANYAN_ROLE_CONFIG".to_owned(),
        _ => format!("BANYAN_{}", long.replace('-', "_").to_uppercase()),
    }
}

fn with_environment(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_long() {
            Some(long) if arg.get_env().is_none() => {
                let name = variable(long);
                // Names of options live as long as the program; clap asks for that.
                arg.env(&*String::leak(name)).hide_env(true)
            }
            _ => arg.hide_env(true),
        })
        .mut_subcommands(with_environment)
}

/// Runs a command of a person. Returns the exit code.
pub async fn run(cli: Cli) -> Result<u8> {
    let globals = &cli.globals;
    let open = || Session::open(globals);
    match cli.command {
        Command::Up(args) => crate::up::run(args).await.map(|()| 0).map_err(Into::into),
        Command::Down(args) => crate::down::run(args).await.map(|()| 0).map_err(Into::into),
        Command::Root(args) => role::root(&args.config).await.map(|()| 0).map_err(Into::into),
        Command::Instance(args) => instance::run(&open()?, args).await,
        Command::Ps(args) => instance::list::run(&open()?, args).await.map(|()| 0),
        Command::Image(args) => image::run(&open()?, args).await.map(|()| 0),
        Command::Cluster(args) => cluster::run(&open()?, args).await,
        Command::Catalogue(args) => catalogue::run(&open()?, args).await.map(|()| 0),
        Command::Resource(args) => resource::run(&open()?, args).await.map(|()| 0),
        Command::Template(args) => template::run(globals.output, args),
        Command::Bucket(args) => bucket::run(&open()?, args).await.map(|()| 0),
        Command::Object(args) => object::run(&open()?, args).await.map(|()| 0),
        Command::ObjectStore(args) => object_store::run(&open()?, args).await.map(|()| 0),
        Command::Apply(args) => apply::run(globals, args).await,
        Command::Delete(args) => delete::run(globals, args).await.map(|()| 0),
        Command::Workload(args) => workload::run(&open()?, args).await.map(|()| 0),
        Command::App(args) => app::run(&open()?, args).await.map(|()| 0),
        Command::Why(args) => why::run(&open()?, args).await.map(|()| 0),
        Command::Event(args) => event::run(&open()?, args).await.map(|()| 0),
        Command::Node(node::Arguments { config: Some(file), .. }) => {
            role::node(&file).await.map(|()| 0).map_err(Into::into)
        }
        Command::Zone(zone::Arguments { config: Some(file), .. }) => {
            role::zone(&file).await.map(|()| 0).map_err(Into::into)
        }
        Command::Provisioner(provisioner::Arguments { config: Some(file), .. }) => {
            role::provisioner(&file).await.map(|()| 0).map_err(Into::into)
        }
        Command::Provisioner(args) => provisioner::run(&open()?, args).await.map(|()| 0),
        Command::Server(verb) => server::run(&open()?, verb).await.map(|()| 0),
        Command::Health(args) => health::run(&open()?, args).await,
        Command::Node(args) => node::run(&open()?, args).await.map(|()| 0),
        Command::Zone(args) => zone::run(&open()?, args).await.map(|()| 0),
        Command::Tenant(args) => tenant::run(&open()?, args).await.map(|()| 0),
        Command::User(args) => user::run(&open()?, args).await.map(|()| 0),
        Command::Token(args) => token::run(&open()?, args).await.map(|()| 0),
        Command::Key(args) => key::run(&open()?, args).await.map(|()| 0),
        Command::Quota(args) => quota::run(&open()?, args).await.map(|()| 0),
        Command::Enroll(args) => enroll::run(&open()?, args).await.map(|()| 0),
        Command::Login(args) => login::login(globals, args).await.map(|()| 0),
        Command::Logout => login::logout(globals).await.map(|()| 0),
        Command::Whoami => login::whoami(&open()?).await.map(|()| 0),
        Command::Context(args) => context::run(globals.output, args).map(|()| 0),
        Command::Completion(args) => completion::run(args).map(|()| 0),
        Command::Version => version::run(globals.output).map(|()| 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_has_its_environment_variable() {
        fn walk(command: &clap::Command, seen: &mut usize) {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let long = arg.get_long().expect("filtered");
                let env = arg.get_env().and_then(|env| env.to_str());
                assert_eq!(env, Some(variable(long).as_str()), "{} --{long}", command.get_name());
                *seen += 1;
            }
            command.get_subcommands().for_each(|sub| walk(sub, seen));
        }
        let mut seen = 0;
        walk(&command(), &mut seen);
        assert!(seen > 40, "only {seen} options were seen");
    }

    #[test]
    fn every_command_says_what_it_does() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&command());
    }
}
