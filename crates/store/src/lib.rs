//! The store: versioned records, transactions as data, a change feed and a
//! bounded journal, on SQLite, PostgreSQL or memory.
//!
//! It knows kinds, ids, names and versions, and never what a record means.
//! Root, zone and node keep their state in it; the simulation uses the memory
//! engine, which has the same semantics because all engines share [`plan`].
//!
//! ```text
//!  commit(Txn) ──► queue ──► writer: lock head · read what the batch touches ·
//!     ▲                      plan (pure) · write rows · COMMIT
//!     └────── answer ◄───────┤
//!  Watch ◄──── feed ◄────────┘
//! ```
//!
//! Invariants:
//! - The version of a record is the `seq` of the change that wrote it, so a
//!   version never comes back, not even when an id is deleted and made again.
//! - `seq` has no gaps, and its order is the order of the commits.
//! - A transaction is applied as a whole or leaves no trace.
//! - A commit is answered only after it is durable.

mod error;
mod feed;
mod limits;
mod memory;
mod plan;
mod record;
mod sql;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod txn;

pub use error::{CommitError, StoreError};
pub use feed::Watch;
pub use limits::{BODY_BYTES_MAX, CHANGES_KEPT, JOURNAL_KEPT, JOURNAL_PAGE_MAX, TXN_OPS_MAX};
pub use record::{Body, Change, JournalEntry, JournalQuery, JournalRow, Record};
pub use store::{Options, Store};
pub use txn::{Committed, Op, Txn};
