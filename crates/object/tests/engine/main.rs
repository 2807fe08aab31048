//! The engine as its users see it.

#![allow(clippy::unwrap_used)]

mod basic;
mod bed;
mod crash;
mod damage;
mod full;
mod keep;
mod overlay;
mod power;
