//! `banyan app create|list|get|delete`: workloads that belong together.

use std::time::{Duration, Instant};

use api::{App, AppCreate, AppMember, AppWorkload, Client, ListQuery};
use clap::{Args, Subcommand};
use model::{ErrorKind, Name};
use serde::Serialize;

use super::Waiting;
use super::workload::show::Export;
use crate::failure::{Failure, Result};
use crate::manifest::AppSpec;
use crate::output::progress::Progress;
use crate::output::table::{Column, render, terminal_width};
use crate::output::text::{age_now, pair, plural};
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};

const AFTER_HELP: &str = "\
Examples:
  banyan apply -f shop.yaml                        an app with all its workloads
  banyan app get shop -o yaml                      the same as a file for apply
  banyan app delete shop";
const POLL: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an app without workloads; add them with `workload create --app`.
    Create {
        /// Name of the app, unique in the tenant.
        name: Name,
        /// What it is for.
        #[arg(long, value_name = "TEXT", default_value = "")]
        description: String,
    },
    /// All apps of the tenant.
    #[command(visible_alias = "ls")]
    List {
        /// Only those with this name; `*` stands for anything.
        #[arg(long, value_name = "PATTERN")]
        name: Option<String>,
    },
    /// One app with its workloads.
    #[command(visible_alias = "show")]
    Get {
        /// Name or id.
        app: String,
    },
    /// Remove apps with all their workloads and instances.
    #[command(visible_alias = "rm")]
    Delete {
        /// Names or ids.
        #[arg(required = true, value_name = "APP")]
        apps: Vec<String>,
        #[command(flatten)]
        waiting: Waiting,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
}

/// An app as the API shows it, with the specs of its workloads, so that `apply` takes it.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    app: &'a App,
    spec: AppSpec,
}

const COLUMNS: [Column<App>; 6] = [
    Column::new("NAME", |a| a.name.to_string()),
    Column::new("WORKLOADS", |a| a.workloads.len().to_string()),
    Column::new("AVAILABLE", ready),
    Column::new("AGE", |a| age_now(a.created_at)),
    Column::new("DESCRIPTION", |a| a.description.clone()),
    Column::wide("ID", |a| a.id.to_string()),
];

const MEMBER_COLUMNS: [Column<AppMember>; 3] = [
    Column::new("WORKLOAD", |m| m.name.to_string()),
    Column::new("PHASE", |m| m.phase.to_string()),
    Column::new("AVAILABLE", |m| format!("{}/{}", m.available, m.wanted)),
];

/// How many of all instances are available.
fn ready(app: &App) -> String {
    let sum = |count: fn(&AppMember) -> u32| app.workloads.iter().map(count).sum::<u32>();
    format!("{}/{}{}", sum(|m| m.available), sum(|m| m.wanted), if app.deleting { " (deleting)" } else { "" })
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Create { name, description } => {
            let body = AppCreate { name, description, workloads: Vec::new() };
            show(session, &client.app_create(&body).await?).await
        }
        Verb::List { name } => {
            let query = name.iter().fold(ListQuery::new(), |query, name| query.with("name", name));
            let apps = all(query, None, |query| async move { client.app_list(&query).await }).await?;
            if apps.is_empty() && matches!(session.format, Format::Table | Format::Wide) {
                note("No apps. Describe one in a file and: banyan apply -f FILE");
                return Ok(());
            }
            output::list(session.format, &apps, &COLUMNS)
        }
        Verb::Get { app } => show(session, &find(client, &app).await?).await,
        Verb::Delete { apps, waiting, dry_run } => delete(session, &apps, &waiting, dry_run).await,
    }
}

async fn find(client: &Client, name: &str) -> Result<App> {
    client.app_get(name).await.map_err(|error| {
        let missing = error.kind == ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see what there is with: banyan app list") } else { failure }
    })
}

async fn show(session: &Session, app: &App) -> Result<()> {
    let name = app.name.as_str();
    match session.format {
        Format::Table | Format::Wide => {
            let page = [
                pair("name", &app.name),
                pair("id", &app.id),
                pair("description", &app.description),
                pair("available", ready(app)),
                pair("created", format!("{} ago by {}", age_now(app.created_at), app.created_by)),
            ];
            data(&output::text::pairs(&page))?;
            if app.workloads.is_empty() {
                return Ok(());
            }
            data(&format!("\n{}", render(&app.workloads, &MEMBER_COLUMNS, false, terminal_width())))
        }
        Format::Json | Format::Yaml => {
            let spec =
                AppSpec { description: app.description.clone(), workloads: specs(session, app).await? };
            let whole = Whole { app, spec };
            let export = Export { kind: "App", thing: &whole };
            output::item(session.format, &export, name, |_, _| Vec::new())
        }
        Format::Name => data(&format!("{name}\n")),
    }
}

async fn specs(session: &Session, app: &App) -> Result<Vec<AppWorkload>> {
    let mut specs = Vec::new();
    for member in &app.workloads {
        let workload = session.client.workload_get(member.name.as_str()).await?;
        specs.push(AppWorkload { name: workload.name, spec: workload.spec });
    }
    Ok(specs)
}

async fn delete(session: &Session, apps: &[String], waiting: &Waiting, dry_run: bool) -> Result<()> {
    let client = &session.client;
    let mut found = Vec::new();
    for app in apps {
        let one = find(client, app).await;
        found.push(one.map_err(|failure| failure.all_or_none(apps.len(), "deleted"))?);
    }
    for app in &found {
        if dry_run {
            let names: Vec<_> = app.workloads.iter().map(|member| member.name.to_string()).collect();
            note(format!(
                "app {}: would be deleted with its workloads {} (nothing was changed)",
                app.name,
                names.join(", ")
            ));
            continue;
        }
        client.app_delete(app.name.as_str(), None).await?;
    }
    if dry_run {
        return Ok(());
    }
    for app in &found {
        if let Some(limit) = waiting.limit() {
            wait_gone(client, app.name.as_str(), limit).await?;
        }
        if session.format == Format::Name {
            data(&format!("{}\n", app.name))?;
        }
    }
    Ok(())
}

/// Waits until an app and all that was in it is gone.
pub async fn wait_gone(client: &Client, name: &str, timeout: Duration) -> Result<()> {
    let mut progress = Progress::new(format!("app {name}"));
    let deadline = Instant::now() + timeout;
    loop {
        let left = match client.app_get(name).await {
            Ok(app) => app.workloads.len(),
            Err(error) if error.kind == ErrorKind::NotFound => {
                progress.done("gone");
                return Ok(());
            }
            Err(error) if error.kind == ErrorKind::Unavailable && Instant::now() < deadline => 0,
            Err(error) => return Err(error.into()),
        };
        progress.now(&format!("deleting, {} left", plural(left as u64, "workload")));
        if Instant::now() >= deadline {
            progress.clear();
            let waited = timeout.as_secs();
            return Err(Failure::new(format!(
                "the wait for app {name} ended after {waited}s; it is still being deleted"
            ))
            .hint(format!("banyan app get {name}   or   banyan workload list --app {name}")));
        }
        tokio::time::sleep(POLL).await;
    }
}
