//! Clouds that are stopped, killed, started again and refused: each test has its own.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod disk;
mod examples;
mod postgres;
mod refusals;
mod removed;
mod restart;
mod storm;
