//! What can go wrong, in the words of S3.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, StatusCode};
use s3s::{S3Error, S3ErrorCode};

use crate::engine::EngineError;

pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// An error with the code a client switches on and a sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{1}")]
    S3(S3ErrorCode, Cow<'static, str>),
    /// There is no such object or version; `marker` is the delete marker in its place.
    #[error("{message}")]
    Absent { code: S3ErrorCode, message: &'static str, marker: Option<String> },
    /// The disk or the index failed; the cause goes to the log, not to the client.
    #[error("the store failed: {0}")]
    Engine(#[from] EngineError),
}

impl Fault {
    pub fn new(code: S3ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::S3(code, message.into())
    }

    /// The code that clients are told.
    pub fn code(&self) -> S3ErrorCode {
        match self {
            Self::S3(code, _) | Self::Absent { code, .. } => code.clone(),
            Self::Engine(_) => S3ErrorCode::InternalError,
        }
    }
}

impl From<S3ErrorCode> for Fault {
    fn from(code: S3ErrorCode) -> Self {
        let message = code.as_str().to_owned();
        Self::S3(code, message.into())
    }
}

impl From<Fault> for S3Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::S3(code, message) => {
                let mut error = S3Error::with_message(code, message);
                // Codes of our own tell of a client's mistake; the one of quotas is a refusal.
                if error.status_code().is_none() {
                    let refusal = error.code().as_str() == "QuotaExceeded";
                    error.set_status_code(if refusal {
                        StatusCode::FORBIDDEN
                    } else {
                        StatusCode::BAD_REQUEST
                    });
                }
                error
            }
            Fault::Absent { code, message, marker } => absent(code, message, marker),
            Fault::Engine(error) if error.is_full() => S3Error::with_message(
                S3ErrorCode::ServiceUnavailable,
                "The store has no room left on its disk.",
            ),
            Fault::Engine(EngineError::Behind) => {
                S3Error::with_message(S3ErrorCode::SlowDown, "Please reduce your request rate.")
            }
            Fault::Engine(EngineError::Stopped) => S3Error::with_message(
                S3ErrorCode::ServiceUnavailable,
                "The store takes no changes until it is started again.",
            ),
            Fault::Engine(error @ EngineError::Away(_)) => {
                tracing::warn!(%error, "a request failed");
                S3Error::with_message(
                    S3ErrorCode::ServiceUnavailable,
                    "The store that keeps these bytes does not answer. Please try again.",
                )
            }
            Fault::Engine(error @ (EngineError::Damaged(_) | EngineError::Missing(_))) => {
                tracing::error!(%error, "the store failed");
                S3Error::with_message(S3ErrorCode::InternalError, "The bytes of this object are damaged.")
            }
            Fault::Engine(error) => {
                tracing::error!(%error, "the store failed");
                S3Error::with_message(
                    S3ErrorCode::InternalError,
                    "We encountered an internal error. Please try again.",
                )
            }
        }
    }
}

/// Tells by headers whether a delete marker is the reason.
fn absent(code: S3ErrorCode, message: &'static str, marker: Option<String>) -> S3Error {
    let mut headers = HeaderMap::new();
    let is_marker = HeaderValue::from_static(if marker.is_some() { "true" } else { "false" });
    headers.insert("x-amz-delete-marker", is_marker);
    if let Some(id) = marker.and_then(|id| HeaderValue::try_from(id).ok()) {
        headers.insert("x-amz-version-id", id);
    }
    let mut error = S3Error::with_message(code, message);
    error.set_headers(headers);
    error
}
