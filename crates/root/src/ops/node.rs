//! Nodes, as their zones report them; for operators.

use api::{Node, NodeLabels, Page, PlaceModeSet};
use futures::StreamExt;
use model::constraint::labels_validate;
use model::exchange::{Ask, NodeReport};
use model::{Error, Result, Sample, Timestamp, counted, shown};
use store::Txn;

use super::instance_ask::{ASK_TIMEOUT, late, read};
use super::page::{Query, cut, glob};
use super::version_check;
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::Row;
use crate::tables::ZoneRecord;

pub const FILTERS: &[&str] = &["name", "zone", "alive"];

/// Largest report of one zone.
const REPORT_MAX: usize = 64 << 20;
/// Zones that are asked at the same time.
pub(super) const ZONES_AT_ONCE: usize = 16;
/// Instances that are named in one line.
const NAMED_MAX: usize = 5;
/// A history goes back so far unless more is asked for.
const HISTORY_DEFAULT_MS: i64 = 60 * 60 * 1000;

pub async fn list(cloud: &Cloud, query: &Query) -> Result<Page<Node>> {
    let alive = match query.get("alive") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Error::invalid("alive must be true or false").at("alive")),
    };
    let after = query.after.as_deref().unwrap_or("");
    let mut items: Vec<Node> = nodes(cloud, query.get("zone"))
        .await?
        .into_iter()
        .filter(|node| cursor(node).as_str() > after)
        .filter(|node| query.get("name").is_none_or(|pattern| glob(pattern, node.name.as_str())))
        .filter(|node| alive.is_none_or(|alive| node.alive == alive))
        .collect();
    items.sort_by_key(cursor);
    items.truncate(query.limit + 1);
    let next = cut(&mut items, query.limit, cursor);
    Ok(Page { items, next, seq: cloud.state.snapshot().seq })
}

fn cursor(node: &Node) -> String {
    format!("{}/{}", node.zone, node.name)
}

/// Asks the zones that are there; those that do not answer are left out and logged.
async fn nodes(cloud: &Cloud, zone: Option<&str>) -> Result<Vec<Node>> {
    let snapshot = cloud.state.snapshot();
    let zones: Vec<Row<ZoneRecord>> = match zone {
        Some(name) => vec![
            snapshot
                .zone_find(name)
                .cloned()
                .ok_or_else(|| Error::not_found(format!("zone '{}'", shown(name))).at("zone"))?,
        ],
        None => snapshot.zones.values().filter(|z| cloud.tree.zone_live(&z.id)).cloned().collect(),
    };
    let asked = zones.into_iter().map(|zone| async move {
        let found = zone_nodes(cloud, &zone).await;
        (zone, found)
    });
    let mut answers = futures::stream::iter(asked).buffer_unordered(ZONES_AT_ONCE);
    let mut all = Vec::new();
    while let Some((zone, found)) = answers.next().await {
        match found {
            Ok(nodes) => all.extend(nodes),
            Err(error) => tracing::warn!(zone = %zone.name, %error, "the zone does not report its nodes"),
        }
    }
    Ok(all)
}

async fn zone_nodes(cloud: &Cloud, zone: &ZoneRecord) -> Result<Vec<Node>> {
    let reports: Vec<NodeReport> = answer(cloud, zone, Ask::Nodes).await?;
    Ok(reports.into_iter().map(|report| view(zone, report)).collect())
}

fn view(zone: &ZoneRecord, report: NodeReport) -> Node {
    Node {
        id: report.id,
        version: report.version,
        name: report.facts.name.clone(),
        zone: zone.name.clone(),
        alive: report.alive,
        restarting: report.restarting,
        last_seen: report.last_seen,
        reserved: report.reserved,
        instances: report.instances,
        resting: report.resting,
        mode: report.mode,
        left: report.left,
        remaining: report.remaining,
        usage: report.usage,
        clock_ahead_ms: report.clock_ahead_ms,
        certificate_until: report.certificate_until,
        facts: report.facts.into(),
    }
}

/// By name or id. A name that several zones have must be told apart by `zone`.
pub async fn get(cloud: &Cloud, name: &str, zone: Option<&str>) -> Result<Node> {
    let mut found: Vec<Node> = nodes(cloud, zone)
        .await?
        .into_iter()
        .filter(|node| node.id == name || node.name.as_str() == name)
        .collect();
    match found.len() {
        0 => Err(Error::not_found(format!("node '{}'", shown(name)))),
        1 => Ok(found.remove(0)),
        _ => Err(Error::conflict(format!("several zones have a node '{name}'"))
            .hint("say which zone it is in: --zone NAME, in REST ?zone=NAME")
            .at("zone")),
    }
}

/// Puts a question to a zone and reads the whole answer.
pub(super) async fn answer<T: serde::de::DeserializeOwned>(
    cloud: &Cloud,
    zone: &ZoneRecord,
    ask: Ask,
) -> Result<T> {
    let asked = cloud.tree.ask(&zone.id, ask);
    let mut stream = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late()))?;
    let body = read(&mut stream, REPORT_MAX).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Error::internal("the zone's answer cannot be read").because(error))
}

