//! Against a real sshd on a port of its own.

#![allow(clippy::unwrap_used)]

mod bed;
mod sessions;
mod shell;
