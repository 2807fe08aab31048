//! What a request for a new object says beside its bytes.

use http::HeaderMap;
use s3s::S3ErrorCode;
use s3s::dto::{self, StorageClass, Timestamp, TimestampFormat};

use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::record::version::Head;
use crate::record::{Acl, Checksum, Hold, Retention, Seal, Version};

/// The most bytes of names and values of user metadata.
pub const METADATA_MAX: usize = 2 * 1024;
/// The most tags of an object.
pub const TAGS_MAX: usize = 10;
const TAG_KEY_MAX: usize = 128;
const TAG_VALUE_MAX: usize = 256;
/// What an object is if nobody says.
pub const CONTENT_TYPE: &str = "binary/octet-stream";

/// Headers that are kept and given back as they came.
const SYSTEM: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];

const STORAGE_CLASSES: [&str; 8] = [
    StorageClass::STANDARD,
    StorageClass::REDUCED_REDUNDANCY,
    StorageClass::STANDARD_IA,
    StorageClass::ONEZONE_IA,
    StorageClass::INTELLIGENT_TIERING,
    StorageClass::GLACIER,
    StorageClass::GLACIER_IR,
    StorageClass::DEEP_ARCHIVE,
];

/// What is kept beside the bytes. Puts, copies and multipart uploads say it by the same headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    pub headers: Vec<(String, String)>,
    pub metadata: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    pub storage_class: Option<String>,
    pub retention: Option<Retention>,
    pub hold: Hold,
}

impl Terms {
    pub fn of(headers: &HeaderMap, metadata: Option<dto::Metadata>) -> Result<Self> {
        Ok(Self {
            headers: system(headers)?,
            metadata: user(metadata)?,
            tags: text(headers, "x-amz-tagging")?.map_or_else(|| Ok(Vec::new()), tags)?,
            storage_class: text(headers, "x-amz-storage-class")?.map_or(Ok(None), storage_class)?,
            retention: retention(headers)?,
            hold: hold(headers)?,
        })
    }

    /// A version on these terms that has no bytes yet.
    pub fn version(self, owner: Account, acl: Option<Acl>, seal: Option<Seal>) -> Version {
        Version {
            head: Head {
                seq: 0,
                null: false,
                marker: false,
                size: 0,
                modified: 0,
                etag: String::new(),
                storage_class: self.storage_class,
                owner,
                checksum: None,
            },
            blobs: Vec::new(),
            multipart: false,
            upload: None,
            headers: self.headers,
            metadata: self.metadata,
            tags: self.tags,
            acl,
            seal,
            retention: self.retention,
            hold: self.hold,
            checksum: None,
        }
    }
}

/// Sets the checksum of a version, also where listings look for it.
pub fn set_checksum(version: &mut Version, checksum: Option<Checksum>) {
    version.head.checksum = checksum.as_ref().map(|checksum| (checksum.algorithm.clone(), checksum.full));
    version.checksum = checksum;
}

/// The value of one system header of an object.
pub fn system_of<'a>(kept: &'a [(String, String)], name: &str) -> Option<&'a str> {
    kept.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.as_str())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>> {
    let value = headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()));
    value.transpose().map_err(|_| argument(format!("The header {name} is not UTF-8")))
}

fn system(headers: &HeaderMap) -> Result<Vec<(String, String)>> {
    let mut kept = Vec::new();
    for name in SYSTEM {
        let Some(value) = text(headers, name)? else { continue };
        let value = if name == "content-encoding" { stored_encoding(value) } else { value.to_owned() };
        if name == "x-amz-website-redirect-location"
            && !["/", "http://", "https://"].iter().any(|start| value.starts_with(start))
        {
            return Err(Fault::new(
                S3ErrorCode::Custom("InvalidRedirectLocation".into()),
                "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
            ));
        }
        if !value.is_empty() {
            kept.push((name.to_owned(), value));
        }
    }
    Ok(kept)
}

/// `aws-chunked` tells how the request came, not what is stored.
fn stored_encoding(value: &str) -> String {
    let names = value.split(',').map(str::trim);
    names.filter(|name| !name.eq_ignore_ascii_case("aws-chunked")).collect::<Vec<_>>().join(", ")
}

fn user(metadata: Option<dto::Metadata>) -> Result<Vec<(String, String)>> {
    let mut kept: Vec<(String, String)> = metadata.unwrap_or_default().into_iter().collect();
    kept.sort();
    let size: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_MAX {
        return Err(Fault::new(
            S3ErrorCode::MetadataTooLarge,
            "Your metadata headers exceed the maximum allowed metadata size",
        ));
    }
    Ok(kept)
}

/// The tags of an `x-amz-tagging` header, sorted by key.
pub fn tags(header: &str) -> Result<Vec<(String, String)>> {
    let mut tags = Vec::new();
    for pair in header.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push((decode(key)?, decode(value)?));
    }
    tags.sort();
    check_tags(&tags)?;
    Ok(tags)
}

