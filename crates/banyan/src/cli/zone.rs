//! `banyan zone list|get`. Users see names, operators also what is in a zone.

use api::{ListQuery, Zone};
use clap::{Args, Subcommand};

use super::node::{join, labels};
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{age_now, pair, size};
use crate::output::{self};
use crate::session::{Session, all};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Run this machine as a zone, set up by a file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// All zones.
    #[command(visible_alias = "ls")]
    List,
    /// One zone.
    #[command(visible_alias = "show")]
    Get {
        /// Name or id.
        zone: String,
    },
}

fn state(zone: &Zone) -> String {
    if zone.live { "connected" } else { "away" }.to_owned()
}

fn detail<T: ToString>(zone: &Zone, read: impl FnOnce(&api::place::ZoneDetails) -> Option<T>) -> String {
    zone.details.as_ref().and_then(read).map(|value| value.to_string()).unwrap_or_default()
}

const COLUMNS: [Column<Zone>; 8] = [
    Column::new("NAME", |z| z.name.to_string()),
    Column::new("STATE", state),
    Column::new("NODES", |z| detail(z, |d| d.facts.as_ref().map(|f| f.nodes))),
    Column::new("INSTANCES", |z| detail(z, |d| Some(d.instances))),
    Column::new("CPU", |z| detail(z, |d| d.facts.as_ref().map(|f| f.capacity.cpu))),
    Column::new("MEMORY", |z| detail(z, |d| d.facts.as_ref().map(|f| size(f.capacity.memory.0)))),
    Column::new("SEEN", |z| detail(z, |d| d.last_seen.map(|at| format!("{} ago", age_now(at))))),
    Column::wide("ID", |z| z.id.to_string()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    let Some(verb) = args.verb else { return Err(Failure::new("say what to do; see --help")) };
    match verb {
        Verb::List => {
            let zones =
                all(ListQuery::new(), None, |query| async move { client.zone_list(&query).await }).await?;
            output::list(session.format, &zones, &COLUMNS)
        }
        Verb::Get { zone } => {
            let zone = client
                .zone_get(&zone)
                .await
                .map_err(|error| Failure::from(error).or_hint("see the zones with: banyan zone list"))?;
            let name = zone.name.to_string();
            output::item(session.format, &zone, &name, |zone, _| describe(zone))
        }
    }
}

fn describe(zone: &Zone) -> Vec<(String, String)> {
    let mut page = vec![pair("name", &zone.name), pair("id", &zone.id), pair("state", state(zone))];
    let Some(details) = &zone.details else { return page };
    page.push(pair("instances", details.instances));
    page.push(pair("enrolled", format!("{} ago", age_now(details.enrolled_at))));
    if let Some(facts) = &details.facts {
        page.push(pair("nodes", facts.nodes));
        page.push(pair("cpu", facts.capacity.cpu));
        page.push(pair("memory", size(facts.capacity.memory.0)));
        page.push(pair("disk", size(facts.capacity.disk.0)));
        page.push(pair("gpus", facts.gpus.len()));
        page.push(pair("arch", join(&facts.archs)));
        page.push(pair("runtimes", join(&facts.runtimes)));
        page.push(pair("labels", labels(facts)));
        page.push(pair("version", &facts.version));
    }
    page
}
