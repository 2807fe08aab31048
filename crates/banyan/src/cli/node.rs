//! `banyan node list|get|cordon|uncordon|drain|maintenance|resume|remove|label|history`, for operators.

use api::{ListQuery, Node, NodeLabels};
use clap::{Args, Subcommand};
use model::PlaceMode;

use super::place::{self, Draining, Left, Past, Removing, held};
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{age_now, pair, pair_some, size};
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

#[derive(Args)]
pub struct One {
    /// Name, id, or the beginning of an id.
    node: String,
    /// Zone of the node, where several zones have one of that name.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
}

const DRAIN_HELP: &str = "\
Moves at most as many instances of a workload at once as its max unavailable allows, others one by one.
Instances pinned to the node stay, and without --force those that wait for their node (--lost wait).

Examples:
  banyan node drain n1
  banyan node drain n1 --force --timeout 1h
  banyan node drain n1 --no-wait && banyan node get n1";

const MAINTENANCE_HELP: &str = "\
Examples:
  banyan node maintenance n1 && ssh n1 reboot
  banyan node resume n1";

const REMOVE_HELP: &str = "\
Examples:
  banyan node drain n1 && banyan node remove n1 --yes
  banyan node remove n1 --force --yes        its host burnt down";

const LABEL_HELP: &str = "\
These labels stand beside those of the node's own configuration and win over them.

Examples:
  banyan node label n1 disk=ssd rack=4
  banyan node label n1 rack-                 removes the label; one of the node's own configuration stays";

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
    Get(One),
    /// Let a node take no new instances; what runs there keeps running.
    Cordon(One),
    /// Let a node take new instances again.
    Uncordon(One),
    /// Move everything off a node, under its policies, and wait until it is empty.
    #[command(after_help = DRAIN_HELP)]
    Drain {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        drain: Draining,
    },
    /// Drain a node and expect it to be away: nobody is alarmed when it is silent.
    #[command(after_help = MAINTENANCE_HELP)]
    Maintenance {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        drain: Draining,
    },
    /// End maintenance or a drain: the node takes instances again.
    Resume(One),
    /// Forget a node for good; its certificate is never let in again.
    #[command(visible_alias = "rm", after_help = REMOVE_HELP)]
    Remove {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        remove: Removing,
    },
    /// Set and remove labels of a node.
    #[command(after_help = LABEL_HELP)]
    Label {
        #[command(flatten)]
        one: One,
        /// KEY=VALUE sets a label, KEY- removes it.
        #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
        labels: Vec<String>,
    },
    /// What a node used: processor, memory, disk, network, instances.
    History {
        #[command(flatten)]
        one: One,
        #[command(flatten)]
        past: Past,
    },
}

