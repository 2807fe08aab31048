//! Where an instance may run and where it would rather run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Faults, Result, shown};
use crate::geo::{Area, Degrees};
use crate::resources::Arch;

pub const LABELS_MAX: usize = 32;
pub const TERMS_MAX: usize = 16;
pub const LABEL_KEY_MAX: usize = 63;
pub const LABEL_VALUE_MAX: usize = 128;

/// Labels of a node or an instance.
pub type Labels = BTreeMap<String, String>;

/// Conditions on the place. All of the required ones must hold; preferences order what is left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// Name or id of the only zone that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Name of the only node that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Labels the node must carry, with these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// Spread instances with the same group over the values of a label or over nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Be near, or away from, instances that carry a label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Affinity>,
    /// Where on the earth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area: Option<AreaTerm>,
    /// How near to places, or to instances of other workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyTerm>,
    /// What would be nice, each with its weight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer: Vec<Preference>,
}

/// Be inside a circle on the earth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AreaTerm {
    pub latitude: Degrees,
    pub longitude: Degrees,
    pub radius_km: u32,
    /// True: a demand; false: the nearer the better.
    #[serde(default = "yes")]
    pub required: bool,
}

impl AreaTerm {
    pub const fn area(&self) -> Area {
        Area { latitude: self.latitude, longitude: self.longitude, radius_km: self.radius_km }
    }
}

/// Have a measured way, there and back, of at most `max_ms`: to a place that nodes measure, or to an
/// instance of a workload of the same tenant. Exactly one of `place` and `workload` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyTerm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Name of a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    pub max_ms: u32,
    /// True: a demand; false: a preference.
    #[serde(default = "yes")]
    pub required: bool,
}

/// Exactly one of `zone`, `node` and `label` (with its `value`) is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// 1 to 100; the weights of what holds are added.
    pub weight: u32,
}

const fn yes() -> bool {
    true
}

/// Keep instances of one `group` apart: prefer the domain with the fewest of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub group: String,
    /// The node label whose values are the domains; each node is its own domain when absent, or `node`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "domain_read")]
    pub by: Option<String>,
    /// With this, the difference between the fullest and the emptiest domain may never exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skew: Option<u32>,
}

/// `by: node` is what spreads without a label do.
fn domain_read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|by| by != "node"))
}

/// A wish or demand to share a node with, or keep off nodes with, instances carrying `label=value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    pub label: String,
    pub value: String,
    /// True: keep away instead of near.
    #[serde(default)]
    pub anti: bool,
    /// True: a demand; false: a preference.
    #[serde(default)]
    pub required: bool,
}

impl Constraints {
    /// Checks every term, and that no two demands contradict each other.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        faults.inside("node_labels", labels_validate(&self.node_labels));
        for (field, name) in [("zone", &self.zone), ("node", &self.node)] {
            if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > LABEL_KEY_MAX) {
                faults.add(field, format!("{field} must be 1 to {LABEL_KEY_MAX} bytes"));
            }
        }
        for (field, count, most) in [
            ("affinity", self.affinity.len(), LABELS_MAX),
            ("latency", self.latency.len(), TERMS_MAX),
            ("prefer", self.prefer.len(), TERMS_MAX),
        ] {
            if count > most {
                faults.add(field, format!("at most {most} {field} terms are possible"));
            }
        }
        self.validate_affinity(&mut faults);
        if let Some(term) = &self.area {
            faults.inside("area", term.validate());
        }
        for (index, term) in self.latency.iter().enumerate().take(TERMS_MAX) {
            faults.inside(&format!("latency[{index}]"), term.validate());
        }
        for (index, wish) in self.prefer.iter().enumerate().take(TERMS_MAX) {
            faults.inside(&format!("prefer[{index}]"), wish.validate());
        }
        if let Some(spread) = &self.spread {
            faults.inside("spread", spread.validate());
        }
        faults.done()
    }

    fn validate_affinity(&self, faults: &mut Faults) {
        let demands = |anti: bool, term: &Affinity| term.required && term.anti == anti;
        for (index, term) in self.affinity.iter().enumerate().take(LABELS_MAX) {
            let at = format!("affinity[{index}]");
            faults.inside(&at, label_validate(&term.label, &term.value));
            let against = |other: &&Affinity| {
                demands(false, other) && (&other.label, &other.value) == (&term.label, &term.value)
            };
            if demands(true, term) && self.affinity.iter().any(|other| against(&other)) {
                let sentence = format!(
                    "the constraints contradict each other: it must share a node with {0}={1} and must not",
                    term.label, term.value
                );
                faults.add(&at, sentence);
            }
        }
    }
}

impl AreaTerm {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        faults.take(self.area().validate());
        if self.required && self.radius_km == 0 {
            faults.add("radius_km", "radius_km must be 1 or more: no node is inside a circle of 0 km");
        }
        faults.done()
    }
}

