//! What the solver answers with: how many machines of which kind.

use std::collections::BTreeMap;

use model::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::Catalogue;

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Group {
    pub count: u32,
    /// Sorted, each once.
    pub services: Vec<String>,
    pub hardwaretype: String,
    pub imagetype: String,
}

/// The machines of a cluster, the preferred kind first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub Vec<Group>);

impl Layout {
    /// Reads what the solver printed, or the bare list of groups.
    pub fn read(value: Value) -> Result<Self> {
        let list = match value {
            Value::Object(mut members) if members.contains_key("layout") => {
                members.remove("layout").unwrap_or_default()
            }
            other => other,
        };
        let groups: Vec<Group> = serde_json::from_value(list)
            .map_err(|error| Error::invalid(format!("this is no layout: {error}")))
            .map_err(|error| {
                error.hint(
                    "a layout is {\"layout\":[{\"count\",\"services\",\"hardwaretype\",\"imagetype\"}]}",
                )
            })?;
        let total: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
        if total > u64::from(super::SIZE_MAX) {
            let message = format!("the layout has {total} machines, more than {}", super::SIZE_MAX);
            return Err(Error::invalid(message));
        }
        Ok(Self(groups).normal())
    }

    pub fn size(&self) -> u32 {
        self.0.iter().map(|group| group.count).sum()
    }

    /// How many machines carry each service.
    pub fn counts(&self) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for group in &self.0 {
            for service in &group.services {
                *counts.entry(service.as_str()).or_default() += group.count;
            }
        }
        counts
    }

    /// Like groups together, services sorted, the preferred kind first.
    #[must_use]
    pub fn normal(self) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for mut group in self.0 {
            group.services.sort();
            group.services.dedup();
            if let Some(same) = groups.iter_mut().find(|other| other.is_like(&group)) {
                same.count += group.count;
            } else if group.count > 0 {
                groups.push(group);
            }
        }
        groups.sort_by(Group::preferred);
        Self(groups)
    }

    /// What the machines cost in an hour at the provider; none when a hardware type does not say.
    pub fn cost(&self, catalogue: &Catalogue, provider: &str) -> Option<f64> {
        let cost = |group: &Group| {
            let hardware = catalogue.hardwaretypes.get(&group.hardwaretype)?;
            Some(hardware.cost(provider)? * f64::from(group.count))
        };
        let total: Option<f64> = self.0.iter().map(cost).sum();
        // Prices have few digits; the sum of binary fractions must not show more.
        total.map(|total| (total * 1e6).round() / 1e6)
    }
}

impl Group {
    pub fn is_like(&self, other: &Self) -> bool {
        self.services == other.services
            && self.hardwaretype == other.hardwaretype
            && self.imagetype == other.imagetype
    }

    /// The order of preference: more services, then hardware, image and services by name.
    pub fn preferred(&self, other: &Self) -> std::cmp::Ordering {
        let by_services = other.services.len().cmp(&self.services.len());
        by_services
            .then_with(|| self.hardwaretype.cmp(&other.hardwaretype))
            .then_with(|| self.imagetype.cmp(&other.imagetype))
            .then_with(|| self.services.cmp(&other.services))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layout_is_read_from_both_shapes_and_put_in_order() {
        let group = json!({"count": 1, "services": ["b", "a"], "hardwaretype": "h", "imagetype": "i"});
        let single = json!({"count": 2, "services": ["a"], "hardwaretype": "h", "imagetype": "i"});
        let whole = Layout::read(json!({"layout": [single, group, single]})).unwrap();
        assert_eq!(whole, Layout::read(json!([group, single, single])).unwrap());
        assert_eq!(whole.0[0].services, ["a", "b"]);
        assert_eq!((whole.0[1].count, whole.size()), (4, 5));
        assert!(Layout::read(json!({"count": 1})).is_err());
        assert!(
            Layout::read(
                json!([{"count": 99_999_999, "services": [], "hardwaretype": "h", "imagetype": "i"}])
            )
            .is_err()
        );
    }
}
