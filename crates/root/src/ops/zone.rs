//! Zones, and the tokens with which newcomers enrol.

use std::collections::HashMap;

use api::{EnrolRole, Enrolment, EnrolmentCreate, Page, PlaceModeSet, Zone, ZoneHosts};
use link::hosts::{host_key, hosts_check};
use model::exchange::{Ask, Doorway};
use model::{Error, Result, Sample, Timestamp, ZoneId, counted, shown};
use store::Txn;

use super::page::{Query, cut, glob};
use super::{DECISIONS_MAX, node, raced, view};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::port::Join;
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{RemovedRecord, ZoneRecord, encode, kind};

pub const FILTERS: &[&str] = &["name", "live"];

/// How many instances a zone holds, and how many of them are at rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    pub instances: u64,
    pub resting: u64,
}

fn held(snapshot: &Snapshot) -> HashMap<ZoneId, Held> {
    let mut counts: HashMap<ZoneId, Held> = HashMap::new();
    for (id, status) in &snapshot.statuses {
        let Some(zone) = &status.zone else { continue };
        let count = counts.entry(zone.clone()).or_default();
        count.instances += 1;
        count.resting += u64::from(!snapshot.awake(id));
    }
    counts
}

/// Counted for operators only.
fn counts(snapshot: &Snapshot, caller: &Caller) -> Option<HashMap<ZoneId, Held>> {
    caller.principal.is_operator().then(|| held(snapshot))
}

pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Zone>> {
    let snapshot = cloud.state.snapshot();
    let counts = counts(&snapshot, caller);
    let live = match query.get("live") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Error::invalid("live must be true or false").at("live")),
    };
    let after = query.after.as_deref().unwrap_or("");
    let fits = |name: &str| name > after && query.get("name").is_none_or(|pattern| glob(pattern, name));
    let mut items: Vec<Zone> = snapshot
        .zone_names
        .iter()
        .filter(|(name, _)| fits(name.as_str()))
        .filter_map(|(_, id)| snapshot.zones.get(id))
        .filter(|zone| live.is_none_or(|live| cloud.tree.zone_live(&zone.id) == live))
        .take(query.limit + 1)
        .map(|zone| {
            view::zone(cloud, zone, counts.as_ref().map(|c| c.get(&zone.id).copied().unwrap_or_default()))
        })
        .collect();
    let next = cut(&mut items, query.limit, |zone| zone.name.to_string());
    Ok(Page { items, next, seq: snapshot.seq })
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Zone> {
    let snapshot = cloud.state.snapshot();
    let zone = find(&snapshot, name)?;
    let counts = counts(&snapshot, caller);
    Ok(view::zone(cloud, zone, counts.map(|c| c.get(&zone.id).copied().unwrap_or_default())))
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Row<ZoneRecord>> {
    snapshot.zone_find(name).ok_or_else(|| Error::not_found(format!("zone '{}'", shown(name))))
}

/// Takes the line into the transaction that changes the zone.
fn line(cloud: &Cloud, caller: &Caller, txn: Txn, zone: &ZoneRecord, what: &str, message: String) -> Txn {
    let line = Line {
        // What operators do to the cloud itself is in the history of their own tenant.
        tenant: Some(&caller.principal.tenant),
        what,
        kind: "zone",
        id: zone.id.as_str(),
        name: zone.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

/// Commits what `change` makes of the zone as it is, again when something came between.
async fn changed(
    cloud: &Cloud,
    name: &str,
    change: impl Fn(&Snapshot, &Row<ZoneRecord>) -> Result<Txn>,
) -> Result<()> {
    for attempt in 1.. {
        let snapshot = cloud.state.snapshot();
        let txn = change(&snapshot, find(&snapshot, name)?)?;
        match cloud.state.try_commit(txn).await {
            Ok(_) => break,
            Err(error) if raced(&error) && attempt < DECISIONS_MAX => {}
            Err(error) => return Err(commit_error(error)),
        }
    }
    cloud.tree.wake();
    Ok(())
}

/// Opens, cordons or drains a zone. Root moves what it holds elsewhere, as a zone does for a node.
pub async fn mode(cloud: &Cloud, caller: &Caller, name: &str, set: PlaceModeSet) -> Result<Zone> {
    changed(cloud, name, |_, zone| {
        let forced = set.force && set.mode.empties();
        let record = ZoneRecord { mode: set.mode, forced, ..ZoneRecord::clone(zone) };
        let txn = Txn::new().update(kind::ZONE, &zone.id, zone.version, encode(&record));
        let force = if forced { ", with what would rather wait" } else { "" };
        Ok(line(cloud, caller, txn, zone, "zone.mode", format!("{}{force}", set.mode.word())))
    })
    .await?;
    get(cloud, caller, name)
}

/// Forgets a zone for good: its certificate is never let in again, and what it held is placed elsewhere.
pub async fn remove(cloud: &Cloud, caller: &Caller, name: &str, force: bool) -> Result<()> {
    changed(cloud, name, |snapshot, zone| {
        let held = held(snapshot).remove(&zone.id).unwrap_or_default();
        let (held, resting) = (held.instances - held.resting, held.resting);
        if !force && held > 0 && !cloud.tree.zone_lapsed(&zone.id) {
            return Err(Error::conflict(format!(
                "the zone '{}' lives and holds {}",
                zone.name,
                counted(held, "instance")
            ))
            .hint(format!("empty it with 'banyan zone drain {}', or remove it with --force", zone.name)));
        }
        let removed =
            RemovedRecord { name: zone.name.clone(), removed_at: cloud.now(), by: caller.actor().who };
        let txn = Txn::new().delete(kind::ZONE, &zone.id, Some(zone.version)).insert(
            kind::REMOVED,
            &zone.id,
            None,
            None,
            encode(&removed),
        );
        let message = format!(
            "{} placed elsewhere, {resting} that had ended or were stopped lose what they kept; \
             its certificate is never let in again",
            if held == 1 { "1 instance is".to_owned() } else { format!("{held} instances are") }
        );
        Ok(line(cloud, caller, txn, zone, "zone.remove", message))
    })
    .await
}

/// What the nodes of a zone used together, oldest first.
pub async fn history(cloud: &Cloud, name: &str, since: Option<Timestamp>) -> Result<Vec<Sample>> {
    let snapshot = cloud.state.snapshot();
    let since = since.unwrap_or_else(|| node::history_since(cloud));
    node::answer(cloud, find(&snapshot, name)?, Ask::History { node: None, since }).await
}

/// Makes a one-time token; the history says that it was made, not what it is.
pub async fn enroll(cloud: &Cloud, caller: &Caller, ask: EnrolmentCreate) -> Result<Enrolment> {
    let role = ask.role;
    let zone = zone_joined(&cloud.state.snapshot(), &ask)?;
    if role != EnrolRole::Zone && !ask.hosts.is_empty() {
        return Err(Error::invalid("only a zone has listeners with names").at("hosts"));
    }
    hosts_check(&ask.hosts).map_err(|error| error.at("hosts"))?;
    let hosts = ask.hosts.clone();
    let join = match (role, zone) {
        (EnrolRole::Provisioner, _) => Join::Provisioner,
        (_, Some(zone)) => Join::Node { zone },
        (_, None) => Join::Zone { hosts: ask.hosts },
    };
    let made = cloud.tree.enroll(join).await?;
    let word =
        serde_json::to_value(role).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let allowed = match hosts.is_empty() {
        true => String::new(),
        false => format!(", may be called {}", hosts.join(", ")),
    };
    let line = Line {
        // What operators do to the cloud itself is in the history of their own tenant.
        tenant: Some(&caller.principal.tenant),
        what: "enrolment.create",
        kind: "enrolment",
        id: &word,
        name: &word,
        message: format!("valid until {}{allowed}", made.expires_at),
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &caller.actor(), line)).await?;
    let Doorway { urls, broker } = made.doorway;
    Ok(Enrolment { role, token: made.token, expires_at: made.expires_at, parents: urls, broker })
}

/// Lets the listeners of a zone have these names too, whoever else has them.
pub async fn hosts_add(cloud: &Cloud, caller: &Caller, name: &str, add: ZoneHosts) -> Result<Zone> {
    hosts_check(&add.hosts).map_err(|error| error.at("hosts"))?;
    changed(cloud, name, |_, zone| {
        let mut granted = zone.granted.clone();
        granted.extend(add.hosts.iter().map(|host| host_key(host)));
        granted.sort();
        granted.dedup();
        hosts_check(&granted).map_err(|error| error.at("hosts"))?;
        let record = ZoneRecord { granted, ..ZoneRecord::clone(zone) };
        let txn = Txn::new().update(kind::ZONE, &zone.id, zone.version, encode(&record));
        let message = format!("may also be called {}", add.hosts.join(", "));
        Ok(line(cloud, caller, txn, zone, "zone.hosts", message))
    })
    .await?;
    get(cloud, caller, name)
}

/// The zone that a node is to join: the one named, or the only one there is.
fn zone_joined(snapshot: &Snapshot, ask: &EnrolmentCreate) -> Result<Option<ZoneId>> {
    if ask.role != EnrolRole::Node {
        return match &ask.zone {
            Some(_) => Err(Error::invalid("only a node joins a zone").at("zone")),
            None => Ok(None),
        };
    }
    let mut zones = snapshot.zones.keys();
    match (&ask.zone, zones.next(), zones.next()) {
        (Some(name), ..) => snapshot
            .zone_find(name)
            .map(|zone| Some(zone.id.clone()))
            .ok_or_else(|| Error::not_found(format!("zone '{}'", shown(name))).at("zone")),
        (None, Some(only), None) => Ok(Some(only.clone())),
        (None, None, _) => Err(Error::conflict("there is no zone yet that a node could join")
            .hint("make a token for one with: banyan enroll zone")),
        (None, Some(_), Some(_)) => Err(Error::invalid("there are several zones; name the one to join")
            .at("zone")
            .hint("banyan enroll node --zone NAME")),
    }
}
