//! How the platform itself is: root's own checks, each zone's link, lease, clock and certificate, what
//! each zone says of itself and its nodes, and what is stuck. [`judge`] holds the limits.

mod cluster;
pub mod judge;

use std::time::{Duration, Instant};

use api::PlatformHealth;
use futures::StreamExt;
use model::exchange::Ask;
use model::{Check, Light, Phase, Result, Timestamp};
use store::{JOURNAL_KEPT, JournalQuery, Txn};

use super::node::ZONES_AT_ONCE;
use crate::cloud::Cloud;
use crate::duty;
use crate::heal::stuck::Stuck;
use crate::state::{Row, Snapshot};
use crate::tables::{ZoneRecord, kind};

/// A zone that has not said how it is by then does not answer.
const ZONE_PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer of one zone.
const ANSWER_MAX: usize = 16 << 20;
/// A commit that takes longer is an error.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// Lines that the store may keep beyond its limit before it drops the oldest.
const HISTORY_SLACK: i64 = 1_000;

/// Looks at everything now.
pub async fn report(cloud: &Cloud) -> PlatformHealth {
    let snapshot = cloud.state.snapshot();
    let at = cloud.now();
    let zones = futures::stream::iter(snapshot.zones.values().cloned())
        .map(|zone| zone_checks(cloud, zone))
        .buffer_unordered(ZONES_AT_ONCE)
        .collect::<Vec<_>>();
    let (mut checks, zones) = futures::join!(root_checks(cloud, at), zones);
    checks.extend(zones.into_iter().flatten());
    checks.extend(cluster::checks(cloud, &snapshot, at));
    checks.extend(stuck_checks(&cloud.healer.stuck(cloud.steady()), &snapshot, at));
    let (light, checks) = judge::sorted(checks);
    PlatformHealth { light, at, checks }
}

async fn root_checks(cloud: &Cloud, at: Timestamp) -> Vec<Check> {
    let (store, history) = futures::join!(store_probe(cloud), history_check(cloud, at));
    let space = sal::disk_space(&cloud.config.data).map(|(total, free)| (total.0, free.0));
    let mut checks = vec![
        judge::store(store, at),
        judge::feed(cloud.state.following(), at),
        judge::disk(space, at),
        orphan_check(cloud, at),
    ];
    checks.extend(history);
    if let Some(objects) = cloud.objects.get() {
        checks.extend(judge::objects(object::inventory::condition(&objects.service), at));
    }
    for name in duty::ALL {
        let other = cloud.duties.holder(name);
        let holder = match cloud.duties.held(name) {
            Some(_) => Some("this server"),
            None => other.as_ref().map(|server| server.place.as_str()),
        };
        checks.push(judge::duty(name, holder, at));
    }
    checks.extend(cloud.duties.servers(at).iter().map(|server| judge::server(server, at)));
    for (what, (from, until)) in cloud.tree.certificates() {
        checks.push(judge::certificate("root", &what, Some(from), until, at));
    }
    checks
}

