//! Machines over SSH. The library behind it (`russh`) is known here alone.
//!
//! A [`Session`] is one connection to one machine; [`Pool`] keeps sessions for the
//! next task and bounds how many there are. A machine's host key is learnt once,
//! when the machine is confirmed, and pinned from then on. Everything has a time
//! limit, and of what a command prints only the beginning and the end are kept.

mod error;
mod key;
mod output;
mod pool;
mod session;

pub use error::SshError;
pub use key::{HostKey, Identity};
pub use output::{Exit, Kept, Output, Said};
pub use pool::{Lent, Pool};
pub use session::{Auth, Command, Pin, Session, Target, quote};