/// Ways that are measured for the ways between nodes; no node knows both.
const TIERS: [&str; 2] = ["zone", "root"];

impl LatencyTerm {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        let named = [&self.place, &self.workload].into_iter().flatten().collect::<Vec<_>>();
        if named.len() != 1 || named[0].is_empty() || named[0].len() > LABEL_KEY_MAX {
            faults.add("", "name either a place or a workload");
        }
        if let Some(tier) = self.place.as_deref().filter(|place| TIERS.contains(place)) {
            faults.add(
                "place",
                format!("'{tier}' is a tier of the cloud, no place: name one that nodes measure"),
            );
        }
        if self.max_ms == 0 {
            faults.add("max_ms", "max_ms must be 1 or more");
        }
        faults.done()
    }
}

impl Preference {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        let named = [&self.zone, &self.node, &self.label].into_iter().flatten().count();
        if named != 1 || self.label.is_some() != self.value.is_some() {
            faults.add("", "name one of zone, node, and label with its value");
        }
        let texts =
            [("zone", &self.zone), ("node", &self.node), ("label", &self.label), ("value", &self.value)];
        for (field, text) in texts {
            if text.as_ref().is_some_and(|text| text.len() > LABEL_VALUE_MAX) {
                faults.add(field, format!("{field} may have {LABEL_VALUE_MAX} bytes at most"));
            }
        }
        if !(1..=100).contains(&self.weight) {
            faults.add("weight", "the weight must be 1 to 100");
        }
        faults.done()
    }
}

impl Spread {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        faults.inside("group", label_validate(&self.group, ""));
        if let Some(by) = &self.by {
            faults.inside("by", label_validate(by, ""));
        }
        if self.max_skew == Some(0) {
            faults.add("max_skew", "max_skew must be 1 or more");
        }
        faults.done()
    }
}

pub fn labels_validate(labels: &Labels) -> Result<()> {
    if labels.len() > LABELS_MAX {
        return Err(Error::invalid(format!(
            "at most {LABELS_MAX} labels are possible, {} were given",
            labels.len()
        )));
    }
    labels.iter().try_for_each(|(key, value)| label_validate(key, value))
}

fn label_validate(key: &str, value: &str) -> Result<()> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    if key.is_empty() || key.len() > LABEL_KEY_MAX || !key.bytes().all(legal) {
        return Err(Error::invalid(format!(
            "label key '{}' is not usable: 1 to {LABEL_KEY_MAX} of letters, digits and '-_./'",
            shown(key)
        )));
    }
    if value.len() > LABEL_VALUE_MAX || value.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the value of label '{key}' is not usable: at most {LABEL_VALUE_MAX} bytes without control characters"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(constraints: &str, fields: &[&str]) {
        let read: Constraints = serde_json::from_str(constraints).expect("reads");
        let faults = read.validate().err().map(|error| error.faults()).unwrap_or_default();
        let found: Vec<_> = faults.iter().map(|fault| fault.field.as_deref().expect("a field")).collect();
        assert_eq!(found, fields, "{constraints}: {faults:?}");
    }

    #[test]
    fn what_no_node_can_meet_is_refused() {
        let near = r#"{"label":"app","value":"db","required":true}"#;
        let away = r#"{"label":"app","value":"db","anti":true,"required":true}"#;
        let wish = r#"{"label":"app","value":"db","anti":true}"#;
        check(&format!(r#"{{"affinity":[{near},{wish}]}}"#), &[]);
        check(&format!(r#"{{"affinity":[{near},{away}]}}"#), &["affinity[1]"]);
        check(r#"{"area":{"latitude":1,"longitude":1,"radius_km":0}}"#, &["area.radius_km"]);
        check(r#"{"area":{"latitude":1,"longitude":1,"radius_km":0,"required":false}}"#, &[]);
        check(r#"{"spread":{"group":"a","max_skew":0}}"#, &["spread.max_skew"]);
        check(
            r#"{"latency":[{"place":"root","max_ms":9},{"place":"zone","max_ms":9}]}"#,
            &["latency[0].place", "latency[1].place"],
        );
    }

    #[test]
    fn nodes_are_domains_with_and_without_a_word() {
        for by in ["", r#","by":"node""#, r#","by":null"#] {
            let spread: Spread = serde_json::from_str(&format!(r#"{{"group":"web"{by}}}"#)).expect("reads");
            assert_eq!(spread.by, None);
        }
    }

    #[test]
    fn every_fault_is_told() {
        check(
            r#"{"zone":"","latency":[{"place":"a","max_ms":1},{"max_ms":0}],
                "prefer":[{"zone":"a","node":"b","weight":0}],"spread":{"group":"a b","by":"","max_skew":1}}"#,
            &[
                "zone",
                "latency[1]",
                "latency[1].max_ms",
                "prefer[0]",
                "prefer[0].weight",
                "spread.group",
                "spread.by",
            ],
        );
    }
}