/// How long a small change takes from here to the disk.
async fn store_probe(cloud: &Cloud) -> Result<Duration> {
    let since = Instant::now();
    let body = serde_json::json!({ "at": cloud.now() });
    let txn = Txn::new().put(kind::PROBE, "root", None, None, body);
    let committed = cloud.state.store().commit(txn);
    match tokio::time::timeout(STORE_PATIENCE, committed).await {
        Ok(Ok(_)) => Ok(since.elapsed()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(model::Error::unavailable("it does not answer in time")),
    }
}

/// Nothing when the store does not answer; another check says so.
async fn history_check(cloud: &Cloud, at: Timestamp) -> Option<Check> {
    let row = |before_seq| async move {
        let query = JournalQuery { tenant: None, subject: None, before_seq, after_seq: None, limit: 1 };
        cloud.state.store().journal(query).await.ok().map(|rows| rows.into_iter().next())
    };
    let written = row(None).await?.map_or(0, |newest| newest.seq);
    let dropped = written - JOURNAL_KEPT;
    let oldest = match dropped > 0 {
        true => row(Some(dropped + HISTORY_SLACK)).await?.map(|oldest| Timestamp(oldest.at_us)),
        false => None,
    };
    Some(judge::history(written, JOURNAL_KEPT, oldest, at))
}

/// Orphans that were removed are worth a look for so long.
const ORPHANS_FRESH_MS: i64 = 3600 * 1000;

fn orphan_check(cloud: &Cloud, at: Timestamp) -> Check {
    let (healed, orphans) = cloud.healer.counts();
    let message = format!("{orphans} removed and {healed} stuck instances helped since the start");
    let is_fresh = cloud.healer.orphaned_at().is_some_and(|then| at.ms_since(then) < ORPHANS_FRESH_MS);
    Check::new("orphan", "root", if is_fresh { Light::Yellow } else { Light::Green }, message, at)
}

async fn zone_checks(cloud: &Cloud, zone: Row<ZoneRecord>) -> Vec<Check> {
    let at = cloud.now();
    let subject = format!("zone {}", zone.name);
    let live = cloud.tree.zone_live(&zone.id);
    let last_seen = cloud.tree.zone_last_seen(&zone.id);
    let lapsed = cloud.tree.zone_lapsed(&zone.id);
    let mut checks = match (live, lapsed) {
        (false, false) => vec![judge::unheard(&subject, at)],
        _ => vec![judge::lease(&subject, zone.mode, live, last_seen, cloud.tree.lease_ms(), at)],
    };
    if cloud.tree.zone_twins(&zone.id) {
        checks.push(judge::twins(&subject, at));
    }
    if let Some(report) = cloud.tree.zone_report(&zone.id).filter(|_| live) {
        checks.push(judge::clock(&subject, report.clock_ahead_ms, at));
        if let Some(until) = report.certificate_until {
            let from = report.certificate_from;
            checks.push(judge::certificate(&subject, "its certificate", from, until, at));
        }
    }
    if live {
        let since = Instant::now();
        match tokio::time::timeout(ZONE_PATIENCE, zone_says(cloud, &zone)).await {
            Ok(Ok(said)) => {
                // A zone that knows its way to root says so itself.
                if !said.iter().any(|check| check.name == "link") {
                    let message = format!("answered in {} ms", since.elapsed().as_millis());
                    checks.push(Check::new("link", &subject, Light::Green, message, at));
                }
                checks.extend(said);
            }
            Ok(Err(error)) => checks.push(link_bad(&subject, error.message, at)),
            Err(_) => {
                let message = format!("does not answer within {} s", ZONE_PATIENCE.as_secs());
                checks.push(link_bad(&subject, message, at));
            }
        }
    }
    checks
}

fn link_bad(subject: &str, message: String, at: Timestamp) -> Check {
    Check::new("link", subject, Light::Red, message, at)
        .hint("see the log of the zone's process, and whether it reaches root")
}

/// What a zone finds of itself and its nodes.
async fn zone_says(cloud: &Cloud, zone: &ZoneRecord) -> Result<Vec<Check>> {
    let mut stream = cloud.tree.ask(&zone.id, Ask::Health).await?;
    let body = stream.read_all(ANSWER_MAX).await?;
    serde_json::from_slice(&body)
        .map_err(|error| model::Error::internal("its answer cannot be read").because(error))
}

/// Green when nothing is stuck, so that the check is there.
fn stuck_checks(stuck: &[Stuck], snapshot: &Snapshot, at: Timestamp) -> Vec<Check> {
    if stuck.is_empty() {
        return vec![Check::new("stuck", "root", Light::Green, "every instance gets on", at)];
    }
    let zone = |stuck: &Stuck| stuck.zone.as_ref().and_then(|id| snapshot.zone_name(id));
    let check = |stuck: &Stuck| {
        let subject = zone(stuck).map_or_else(|| "root".to_owned(), |name| format!("zone {name}"));
        let (phase, longest) = (stuck.phase, &stuck.longest);
        let lasting = judge::lasting(stuck.for_ms);
        let message = match stuck.count {
            1 => format!("instance {longest} is {phase} for {lasting}"),
            count => format!("{count} instances are {phase}, {longest} the longest, for {lasting}"),
        };
        let check = Check::new("stuck", subject, Light::Yellow, message, at);
        match phase {
            Phase::Pending => check.hint(format!("banyan why instance {longest}")),
            Phase::Lost => check.hint("they wait for their node; bring it back, or delete them"),
            Phase::Creating | Phase::Stopping => check.hint(format!("banyan event list --subject {longest}")),
            // Told again and, later, taken off by itself.
            _ => check,
        }
    };
    stuck.iter().map(check).collect()
}
