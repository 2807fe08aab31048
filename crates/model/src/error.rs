//! One error for the whole plane: a few kinds a caller can act on, a sentence
//! for the user, and the cause for the log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request is wrong; change it.
    Invalid,
    /// Nobody is logged in, or the credentials are wrong.
    Unauthenticated,
    /// The caller may see the thing but not do this.
    Forbidden,
    /// There is no such thing, or it is another tenant's.
    NotFound,
    /// It clashes with what is there; look and decide.
    Conflict,
    /// The thing changed since the caller read it; read again.
    VersionMismatch,
    /// A quota is used up.
    QuotaExceeded,
    /// The body or a part of it is larger than its limit.
    TooLarge,
    /// Too many requests; wait.
    RateLimited,
    /// Cannot be served now; the same request may succeed later.
    Unavailable,
    /// The disk or another local resource is used up.
    OutOfSpace,
    /// Our fault.
    Internal,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    /// A sentence for the user: what was wrong and where.
    pub message: String,
    /// The field of the request that is wrong, as a dotted path.
    pub field: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: None, hint: None, source: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, format!("there is no {what}"))
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Names the field that is wrong; an outer name goes in front of an inner one.
    #[must_use]
    pub fn at(mut self, field: &str) -> Self {
        self.field = Some(match self.field {
            Some(inner) if inner != field => format!("{field}.{inner}"),
            _ => field.to_owned(),
        });
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl From<std::io::Error> for Error {
    /// A full disk is told apart, because the user can do something about it.
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}
