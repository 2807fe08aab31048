//! The engine as its users see it.

mod basic;
mod bed;
