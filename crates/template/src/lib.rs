//! Clusters from templates, as decisions: no I/O, no async, no clock.
//!
//! ```text
//!  files ──► entity ──► Catalogue ──► check     everything that dangles or contradicts itself
//!                          │  compose           templates that extend and include others
//!                          ▼
//!  Request ─────────────► solve ──► Layout | Unsolvable (which constraints clash) | Undecided
//!                          │
//!  old Layout, new Layout ─┴─► plan ──► Graph of tasks, and the same in stages
//!  text with %macros% ──► expand
//! ```

pub mod catalogue;
pub mod check;
pub mod compose;
pub mod entity;
pub mod expand;
pub mod plan;
pub mod solve;

pub use catalogue::{Catalogue, Kind};
pub use solve::{Answer, Group, Layout, Request, Unsolvable};