fn state(node: &Node) -> String {
    let live = match (node.alive, node.restarting) {
        (_, true) => "restarting",
        (true, false) => "alive",
        (false, false) => "lost",
    };
    match node.mode {
        PlaceMode::Open if node.facts.cordoned => format!("{live}, cordoned"),
        PlaceMode::Open => live.to_owned(),
        mode => format!("{live}, {}", mode.word()),
    }
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
            for away in
                zones_away(session).await.iter().filter(|away| zone.as_ref().is_none_or(|z| z == *away))
            {
                note(format!("zone {away} is not connected: its nodes are not listed"));
            }
            output::list(session.format, &nodes, &COLUMNS)
        }
        Verb::Get(one) => {
            show(session, &known(session, client.node_get(&resolve(session, &one).await?).await).await?)
        }
        Verb::Cordon(one) => mode(session, &one, PlaceMode::Cordoned).await,
        Verb::Uncordon(one) | Verb::Resume(one) => mode(session, &one, PlaceMode::Open).await,
        Verb::Drain { one, drain } => empty(session, &one, PlaceMode::Draining, &drain).await,
        Verb::Maintenance { one, drain } => empty(session, &one, PlaceMode::Maintenance, &drain).await,
        Verb::Remove { one, remove } => {
            let node = known(session, client.node_get(&resolve(session, &one).await?).await).await?;
            place::remove_confirmed(&format!("node {}", node.name), &remove)?;
            known(session, client.node_remove(&node.id, remove.force).await).await?;
            let pinned: Vec<_> =
                node.remaining.iter().filter(|one| one.pinned).map(|one| &one.name).collect();
            let ended = match pinned.len() {
                0 => String::new(),
                _ => format!("; pinned to it, so they end: {}", join(&pinned)),
            };
            note(format!("node {}: removed{ended}", node.name));
            Ok(())
        }
        Verb::Label { one, labels } => {
            let labels = labels_parse(&labels)?;
            let name = resolve(session, &one).await?;
            let before = known(session, client.node_get(&name).await).await?;
            let node = known(session, client.node_labels(&before.id, &labels).await).await?;
            let line = format!("node {}: {}", node.name, labels.outcome(&before.facts, &node.facts));
            output::changed(session.format, &node, node.name.as_str(), &line)
        }
        Verb::History { one, past } => {
            let name = resolve(session, &one).await?;
            let samples = known(session, client.node_history(&name, Some(past.since())).await).await?;
            place::history(session, &format!("node {}", one.node), &samples)
        }
    }
}

/// `KEY=VALUE` sets, `KEY-` removes.
fn labels_parse(words: &[String]) -> Result<NodeLabels> {
    let mut labels = NodeLabels::default();
    for word in words {
        match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => {
                let before = labels.set.insert(key.to_owned(), value.to_owned());
                if before.is_some_and(|before| before != value) {
                    return Err(Failure::new(format!("label '{key}' is given two values")));
                }
            }
            (None, Some(key)) => labels.unset.push(key.to_owned()),
            (None, None) => {
                return Err(Failure::new(format!("'{word}' is neither KEY=VALUE nor KEY-"))
                    .hint("banyan node label NODE disk=ssd, or disk- to remove it"));
            }
        }
    }
    Ok(labels)
}

/// The answer about a node; where there is none, what may be the reason.
async fn known<T>(session: &Session, answer: model::Result<T>) -> Result<T> {
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let not_found = error.kind == model::ErrorKind::NotFound;
    let failure = Failure::from(error);
    if !not_found {
        return Err(failure);
    }
    let away = zones_away(session).await;
    Err(match away.len() {
        0 => failure.or_hint("see the nodes with: banyan node list"),
        1 => failure.hint(format!(
            "it may be in zone {}, which is not connected: its nodes are not known now",
            away[0]
        )),
        _ => failure.hint(format!(
            "it may be in one of the zones {}, which are not connected: their nodes are not known now",
            away.join(", ")
        )),
    })
}

/// Zones that are not connected; none where that cannot be found out.
pub async fn zones_away(session: &Session) -> Vec<String> {
    let client = &session.client;
    let zones = all(ListQuery::new(), None, |query| async move { client.zone_list(&query).await }).await;
    let away = zones.unwrap_or_default().into_iter().filter(|zone| !zone.live);
    away.map(|zone| zone.name.to_string()).collect()
}

/// What the server knows the node by: its name, or its id where that says more.
async fn resolve(session: &Session, One { node, zone }: &One) -> Result<String> {
    if zone.is_none() && !is_id_prefix(node, model::NodeId::PREFIX) {
        return Ok(node.clone());
    }
    let client = &session.client;
    let query = zone.iter().fold(ListQuery::new(), |query, zone| query.with("zone", zone));
    let nodes = all(query, None, |query| async move { client.node_list(&query).await }).await?;
    pick("node", node, nodes.into_iter().map(|n| (n.id.clone(), n.name.to_string())))
}