/// Refuses tags that S3 does not allow on an object.
pub fn check_tags(tags: &[(String, String)]) -> Result<()> {
    let bad = |message: &'static str| Err(Fault::new(S3ErrorCode::InvalidTag, message));
    if tags.len() > TAGS_MAX {
        return bad("Object tags cannot be greater than 10");
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > TAG_KEY_MAX {
            return bad("The TagKey you have provided is invalid");
        }
        if value.chars().count() > TAG_VALUE_MAX {
            return bad("The TagValue you have provided is invalid");
        }
        if tags.iter().filter(|(other, _)| other == key).count() > 1 {
            return bad("Cannot provide multiple Tags with the same key");
        }
    }
    Ok(())
}

/// Text of a form: `+` is a space, `%41` a byte.
fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or_else(|| argument("The tags are not encoded as in a URL".into()))?);
                rest = &rest[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| argument("The tags are not UTF-8".into()))
}

/// `None` is the usual class.
pub fn storage_class(name: &str) -> Result<Option<String>> {
    if !STORAGE_CLASSES.contains(&name) {
        return Err(Fault::new(
            S3ErrorCode::InvalidStorageClass,
            "The storage class you specified is not valid",
        ));
    }
    Ok((name != StorageClass::STANDARD).then(|| name.to_owned()))
}

fn retention(headers: &HeaderMap) -> Result<Option<Retention>> {
    let mode = text(headers, "x-amz-object-lock-mode")?;
    let until = text(headers, "x-amz-object-lock-retain-until-date")?;
    let (Some(mode), Some(until)) = (mode, until) else {
        if mode.is_none() && until.is_none() {
            return Ok(None);
        }
        let message = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied";
        return Err(argument(message.into()));
    };
    let compliance = match mode {
        "COMPLIANCE" => true,
        "GOVERNANCE" => false,
        _ => return Err(argument("Unknown wormMode directive.".into())),
    };
    let until = Timestamp::parse(TimestampFormat::DateTime, until)
        .map_err(|_| argument("The retain until date must be provided in ISO 8601 format".into()))?;
    let until = milliseconds(until);
    if until <= jiff::Timestamp::now().as_millisecond() {
        return Err(argument("The retain until date must be in the future!".into()));
    }
    Ok(Some(Retention { compliance, until }))
}

fn hold(headers: &HeaderMap) -> Result<Hold> {
    match text(headers, "x-amz-object-lock-legal-hold")? {
        None => Ok(Hold::Unset),
        Some("ON") => Ok(Hold::On),
        Some("OFF") => Ok(Hold::Off),
        Some(_) => Err(argument("Legal Hold must be either of 'ON' or 'OFF'".into())),
    }
}

/// Milliseconds since 1970.
pub fn milliseconds(at: Timestamp) -> i64 {
    let nanos = time::OffsetDateTime::from(at).unix_timestamp_nanos();
    i64::try_from(nanos.div_euclid(1_000_000)).unwrap_or(i64::MAX)
}

/// For answers. Times that no calendar has become the last one that it has.
pub fn timestamp(milliseconds: i64) -> Timestamp {
    let at = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000);
    at.unwrap_or(time::PrimitiveDateTime::MAX.assume_utc()).into()
}

fn argument(message: String) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_is_kept_does_not_tell_how_it_came() {
        let check = |given: &str, kept: Option<&str>| {
            let terms = Terms::of(&headers(&[("content-encoding", given)]), None).unwrap();
            assert_eq!(system_of(&terms.headers, "content-encoding"), kept);
        };
        check("gzip, aws-chunked", Some("gzip"));
        check("deflate, gzip", Some("deflate, gzip"));
        check("aws-chunked", None);
    }

    #[test]
    fn tags_are_those_of_a_query() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(tags("foo=b+r%21&bar").unwrap(), [pair("bar", ""), pair("foo", "b r!")]);
        for bad in ["a=1&a=2", "=x", "a=%zz", "a=%4", "a=%ff", "0&1&2&3&4&5&6&7&8&9&10"] {
            assert!(tags(bad).is_err(), "{bad}");
        }
        assert!(tags(&"k".repeat(129)).is_err());
        assert!(tags(&format!("k={}", "v".repeat(257))).is_err());
    }

    #[test]
    fn bad_terms_are_refused() {
        let metadata = [("a".to_owned(), "b".repeat(METADATA_MAX))].into_iter().collect();
        assert!(Terms::of(&HeaderMap::new(), Some(metadata)).is_err());
        for bad in [
            ("x-amz-storage-class", "COLD"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-object-lock-legal-hold", "on"),
            ("x-amz-website-redirect-location", "ftp://x"),
        ] {
            assert!(Terms::of(&headers(&[bad]), None).is_err(), "{bad:?}");
        }
        let past = [
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-object-lock-retain-until-date", "2001-01-01T00:00:00Z"),
        ];
        assert!(Terms::of(&headers(&past), None).is_err());
    }
}
