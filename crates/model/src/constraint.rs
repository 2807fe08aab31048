//! Where an instance may run and where it would rather run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
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
    /// The node label whose values are the domains; each node is its own domain when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// With this, the difference between the fullest and the emptiest domain may never exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skew: Option<u32>,
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
    pub fn validate(&self) -> Result<()> {
        labels_validate(&self.node_labels).map_err(|e| e.at("node_labels"))?;
        if self.affinity.len() > LABELS_MAX {
            return Err(
                Error::invalid(format!("at most {LABELS_MAX} affinity terms are possible")).at("affinity")
            );
        }
        for term in &self.affinity {
            label_validate(&term.label, &term.value).map_err(|e| e.at("affinity"))?;
        }
        for (field, name) in [("zone", &self.zone), ("node", &self.node)] {
            if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > LABEL_KEY_MAX) {
                return Err(Error::invalid(format!("{field} must be 1 to {LABEL_KEY_MAX} bytes")).at(field));
            }
        }
        self.validate_possible()?;
        let against = |a: &&Affinity, b: &Affinity| {
            a.required && b.required && !a.anti && b.anti && a.label == b.label && a.value == b.value
        };
        if let Some(term) = self.affinity.iter().find(|a| self.affinity.iter().any(|b| against(a, b))) {
            let (label, value) = (&term.label, &term.value);
            return Err(Error::invalid(format!(
                "being both near to and away from {label}={value} is not possible"
            ))
            .at("affinity"));
        }
        self.validate_nearness()?;
        if let Some(spread) = &self.spread {
            label_validate(&spread.group, spread.by.as_deref().unwrap_or("")).map_err(|e| e.at("spread"))?;
            if spread.max_skew == Some(0) {
                return Err(Error::invalid("max_skew must be 1 or more").at("max_skew"));
            }
        }
        Ok(())
    }

    /// Refuses demands that no node can ever meet together.
    fn validate_possible(&self) -> Result<()> {
        let demands =
            |anti: bool| self.affinity.iter().filter(move |term| term.required && term.anti == anti);
        for near in demands(false) {
            if demands(true).any(|away| (&away.label, &away.value) == (&near.label, &near.value)) {
                return Err(Error::invalid(format!(
                    "the constraints contradict each other: it must share a node with {0}={1} and must not",
                    near.label, near.value
                ))
                .at("affinity"));
            }
        }
        Ok(())
    }

    fn validate_nearness(&self) -> Result<()> {
        if let Some(term) = &self.area {
            term.area().validate().map_err(|e| e.at("area"))?;
        }
        for (field, count) in [("latency", self.latency.len()), ("prefer", self.prefer.len())] {
            if count > TERMS_MAX {
                return Err(
                    Error::invalid(format!("at most {TERMS_MAX} {field} terms are possible")).at(field)
                );
            }
        }
        for term in &self.latency {
            let named = [&term.place, &term.workload].into_iter().flatten().collect::<Vec<_>>();
            if named.len() != 1 || named[0].is_empty() || named[0].len() > LABEL_KEY_MAX {
                return Err(Error::invalid("name either a place or a workload").at("latency"));
            }
            if term.max_ms == 0 {
                return Err(Error::invalid("max_ms must be 1 or more").at("latency.max_ms"));
            }
        }
        for wish in &self.prefer {
            let named = [&wish.zone, &wish.node, &wish.label].into_iter().flatten().count();
            if named != 1 || wish.label.is_some() != wish.value.is_some() {
                return Err(Error::invalid("name one of zone, node, and label with its value").at("prefer"));
            }
            let named = [&wish.zone, &wish.node, &wish.label, &wish.value];
            if named.into_iter().flatten().any(|text| text.len() > LABEL_VALUE_MAX) {
                return Err(Error::invalid(format!(
                    "names and values may have {LABEL_VALUE_MAX} bytes at most"
                ))
                .at("prefer"));
            }
            if !(1..=100).contains(&wish.weight) {
                return Err(Error::invalid("the weight must be 1 to 100").at("prefer.weight"));
            }
        }
        Ok(())
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
            key.escape_debug()
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

    #[test]
    fn what_no_node_can_meet_is_refused() {
        let term = |anti, required| Affinity { label: "app".into(), value: "db".into(), anti, required };
        let check = |affinity: Vec<Affinity>| Constraints { affinity, ..Constraints::default() }.validate();
        assert!(check(vec![term(false, true), term(true, false)]).is_ok(), "a wish is no demand");
        let error = check(vec![term(false, true), term(true, true)]).expect_err("impossible");
        assert!(error.message.contains("contradict"), "{error}");
    }
}
