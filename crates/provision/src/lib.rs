//! Machines made ready over SSH, by workers that take their tasks from root.
//!
//! ```text
//!   ssh       sessions to machines: pinned host keys, reuse, bounds
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ssh;
