//! Against a real sshd on a port of its own.

#![allow(clippy::unwrap_used)]

mod ansible;
mod bed;
mod carry;
mod example;
mod packages;
mod plugin;
mod sessions;
mod shell;
mod world;
