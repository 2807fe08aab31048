//! Why a commit or a read failed, and what the plane makes of it.

use model::{Error, ErrorKind};

/// Why a transaction was not applied. It left no trace, except that after
/// `Unavailable` the caller cannot know and must look.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("{kind} {id} was changed by someone else in the meantime")]
    VersionMismatch { kind: String, id: String },
    #[error("there is already a {kind} with the name {name:?}")]
    NameTaken { kind: String, tenant: Option<String>, name: String },
    #[error("{kind} {id} exists already")]
    AlreadyExists { kind: String, id: String },
    #[error("there is no {kind} {id}")]
    Missing { kind: String, id: String },
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("the database is not available: {0}")]
    Unavailable(String),
    #[error("the disk of the database is full: {0}")]
    Full(String),
}

/// Why the store could not be opened, read or watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{0:?} is not a database URL: use sqlite:PATH, postgres://… or memory:")]
    Url(String),
    #[error("the database {path} is in use by another process{}", holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked { path: String, holder: Option<u32> },
    #[error("the database was written by a newer version (schema {found}, this version knows {known})")]
    Newer { found: i64, known: i64 },
    #[error("the changes after {since} are no longer kept (the oldest is {oldest}); load again")]
    Lapsed { since: i64, oldest: i64 },
    #[error("the database ends at change {head}, before {since}; it was replaced, load again")]
    Ahead { since: i64, head: i64 },
    #[error("the store was closed")]
    Closed,
    #[error("{0}")]
    Corrupt(String),
    #[error("the database is not available: {0}")]
    Unavailable(String),
    #[error("the disk of the database is full: {0}")]
    Full(String),
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        let (kind, hint) = match &error {
            CommitError::VersionMismatch { .. } => {
                (ErrorKind::VersionMismatch, Some("read it again and retry"))
            }
            CommitError::NameTaken { .. } => (ErrorKind::Conflict, Some("choose another name")),
            CommitError::AlreadyExists { .. } => (ErrorKind::Conflict, None),
            CommitError::Missing { .. } => (ErrorKind::NotFound, None),
            CommitError::Invalid(_) => (ErrorKind::Invalid, None),
            CommitError::TooLarge(_) => (ErrorKind::TooLarge, None),
            CommitError::Unavailable(_) => (ErrorKind::Unavailable, None),
            CommitError::Full(_) => (ErrorKind::OutOfSpace, Some("free some space on the database's disk")),
        };
        plane_error(kind, hint, error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let (kind, hint) = match &error {
            StoreError::Url(_) => (ErrorKind::Invalid, None),
            StoreError::Locked { .. } => (ErrorKind::Conflict, Some("stop the other process first")),
            StoreError::Newer { .. } => (ErrorKind::Conflict, Some("use the newer version")),
            StoreError::Lapsed { .. } | StoreError::Ahead { .. } => (ErrorKind::Conflict, None),
            StoreError::Corrupt(_) => (ErrorKind::Internal, None),
            StoreError::Closed | StoreError::Unavailable(_) => (ErrorKind::Unavailable, None),
            StoreError::Full(_) => (ErrorKind::OutOfSpace, Some("free some space on the database's disk")),
        };
        plane_error(kind, hint, error)
    }
}

fn plane_error(
    kind: ErrorKind,
    hint: Option<&str>,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    let plane = Error::new(kind, error.to_string()).because(error);
    match hint {
        Some(hint) => plane.hint(hint),
        None => plane,
    }
}
