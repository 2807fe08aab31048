//! Conditions of requests: on what is read, and on what a write replaces.

use http::HeaderValue;
use s3s::S3ErrorCode;
use s3s::dto::{ETagCondition, Timestamp, TimestampFormat};

use crate::fault::{Fault, Result};
use crate::record::version::Head;

/// Of a read, or of the source of a copy.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    NotModified,
    Failed,
}

impl Reading {
    /// ETags go before dates, as HTTP has it: a given `If-Match` makes `If-Unmodified-Since`
    /// mean nothing, and `If-None-Match` does so with `If-Modified-Since`.
    pub fn check(&self, head: &Head) -> Verdict {
        // HTTP dates have no fractions.
        let modified = head.modified.div_euclid(1000);
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) if !matches(condition, &head.etag) => return Verdict::Failed,
            (None, Some(since)) if modified > seconds(since) => return Verdict::Failed,
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) if matches(condition, &head.etag) => Verdict::NotModified,
            (None, Some(since)) if modified <= seconds(since) => Verdict::NotModified,
            _ => Verdict::Holds,
        }
    }

    /// For copies: whatever does not hold is a failed precondition.
    pub fn require(&self, head: &Head) -> Result<()> {
        if self.check(head) == Verdict::Holds { Ok(()) } else { Err(failed()) }
    }
}

/// Of a write: about the version that it replaces.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
}

impl Writing {
    /// To be asked inside the change. `current` is the newest version, also if it is a delete marker.
    pub fn check(&self, current: Option<&Head>) -> Result<()> {
        let current = current.filter(|head| !head.marker);
        match (&self.if_match, current) {
            (Some(_), None) => {
                return Err(Fault::new(S3ErrorCode::NoSuchKey, "The specified key does not exist."));
            }
            (Some(condition), Some(head)) if !matches(condition, &head.etag) => return Err(failed()),
            _ => {}
        }
        match (&self.if_none_match, current) {
            (Some(condition), Some(head)) if matches(condition, &head.etag) => Err(failed()),
            _ => Ok(()),
        }
    }
}

/// Whether the range of a read with this `If-Range` is still wanted: it names the object as it is, by its ETag, which a weak
/// one never does, or by the very date of its last change.
pub fn range_holds(asked: &HeaderValue, head: &Head) -> bool {
    let Ok(text) = asked.to_str().map(str::trim) else { return false };
    match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"') == Some(&*head.etag),
        None => Timestamp::parse(TimestampFormat::HttpDate, text)
            .is_ok_and(|date| seconds(&date) == head.modified.div_euclid(1000)),
    }
}

/// Whether a condition names this ETag.
pub fn matches(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.value() == etag,
    }
}

pub fn failed() -> Fault {
    Fault::new(
        S3ErrorCode::PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold",
    )
}

fn seconds(at: &Timestamp) -> i64 {
    time::OffsetDateTime::from(at.clone()).unix_timestamp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::identity::Account;

    fn head() -> Head {
        let owner = Account { id: Arc::from("a"), name: Arc::from("a") };
        Head {
            seq: 1,
            null: true,
            marker: false,
            size: 1,
            modified: 1_000_500,
            etag: "abc".into(),
            storage_class: None,
            owner,
            checksum: None,
        }
    }

    fn etag(text: &str) -> Option<ETagCondition> {
        Some(text.parse().unwrap())
    }

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(time::OffsetDateTime::from_unix_timestamp(seconds).unwrap().into())
    }

    #[test]
    fn reads_weigh_etags_before_dates() {
        let check = |reading: Reading, verdict| assert_eq!(reading.check(&head()), verdict, "{reading:?}");
        let none = Reading::default;
        check(none(), Verdict::Holds);
        check(Reading { if_match: etag("abc"), if_unmodified_since: at(1), ..none() }, Verdict::Holds);
        check(Reading { if_match: etag("x"), ..none() }, Verdict::Failed);
        check(Reading { if_match: etag("*"), ..none() }, Verdict::Holds);
        check(Reading { if_unmodified_since: at(999), ..none() }, Verdict::Failed);
        check(Reading { if_unmodified_since: at(1000), ..none() }, Verdict::Holds);
        check(Reading { if_modified_since: at(1000), ..none() }, Verdict::NotModified);
        check(Reading { if_modified_since: at(999), ..none() }, Verdict::Holds);
        check(Reading { if_none_match: etag("abc"), ..none() }, Verdict::NotModified);
        check(Reading { if_none_match: etag("x"), if_modified_since: at(1000), ..none() }, Verdict::Holds);
        check(Reading { if_match: etag("x"), if_none_match: etag("abc"), ..none() }, Verdict::Failed);
    }

    #[test]
    fn a_range_is_of_the_object_that_is_there() {
        for (asked, holds) in [
            ("\"abc\"", true),
            (" \"abc\" ", true),
            ("\"abd\"", false),
            ("W/\"abc\"", false),
            ("abc", false),
            ("\"", false),
            ("", false),
            ("Thu, 01 Jan 1970 00:16:40 GMT", true),
            ("Thu, 01 Jan 1970 00:16:39 GMT", false),
            ("Thu, 01 Jan 1970 00:16:41 GMT", false),
        ] {
            assert_eq!(range_holds(&HeaderValue::from_static(asked), &head()), holds, "{asked}");
        }
    }

    #[test]
    fn writes_ask_about_what_they_replace() {
        let marker = Head { marker: true, ..head() };
        let code = |writing: Writing, current: Option<&Head>| match writing.check(current) {
            Ok(()) => None,
            Err(Fault::S3(code, _)) => Some(code),
            Err(other) => panic!("{other}"),
        };
        let if_match = |text| Writing { if_match: etag(text), if_none_match: None };
        let if_none = |text| Writing { if_match: None, if_none_match: etag(text) };
        assert_eq!(code(if_match("abc"), Some(&head())), None);
        assert_eq!(code(if_match("*"), Some(&head())), None);
        assert_eq!(code(if_match("x"), Some(&head())), Some(S3ErrorCode::PreconditionFailed));
        assert_eq!(code(if_match("x"), None), Some(S3ErrorCode::NoSuchKey));
        assert_eq!(code(if_match("*"), Some(&marker)), Some(S3ErrorCode::NoSuchKey));
        assert_eq!(code(if_none("*"), Some(&head())), Some(S3ErrorCode::PreconditionFailed));
        assert_eq!(code(if_none("abc"), Some(&head())), Some(S3ErrorCode::PreconditionFailed));
        assert_eq!(code(if_none("*"), Some(&marker)), None);
        assert_eq!(code(if_none("x"), Some(&head())), None);
        assert_eq!(code(if_none("*"), None), None);
    }
}
