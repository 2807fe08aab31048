//! What a request for a new object says beside its bytes.

use http::HeaderMap;
use s3s::S3ErrorCode;
use s3s::dto::{self, StorageClass, Timestamp, TimestampFormat};

use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::record::{Acl, Checksum, Hold, Retention, Seal, Version};

/// The most bytes of names and values of user metadata.
pub const METADATA_MAX: usize = 2 * 1024;
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
        let mut version = Version::empty(owner);
        version.head.storage_class = self.storage_class;
        Version {
            headers: self.headers,
            metadata: self.metadata,
            tags: self.tags,
            acl,
            seal,
            retention: self.retention,
            hold: self.hold,
            ..version
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

/// Those of the header, by key.
fn tags(header: &str) -> Result<Vec<(String, String)>> {
    let mut tags = crate::tag::from_query(header)?;
    tags.sort();
    Ok(tags)
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
    let until = crate::time::millis(&until);
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

fn argument(message: String) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
