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
//! `blobs` hands image layers down. Root sees only the zone's aggregate.

mod blobs;
pub mod core;
mod parent;
pub mod service;

pub use service::{ZoneConfig, ZoneService};
