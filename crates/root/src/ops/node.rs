//! Nodes, as their zones report them; for operators.

use std::sync::Arc;

use api::{Node, Page, PlaceModeSet};
use futures::StreamExt;
use model::exchange::{Ask, NodeReport};
use model::{Error, ErrorKind, Result};
use store::Txn;

use super::instance_ask::{ASK_TIMEOUT, late, read};
use super::page::{Query, cut, glob};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::tables::ZoneRecord;

pub const FILTERS: &[&str] = &["name", "zone", "alive"];

/// Largest report of one zone.
const REPORT_MAX: usize = 64 << 20;
/// Zones that are asked at the same time.
const ZONES_AT_ONCE: usize = 16;

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
    let zones: Vec<Arc<ZoneRecord>> = match zone {
        Some(name) => vec![
            snapshot
                .zone_find(name)
                .cloned()
                .ok_or_else(|| Error::not_found(format!("zone '{}'", name.escape_debug())).at("zone"))?,
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
    let asked = cloud.tree.ask(&zone.id, Ask::Nodes);
    let mut stream = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late()))?;
    let body = read(&mut stream, REPORT_MAX).await?;
    let reports: Vec<NodeReport> = serde_json::from_slice(&body)
        .map_err(|error| Error::internal("the zone's report cannot be read").because(error))?;
    Ok(reports.into_iter().map(|report| view(zone, report)).collect())
}

fn view(zone: &ZoneRecord, report: NodeReport) -> Node {
    Node {
        id: report.id,
        name: report.facts.name.clone(),
        zone: zone.name.clone(),
        alive: report.alive,
        last_seen: report.last_seen,
        reserved: report.reserved,
        instances: report.instances,
        mode: report.mode,
        left: report.left,
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
        0 => Err(Error::not_found(format!("node '{}'", name.escape_debug()))),
        1 => Ok(found.remove(0)),
        _ => Err(Error::conflict(format!("several zones have a node '{name}'"))
            .hint("say which zone")
            .at("zone")),
    }
}

pub async fn mode(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    zone: Option<&str>,
    set: PlaceModeSet,
) -> Result<Node> {
    let mut node = get(cloud, name, zone).await?;
    let record = cloud
        .state
        .snapshot()
        .zone_find(node.zone.as_str())
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "the zone is gone"))?;
    let asked =
        cloud.tree.ask(&record.id, Ask::Mode { node: node.name.clone(), mode: set.mode, force: set.force });
    let mut stream = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late()))?;
    read(&mut stream, REPORT_MAX).await?;
    let line = Line {
        // What operators do to the cloud itself is in the history of their own tenant.
        tenant: Some(&caller.principal.tenant),
        what: "node.mode",
        kind: "node",
        id: &node.id,
        name: node.name.as_str(),
        message: format!("{} in zone {}", set.mode.word(), node.zone),
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &caller.actor(), line)).await?;
    node.mode = set.mode;
    node.facts.cordoned = set.mode != model::PlaceMode::Open;
    Ok(node)
}
