//! A store that keeps its large blobs in another one: a store of ours, and moto.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../engine/bed.rs"]
mod bed;
mod blobs;
mod crash;
mod cut;
mod damage;
mod moto;
mod objects;
mod probe;
mod proxy;
mod remote;