async fn mode(session: &Session, one: &One, mode: PlaceMode) -> Result<()> {
    let name = resolve(session, one).await?;
    let node = known(session, session.client.node_mode(&name, mode, false).await).await?;
    let takes = if mode == PlaceMode::Open { "takes new instances" } else { "takes no new instances" };
    let line = format!("node {}: {takes}", node.name);
    output::changed(session.format, &node, node.name.as_str(), &line)
}

/// Gives the order and waits until nothing is left.
async fn empty(session: &Session, one: &One, mode: PlaceMode, drain: &Draining) -> Result<()> {
    let client = &session.client;
    let name = resolve(session, one).await?;
    let node = known(session, client.node_mode(&name, mode, drain.force).await).await?;
    let id = node.id.as_str();
    let look = || async move {
        let node = client.node_get(id).await?;
        Ok(Left {
            instances: node.instances - node.resting,
            resting: node.resting,
            why: node.left,
            mode: node.mode,
        })
    };
    let pinned = || place::pinned(session, "node", node.name.as_str());
    place::drained(&format!("node {}", node.name), drain, look, pinned).await
}

/// Measured ways, there and back.
pub fn legs(facts: &api::place::Facts) -> String {
    let ms = |us: u32| format!("{}.{}", us / 1_000, us % 1_000 / 100);
    let leg = |(to, leg): (&String, &model::Leg)| match leg.min_us == leg.max_us {
        true => format!("{to} {} ms", ms(leg.max_us)),
        false => format!("{to} {} to {} ms", ms(leg.min_us), ms(leg.max_us)),
    };
    facts.legs.iter().map(leg).collect::<Vec<_>>().join("\n")
}

fn usage(usage: &model::Usage) -> String {
    let (milli, memory, disk) = (usage.cpu_milli, usage.memory_bytes, usage.disk_used_bytes);
    format!(
        "{}.{:02} CPU, {} memory, {} of {} disk",
        milli / 1_000,
        milli % 1_000 / 10,
        size(memory),
        size(disk),
        size(usage.disk_total_bytes)
    )
}

fn ahead(ms: i64) -> String {
    format!("{} ms {} the zone's", ms.unsigned_abs(), if ms < 0 { "behind" } else { "ahead of" })
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
            pair_some("still there", node.left.as_ref()),
            pair("seen", format!("{} ago", age_now(node.last_seen))),
            pair("instances", held(node.instances, node.resting)),
            pair("cpu", format!("{} of {} taken", reserved.cpu, facts.capacity.cpu)),
            pair("memory", format!("{} of {} taken", size(reserved.memory.0), size(facts.capacity.memory.0))),
            pair("disk", format!("{} of {} taken", size(reserved.disk.0), size(facts.capacity.disk.0))),
            pair("gpus", gpus.join("\n")),
            pair("arch", join(&facts.archs)),
            pair("runtimes", join(&facts.runtimes)),
            pair("labels", labels(facts)),
            pair_some("place", facts.area.map(|at| format!("{}, {}", at.latitude, at.longitude))),
            pair("ways", legs(facts)),
            pair_some("in use", node.usage.as_ref().map(usage)),
            pair_some("clock", (node.clock_ahead_ms != 0).then(|| ahead(node.clock_ahead_ms))),
            pair_some("certificate", node.certificate_until.map(|at| format!("good until {at}"))),
            pair("version", &facts.version),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_and_removed() {
        let words = ["disk=ssd", "rack-", "note=a-b="].map(str::to_owned);
        let labels = labels_parse(&words).expect("labels");
        assert_eq!(labels.set["disk"], "ssd");
        assert_eq!(labels.set["note"], "a-b=");
        assert_eq!(labels.unset, ["rack"]);
        assert!(labels_parse(&["disk".to_owned()]).is_err());
        let twice = ["disk=ssd", "disk=hdd"].map(str::to_owned);
        assert!(labels_parse(&twice).is_err(), "one of them would win by accident");
    }
}
