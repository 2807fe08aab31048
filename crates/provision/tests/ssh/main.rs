//! Against a real sshd on a port of its own.

#![allow(clippy::unwrap_used)]

mod bed;
mod carry;
mod sessions;
mod shell;
