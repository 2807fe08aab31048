//! Errors as they travel: problem details of RFC 9457.

use model::{Error, ErrorKind, Fault};
use serde::{Deserialize, Serialize};

pub const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    pub type_uri: String,
    pub title: String,
    pub status: u16,
    /// A sentence: what was wrong and where.
    pub detail: String,
    /// The path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What a program can match.
    pub code: ErrorKind,
    /// The field of the request that is wrong, as a dotted path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What else is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Fault>,
}

/// The status code of an error kind.
pub const fn http_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Invalid => 400,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::Forbidden | ErrorKind::QuotaExceeded => 403,
        ErrorKind::NotFound => 404,
        ErrorKind::Conflict => 409,
        ErrorKind::VersionMismatch => 412,
        ErrorKind::TooLarge => 413,
        ErrorKind::RateLimited => 429,
        ErrorKind::Internal => 500,
        ErrorKind::Unavailable => 503,
        ErrorKind::OutOfSpace => 507,
    }
}

/// The kind that fits a status code of an answer without problem details.
pub const fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::NotFound,
        409 => ErrorKind::Conflict,
        412 => ErrorKind::VersionMismatch,
        413 => ErrorKind::TooLarge,
        429 => ErrorKind::RateLimited,
        400..=499 => ErrorKind::Invalid,
        502..=504 => ErrorKind::Unavailable,
        507 => ErrorKind::OutOfSpace,
        _ => ErrorKind::Internal,
    }
}

const fn title(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Invalid => ("invalid", "The request is wrong"),
        ErrorKind::Unauthenticated => ("unauthenticated", "Not logged in"),
        ErrorKind::Forbidden => ("forbidden", "Not allowed"),
        ErrorKind::NotFound => ("not-found", "Not found"),
        ErrorKind::Conflict => ("conflict", "It clashes with what is there"),
        ErrorKind::VersionMismatch => ("version-mismatch", "It changed since it was read"),
        ErrorKind::QuotaExceeded => ("quota-exceeded", "The quota is used up"),
        ErrorKind::TooLarge => ("too-large", "Too large"),
        ErrorKind::RateLimited => ("rate-limited", "Too many requests"),
        ErrorKind::Unavailable => ("unavailable", "Not available now"),
        ErrorKind::OutOfSpace => ("out-of-space", "Out of space"),
        ErrorKind::Internal => ("internal", "Internal error"),
    }
}

impl Problem {
    pub fn new(error: &Error, instance: Option<String>) -> Self {
        let (code, title) = title(error.kind);
        Self {
            type_uri: format!("urn:banyan:problem:{code}"),
            title: title.to_owned(),
            status: http_status(error.kind),
            detail: error.message.clone(),
            instance,
            code: error.kind,
            field: error.field.clone(),
            hint: error.hint.clone(),
            more: error.more.clone(),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self {
            kind: problem.code,
            message: problem.detail,
            field: problem.field,
            hint: problem.hint,
            more: problem.more,
            source: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_journey() {
        let error = Error::invalid("cpu must be 0.01 or more").at("cpu").at("spec").hint("ask for more");
        let text =
            serde_json::to_string(&Problem::new(&error, Some("/v1/instances".into()))).expect("writes");
        assert!(text.contains("\"type\":\"urn:banyan:problem:invalid\""), "{text}");
        let back: Error = serde_json::from_str::<Problem>(&text).expect("reads").into();
        assert_eq!(back.field.as_deref(), Some("spec.cpu"));
        assert_eq!((back.kind, back.message, back.hint), (error.kind, error.message, error.hint));
    }
}
