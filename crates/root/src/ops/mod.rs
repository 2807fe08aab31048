//! What callers may ask, one file per resource. REST, EC2 and the portal call the same functions.
//!
//! An operation validates, decides on a snapshot and commits one transaction
//! that holds the change and its line of history. Who may call is decided before, in `access`.

pub mod app;
pub mod bucket;
pub mod catalogue;
pub mod check;
pub mod cluster;
pub mod enrolment;
pub mod event;
pub mod health;
pub mod image;
pub mod instance;
pub mod instance_ask;
pub mod key;
pub mod node;
pub mod once;
pub mod page;
pub mod quota;
pub mod resource;
pub mod server;
pub mod session;
pub mod tenant;
pub mod token;
pub mod turn;
pub mod user;
pub mod view;
pub mod watch;
pub mod workload;
pub mod zone;

use model::{Error, ErrorKind, Result};

/// Times a decision is taken again because someone else's commit came between.
pub(crate) const DECISIONS_MAX: usize = 8;

/// Refuses when the caller saw another version than there is now.
pub(crate) fn version_check(seen: Option<i64>, now: i64, what: &str) -> Result<()> {
    match seen {
        Some(seen) if seen != now => {
            Err(Error::new(ErrorKind::VersionMismatch, format!("the {what} is at version {now}, not {seen}"))
                .hint("read it again and repeat"))
        }
        _ => Ok(()),
    }
}

/// Whether an error says that someone else's commit came between.
pub(crate) fn raced(error: &store::CommitError) -> bool {
    matches!(error, store::CommitError::VersionMismatch { .. } | store::CommitError::Missing { .. })
}
