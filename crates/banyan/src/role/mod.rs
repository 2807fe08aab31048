//! The roles of the one binary: root, zone and node, each started from its
//! configuration. `banyan up` starts all three in one process, over the same links.

pub mod config;
pub mod gateway;
mod listen;
pub mod node;
pub mod root;
pub mod zone;