/// The node and the record of its zone.
async fn find(cloud: &Cloud, name: &str, zone: Option<&str>) -> Result<(Node, Row<ZoneRecord>)> {
    let node = get(cloud, name, zone).await?;
    let snapshot = cloud.state.snapshot();
    let zone = snapshot.zone_find(node.zone.as_str()).cloned();
    zone.map(|zone| (node, zone)).ok_or_else(|| Error::conflict("the zone of this node was just removed"))
}

/// An order is done when the zone says so; the answer holds nothing.
async fn order(cloud: &Cloud, zone: &ZoneRecord, ask: Ask) -> Result<()> {
    answer::<serde::de::IgnoredAny>(cloud, zone, ask).await.map(drop)
}

async fn line(cloud: &Cloud, caller: &Caller, node: &Node, what: &str, message: String) -> Result<()> {
    let line = Line {
        // What operators do to the cloud itself is in the history of their own tenant.
        tenant: Some(&caller.principal.tenant),
        what,
        kind: "node",
        id: &node.id,
        name: node.name.as_str(),
        message,
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &caller.actor(), line)).await.map(drop)
}

pub async fn mode(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    zone: Option<&str>,
    set: PlaceModeSet,
    seen: Option<i64>,
) -> Result<Node> {
    let (node, zone) = find(cloud, name, zone).await?;
    version_check(seen, node.version, "node")?;
    let ask = Ask::Mode { node: node.name.clone(), mode: set.mode, force: set.force, seen };
    order(cloud, &zone, ask).await?;
    let force = if set.force { ", with what would rather wait" } else { "" };
    line(cloud, caller, &node, "node.mode", format!("{} in zone {}{force}", set.mode.word(), node.zone))
        .await?;
    get(cloud, &node.id, Some(zone.name.as_str())).await
}

/// Sets and removes labels that stand beside those of the node's own configuration.
pub async fn labels(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    zone: Option<&str>,
    labels: NodeLabels,
    seen: Option<i64>,
) -> Result<Node> {
    labels_check(&labels)?;
    let (node, zone) = find(cloud, name, zone).await?;
    version_check(seen, node.version, "node")?;
    let NodeLabels { set, unset } = labels.clone();
    let asked = set.iter().map(|(key, value)| format!("{key}={value}"));
    let asked: Vec<String> = asked.chain(unset.iter().map(|key| format!("{key}-"))).collect();
    order(cloud, &zone, Ask::Label { node: node.name.clone(), set, unset, seen }).await?;
    let after = get(cloud, &node.id, Some(zone.name.as_str())).await;
    let said = match &after {
        Ok(after) => labels.outcome(&node.facts, &after.facts),
        Err(_) => format!("asked for {}", asked.join(" ")),
    };
    line(cloud, caller, &node, "node.label", said).await?;
    after
}

fn labels_check(labels: &NodeLabels) -> Result<()> {
    if labels.set.is_empty() && labels.unset.is_empty() {
        return Err(Error::invalid("say which labels to set or to remove").at("set"));
    }
    labels_validate(&labels.set).map_err(|error| error.at("set"))?;
    let removed = labels.unset.iter().map(|key| (key.clone(), String::new())).collect();
    labels_validate(&removed).map_err(|error| error.at("unset"))?;
    match labels.unset.iter().find(|key| labels.set.contains_key(*key)) {
        Some(key) => Err(Error::invalid(format!("label '{key}' is both set and removed")).at("unset")),
        None => Ok(()),
    }
}

/// Forgets a node for good. One that is alive and holds instances goes only with `force`.
pub async fn remove(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    zone: Option<&str>,
    force: bool,
) -> Result<()> {
    let (node, zone) = find(cloud, name, zone).await?;
    let held = node.instances.saturating_sub(node.resting);
    let pinned = node.remaining.iter().filter(|one| one.pinned).count() as u64;
    // What is pinned ends with its node; a drain does not wait for it.
    let drained = node.mode.empties() && pinned >= held;
    if !force && node.alive && held > 0 && !drained {
        return Err(Error::conflict(format!(
            "the node '{}' is alive and holds {}",
            node.name,
            counted(held, "instance")
        ))
        .hint(format!("empty it with 'banyan node drain {}', or remove it with --force", node.name)));
    }
    order(cloud, &zone, Ask::Remove { node: node.name.clone(), force }).await?;
    let ended: Vec<&str> =
        node.remaining.iter().filter(|one| one.pinned).take(NAMED_MAX).map(|one| one.name.as_str()).collect();
    let ended = match ended.len() {
        0 => String::new(),
        _ => format!("; {pinned} pinned to it end ({})", ended.join(", ")),
    };
    let message = format!("removed from zone {}; its certificate is never let in again{ended}", zone.name);
    line(cloud, caller, &node, "node.remove", message).await
}

/// What a node used, oldest first.
pub async fn history(
    cloud: &Cloud,
    name: &str,
    zone: Option<&str>,
    since: Option<Timestamp>,
) -> Result<Vec<Sample>> {
    let (node, zone) = find(cloud, name, zone).await?;
    let since = since.unwrap_or_else(|| history_since(cloud));
    answer(cloud, &zone, Ask::History { node: Some(node.name), since }).await
}

/// Where a history begins when nobody says.
pub(super) fn history_since(cloud: &Cloud) -> Timestamp {
    cloud.now().plus_ms(-HISTORY_DEFAULT_MS)
}
