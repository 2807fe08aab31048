//! Machines made ready over SSH, by workers that take their tasks from root.
//!
//! ```text
//!   worker      asks root for tasks, does many at once, reports
//!     │
//!   task        what is asked, and what became of it, in Coopr's shape
//!     │ carry     picks who does it, bounds it, and reports
//!     ├─▶ provider    makes, confirms and deletes machines
//!     └─▶ automator   installs, configures, starts services on them
//!             │
//!             ▼
//!          machine    one machine: commands and files as root
//!             │
//!            ssh      sessions: pinned host keys, reuse, bounds
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod automator;
pub mod carry;
mod child;
mod hide;
pub mod machine;
pub mod plugin;
pub mod provider;
pub mod resource;
pub mod ssh;
pub mod task;
mod warden;
pub mod worker;
