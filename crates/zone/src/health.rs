//! The zone and its nodes as traffic lights. Pure: what was looked at comes in, checks come out.

use model::exchange::NodeReport;
use model::health::certificate_light;
use model::{Check, ChildId, Light, Name, PlaceMode, Timestamp};

use crate::stuck::Stuck;

/// Up to so many nodes every check is listed; of more, those that are not green and one for each node.
const NODES_IN_FULL: usize = 100;
/// Instances named in one message.
const NAMED_MAX: usize = 3;
/// A way to root and back that takes longer makes every order wait.
const LINK_YELLOW_US: u128 = 1_000_000;
const CLOCK_YELLOW_MS: i64 = 2_000;
const CLOCK_RED_MS: i64 = 30_000;
const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
const DISK_YELLOW_PERCENT: u64 = 85;
const DISK_RED_PERCENT: u64 = 95;
/// Orphans that were removed are worth a look for so long.
const ORPHANS_FRESH_MS: i64 = 3600 * 1000;

/// When the network of a node was last put back, and why it cannot be.
pub type Mended = (Option<Timestamp>, Option<String>);

/// All that a zone knows of itself and its nodes at one moment.
pub struct Seen<'a> {
    pub now: Timestamp,
    pub zone: &'a Name,
    pub nodes: &'a [NodeReport],
    /// By node: how many were removed, and when that last grew.
    pub orphans: &'a dyn Fn(&ChildId) -> (u64, Option<Timestamp>),
    pub network: &'a dyn Fn(&ChildId) -> Mended,
    /// Whether two processes spoke with the identity of a node of late.
    pub twins: &'a dyn Fn(&ChildId) -> bool,
    pub stuck: &'a [Stuck],
    /// The way to root and back, where it was measured.
    pub rtt_us: Option<u128>,
    /// Why the ledger cannot be written.
    pub ledger: Option<String>,
    /// Used and total bytes of the disk under the data folder.
    pub disk: Option<(u64, u64)>,
}

pub fn checks(seen: &Seen<'_>) -> Vec<Check> {
    let subject = format!("zone {}", seen.zone);
    let check = |name: &str, light, message: String| Check::new(name, &subject, light, message, seen.now);
    let is_slow = seen.rtt_us.is_some_and(|us| us > LINK_YELLOW_US);
    let mut all = vec![check(
        "link",
        if is_slow { Light::Yellow } else { Light::Green },
        match seen.rtt_us {
            Some(us) => format!("connected to root, {}.{} ms there and back", us / 1000, us % 1000 / 100),
            None => "connected to root".to_owned(),
        },
    )];
    all.push(match &seen.ledger {
        None => check("ledger", Light::Green, "can be written".to_owned()),
        Some(why) => check("ledger", Light::Red, why.clone()).hint("make room on the zone's disk"),
    });
    if let Some((used, total)) = seen.disk {
        all.push(disk(&subject, used, total, seen.now));
    }
    all.extend(stuck(&subject, seen));
    if seen.nodes.is_empty() {
        let hint = format!("let one join: banyan enroll node --zone {}", seen.zone);
        all.push(check("nodes", Light::Yellow, "has no node: nothing can run here".to_owned()).hint(hint));
    }
    for node in seen.nodes {
        let of_node = node_checks(node, seen);
        let listed = |check: &Check| {
            seen.nodes.len() <= NODES_IN_FULL || check.light != Light::Green || check.name == "lease"
        };
        all.extend(of_node.into_iter().filter(listed));
    }
    all
}

fn node_checks(node: &NodeReport, seen: &Seen<'_>) -> Vec<Check> {
    let subject = format!("node {}", node.facts.name);
    let mut all = vec![lease(&subject, node, seen.now)];
    if (seen.twins)(&ChildId::from(node.id.as_str())) {
        let text = "two processes speak with its identity, in turns";
        all.push(Check::new("identity", &subject, Light::Red, text, seen.now).hint(
            "its data folder was copied: stop one of them, delete 'identity' in its data folder and let it join \
             with a token of its own",
        ));
    }
    if !node.alive {
        return all;
    }
    if let Some(usage) = &node.usage {
        all.push(disk(&subject, usage.disk_used_bytes, usage.disk_total_bytes, seen.now));
        all.push(clock(&subject, node.clock_ahead_ms, seen.now));
    }
    if let Some(until) = node.certificate_until {
        all.push(certificate(&subject, node.certificate_from, until, seen.now));
    }
    all.extend(network(&subject, node, seen));
    let (count, grew_at) = (seen.orphans)(&ChildId::from(node.id.as_str()));
    let fresh = grew_at.is_some_and(|at| seen.now.ms_since(at) < ORPHANS_FRESH_MS);
    let check = |light, message| Check::new("orphan", &subject, light, message, seen.now);
    all.push(match (count, fresh) {
        (0, _) => check(Light::Green, "nothing was found that nobody asked for".to_owned()),
        (count, false) => check(Light::Green, format!("{count} leftovers were removed, none of late")),
        (count, true) => check(
            Light::Yellow,
            format!("{count} leftovers were found and removed, the last within the hour"),
        ),
    });
    all
}

