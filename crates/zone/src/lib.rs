//! A zone: the tier over nodes and under root.
//!
//! ```text
//!        root ── desired ──▶ ┌──────┐ ── desired ──▶ nodes
//!             ◀─ observed ── │ core │ ◀─ observed ──
//!                            └──┬───┘
//!                            ledger
//! ```
//! [`core`] is the zone without I/O, and what the simulation runs; [`service`]
//! gives it the ledger, the clock and the links; `parent` is its face to nodes,
//! `answer` its face to root, `tend` what it does by the clock. `vitals`,
//! `history`, `stuck` and [`health`] know how its nodes are; `book` keeps the
//! tokens with which nodes join; `blobs` hands image layers down. Root sees
//! only the zone's aggregate.

mod answer;
mod blobs;
mod book;
pub mod core;
pub mod health;
mod history;
mod parent;
pub mod service;
pub mod stuck;
mod tend;
mod vitals;

pub use book::LedgerBook;
pub use service::{Probe, ZoneConfig, ZoneService};
