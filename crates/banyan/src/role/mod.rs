//! The roles of the one binary: root, zone, node and provisioner, each started from its
//! configuration. `banyan up` starts all of them in one process, over the same links.

pub mod config;
pub mod gateway;
mod listen;
pub mod node;
pub mod provisioner;
pub mod root;
pub mod zone;
