//! What a request says of itself, for conditions and for the choice of an action.

use http::{HeaderMap, Uri};
use s3s::dto::CopySource;

use super::context::Context;
use super::policy;
use crate::service::Caller;

/// Headers that conditions know under `s3:` and the same name.
const HEADERS: &[&str] = &[
    "x-amz-acl",
    "x-amz-content-sha256",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-metadata-directive",
    "x-amz-object-ownership",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
    "if-match",
    "if-none-match",
];

/// Headers that conditions know under another name.
const RENAMED: &[(&str, &str)] = &[
    ("referer", "aws:Referer"),
    ("user-agent", "aws:UserAgent"),
    ("x-amz-object-lock-mode", "s3:object-lock-mode"),
    ("x-amz-object-lock-retain-until-date", "s3:object-lock-retain-until-date"),
    ("x-amz-object-lock-legal-hold", "s3:object-lock-legal-hold"),
];

/// Parameters of the query that conditions know.
const PARAMETERS: &[(&str, &str)] = &[
    ("prefix", "s3:prefix"),
    ("delimiter", "s3:delimiter"),
    ("max-keys", "s3:max-keys"),
    ("versionId", "s3:VersionId"),
];

/// The values of all condition keys that a request has.
pub fn request_context(caller: &Caller, uri: &Uri, headers: &HeaderMap) -> Context {
    let mut context = Context::new();
    of_caller(caller, &mut context);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    for name in HEADERS {
        if let Some(value) = text(name) {
            context.add(&format!("s3:{name}"), value);
        }
    }
    for (name, key) in RENAMED {
        if let Some(value) = text(name) {
            context.add(key, value);
        }
    }
    if let Some(Ok(CopySource::Bucket { bucket, key, .. })) = text("x-amz-copy-source").map(CopySource::parse)
    {
        context.add("s3:x-amz-copy-source", format!("{bucket}/{key}"));
    }
    if let Some(until) = text("x-amz-object-lock-retain-until-date") {
        add_days_left(until, &mut context);
    }
    if let Some(tags) = text("x-amz-tagging") {
        add_request_tags(pairs(tags), &mut context);
    }
    let query: Vec<(String, String)> = pairs(uri.query().unwrap_or_default()).collect();
    for (name, key) in PARAMETERS {
        for (_, value) in query.iter().filter(|(known, _)| known == name) {
            context.add(key, value);
        }
    }
    of_signature(caller, &query, headers, &mut context);
    context
}

/// The tags that a request gives to an object.
pub fn add_request_tags(tags: impl Iterator<Item = (String, String)>, context: &mut Context) {
    for (name, value) in tags {
        context.add(&format!("s3:RequestObjectTag/{name}"), value);
        context.add("s3:RequestObjectTagKeys", name);
    }
}

/// How many days a retention that a request asks for will last.
pub fn add_days_left(until: &str, context: &mut Context) {
    let Ok(until) = until.parse::<jiff::Timestamp>() else { return };
    let left = until.as_second() - jiff::Timestamp::now().as_second();
    context.set("s3:object-lock-remaining-retention-days", (left.max(0) / 86_400).to_string());
}

fn of_caller(caller: &Caller, context: &mut Context) {
    let now = jiff::Timestamp::now();
    context.add("aws:CurrentTime", now.to_string());
    context.add("aws:EpochTime", now.as_second().to_string());
    context.add("aws:SecureTransport", caller.tls.is_some().to_string());
    context.add("aws:RequestedRegion", &*caller.region);
    if let Some(version) = caller.tls {
        context.add("s3:TlsVersion", version);
    }
    // Whoever asks is nobody's deputy, and no part of the cloud.
    context.add("aws:ViaAWSService", "false");
    context.add("aws:PrincipalIsAWSService", "false");
    if let Some(address) = caller.address {
        context.add("aws:SourceIp", address.to_canonical().to_string());
    }
    let Some(principal) = &caller.principal else {
        context.add("aws:PrincipalType", "Anonymous");
        return;
    };
    context.add("aws:PrincipalArn", policy::arn(principal));
    context.add("aws:PrincipalAccount", &*principal.account.id);
    context.add("aws:userid", &*principal.user);
    if principal.session.is_some() {
        context.add("aws:PrincipalType", "AssumedRole");
    } else {
        context.add("aws:PrincipalType", "User");
        context.add("aws:username", &*principal.user);
    }
}

fn of_signature(caller: &Caller, query: &[(String, String)], headers: &HeaderMap, context: &mut Context) {
    if caller.principal.is_none() {
        return;
    }
    let has = |name: &str| query.iter().any(|(known, _)| known == name);
    let header = headers.get(http::header::AUTHORIZATION).map(|value| value.as_bytes());
    let (kind, version) = match header {
        Some(value) if value.starts_with(b"AWS4-") => ("REST-HEADER", "AWS4-HMAC-SHA256"),
        Some(_) => ("REST-HEADER", "AWS"),
        None if has("X-Amz-Signature") => ("REST-QUERY-STRING", "AWS4-HMAC-SHA256"),
        None if has("Signature") => ("REST-QUERY-STRING", "AWS"),
        None => ("POST", "AWS4-HMAC-SHA256"),
    };
    context.add("s3:authType", kind);
    context.add("s3:signatureversion", version);
    let signed = query.iter().find(|(name, _)| name == "X-Amz-Date").map(|(_, value)| value.as_str());
    let signed = signed.and_then(|date| jiff::fmt::strtime::parse("%Y%m%dT%H%M%SZ", date).ok());
    let signed = signed.and_then(|date| date.to_datetime().ok());
    if let Some(Ok(signed)) = signed.map(|date| date.to_zoned(jiff::tz::TimeZone::UTC)) {
        let age = jiff::Timestamp::now().as_millisecond() - signed.timestamp().as_millisecond();
        context.add("s3:signatureAge", age.max(0).to_string());
    }
}

/// The value of a parameter of the query.
pub fn parameter(uri: &Uri, name: &str) -> Option<String> {
    pairs(uri.query()?).find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Splits and decodes `a=b&c=d`.
pub fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// The text of a path.
pub fn path_decode(path: &str) -> String {
    decode(&path.replace('+', "%2B"))
}

/// Undoes `%xx` and `+`. What is not UTF-8 then is replaced.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 2;
            }
            (b'+', _) => plain.push(b' '),
            (byte, _) => plain.push(byte),
        }
        at += 1;
    }
    String::from_utf8(plain).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_it_came() {
        let with = |tls| {
            let (region, principal, narrowed) = ("here-1".into(), None, None);
            let caller = Caller { principal, address: None, tls, region, narrowed };
            request_context(&caller, &Uri::from_static("/b/k"), &HeaderMap::new())
        };
        let one = |context: &Context, key: &str| context.get(key).map(|values| values.join(","));
        let secure = with(Some("1.3"));
        assert_eq!(one(&secure, "s3:TlsVersion").as_deref(), Some("1.3"));
        assert_eq!(one(&secure, "aws:SecureTransport").as_deref(), Some("true"));
        assert_eq!(one(&secure, "aws:RequestedRegion").as_deref(), Some("here-1"));
        let plain = with(None);
        assert_eq!(one(&plain, "s3:TlsVersion"), None);
        assert_eq!(one(&plain, "aws:SecureTransport").as_deref(), Some("false"));
    }
}
