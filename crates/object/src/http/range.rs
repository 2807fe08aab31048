//! Ranges that the library does not read: one that cannot be read is as good as none, and one may be as long as it likes.
//! Where a signature covers the header, it is put right after the signature was checked.

use http::header::{AUTHORIZATION, RANGE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};

use crate::access::pairs;
use crate::trace::Trace;

/// The furthest byte that the library takes.
const LAST_MAX: u64 = i64::MAX as u64;
/// How the parameters of a signature begin, in small letters.
const SIGNATURE: &str = "x-amz-";

/// A request without its signature, with a range that can be read.
pub struct Again(Request<()>);

/// Puts a range right. Where that would break the signature, answers what is to be asked once it was checked.
pub fn settle(req: &mut Request<Body>) -> Option<Again> {
    let range = req.headers().get(RANGE)?;
    let range = range.to_str().ok().and_then(plain).and_then(|range| HeaderValue::try_from(range).ok());
    if range.as_ref() == req.headers().get(RANGE) {
        return None;
    }
    if !is_signed(req.uri(), req.headers()) {
        put(req.headers_mut(), range);
        return None;
    }
    if ![Method::GET, Method::HEAD].contains(req.method()) {
        return None;
    }
    let mut again = Request::new(());
    *again.method_mut() = req.method().clone();
    *again.uri_mut() = unsigned(req.uri())?;
    *again.headers_mut() = req.headers().clone();
    *again.extensions_mut() = req.extensions().clone();
    again.headers_mut().remove(AUTHORIZATION);
    put(again.headers_mut(), range);
    Some(Again(again))
}

impl Again {
    /// Asks a service that checks neither signatures nor rights, if the request has passed both checks. `answered` is
    /// what the library said to it as it came.
    pub async fn ask(self, plain: &S3Service, answered: HttpResponse) -> Result<HttpResponse, HttpError> {
        let trace = self.0.extensions().get::<Trace>().cloned().unwrap_or_default();
        let (Some(seen), true) = (trace.seen(), trace.has_passed()) else { return Ok(answered) };
        if answered.status() != http::StatusCode::BAD_REQUEST {
            return Ok(answered);
        }
        let mut req = self.0.map(|()| Body::empty());
        req.extensions_mut().insert(seen.caller.clone());
        plain.call(req).await
    }
}

fn put(headers: &mut HeaderMap, range: Option<HeaderValue>) {
    match range {
        Some(range) => drop(headers.insert(RANGE, range)),
        None => drop(headers.remove(RANGE)),
    }
}

/// The range in numbers that the library takes; `None` if it is none.
fn plain(range: &str) -> Option<String> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number = |digits: &str| {
        let fits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| digits.parse().unwrap_or(u64::MAX).min(LAST_MAX))
    };
    match (first, last) {
        ("", length) => Some(format!("bytes=-{}", number(length)?)),
        (first, "") => Some(format!("bytes={}-", number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| format!("bytes={first}-{last}"))
        }
    }
}

/// Whether a signature covers the header.
fn is_signed(uri: &Uri, headers: &HeaderMap) -> bool {
    let names = |list: &str| list.split(';').any(|name| name.eq_ignore_ascii_case("range"));
    if let Some(text) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        let mut parts = text.split([',', ' ']).map(str::trim);
        return parts.find_map(|part| part.strip_prefix("SignedHeaders=")).is_some_and(names);
    }
    pairs(uri.query().unwrap_or_default()).any(|(name, list)| name == "X-Amz-SignedHeaders" && names(&list))
}

/// The address without the parameters of a signature.
fn unsigned(uri: &Uri) -> Option<Uri> {
    let query = uri.query().unwrap_or_default().split('&');
    let kept = query.filter(|pair| !pair.to_ascii_lowercase().starts_with(SIGNATURE));
    let kept = kept.collect::<Vec<_>>().join("&");
    format!("{}?{kept}", uri.path()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (range, read) in [
            ("bytes=0-1", Some("bytes=0-1")),
            ("bytes=-5", Some("bytes=-5")),
            ("bytes=7-", Some("bytes=7-")),
            ("bytes=0-18446744073709551615", Some("bytes=0-9223372036854775807")),
            ("bytes=0-9223372036854775808", Some("bytes=0-9223372036854775807")),
            ("bytes=0-99999999999999999999999", Some("bytes=0-9223372036854775807")),
            ("bytes=5-1", None),
            ("bytes=0-1,3-4", None),
            ("bytes=+1-2", None),
            ("bytes=-", None),
            ("pages=1-2", None),
        ] {
            assert_eq!(plain(range).as_deref(), read, "{range}");
        }
    }

    #[test]
    fn a_signature_says_what_it_covers() {
        let mut headers = HeaderMap::new();
        assert!(!is_signed(&Uri::from_static("/b/k"), &headers));
        assert!(is_signed(&Uri::from_static("/b/k?X-Amz-SignedHeaders=host%3Brange"), &headers));
        let header = "AWS4-HMAC-SHA256 Credential=K/d/r/s3/aws4_request,SignedHeaders=host;range,Signature=0";
        headers.insert(AUTHORIZATION, HeaderValue::from_static(header));
        assert!(is_signed(&Uri::from_static("/b/k"), &headers));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("AWS K:S"));
        assert!(!is_signed(&Uri::from_static("/b/k"), &headers));
    }
}
