//! Where an instance may run and where it would rather run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::resources::Arch;

pub const LABELS_MAX: usize = 32;
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
        if let Some(spread) = &self.spread {
            label_validate(&spread.group, spread.by.as_deref().unwrap_or("")).map_err(|e| e.at("spread"))?;
            if spread.max_skew == Some(0) {
                return Err(Error::invalid("max_skew must be 1 or more").at("max_skew"));
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
