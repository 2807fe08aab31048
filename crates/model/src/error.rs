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
    /// What else is wrong, so that all of it is told at once.
    pub more: Vec<Fault>,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Fault {
    /// The field as a dotted path; absent when it is the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence: what is wrong.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything that is wrong with something, found in one look.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

/// Most of something foreign that is repeated in a sentence.
const SHOWN_CHARS_MAX: usize = 64;

/// Foreign text as it may stand in a sentence: escaped, and cut where it is long.
pub fn shown(text: &str) -> String {
    let mut kept: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept.escape_debug().to_string()
}

/// `1 instance`, `2 instances`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: None, hint: None, more: Vec::new(), source: None }
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
        self.field = Some(path_join(field, self.field.as_deref()));
        for fault in &mut self.more {
            fault.field = Some(path_join(field, fault.field.as_deref()));
        }
        self
    }

    /// All that is wrong, the first among it.
    pub fn faults(&self) -> Vec<Fault> {
        let first =
            Fault { field: self.field.clone(), message: self.message.clone(), hint: self.hint.clone() };
        std::iter::once(first).chain(self.more.iter().cloned()).collect()
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

fn path_join(outer: &str, inner: Option<&str>) -> String {
    match inner {
        None | Some("") => outer.to_owned(),
        Some(inner) if inner == outer => outer.to_owned(),
        Some(inner) if inner.starts_with('[') => format!("{outer}{inner}"),
        Some(inner) => format!("{outer}.{inner}"),
    }
}

impl Faults {
    pub fn add(&mut self, field: &str, message: impl Into<String>) {
        let field = (!field.is_empty()).then(|| field.to_owned());
        self.0.push(Fault { field, message: message.into(), hint: None });
    }

    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Adds what a check found.
    pub fn take(&mut self, checked: Result<()>) {
        if let Err(error) = checked {
            self.0.extend(error.faults());
        }
    }

    /// Adds what a check of the field `at` found.
    pub fn inside(&mut self, at: &str, checked: Result<()>) {
        self.take(checked.map_err(|error| error.at(at)));
    }

    /// What was read, or nothing after adding what is wrong with it.
    pub fn keep<T>(&mut self, read: Result<T>) -> Option<T> {
        read.map_err(|error| self.0.extend(error.faults())).ok()
    }

    /// What was read if nothing is wrong; without a value something is.
    pub fn finish<T>(self, value: Option<T>) -> Result<T> {
        self.done()?;
        value.ok_or_else(|| Error::invalid("this cannot be read"))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_vec(self) -> Vec<Fault> {
        self.0
    }

    /// An error that says all of it, if there is anything to say.
    pub fn done(self) -> Result<()> {
        let mut faults = self.0.into_iter();
        match faults.next() {
            None => Ok(()),
            Some(Fault { field, message, hint }) => {
                Err(Error { field, hint, more: faults.collect(), ..Error::invalid(message) })
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_told_with_its_path() {
        let mut faults = Faults::default();
        faults.add("cpu", "too little");
        faults.inside("gpu", Err(Error::invalid("none").at("count")));
        let error = faults.done().expect_err("two faults").at("spec").at("workloads[1]");
        let told: Vec<_> = error.faults().into_iter().filter_map(|fault| fault.field).collect();
        assert_eq!(told, ["workloads[1].spec.cpu", "workloads[1].spec.gpu.count"]);
        assert!(Faults::default().done().is_ok());
    }

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(&"ü".repeat(1000)).chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
