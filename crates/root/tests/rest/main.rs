//! Root's REST interface on a real server, a real store and a stub of the tree.

#![allow(clippy::unwrap_used)]

mod access;
mod bad_input;
mod catalogue;
mod check;
mod cluster;
mod cluster_abort;
mod cluster_change;
mod cluster_fault;
mod cluster_hostile;
mod cluster_life;
mod cluster_repair;
mod history;
mod hostile;
mod identity;
mod image;
mod instance;
mod object_store;
mod openapi;
mod place;
mod quota;
mod resource;
mod scale;
mod server;
mod stream;
mod watch;
mod workload;
mod world;
