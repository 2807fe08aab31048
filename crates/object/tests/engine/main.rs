//! The engine as its users see it.

mod basic;
mod bed;
mod crash;
mod damage;
mod full;
mod keep;
mod overlay;
