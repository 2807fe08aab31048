//! Nodes, of which root keeps none: which a daemon belongs on, by what a zone reports and by what stands there, and what
//! a wish for one means among zones. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use model::constraint::TERMS_MAX;
use model::exchange::NodeReport;
use model::{InstanceSpec, LatencyTerm, Name, Phase, PlaceMode, Preference, Run};

use super::core::{Node, Seen};
use super::record::Pin;
use crate::tables::ZoneRecord;

/// Whether a daemon may belong on nodes of this zone at all.
pub fn zone_fits(zone: &ZoneRecord, spec: &InstanceSpec) -> bool {
    let wanted = spec.constraints.zone.as_deref();
    wanted.is_none_or(|wanted| wanted == zone.name.as_str() || wanted == zone.id.as_str())
}

/// The nodes of a zone that has said which it has.
///
/// A zone that has just started speaks only of the nodes that it heard since, while it still holds what stands on the
/// others. So a node that it leaves out is gone only when nothing of the daemon has its place there any more: of a node
/// that was removed the zone says that too. Until then what stands there stays, and nothing new comes.
pub fn told(zone: &ZoneRecord, reports: &[NodeReport], spec: &InstanceSpec, instances: &[Seen]) -> Vec<Node> {
    // One that was lost before it said who it is stands for no node that could be looked at.
    let known = || reports.iter().filter(|report| report.facts.nodes > 0);
    let fitting = known().filter(|report| node_fits(zone, report, spec));
    let mut nodes: Vec<Node> = fitting
        .map(|report| Node {
            pin: Pin { zone: zone.name.clone(), node: report.facts.name.clone() },
            alive: report.alive,
            open: report.mode == PlaceMode::Open && zone.mode == PlaceMode::Open,
        })
        .collect();
    let named: BTreeSet<&Name> = known().map(|report| &report.facts.name).collect();
    let mut unheard: BTreeMap<&Pin, bool> = BTreeMap::new();
    for seen in instances.iter().filter(|seen| seen.asked != Run::Gone && seen.placed()) {
        let Some(pin) = &seen.pin else { continue };
        if pin.zone == zone.name && !named.contains(&pin.node) && is_wanted(spec, &pin.node) {
            *unheard.entry(pin).or_default() |= seen.phase != Phase::Lost;
        }
    }
    nodes.extend(unheard.into_iter().map(|(pin, alive)| Node { pin: pin.clone(), alive, open: false }));
    nodes
}

/// The nodes of a zone that does not answer: what stands there stays.
pub fn silent(zone: &ZoneRecord, instances: &[Seen]) -> Vec<Node> {
    let there = instances.iter().filter_map(|seen| seen.pin.as_ref());
    let pins: BTreeSet<&Pin> = there.filter(|pin| pin.zone == zone.name).collect();
    pins.into_iter().map(|pin| Node { pin: pin.clone(), alive: false, open: false }).collect()
}

fn is_wanted(spec: &InstanceSpec, node: &Name) -> bool {
    spec.constraints.node.as_deref().is_none_or(|wanted| wanted == node.as_str())
}

/// Whether a node is of the kind that a daemon belongs on; whether there is room is not asked.
fn node_fits(zone: &ZoneRecord, node: &NodeReport, spec: &InstanceSpec) -> bool {
    let (facts, constraints) = (&node.facts, &spec.constraints);
    let has = |(key, value): (&String, &String)| facts.labels.get(key).is_some_and(|all| all.contains(value));
    let area = facts.area.or(zone.facts.as_ref().and_then(|facts| facts.area));
    let inside = constraints
        .area
        .as_ref()
        .filter(|term| term.required)
        .is_none_or(|term| area.is_some_and(|area| term.area().touches(&area)));
    let near = |term: &LatencyTerm| match &term.place {
        Some(place) => {
            facts.legs.get(place).is_some_and(|leg| leg.min_us <= term.max_ms.saturating_mul(1000))
        }
        None => true,
    };
    inside
        && constraints.latency.iter().filter(|term| term.required).all(near)
        && is_wanted(spec, &facts.name)
        && constraints.arch.is_none_or(|arch| facts.archs.contains(&arch))
        && facts.runtimes.contains(&spec.runtime)
        && constraints.node_labels.iter().all(has)
}

/// Whether it would rather be on some node, and its zone is not decided.
pub fn is_wished(spec: &InstanceSpec) -> bool {
    let place = &spec.constraints;
    place.zone.is_none() && place.node.is_none() && place.prefer.iter().any(|wish| wish.node.is_some())
}

/// Puts a wish for the zones that have it beside every wish for a node. Root chooses a zone first and knows no nodes, so
/// the wish for a node would only count in a zone that was chosen without it.
pub fn wish_zones(spec: &mut InstanceSpec, zones_with: impl Fn(&str) -> Vec<Name>) {
    if !is_wished(spec) {
        return;
    }
    let prefer = &mut spec.constraints.prefer;
    let mut zones: Vec<Preference> = Vec::new();
    for (node, weight) in prefer.iter().filter_map(|wish| Some((wish.node.as_deref()?, wish.weight))) {
        zones.extend(zones_with(node).into_iter().map(|zone| Preference {
            zone: Some(zone.to_string()),
            node: None,
            label: None,
            value: None,
            weight,
        }));
    }
    zones.truncate(TERMS_MAX.saturating_sub(prefer.len()));
    prefer.append(&mut zones);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(zone: Option<&str>, node: Option<&str>, weight: u32) -> Preference {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Preference { zone: own(zone), node: own(node), label: None, value: None, weight }
    }

    fn zones_with(node: &str) -> Vec<Name> {
        let zones: &[&str] = match node {
            "n1" => &["east", "west"],
            "n3" => &["west"],
            _ => &[],
        };
        zones.iter().map(|zone| zone.parse().expect("a name")).collect()
    }

    #[test]
    fn a_wish_for_a_node_is_one_for_its_zones_too() {
        let mut spec = InstanceSpec::new("busybox");
        spec.constraints.prefer =
            vec![wish(None, Some("n3"), 100), wish(Some("east"), None, 5), wish(None, Some("n9"), 7)];
        let mut expect = spec.constraints.prefer.clone();
        expect.push(wish(Some("west"), None, 100));
        assert!(is_wished(&spec));
        wish_zones(&mut spec, zones_with);
        assert_eq!(spec.constraints.prefer, expect);
        spec.validate().expect("it is as legal as before");

        // A name that several zones have says nothing between these.
        let mut spec = InstanceSpec::new("busybox");
        spec.constraints.prefer = vec![wish(None, Some("n1"), 50)];
        wish_zones(&mut spec, zones_with);
        assert_eq!(
            spec.constraints.prefer[1..],
            [wish(Some("east"), None, 50), wish(Some("west"), None, 50)]
        );
    }

    #[test]
    fn where_the_zone_is_decided_or_the_list_is_full_no_wish_is_added() {
        let mut full = InstanceSpec::new("busybox");
        full.constraints.prefer = vec![wish(None, Some("n3"), 1); TERMS_MAX];
        let mut zoned = full.clone();
        zoned.constraints.prefer.truncate(1);
        zoned.constraints.zone = Some("east".to_owned());
        for mut spec in [full, zoned, InstanceSpec::new("busybox")] {
            let before = spec.clone();
            wish_zones(&mut spec, zones_with);
            assert_eq!(spec, before);
        }
    }
}
