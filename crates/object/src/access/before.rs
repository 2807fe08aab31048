//! What is wrong with the way a request is signed, as far as that can be seen without a secret.
//!
//! s3s checks signatures. It looks at neither the age of version 2 signatures nor
//! at headers that a version 4 signature leaves out, which whoever holds a presigned
//! address could add.

use http::{HeaderMap, HeaderValue, Uri, header};
use jiff::Timestamp;
use s3s::S3ErrorCode;

use super::auth::TOKEN;
use super::request::pairs;
use crate::fault::{Fault, Result};

const DATE: &str = "x-amz-date";
/// How far clocks may be apart.
const SKEW_SECONDS: i64 = 15 * 60;
/// The longest life of a presigned address.
const EXPIRES_MAX: i64 = 7 * 24 * 60 * 60;
/// Headers that say nothing about what a request does.
const HARMLESS: &[&str] =
    &["x-amz-cf-id", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "x-amz-user-agent"];

/// What a request is about, as far as version 2 signatures do not cover it: whoever holds a presigned address could add it.
const UNSIGNED_BY_2: &[&str] = &[
    "accelerate",
    "analytics",
    "attributes",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "metrics",
    "object-lock",
    "ownershipControls",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "retention",
    "select",
];

/// Refuses what no signature can make good. To be asked before the request goes to s3s. `region` is ours.
pub fn before(uri: &Uri, headers: &HeaderMap, region: &str, now: Timestamp) -> Result<()> {
    let query: Vec<(String, String)> = pairs(uri.query().unwrap_or_default()).collect();
    let parameter =
        |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let (by_query, by_query_2) = (parameter("X-Amz-Signature").is_some(), parameter("Signature").is_some());
    let by_header = headers.get(header::AUTHORIZATION);
    if [by_header.is_some(), by_query, by_query_2].iter().filter(|given| **given).count() > 1 {
        let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified";
        return Err(Fault::new(S3ErrorCode::InvalidArgument, message));
    }
    if parameter("versionId").is_some_and(str::is_empty) {
        let message = "Version id cannot be the empty string";
        return Err(Fault::new(S3ErrorCode::InvalidArgument, message));
    }
    let by_2 = by_query_2 || by_header.is_some_and(|value| value.as_bytes().starts_with(b"AWS "));
    if let Some(name) = UNSIGNED_BY_2.iter().find(|name| by_2 && parameter(name).is_some()) {
        let message =
            format!("A signature of version 2 does not cover '{name}'. Please use AWS4-HMAC-SHA256.");
        return Err(Fault::new(S3ErrorCode::InvalidRequest, message));
    }
    if let Some(authorization) = by_header {
        let text = authorization.to_str().unwrap_or_default().trim();
        return match text.split_once(' ') {
            _ if text.is_empty() => Err(denied("The Authorization header is empty")),
            Some(("AWS", rest)) if rest.contains(':') => check_date(headers, now),
            Some(("AWS4-HMAC-SHA256", rest)) => {
                let field = |name: &str| rest.split(',').find_map(|part| part.trim().strip_prefix(name));
                check_scope(field("Credential="), region).map_err(|why| {
                    let message = format!("The authorization header is malformed; {why}");
                    Fault::new(S3ErrorCode::AuthorizationHeaderMalformed, message)
                })?;
                check_moment(headers.get(DATE).map(|date| date.to_str().unwrap_or_default()))?;
                check_signed(headers, field("SignedHeaders="))
            }
            _ => Err(Fault::new(S3ErrorCode::InvalidArgument, "Unsupported Authorization Type")),
        };
    }
    if by_query {
        check_scope(parameter("X-Amz-Credential"), region).map_err(|why| {
            let message = format!("Error parsing the X-Amz-Credential parameter; {why}");
            Fault::new(S3ErrorCode::AuthorizationQueryParametersError, message)
        })?;
        let expires = parameter("X-Amz-Expires").and_then(|text| text.parse::<i64>().ok());
        if !expires.is_some_and(|expires| (1..=EXPIRES_MAX).contains(&expires)) {
            return Err(denied("X-Amz-Expires must be from 1 second to 7 days"));
        }
        check_moment(parameter("X-Amz-Date"))?;
        return check_signed(headers, parameter("X-Amz-SignedHeaders"));
    }
    Ok(())
}

