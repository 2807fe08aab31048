//! What can go wrong, in the words of S3.

use std::borrow::Cow;

use s3s::{S3Error, S3ErrorCode};

pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// An error with the code a client switches on and a sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{1}")]
    S3(S3ErrorCode, Cow<'static, str>),
    /// The disk or the index failed; the cause goes to the log, not to the client.
    #[error("the store failed: {0}")]
    Engine(#[from] crate::engine::EngineError),
}

impl Fault {
    pub fn new(code: S3ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::S3(code, message.into())
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
            Fault::S3(code, message) => S3Error::with_message(code, message),
            Fault::Engine(error) if error.is_full() => S3Error::with_message(
                S3ErrorCode::ServiceUnavailable,
                "The store has no room left on its disk.",
            ),
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
