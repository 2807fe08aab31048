//! One cloud, started once, and used through the command line and the client by many tests.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod autoscale;
mod buckets;
mod catalogue;
mod clients;
mod cluster;
mod cluster_faults;
mod files;
mod health;
mod images;
mod limits;
mod machine;
mod network;
mod operations;
mod room;
mod tenants;
mod tour;
mod workload;
mod workload_rest;
