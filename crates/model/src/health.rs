//! How the platform itself is, as traffic lights.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Light {
    #[default]
    Green,
    /// Works, and somebody should look at it.
    Yellow,
    /// Does not work.
    Red,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Check {
    /// A word a program can match: `link`, `lease`, `broker`, `disk`, `clock`, `certificate`, `stuck`, `orphan`, `store`, `duty`, …
    pub name: String,
    /// What it is about: `root`, `zone NAME`, `node NAME`.
    pub subject: String,
    pub light: Light,
    /// What was found, for people.
    pub message: String,
    /// What to do about it; nothing when all is well or it heals by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub at: Timestamp,
}

impl Check {
    pub fn new(
        name: &str,
        subject: impl Into<String>,
        light: Light,
        message: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Self {
            name: name.to_owned(),
            subject: subject.into(),
            light,
            message: message.into(),
            hint: None,
            at,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The light of a certificate that is good from `from` until `until`. It is renewed when a third of its life is left; with
/// less than a quarter that did not work, and with less than a twelfth somebody has to do something.
pub fn certificate_light(from: Option<Timestamp>, until: Timestamp, now: Timestamp) -> Light {
    /// Of one that does not say when it began.
    const LIFE_MS: i64 = 365 * 24 * 3_600 * 1_000;
    let life_ms = from.map_or(LIFE_MS, |from| until.ms_since(from).max(0));
    match until.ms_since(now) {
        left if left <= life_ms / 12 => Light::Red,
        left if left <= life_ms / 4 => Light::Yellow,
        _ => Light::Green,
    }
}

/// What a machine uses at one moment. Counters grow since the machine started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    /// CPU in use, in thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub disk_used_bytes: u64,
    pub disk_total_bytes: u64,
    pub net_received_bytes: u64,
    pub net_sent_bytes: u64,
    pub instances: u64,
}

/// One point of the history of a node or, summed over its nodes, of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Sample {
    pub at: Timestamp,
    pub usage: Usage,
}

/// What travels with a sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pulse {
    /// The clock of the sender when it was sent.
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When the certificate of the sender ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<Timestamp>,
    /// From when it was good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_from: Option<Timestamp>,
    /// Things found that nobody asked for, and removed, since the start of the sender.
    #[serde(default)]
    pub orphans_removed: u64,
    /// Things of its network that others took away and that were put back, since the start of the sender.
    #[serde(default)]
    pub network_mended: u64,
    /// Why its network cannot be put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_trouble: Option<String>,
    /// The sender stops in an orderly way and expects to be back: a restart, an upgrade.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}
