//! Files that plugins use: the record of one version, and what orders make of it. No I/O.
//!
//! ```text
//!             stage            sync
//!   inactive ───────▶ staged ───────▶ active
//!      ▲  ◀───────────  │                │ ▲
//!      │     recall                recall│ │stage
//!      │               sync              ▼ │
//!      └────────────────────────────── recalled
//! ```
//! Two flags say it all: what provisioners have (`live`) and what they are to have (`slated`). Of the versions of one
//! file at most one has each. Staging one takes the flag from the others, so the active one is recalled by it.

use api::ResourceStatus;
use model::{Digest, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::tables::{Row, kind};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Provisioners have it.
    pub live: bool,
    /// Provisioners are to have it after the next sync.
    pub slated: bool,
}

/// What is asked of the versions of a file, or of all files of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One version, by its number.
    Stage(u32),
    Recall(u32),
    Sync,
}

impl Flags {
    pub const fn status(self) -> ResourceStatus {
        match (self.live, self.slated) {
            (false, false) => ResourceStatus::Inactive,
            (false, true) => ResourceStatus::Staged,
            (true, true) => ResourceStatus::Active,
            (true, false) => ResourceStatus::Recalled,
        }
    }

    /// What an order makes of the version `number`, which may be the one it names or one beside it.
    #[must_use]
    pub const fn after(self, order: Order, number: u32) -> Self {
        match order {
            Order::Stage(named) => Self { slated: named == number, ..self },
            Order::Recall(named) if named == number => Self { slated: false, ..self },
            Order::Recall(_) => self,
            Order::Sync => Self { live: self.slated, ..self },
        }
    }

    /// The same for several orders, one after the other.
    #[must_use]
    pub fn after_all(self, orders: &[Order], number: u32) -> Self {
        orders.iter().fold(self, |flags, order| flags.after(*order, number))
    }
}

/// One version of a file of a tenant's plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRecord {
    pub tenant: TenantId,
    /// The folder of the plugin: `automatortypes` or `providertypes`.
    pub kind: String,
    pub plugin: String,
    pub resource_type: String,
    pub name: String,
    /// Counts uploads from 1.
    pub number: u32,
    /// `file` or `archive`, as the plugin said when it came.
    pub format: String,
    /// Its bytes are sealed in a [`ResourceSecretRecord`]; others lie among the blobs.
    #[serde(default)]
    pub secret: bool,
    pub digest: Digest,
    pub size: u64,
    pub flags: Flags,
    pub created_at: Timestamp,
    pub created_by: String,
}

impl ResourceRecord {
    /// Where it lies at provisioners.
    pub fn path(&self) -> String {
        format!("{}/{}/{}/{}", self.kind, self.plugin, self.resource_type, self.name)
    }

    pub fn id(&self) -> String {
        format!("{}/{}", self.tenant, self.title())
    }

    /// For people.
    pub fn title(&self) -> String {
        format!("{}@{}", self.path(), self.number)
    }
}

/// The bytes of a secret file, under the id of its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSecretRecord {
    /// Under the master key.
    pub sealed: String,
}

impl Row for ResourceRecord {
    const KIND: &'static str = kind::RESOURCE;
}

impl Row for ResourceSecretRecord {
    const KIND: &'static str = kind::RESOURCE_SECRET;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceStatus::{Active, Inactive, Recalled, Staged};

    fn flags(status: ResourceStatus) -> Flags {
        match status {
            Inactive => Flags { live: false, slated: false },
            Staged => Flags { live: false, slated: true },
            Active => Flags { live: true, slated: true },
            Recalled => Flags { live: true, slated: false },
        }
    }

    #[test]
    fn every_order_on_every_status() {
        const ONE: u32 = 1;
        const OTHER: u32 = 2;
        // What version 1 is, what is asked for, what it is then.
        for (before, order, after) in [
            (Inactive, Order::Stage(ONE), Staged),
            (Staged, Order::Stage(ONE), Staged),
            (Active, Order::Stage(ONE), Active),
            (Recalled, Order::Stage(ONE), Active),
            (Inactive, Order::Stage(OTHER), Inactive),
            (Staged, Order::Stage(OTHER), Inactive),
            (Active, Order::Stage(OTHER), Recalled),
            (Recalled, Order::Stage(OTHER), Recalled),
            (Inactive, Order::Recall(ONE), Inactive),
            (Staged, Order::Recall(ONE), Inactive),
            (Active, Order::Recall(ONE), Recalled),
            (Recalled, Order::Recall(ONE), Recalled),
            (Inactive, Order::Recall(OTHER), Inactive),
            (Staged, Order::Recall(OTHER), Staged),
            (Active, Order::Recall(OTHER), Active),
            (Recalled, Order::Recall(OTHER), Recalled),
            (Inactive, Order::Sync, Inactive),
            (Staged, Order::Sync, Active),
            (Active, Order::Sync, Active),
            (Recalled, Order::Sync, Inactive),
        ] {
            assert_eq!(flags(before).status(), before);
            assert_eq!(flags(before).after(order, ONE).status(), after, "{before} {order:?}");
        }
    }

    #[test]
    fn whatever_is_asked_for_at_most_one_version_is_live_and_one_is_slated() {
        let orders: Vec<Order> =
            (1..=3).flat_map(|n| [Order::Stage(n), Order::Recall(n)]).chain([Order::Sync]).collect();
        let mut states = vec![[Flags::default(); 3]];
        let mut seen = states.clone();
        while let Some(state) = states.pop() {
            let count = |of: fn(&Flags) -> bool| state.iter().filter(|flags| of(flags)).count();
            assert!(count(|flags| flags.live) <= 1 && count(|flags| flags.slated) <= 1, "{state:?}");
            for order in &orders {
                let mut number = 0;
                let next = state.map(|flags| {
                    number += 1;
                    flags.after(*order, number)
                });
                if !seen.contains(&next) {
                    seen.push(next);
                    states.push(next);
                }
            }
        }
        assert_eq!(seen.len(), 16, "none or one of three is live, and none or one slated");
    }
}
