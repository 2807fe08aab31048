//! Clusters from templates: one change at a time becomes a job, a graph of tasks that provisioners carry out.
//!
//! ```text
//!  order (ops/cluster) ─▶ plan: layout, tasks ─▶ records: cluster, job, pages of the plan
//!                                                    │ state's feed
//!      provisioners ◀─ office: give, take ─▶ owner ◀─┘  one server, the holder of the duty `clusters`
//!                                              │
//!                     desk: queue, workers     │  keeps what changed, then lets it count
//!                     live: what reports mean ─┘
//!                     undo, end: what a failed job takes back, what a job leaves
//! ```
//! Decisions ([`plan`], [`live`], [`undo`], [`end`], [`workers`], [`desk`]) do no I/O. What became of a task is
//! committed before its report is answered. Who does what is only in memory: after a restart provisioners say it
//! again, and nothing is given out for a lease. A store that does not take a commit, or another holder of the duty,
//! ends this life of the desk; the next one is read from the store.
//!
//! [`absent`] looks now and then whether the machines of clusters are still there.
//!
//! The link of root is given [`Office`] as its dispatcher.

mod absent;
pub mod body;
pub mod definition;
pub mod desk;
pub mod end;
mod hook;
mod janitor;
pub mod key;
pub mod live;
pub mod load;
mod office;
mod open;
mod owner;
pub mod pages;
pub mod plan;
pub mod record;
#[cfg(test)]
mod tests;
pub mod undo;
pub mod workers;

pub use office::Office;
pub use open::{field_context, key_context, makers, nobody};
pub use owner::{Board, run};
