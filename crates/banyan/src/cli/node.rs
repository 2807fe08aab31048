//! `banyan node list|get|cordon|uncordon`, for operators.

use api::{ListQuery, Node};
use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{age_now, pair, size};
use crate::output::{self, note};
use crate::session::{Session, all, is_id_prefix, pick};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Arguments {
    /// Run this machine as a node, set up by a file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// All nodes with what they have and what is taken.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this zone.
        #[arg(long, value_name = "NAME")]
        zone: Option<String>,
    },
    /// One node.
    #[command(visible_alias = "show")]
    Get {
        /// Name, id, or the beginning of an id.
        node: String,
    },
    /// Let a node take no new instances; what runs there keeps running.
    Cordon {
        /// Name, id, or the beginning of an id.
        node: String,
    },
    /// Let a node take new instances again.
    Uncordon {
        /// Name, id, or the beginning of an id.
        node: String,
    },
}

fn state(node: &Node) -> String {
    let live = if node.alive { "alive" } else { "lost" };
    if node.facts.cordoned { format!("{live}, cordoned") } else { live.to_owned() }
}

const COLUMNS: [Column<Node>; 10] = [
    Column::new("NAME", |n| n.name.to_string()),
    Column::new("STATE", state),
    Column::new("ZONE", |n| n.zone.to_string()),
    Column::new("INSTANCES", |n| n.instances.to_string()),
    Column::new("CPU", |n| format!("{} of {}", n.reserved.cpu, n.facts.capacity.cpu)),
    Column::new("MEMORY", |n| {
        format!("{} of {}", size(n.reserved.memory.0), size(n.facts.capacity.memory.0))
    }),
    Column::new("SEEN", |n| format!("{} ago", age_now(n.last_seen))),
    Column::wide("ARCH", |n| join(&n.facts.archs)),
    Column::wide("VERSION", |n| n.facts.version.clone()),
    Column::wide("ID", |n| n.id.clone()),
];

/// Values with commas between.
pub fn join<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Labels of an aggregate: a label may have several values.
pub fn labels(facts: &api::place::Facts) -> String {
    facts.labels.iter().map(|(key, values)| format!("{key}={}", join(values))).collect::<Vec<_>>().join("\n")
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    let Some(verb) = args.verb else { return Err(Failure::new("say what to do; see --help")) };
    match verb {
        Verb::List { zone } => {
            let query = zone.iter().fold(ListQuery::new(), |query, zone| query.with("zone", zone));
            let nodes = all(query, None, |query| async move { client.node_list(&query).await }).await?;
            output::list(session.format, &nodes, &COLUMNS)
        }
        Verb::Get { node } => {
            show(session, &client.node_get(&resolve(session, &node).await?).await.map_err(missing)?)
        }
        Verb::Cordon { node } => cordon(session, &node, true).await,
        Verb::Uncordon { node } => cordon(session, &node, false).await,
    }
}

fn missing(error: model::Error) -> Failure {
    let not_found = error.kind == model::ErrorKind::NotFound;
    let failure = Failure::from(error);
    if not_found { failure.or_hint("see the nodes with: banyan node list") } else { failure }
}

async fn resolve(session: &Session, text: &str) -> Result<String> {
    if !is_id_prefix(text, model::NodeId::PREFIX) {
        return Ok(text.to_owned());
    }
    let client = &session.client;
    let nodes = all(ListQuery::new(), None, |query| async move { client.node_list(&query).await }).await?;
    pick("node", text, nodes.into_iter().map(|n| (n.id.clone(), n.name.to_string())))
}

async fn cordon(session: &Session, node: &str, cordoned: bool) -> Result<()> {
    let name = resolve(session, node).await?;
    let mode = if cordoned { model::PlaceMode::Cordoned } else { model::PlaceMode::Open };
    let node = session.client.node_mode(&name, mode, false).await.map_err(missing)?;
    note(format!(
        "node {}: {}",
        node.name,
        if cordoned { "takes no new instances" } else { "takes new instances" }
    ));
    show(session, &node)
}

fn show(session: &Session, node: &Node) -> Result<()> {
    let name = node.name.to_string();
    output::item(session.format, node, &name, |node, _| {
        let (facts, reserved) = (&node.facts, &node.reserved);
        let gpus: Vec<_> =
            facts.gpus.iter().map(|gpu| format!("{} ({}/1000 free)", gpu.model, gpu.free_milli)).collect();
        vec![
            pair("name", &node.name),
            pair("id", &node.id),
            pair("zone", &node.zone),
            pair("state", state(node)),
            pair("seen", format!("{} ago", age_now(node.last_seen))),
            pair("instances", node.instances),
            pair("cpu", format!("{} of {} taken", reserved.cpu, facts.capacity.cpu)),
            pair("memory", format!("{} of {} taken", size(reserved.memory.0), size(facts.capacity.memory.0))),
            pair("disk", format!("{} of {} taken", size(reserved.disk.0), size(facts.capacity.disk.0))),
            pair("gpus", gpus.join("\n")),
            pair("arch", join(&facts.archs)),
            pair("runtimes", join(&facts.runtimes)),
            pair("labels", labels(facts)),
            pair("version", &facts.version),
        ]
    })
}
