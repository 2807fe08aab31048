//! Root: the top of the tree. It owns tenants, identity, quotas and the
//! catalogue, serves REST, and places instances on zones.
//!
//! ```text
//!  http (routes of access.rs: authorise · parse · reply)
//!    │
//!  ops/<resource>.rs (what callers may ask; REST, EC2 and the portal share it)
//!    │            ╲
//!  state (snapshot · commit)   port::Tree (ask a zone, wake the placer) ── implemented by tree/
//!    │
//!  store (crate)
//! ```
//! Reading order: [`tables`], [`state`], [`cloud`], [`ops`], [`access`], [`http`].

pub mod access;
pub mod auth;
pub mod bootstrap;
pub mod cloud;
pub mod cluster;
pub mod config;
pub mod directory;
pub mod duty;
pub mod heal;
pub mod history;
pub mod http;
pub mod image;
pub mod metrics;
pub mod openapi;
pub mod ops;
pub mod peer;
pub mod port;
pub mod replica;
pub mod resource;
pub mod state;
pub mod sweep;
pub mod tables;
pub mod tree;
pub mod workload;

pub use bootstrap::{AdminCredentials, Endpoints, admin_renew, bootstrap, bootstrap_kept, ca_shared};
pub use cloud::{Caller, Cloud, Shared, master_open};
pub use config::Config;
pub use http::server::{Running, listen, serve, serve_on};
pub use port::Tree;
pub use state::{Snapshot, State};
