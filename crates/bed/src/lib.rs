//! A test bed of real hosts: root, zones and nodes from the real binary, each on a host of its own,
//! with real links between them that can be cut.
//!
//! ```text
//!  this process ── 127.0.0.1 ──▶ proxy ─┐
//!                                       │  switch: a bridge in a namespace of its own, where
//!                    10.77.255.254 ┌────┴────┐  nftables drops what a fault says
//!                                  │ switch  │
//!                                  └┬───┬───┬┘
//!                     10.77.0.1 ┌───┘   │   └───┐ 10.77.0.3
//!                            ┌──┴─┐  ┌──┴──┐  ┌─┴──┐  a host: network, mounts, processes, host name
//!                            │root│  │zone │  │node│  and a disk of its own
//!                            └────┘  └─────┘  └────┘
//! ```
//!
//! A host is a shell that is the first process of its namespaces. It ends when the pipe from this
//! process closes, and with it everything on the host, so a test that is killed leaves no process,
//! device or mount. What stays behind is a folder and empty cgroups; the next bed sweeps them.
//!
//! Reading order: [`shell`], [`host`], [`fault`], [`proxy`], [`bed`], [`reality`], [`check`], [`sweep`].

pub mod bed;
pub mod check;
mod database;
pub mod fault;
pub mod host;
pub mod proxy;
pub mod reality;
pub mod shell;
pub mod sweep;

pub use bed::Bed;
pub use check::{Promise, Promises};
pub use fault::Fault;
pub use host::{Host, NodeSettings};
pub use reality::{Held, Reality};