/// Shown while something is wrong with the network of a node, and for an hour after it was put back.
fn network(subject: &str, node: &NodeReport, seen: &Seen<'_>) -> Option<Check> {
    let check = |light, text: String| Check::new("network", subject, light, text, seen.now);
    match (seen.network)(&ChildId::from(node.id.as_str())) {
        (_, Some(trouble)) => Some(
            check(Light::Red, format!("bridge or filters are broken and cannot be put back: {trouble}"))
                .hint("look at 'ip link' and 'nft list ruleset' on that machine; it is tried again every minute"),
        ),
        (Some(at), None) if seen.now.ms_since(at) < ORPHANS_FRESH_MS => Some(
            check(Light::Yellow, "bridge or filters were changed by others and put back within the hour".to_owned())
                .hint("its log says what; a firewall that is reloaded should leave the tables of Banyan alone"),
        ),
        _ => None,
    }
}

fn lease(subject: &str, node: &NodeReport, now: Timestamp) -> Check {
    let check = |light, message: String| Check::new("lease", subject, light, message, now);
    let silent_s = now.ms_since(node.last_seen).max(0) / 1000;
    let left = node.left.as_ref().map(|why| format!("; still there: {why}")).unwrap_or_default();
    if node.restarting && node.mode != PlaceMode::Maintenance {
        let most_s = tier::STOP_GRACE_MS / 1000;
        let text =
            format!("restarting: it was stopped {silent_s} s ago; what it holds waits {most_s} s for it");
        return check(Light::Yellow, text);
    }
    match (node.mode, node.alive) {
        (PlaceMode::Maintenance, true) => {
            check(Light::Green, format!("in maintenance, heard {silent_s} s ago{left}"))
        }
        (PlaceMode::Maintenance, false) => {
            check(Light::Green, format!("in maintenance, and away for {silent_s} s"))
        }
        (PlaceMode::Open, true) => check(Light::Green, format!("heard {silent_s} s ago")),
        (mode, true) => check(Light::Green, format!("{}, heard {silent_s} s ago{left}", mode.word())),
        (_, false) => check(Light::Red, format!("lost: not heard for {silent_s} s")).hint(
            "look at the machine and at its way to the zone; \
             'banyan node remove' forgets a node that does not come back",
        ),
    }
}

pub(crate) fn disk(subject: &str, used: u64, total: u64, now: Timestamp) -> Check {
    let percent =
        if total == 0 { 0 } else { u64::try_from(u128::from(used) * 100 / u128::from(total)).unwrap_or(100) };
    let free_mib = total.saturating_sub(used) >> 20;
    let message = format!("{percent} % of the disk under its data is used, {free_mib} MiB are free");
    let check = |light| Check::new("disk", subject, light, message, now);
    let hint = "make room, or give its data folder a larger disk";
    match percent {
        DISK_RED_PERCENT.. => check(Light::Red).hint(hint),
        DISK_YELLOW_PERCENT.. => check(Light::Yellow).hint(hint),
        _ => check(Light::Green),
    }
}

fn clock(subject: &str, ahead_ms: i64, now: Timestamp) -> Check {
    let off_ms = ahead_ms.unsigned_abs();
    let way = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let message = match off_ms {
        0..1000 => "agrees with the zone's".to_owned(),
        _ => format!("{}.{} s {way} the zone's", off_ms / 1000, off_ms % 1000 / 100),
    };
    let check = |light| Check::new("clock", subject, light, message, now);
    let hint = "let it follow a time server: apt-get install chrony";
    match i64::try_from(off_ms).unwrap_or(i64::MAX) {
        off if off > CLOCK_RED_MS => check(Light::Red).hint(hint),
        off if off > CLOCK_YELLOW_MS => check(Light::Yellow).hint(hint),
        _ => check(Light::Green),
    }
}

