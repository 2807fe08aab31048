//! `banyan zone list|get`, and for operators `cordon|uncordon|drain|maintenance|resume|remove|
//! host|history`.
//! Users see names, operators also what is in a zone.

use api::{ListQuery, Zone, ZoneHosts};
use clap::{Args, Subcommand};
use model::{ErrorKind, PlaceMode};

use super::node::{join, labels, legs};
use super::place::{self, Draining, Left, Past, Removing};
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{age_now, pair, pair_some, size};
use crate::output::{self, note};
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

#[derive(Args)]
pub struct One {
    /// Name or id.
    zone: String,
}

const DRAIN_HELP: &str = "\
Root places what the zone holds in other zones: at most as many instances of a workload at once as its max
unavailable allows, others one by one.

Examples:
  banyan zone drain east
  banyan zone drain east --force --no-wait";

const REMOVE_HELP: &str = "\
Examples:
  banyan zone drain east && banyan zone remove east --yes
  banyan zone remove east --force --yes      it is gone and does not come back";

#[derive(Subcommand)]
enum Verb {
    /// All zones.
    #[command(visible_alias = "ls")]
    List,
    /// One zone.
    #[command(visible_alias = "show")]
    Get(One),
    /// Let a zone take no new instances; what runs there keeps running.
    Cordon(One),
    /// Let a zone take new instances again.
    Uncordon(One),
    /// Move everything to other zones, under its policies, and wait until the zone is empty.
    #[command(after_help = DRAIN_HELP)]
    Drain {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        drain: Draining,
    },
    /// Let the listeners of a zone have these names and addresses too, although it did not join with them.
    Host {
        #[command(flatten)]
        one: One,
        /// Names or addresses under which nodes reach it.
        #[arg(required = true, value_name = "NAME")]
        hosts: Vec<String>,
    },
    /// Drain a zone and expect it to be away: nobody is alarmed when it is silent.
    Maintenance {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        drain: Draining,
    },
    /// End maintenance or a drain: the zone takes instances again.
    Resume(One),
    /// Forget a zone for good, with its nodes; its certificate is never let in again.
    #[command(visible_alias = "rm", after_help = REMOVE_HELP)]
    Remove {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        remove: Removing,
    },
    /// What the nodes of a zone used together: processor, memory, disk, network, instances.
    History {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        past: Past,
    },
}

fn state(zone: &Zone) -> String {
    let live = if zone.live { "connected" } else { "away" };
    match zone.details.as_ref().map(|details| details.mode) {
        None | Some(PlaceMode::Open) => live.to_owned(),
        Some(mode) => format!("{live}, {}", mode.word()),
    }
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
        Verb::Get(One { zone }) => show(session, &client.zone_get(&zone).await.map_err(missing)?),
        Verb::Cordon(one) => mode(session, &one, PlaceMode::Cordoned).await,
        Verb::Uncordon(one) | Verb::Resume(one) => mode(session, &one, PlaceMode::Open).await,
        Verb::Drain { one, drain } => empty(session, &one, PlaceMode::Draining, &drain).await,
        Verb::Maintenance { one, drain } => empty(session, &one, PlaceMode::Maintenance, &drain).await,
        Verb::Remove { one, remove } => {
            let zone = client.zone_get(&one.zone).await.map_err(missing)?;
            place::remove_confirmed(&format!("zone {}", zone.name), &remove)?;
            client.zone_remove(zone.id.as_str(), remove.force).await.map_err(missing)?;
            note(format!("zone {}: removed", zone.name));
            Ok(())
        }
        Verb::Host { one, hosts } => {
            let said = hosts.join(", ");
            let zone = client.zone_hosts(&one.zone, &ZoneHosts { hosts }).await.map_err(missing)?;
            note(format!("zone {}: may be called {said}; start it again when its file says so", zone.name));
            Ok(())
        }
        Verb::History { one, past } => {
            let samples = client.zone_history(&one.zone, Some(past.since())).await.map_err(missing)?;
            place::history(session, &format!("zone {}", one.zone), &samples)
        }
    }
}

fn missing(error: model::Error) -> Failure {
    let not_found = error.kind == ErrorKind::NotFound;
    let failure = Failure::from(error);
    if not_found { failure.or_hint("see the zones with: banyan zone list") } else { failure }
}

async fn mode(session: &Session, one: &One, mode: PlaceMode) -> Result<()> {
    let zone = session.client.zone_mode(&one.zone, mode, false).await.map_err(missing)?;
    let takes = if mode == PlaceMode::Open { "takes new instances" } else { "takes no new instances" };
    let line = format!("zone {}: {takes}", zone.name);
    output::changed(session.format, &zone, zone.name.as_str(), &line)
}

/// Gives the order and waits until nothing is left.
async fn empty(session: &Session, one: &One, mode: PlaceMode, drain: &Draining) -> Result<()> {
    let client = &session.client;
    let zone = client.zone_mode(&one.zone, mode, drain.force).await.map_err(missing)?;
    let id = zone.id.as_str();
    let look = || async move {
        let details = client.zone_get(id).await?.details;
        let details = details
            .ok_or_else(|| model::Error::new(ErrorKind::Forbidden, "only operators see what is in a zone"))?;
        Ok(Left {
            instances: details.instances - details.resting,
            resting: details.resting,
            why: details.left,
            mode: details.mode,
        })
    };
    let pinned = || place::pinned(session, "zone", zone.name.as_str());
    place::drained(&format!("zone {}", zone.name), drain, look, pinned).await
}

fn show(session: &Session, zone: &Zone) -> Result<()> {
    let name = zone.name.to_string();
    output::item(session.format, zone, &name, |zone, _| describe(zone))
}

fn describe(zone: &Zone) -> Vec<(String, String)> {
    let mut page = vec![pair("name", &zone.name), pair("id", &zone.id), pair("state", state(zone))];
    let Some(details) = &zone.details else { return page };
    page.push(pair("instances", place::held(details.instances, details.resting)));
    page.push(pair_some("still there", details.left.as_ref()));
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
        page.push(pair("ways", legs(facts)));
        page.push(pair("version", &facts.version));
    }
    page
}
