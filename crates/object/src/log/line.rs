//! One request as a line of an access log, in the fields that S3 writes.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::access::policy::arn;
use crate::escape::escape;
use crate::record::Bucket;
use crate::trace::{Each, Seen, Trace};

/// The longest field that a client decides on.
const FIELD_MAX: usize = 2048;

/// What is known of a request and its answer.
pub struct Line {
    pub trace: Trace,
    pub at: Timestamp,
    method: Method,
    pub uri: Uri,
    version: Version,
    request_id: String,
    host_id: Arc<str>,
    referrer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    host: Option<HeaderValue>,
    /// Version and cipher of TLS.
    tls: Option<(&'static str, &'static str)>,
    signed: Signed,
    pub status: u16,
    /// The code of an error.
    pub code: Option<String>,
    pub sent: Option<u64>,
    pub version_id: Option<HeaderValue>,
    pub took: Duration,
}

/// How a request is signed: by which version, and where the signature stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signed(&'static str, &'static str);

impl Signed {
    fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        match headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()) {
            Some(value) if value.starts_with(b"AWS4-") => Self("SigV4", "AuthHeader"),
            Some(_) => Self("SigV2", "AuthHeader"),
            None if has("X-Amz-Signature") => Self("SigV4", "QueryString"),
            None if has("Signature") => Self("SigV2", "QueryString"),
            None => Self("-", "-"),
        }
    }
}

impl Line {
    /// What is known before there is an answer.
    pub fn begin<B>(
        req: &Request<B>,
        trace: Trace,
        request_id: &str,
        host_id: Arc<str>,
        tls: Option<(&'static str, &'static str)>,
    ) -> Self {
        let header = |name: HeaderName| req.headers().get(name).cloned();
        Self {
            trace,
            at: Timestamp::now(),
            method: req.method().clone(),
            uri: req.uri().clone(),
            version: req.version(),
            request_id: request_id.to_owned(),
            host_id,
            referrer: header(header::REFERER),
            agent: header(header::USER_AGENT),
            host: header(header::HOST),
            tls,
            signed: Signed::of(req.uri(), req.headers()),
            status: 0,
            code: None,
            sent: None,
            version_id: None,
            took: Duration::ZERO,
        }
    }