/// How long a certificate is still good.
pub fn certificate(subject: &str, from: Option<Timestamp>, until: Timestamp, now: Timestamp) -> Check {
    let left_ms = until.ms_since(now);
    let days = left_ms / DAY_MS;
    let message = match left_ms {
        ..=0 => format!("ended at {until}"),
        left if left < 2 * HOUR_MS => format!("good for {} min more", left / 60_000),
        left if left < 2 * DAY_MS => format!("good for {} h more", left / HOUR_MS),
        _ => format!("good for {days} days more"),
    };
    let check = |light| Check::new("certificate", subject, light, message, now);
    let hint =
        "it renews by itself when its parent can be reached; otherwise let it join again with a new token";
    match certificate_light(from, until, now) {
        Light::Green => check(Light::Green),
        light => check(light).hint(hint),
    }
}

fn stuck(subject: &str, seen: &Seen<'_>) -> Option<Check> {
    let check = |light, message: String| Check::new("stuck", subject, light, message, seen.now);
    if seen.stuck.is_empty() {
        return Some(check(Light::Green, "every change comes to its end in time".to_owned()));
    }
    let name_of = |id: &ChildId| {
        let node = seen.nodes.iter().find(|node| node.id == id.as_str());
        node.map_or_else(|| id.to_string(), |node| node.facts.name.to_string())
    };
    let named: Vec<String> = seen
        .stuck
        .iter()
        .take(NAMED_MAX)
        .map(|one| {
            format!("{} is {} on {} for {} s", one.id, one.phase, name_of(&one.node), one.for_ms / 1000)
        })
        .collect();
    let more = match seen.stuck.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let hint = "the zone tells the node again and then tries another; look at the node if it lasts";
    Some(check(Light::Yellow, format!("{}{more}", named.join(", "))).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Facts, InstanceId, Phase, Resources, Usage};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn node(name: &str) -> NodeReport {
        NodeReport {
            id: format!("id-{name}"),
            facts: Facts::new(name.parse().expect("a name"), "1"),
            alive: true,
            restarting: false,
            last_seen: NOW.plus_ms(-3_000),
            reserved: Resources::ZERO,
            instances: 0,
            resting: 0,
            version: 0,
            mode: PlaceMode::Open,
            left: None,
            remaining: Vec::new(),
            usage: Some(Usage { disk_used_bytes: 10, disk_total_bytes: 100, ..Usage::default() }),
            clock_ahead_ms: -30,
            certificate_until: Some(NOW.plus_ms(300 * DAY_MS)),
            certificate_from: Some(NOW.plus_ms(-65 * DAY_MS)),
        }
    }

    /// One that is good for so long, of which so much is left.
    fn certificate_set(node: &mut NodeReport, life_ms: i64, left_ms: i64) {
        node.certificate_from = Some(NOW.plus_ms(left_ms - life_ms));
        node.certificate_until = Some(NOW.plus_ms(left_ms));
    }

    fn look(nodes: &[NodeReport], stuck: &[Stuck]) -> Vec<Check> {
        look_over(nodes, stuck, 1234)
    }

    fn look_over(nodes: &[NodeReport], stuck: &[Stuck], rtt_us: u128) -> Vec<Check> {
        let name: Name = "east".parse().expect("a name");
        let orphans = |id: &ChildId| if id.as_str() == "id-dirty" { (2, Some(NOW)) } else { (0, None) };
        checks(&Seen {
            now: NOW,
            zone: &name,
            nodes,
            orphans: &orphans,
            network: &|id: &ChildId| match id.as_str() {
                "id-mended" => (Some(NOW), None),
                "id-broken" => (None, Some("nft refused the rules".to_owned())),
                _ => (None, None),
            },
            twins: &|id: &ChildId| id.as_str() == "id-copied",
            stuck,
            rtt_us: Some(rtt_us),
            ledger: None,
            disk: Some((50, 100)),
        })
    }

    #[test]
    fn a_long_way_to_root_is_told() {
        let link = look_over(&[node("a")], &[], 1_500_000).remove(0);
        assert_eq!((link.name.as_str(), link.light), ("link", Light::Yellow));
        assert!(link.message.contains("1500.0 ms"), "{link:?}");
    }

    /// The lights that are not green, as `subject name`.
    fn lit(nodes: &[NodeReport], light: Light) -> Vec<String> {
        let all = look(nodes, &[]);
        let lit = all.iter().filter(|check| check.light == light);
        lit.map(|check| format!("{} {}", check.subject, check.name)).collect()
    }

    #[test]
    fn all_is_green_and_every_thing_is_named() {
        let all = look(&[node("a")], &[]);
        assert!(all.iter().all(|check| check.light == Light::Green && check.hint.is_none()), "{all:#?}");
        let names: Vec<_> = all.iter().map(|check| format!("{} {}", check.subject, check.name)).collect();
        let wanted = [
            "zone east link",
            "zone east ledger",
            "zone east disk",
            "zone east stuck",
            "node a lease",
            "node a disk",
            "node a clock",
            "node a certificate",
            "node a orphan",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn each_trouble_of_a_node_lights_its_own_lamp() {
        let check = |change: fn(&mut NodeReport), light: Light, name: &str| {
            let mut sick = node("a");
            change(&mut sick);
            let other = if light == Light::Red { Light::Yellow } else { Light::Red };
            assert_eq!(lit(std::slice::from_ref(&sick), light), [format!("node a {name}")]);
            assert!(lit(&[sick], other).is_empty());
        };
        check(|n| n.alive = false, Light::Red, "lease");
        check(|n| n.restarting = true, Light::Yellow, "lease");
        check(|n| n.clock_ahead_ms = 2_001, Light::Yellow, "clock");
        check(|n| n.clock_ahead_ms = -31_000, Light::Red, "clock");
        check(|n| certificate_set(n, 365 * DAY_MS, 80 * DAY_MS), Light::Yellow, "certificate");
        check(|n| certificate_set(n, 365 * DAY_MS, 20 * DAY_MS), Light::Red, "certificate");
        check(|n| n.certificate_until = Some(NOW.plus_ms(-1)), Light::Red, "certificate");
        // One of an hour, of which 20 minutes are left, is as well as one of a year with 4 months.
        let mut well = node("a");
        certificate_set(&mut well, HOUR_MS, HOUR_MS / 3);
        assert!(look(&[well], &[]).iter().all(|check| check.light == Light::Green));
        check(|n| certificate_set(n, HOUR_MS, HOUR_MS / 5), Light::Yellow, "certificate");
        check(|n| n.usage.as_mut().expect("usage").disk_used_bytes = 90, Light::Yellow, "disk");
        check(|n| n.usage.as_mut().expect("usage").disk_used_bytes = 99, Light::Red, "disk");
        check(
            |n| (n.id, n.facts.name) = ("id-dirty".into(), "a".parse().expect("a name")),
            Light::Yellow,
            "orphan",
        );
    }

    #[test]
    fn a_copied_identity_is_shown() {
        let mut copied = node("a");
        copied.id = "id-copied".to_owned();
        assert_eq!(lit(&[copied, node("b")], Light::Red), ["node a identity"]);
    }

    #[test]
    fn a_network_that_others_changed_and_a_zone_without_nodes_are_shown() {
        let called = |id: &str| NodeReport { id: id.to_owned(), ..node("a") };
        assert_eq!(lit(&[called("id-mended")], Light::Yellow), ["node a network"]);
        assert_eq!(lit(&[called("id-broken")], Light::Red), ["node a network"]);
        assert_eq!(lit(&[], Light::Yellow), ["zone east nodes"]);
    }

    #[test]
    fn maintenance_alarms_nobody() {
        let mut away = node("a");
        (away.alive, away.mode) = (false, PlaceMode::Maintenance);
        let all = look(&[away], &[]);
        let lease = all.iter().find(|check| check.name == "lease").expect("a lease");
        assert_eq!((lease.light, lease.message.contains("maintenance")), (Light::Green, true));
    }

    #[test]
    fn stuck_ones_are_named_and_a_large_zone_is_told_in_short() {
        let stuck: Vec<Stuck> = (0..5)
            .map(|n| Stuck {
                id: InstanceId::from_random(n),
                node: "id-n1".into(),
                phase: Phase::Creating,
                for_ms: 400_000,
            })
            .collect();
        let nodes: Vec<NodeReport> = (0..=NODES_IN_FULL).map(|n| node(&format!("n{n}"))).collect();
        let all = look(&nodes, &stuck);
        let check = all.iter().find(|check| check.name == "stuck").expect("stuck");
        assert_eq!(check.light, Light::Yellow);
        assert!(check.message.contains("creating on n1 for 400 s") && check.message.contains("2 more"));
        assert_eq!(all.len(), 4 + nodes.len());
    }
}
