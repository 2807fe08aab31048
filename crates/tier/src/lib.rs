//! One tier over another, with no I/O: the same code serves root over zones
//! and a zone over nodes, in production and in simulation.
//!
//! ```text
//!            parent                                   child
//!   wants ─▶ Parent ── outbox per child ─ desired ─▶ Inbox ─▶ what to make true
//!            ▲   └ decide: placement::Fleet             │
//!            │                                          ▼
//!   folded ──┴─ inbox per child ◀─ observed ─────── Outbox ◀─ what is
//! ```
//!
//! The owner feeds in messages and the time, persists what it is handed
//! *before* it sends anything, and carries the messages. A child keeps what it
//! was last told and runs from it with its parent away; a set from the past is
//! refused. A tier knows nothing of tenants or runtimes.

mod bound;
mod child;
mod doors;
pub mod inbox;
mod intern;
pub mod kept;
pub mod ledger;
mod outbox;
mod parent;
mod shelf;
pub mod sync;
mod way;

pub use child::Child;
pub use doors::Doors;
pub use inbox::{Inbox, Refused};
pub use intern::Intern;
pub use outbox::{Outbox, PAGE_BYTES_MAX};
pub use parent::{ChildStatus, Decision, Fold, Leases, Parent, ParentConfig, Place, Resting, STOP_GRACE_MS};
pub use way::Way;

use model::{Assignment, InstanceId, ObservedInstance};

/// What a replicated map is keyed by.
pub trait Keyed: Clone + PartialEq {
    fn key(&self) -> &InstanceId;
    /// About how many bytes it takes on the wire.
    fn weight(&self) -> usize;
}

/// Names of fields, ids and numbers of one item.
const ITEM_BYTES: usize = 512;
/// A digest with its size and media type.
const LAYER_BYTES: usize = 192;
const EVENT_BYTES: usize = 96;
/// A condition on the place, with its longest names.
const TERM_BYTES: usize = 256;
const VERDICT_BYTES: usize = 64;

impl Keyed for Assignment {
    fn key(&self) -> &InstanceId {
        &self.id
    }

    fn weight(&self) -> usize {
        let pairs = |map: &std::collections::BTreeMap<String, String>| -> usize {
            map.iter().map(|(key, value)| key.len() + value.len() + 6).sum()
        };
        let words = |list: &[String]| -> usize { list.iter().map(|word| word.len() + 3).sum() };
        let (spec, image) = (&self.spec, &self.image);
        let health = match spec.health.as_ref().map(|health| &health.probe) {
            Some(model::HealthProbe::Command(command)) => words(command),
            Some(model::HealthProbe::Http { path, .. }) => path.len(),
            Some(model::HealthProbe::Tcp { .. }) | None => 0,
        };
        ITEM_BYTES
            + health
            + words(&spec.command)
            + pairs(&spec.env)
            + pairs(&spec.labels)
            + pairs(&spec.constraints.node_labels)
            + TERM_BYTES
                * (spec.constraints.affinity.len()
                    + spec.constraints.latency.len()
                    + spec.constraints.prefer.len())
            + words(&image.entrypoint)
            + words(&image.command)
            + pairs(&image.env)
            + LAYER_BYTES * image.layers.len()
    }
}

impl Keyed for ObservedInstance {
    fn key(&self) -> &InstanceId {
        &self.id
    }

    fn weight(&self) -> usize {
        let events: usize = self.events.iter().map(|event| event.message.len() + EVENT_BYTES).sum();
        let reasons = |explanation: &model::Explanation| {
            VERDICT_BYTES * 2 * (1 + explanation.verdicts.len() + explanation.others.len())
        };
        ITEM_BYTES / 2
            + self.message.as_ref().map_or(0, String::len)
            + events
            + self.explanation.as_deref().map_or(0, reasons)
    }
}