/// The region of a credential may be any, but must be written like one. Clients that are told ours
/// sign again with it. Its day is digits, which s3s takes for granted.
fn check_scope(credential: Option<&str>, ours: &str) -> Result<(), String> {
    let parts: Vec<&str> = credential.unwrap_or_default().rsplitn(5, '/').collect();
    let ["aws4_request", _, region, day, _] = parts[..] else {
        return Err(
            "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
                .into(),
        );
    };
    if day.len() != 8 || !is_digits(day) {
        return Err(format!("the date of the credential, '{day}', is not a day."));
    }
    let is_name = |region: &str| {
        region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if is_name(region) { Ok(()) } else { Err(format!("the region '{region}' is wrong; expecting '{ours}'")) }
}

/// Brings a signed request into the form that s3s checks. A version 4 signature may date itself by
/// `Date` alone. A version 2 signature is of the bucket's name with a slash behind it, also where the
/// path has none, and of the token of a presigned address as if it were a header.
pub fn settle(uri: &mut Uri, headers: &mut HeaderMap, bucket_in_path: bool) {
    let header = headers.get(header::AUTHORIZATION);
    let by_v4 = header.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
    if by_v4 && !headers.contains_key(DATE) {
        let date = headers.get(header::DATE).and_then(|date| date.to_str().ok()).and_then(moment);
        let date = date.map(|date| date.strftime("%Y%m%dT%H%M%SZ").to_string());
        if let Some(Ok(date)) = date.map(HeaderValue::try_from) {
            headers.insert(DATE, date);
        }
        return;
    }
    let by_header = header.is_some_and(|value| value.as_bytes().starts_with(b"AWS "));
    let query = uri.query().unwrap_or_default();
    let by_query = header.is_none() && pairs(query).any(|(name, _)| name == "Signature");
    if !by_header && !by_query {
        return;
    }
    let token = pairs(query).find(|(name, _)| name == TOKEN).map(|(_, token)| token);
    if let Some(Ok(token)) = token.filter(|_| by_query).map(|token| token.parse()) {
        headers.entry(TOKEN).or_insert(token);
    }
    let name = uri.path().trim_start_matches('/');
    if bucket_in_path && !name.is_empty() && !name.contains('/') {
        let mark = if uri.query().is_some() { "?" } else { "" };
        if let Ok(slashed) = format!("/{name}/{mark}{query}").parse() {
            *uri = slashed;
        }
    }
}

/// Times are digits. s3s takes that for granted, and panics in builds that check arithmetic.
fn check_moment(date: Option<&str>) -> Result<()> {
    let is_moment = |date: &str| {
        let (day, time) = date.split_at_checked(8)?;
        Some(is_digits(day) && is_digits(time.strip_prefix('T')?.strip_suffix('Z')?))
    };
    if !date.is_none_or(|date| date.len() != 16 || is_moment(date) == Some(true)) {
        return Err(denied("AWS authentication requires a valid Date or x-amz-date header"));
    }
    Ok(())
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Version 2 signs a date, which must be near.
fn check_date(headers: &HeaderMap, now: Timestamp) -> Result<()> {
    let date = headers.get(DATE).or_else(|| headers.get(header::DATE));
    let date = date.and_then(|date| date.to_str().ok()).and_then(moment);
    let date = date.filter(|date| date.as_second() >= 0);
    let date = date.ok_or_else(|| denied("The request has no valid date"))?;
    if (now.as_second() - date.as_second()).abs() > SKEW_SECONDS {
        return Err(Fault::new(
            S3ErrorCode::RequestTimeTooSkewed,
            "The difference between the request time and the current time is too large.",
        ));
    }
    Ok(())
}

fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(date) = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text) {
        return Some(date);
    }
    let date = jiff::fmt::strtime::parse("%Y%m%dT%H%M%SZ", text).ok()?.to_datetime().ok()?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// Every header that changes what a request does must be signed.
fn check_signed(headers: &HeaderMap, signed: Option<&str>) -> Result<()> {
    let signed = signed.unwrap_or_default();
    let is_signed = |name: &str| signed.split(';').any(|known| known.eq_ignore_ascii_case(name));
    let mut names = headers.keys().map(|name| name.as_str());
    let loose = names.find(|name| name.starts_with("x-amz-") && !HARMLESS.contains(name) && !is_signed(name));
    match loose {
        Some(name) => {
            Err(denied(format!("There were headers present in the request which were not signed: {name}")))
        }
        None if !is_signed("host") => Err(denied("The header host was not signed")),
        None => Ok(()),
    }
}

fn denied(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::AccessDenied, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn dates_are_digits() {
        let with = |day: &str, date: &str| {
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential=K/{day}/r/s3/aws4_request, SignedHeaders=host, Signature=0"
            );
            verdict("/b/k", &[("authorization", &authorization), ("x-amz-date", date)])
        };
        assert_eq!(with("20260101", "20260101T000000Z"), "ok");
        assert_eq!(with("2-east-1", "20260101T000000Z"), "malformed");
        assert_eq!(with("20260101", "2026-101T000000Z"), "AccessDenied");
        assert_eq!(with("20260101", "20260101T00/000Z"), "AccessDenied");
        let link = "/b/k?X-Amz-Signature=0&X-Amz-Expires=9&X-Amz-SignedHeaders=host&X-Amz-Credential=K/2-26+101/r/s3/aws4_request";
        assert_eq!(verdict(link, &[]), "malformed query");
    }

    const V4: &str = "AWS4-HMAC-SHA256 Credential=K/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-acl;x-amz-date, Signature=00";

    fn verdict(uri: &str, headers: &[(&'static str, &str)]) -> &'static str {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        match before(&uri.parse().unwrap(), &map, "us-east-1", now) {
            Ok(()) => "ok",
            Err(Fault::S3(S3ErrorCode::AuthorizationHeaderMalformed, why))
                if why.contains("expecting 'us-east-1'") =>
            {
                "another region"
            }
            Err(Fault::S3(S3ErrorCode::AuthorizationHeaderMalformed, _)) => "malformed",
            Err(Fault::S3(S3ErrorCode::AuthorizationQueryParametersError, _)) => "malformed query",
            Err(Fault::S3(S3ErrorCode::AccessDenied, _)) => "AccessDenied",
            Err(Fault::S3(S3ErrorCode::InvalidArgument, _)) => "InvalidArgument",
            Err(Fault::S3(S3ErrorCode::InvalidRequest, _)) => "InvalidRequest",
            Err(Fault::S3(S3ErrorCode::RequestTimeTooSkewed, _)) => "RequestTimeTooSkewed",
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn authorization_headers() {
        let v2 = |date: &'static str| verdict("/b", &[("authorization", "AWS K:S"), ("x-amz-date", date)]);
        assert_eq!(verdict("/b", &[]), "ok");
        assert_eq!(verdict("/b", &[("authorization", "")]), "AccessDenied");
        assert_eq!(verdict("/b", &[("authorization", "AWS HAHAHA")]), "InvalidArgument");
        assert_eq!(verdict("/b", &[("authorization", "Basic abc")]), "InvalidArgument");
        assert_eq!(verdict("/b", &[("authorization", "AWS K:S")]), "AccessDenied");
        assert_eq!(v2("Thu, 01 Jan 2026 00:10:00 GMT"), "ok");
        assert_eq!(v2("20260101T001000Z"), "ok");
        assert_eq!(v2("Thu, 01 Jan 2026 00:20:00 GMT"), "RequestTimeTooSkewed");
        assert_eq!(v2("Tue, 07 Jul 2010 21:53:04 GMT"), "RequestTimeTooSkewed");
        assert_eq!(v2("Tue, 07 Jul 9999 21:53:04 GMT"), "RequestTimeTooSkewed");
        assert_eq!(v2("Tue, 07 Jul 1950 21:53:04 GMT"), "AccessDenied");
        assert_eq!(v2("Bad Date"), "AccessDenied");
        assert_eq!(v2(""), "AccessDenied");
    }

    #[test]
    fn version_2_is_settled() {
        let v2: HeaderMap = [(header::AUTHORIZATION, "AWS K:S".parse().unwrap())].into_iter().collect();
        let settled = |uri: &str, headers: &HeaderMap| {
            let (mut uri, mut headers) = (uri.parse::<Uri>().unwrap(), headers.clone());
            settle(&mut uri, &mut headers, true);
            let token = headers.get(TOKEN).map(|token| token.to_str().unwrap().to_owned());
            (uri.to_string(), token)
        };
        assert_eq!(settled("/b", &v2).0, "/b/");
        assert_eq!(settled("/b?acl&x=%2F", &v2).0, "/b/?acl&x=%2F");
        assert_eq!(settled("/b?Signature=x", &HeaderMap::new()).0, "/b/?Signature=x");
        for uri in ["/", "/b/", "/b/k", "/b//"] {
            assert_eq!(settled(uri, &v2).0, uri);
        }
        assert_eq!(settled("/b", &HeaderMap::new()).0, "/b", "another signature is not touched");
        let presigned = "/b/k?Signature=x&x-amz-security-token=a%2Bb";
        assert_eq!(settled(presigned, &HeaderMap::new()), (presigned.to_owned(), Some("a+b".into())));
        assert_eq!(settled(presigned, &v2).1, None);
    }

    #[test]
    fn headers_that_act_are_signed() {
        assert_eq!(verdict("/b/k", &[("authorization", V4), ("x-amz-acl", "private")]), "ok");
        assert_eq!(verdict("/b/k", &[("authorization", V4), ("x-amz-copy-source", "a/b")]), "AccessDenied");
        let presigned = "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/r/s3/aws4_request&X-Amz-Expires=60&X-Amz-SignedHeaders=host";
        assert_eq!(verdict(presigned, &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]), "ok");
        assert_eq!(verdict(presigned, &[("x-amz-copy-source", "secret/key")]), "AccessDenied");
        assert_eq!(verdict(presigned, &[("x-amz-acl", "public-read")]), "AccessDenied");
        let listed = "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/r/s3/aws4_request&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-amz-acl";
        assert_eq!(verdict(listed, &[("x-amz-acl", "public-read")]), "ok");
        let hostless = "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/r/s3/aws4_request&X-Amz-Expires=60&X-Amz-SignedHeaders=range";
        assert_eq!(verdict(hostless, &[]), "AccessDenied");
    }

    #[test]
    fn one_signature_is_enough() {
        let link = "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/r/s3/aws4_request&X-Amz-Expires=60&X-Amz-SignedHeaders=host";
        assert_eq!(verdict(link, &[]), "ok");
        assert_eq!(verdict(link, &[("authorization", V4)]), "InvalidArgument");
        assert_eq!(verdict("/b/k?Signature=0", &[("authorization", "AWS K:S")]), "InvalidArgument");
        assert_eq!(verdict("/b/k?Signature=0&X-Amz-Signature=0", &[]), "InvalidArgument");
        assert_eq!(verdict("/b/k?versionId=", &[]), "InvalidArgument");
        assert_eq!(verdict("/b/k?AWSAccessKeyId=K&Signature=0&Expires=9", &[]), "ok");
        assert_eq!(verdict("/b/k?AWSAccessKeyId=K&Signature=0&Expires=9&retention", &[]), "InvalidRequest");
        assert_eq!(verdict("/b/k?legal-hold=", &[("authorization", "AWS K:S")]), "InvalidRequest");
    }

    #[test]
    fn credentials_have_a_scope() {
        let with = |credential: &str| {
            let header =
                format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=00");
            verdict("/b", &[("authorization", &header)])
        };
        assert_eq!(with("K/20260101/us-east-1/s3/aws4_request"), "ok");
        assert_eq!(with("K/20260101/elsewhere-7/s3/aws4_request"), "ok");
        assert_eq!(with("K/20260101//s3/aws4_request"), "ok");
        assert_eq!(with("K/20260101/US/s3/aws4_request"), "another region");
        for bad in ["", "K", "K/20260101/r/s3", "20260101/r/s3/aws4_request", "K/20260101/r/s3/aws5_request"]
        {
            assert_eq!(with(bad), "malformed", "{bad}");
        }
        let query = "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/EU/s3/aws4_request";
        assert_eq!(verdict(query, &[]), "malformed query");
    }

    #[test]
    fn version_4_may_be_dated_by_date() {
        let settled = |name: &'static str, date: &str| {
            let mut headers: HeaderMap = [(header::AUTHORIZATION, V4.parse().unwrap())].into_iter().collect();
            headers.insert(name, date.parse().unwrap());
            settle(&mut "/b".parse().unwrap(), &mut headers, true);
            headers.get(DATE).map(|date| date.to_str().unwrap().to_owned())
        };
        assert_eq!(settled("date", "Thu, 01 Jan 2026 00:10:00 -0000").as_deref(), Some("20260101T001000Z"));
        assert_eq!(settled("date", "soon"), None);
        assert_eq!(settled("x-amz-date", "soon").as_deref(), Some("soon"));
    }

    #[test]
    fn presigned_addresses_live_up_to_a_week() {
        for (expires, answer) in [
            ("1", "ok"),
            ("604800", "ok"),
            ("604801", "AccessDenied"),
            ("0", "AccessDenied"),
            ("-7", "AccessDenied"),
            ("", "AccessDenied"),
        ] {
            let uri = format!(
                "/b/k?X-Amz-Signature=0&X-Amz-Credential=K/20260101/r/s3/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Expires={expires}"
            );
            assert_eq!(verdict(&uri, &[]), answer, "{expires}");
        }
    }
}
