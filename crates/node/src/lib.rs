//! The node: makes assignments true on one machine and reports what is.
//!
//! ```text
//!  desired ──▶ Engine::apply ──▶ one driver task per instance ──▶ shim ──▶ crun | runc ──▶ container
//!                                   │ layers   (LayerSource)      │ own process, outlives the node
//!                                   │ address  (Network)          │ output, exit code
//!  observed ◀─ Engine::observed ◀───┴─────────── pidfd ───────────┘
//! ```
//!
//! Reading order: [`engine`], `driver` (the life of one instance), `supervise` (the node's side of
//! a shim), [`shim`] (the process itself), `bundle` (what a container may do), `cgroup`.
//!
//! This crate knows nothing of other nodes and nothing of where the desired set comes from.

pub mod cgroup;
pub mod config;
pub mod engine;
pub mod exec;
pub mod layer;
pub mod legs;
pub mod network;
pub mod service;
pub mod shim;
pub mod source;

mod answer;
mod bridge;
mod bundle;
mod dir;
mod driver;
mod heal;
mod health;
mod logs;
mod pty;
mod record;
mod runtime;
mod stats;
mod supervise;
mod sys;

pub use bridge::BridgeNetwork;
pub use config::{Backoff, EngineConfig};
pub use engine::Engine;
pub use exec::{ExecRequest, ExecSession, Terminal};
pub use network::{Attachment, HostNetwork, Netns, Network};
pub use service::NodeService;
pub use shim::shim_main;
pub use source::LayerSource;