    pub fn host(&self) -> Option<&str> {
        self.host.as_ref().and_then(|host| host.to_str().ok())
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The line about a request that a bucket has `seen`, after those about each object of a request about many.
    pub fn text(&self, bucket: &Bucket, seen: &Seen) -> String {
        let each = self.trace.each().iter().map(|each| self.each(bucket, seen, each));
        let mut text: String = each.collect();
        text.push_str(&self.whole(bucket, seen));
        text
    }

    fn whole(&self, bucket: &Bucket, seen: &Seen) -> String {
        let fields = [
            format!("REST.{}.{}", self.method, resource(&seen.operation)),
            or_none(seen.key.as_deref().map(|key| escape(key, true))),
            quoted(&format!("{} {} {:?}", self.method, self.uri, self.version)),
            self.status.to_string(),
            or_none(self.code.clone()),
            or_none(self.sent.filter(|sent| *sent > 0).map(|sent| sent.to_string())),
            "-".to_owned(),
            self.took.as_millis().to_string(),
            "-".to_owned(),
            quoted(text(&self.referrer)),
            quoted(text(&self.agent)),
            word(text(&self.version_id)),
        ];
        self.around(bucket, seen, &fields)
    }

    fn each(&self, bucket: &Bucket, seen: &Seen, each: &Each) -> String {
        let none = || "-".to_owned();
        let fields = [
            "BATCH.DELETE.OBJECT".to_owned(),
            escape(&each.key, true),
            none(),
            each.status.to_string(),
            or_none(each.code.clone()),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            word(each.version_id.as_deref().unwrap_or_default()),
        ];
        self.around(bucket, seen, &fields)
    }

    /// The fields from the operation on to the version, with those before and after them.
    fn around(&self, bucket: &Bucket, seen: &Seen, fields: &[String]) -> String {
        let at = self.at.to_zoned(TimeZone::UTC).strftime("[%d/%b/%Y:%H:%M:%S +0000]");
        let before = [
            bucket.owner.id.to_string(),
            bucket.name.clone(),
            at.to_string(),
            or_none(seen.caller.address.map(|address| address.to_string())),
            word(&or_none(seen.caller.principal.as_ref().map(arn))),
            self.request_id.clone(),
        ];
        let (tls, cipher) = self.tls.unwrap_or(("-", "-"));
        let after = [
            self.host_id.to_string(),
            self.signed.0.to_owned(),
            cipher.to_owned(),
            self.signed.1.to_owned(),
            word(text(&self.host)),
            tls.to_owned(),
            "-".to_owned(),
            if self.trace.is_by_acl() { "Yes" } else { "-" }.to_owned(),
        ];
        [before.as_slice(), fields, &after].concat().join(" ") + "\n"
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn text(header: &Option<HeaderValue>) -> &str {
    header.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Text that a quote, a space or a line's end would break.
fn word(text: &str) -> String {
    let odd = |c: char| c.is_control() || c == '"' || c == ' ';
    let text: String = text.chars().take(FIELD_MAX).map(|c| if odd(c) { '+' } else { c }).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

fn quoted(text: &str) -> String {
    let odd = |c: char| c.is_control() || c == '"';
    let text: String = text.chars().take(FIELD_MAX).map(|c| if odd(c) { '+' } else { c }).collect();
    format!("\"{}\"", if text.is_empty() { "-" } else { &text })
}

/// What an operation is about, in the words of S3's logs.
fn resource(operation: &str) -> String {
    let known = match operation {
        "GetObject" | "HeadObject" | "PutObject" | "CopyObject" | "DeleteObject" | "PostObject" => "OBJECT",
        "ListObjects" | "ListObjectsV2" | "HeadBucket" | "CreateBucket" | "DeleteBucket" => "BUCKET",
        "ListObjectVersions" => "BUCKETVERSIONS",
        "UploadPart" | "UploadPartCopy" => "PART",
        "CreateMultipartUpload" | "ListMultipartUploads" => "UPLOADS",
        "CompleteMultipartUpload" | "AbortMultipartUpload" | "ListParts" => "UPLOAD",
        "DeleteObjects" => "MULTI_OBJECT_DELETE",
        "GetBucketPolicy" | "PutBucketPolicy" | "DeleteBucketPolicy" => "BUCKETPOLICY",
        "GetBucketLogging" | "PutBucketLogging" => "LOGGING_STATUS",
        "GetObjectAcl" | "PutObjectAcl" => "ACL",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let rest = ["Get", "Put", "Delete", "List", "Head"].iter().find_map(|verb| operation.strip_prefix(verb));
    let rest = rest.unwrap_or(operation);
    let rest = rest.strip_prefix("Bucket").unwrap_or(rest);
    let rest = rest.strip_suffix("Configuration").filter(|rest| !rest.ends_with("Lock")).unwrap_or(rest);
    let mut snake = String::new();
    for char in rest.chars() {
        if char.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(char.to_ascii_uppercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_end_early() {
        assert_eq!(word("a\" b\nc"), "a++b+c");
        assert_eq!(quoted("a\" b\nc"), "\"a+ b+c\"");
        assert_eq!(quoted(""), "\"-\"");
    }

    #[test]
    fn operations_have_the_names_of_s3() {
        for (operation, name) in [
            ("PutObject", "OBJECT"),
            ("UploadPart", "PART"),
            ("GetBucketAcl", "ACL"),
            ("PutBucketVersioning", "VERSIONING"),
            ("GetBucketLifecycleConfiguration", "LIFECYCLE"),
            ("GetObjectTagging", "OBJECT_TAGGING"),
            ("GetObjectLockConfiguration", "OBJECT_LOCK_CONFIGURATION"),
            ("GetPublicAccessBlock", "PUBLIC_ACCESS_BLOCK"),
        ] {
            assert_eq!(resource(operation), name, "{operation}");
        }
    }

    #[test]
    fn signatures_are_told_apart() {
        let of = |uri: &str, authorization: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = authorization {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            Signed::of(&uri.parse().unwrap(), &headers)
        };
        assert_eq!(of("/b", None), Signed("-", "-"));
        assert_eq!(of("/b", Some("AWS4-HMAC-SHA256 x")), Signed("SigV4", "AuthHeader"));
        assert_eq!(of("/b", Some("AWS K:S")), Signed("SigV2", "AuthHeader"));
        assert_eq!(of("/b?X-Amz-Signature=0", None), Signed("SigV4", "QueryString"));
        assert_eq!(of("/b?Expires=1&Signature=0", None), Signed("SigV2", "QueryString"));
    }
}
