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

mod child;
mod doors;
pub mod inbox;
pub mod kept;
pub mod ledger;
mod outbox;
mod parent;
pub mod sync;

pub use child::Child;
pub use doors::Doors;
pub use inbox::{Inbox, Refused};
pub use outbox::Outbox;
pub use parent::{ChildStatus, Decision, Fold, Parent, ParentConfig, Place};

use model::{Assignment, InstanceId, ObservedInstance};

/// What a replicated map is keyed by.
pub trait Keyed: Clone + PartialEq {
    fn key(&self) -> &InstanceId;
}

impl Keyed for Assignment {
    fn key(&self) -> &InstanceId {
        &self.id
    }
}

impl Keyed for ObservedInstance {
    fn key(&self) -> &InstanceId {
        &self.id
    }
}
