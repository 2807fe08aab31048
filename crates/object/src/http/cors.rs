//! Cross-origin requests: what a bucket's CORS rules let a browser do.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use s3s::dto::CORSRule;
use s3s::{Body, HttpResponse};

use crate::service::{Records, Service};

/// What a browser says about itself.
pub struct Origin {
    origin: String,
    /// The method that it is about; `None` in a preflight that does not say it.
    asked: Option<String>,
    method: String,
    headers: Vec<String>,
}

impl Origin {
    /// `None` if the request says no origin.
    pub fn of(req: &Request<Body>) -> Option<Self> {
        let text = |name: &HeaderName| req.headers().get(name).and_then(|value| value.to_str().ok());
        let origin = text(&ORIGIN)?.to_owned();
        let asked = text(&ACCESS_CONTROL_REQUEST_METHOD);
        let method = asked.unwrap_or(req.method().as_str()).to_owned();
        let asked = asked.map(str::to_owned);
        let list = text(&ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let headers =
            list.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty());
        Some(Self { origin, asked, method, headers: headers.collect() })
    }

    fn allowed_by(&self, rule: &CORSRule) -> bool {
        let patterns = rule.allowed_headers.as_deref().unwrap_or_default();
        rule.allowed_origins.iter().any(|pattern| matches(pattern, &self.origin))
            && rule.allowed_methods.contains(&self.method)
            && self
                .headers
                .iter()
                .all(|name| patterns.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), name)))
    }
}

/// One `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

fn rule(service: &Service, bucket: &str, origin: &Origin) -> Option<CORSRule> {
    let bucket = service.engine.read().ok()?.bucket(bucket).ok()?;
    bucket.settings.cors?.cors_rules.into_iter().find(|rule| origin.allowed_by(rule))
}

/// The answer to `OPTIONS`.
pub fn preflight(service: &Service, bucket: Option<&str>, origin: &Origin) -> HttpResponse {
    if origin.asked.is_none() {
        let why = "Insufficient information. Access-Control-Request-Method header needed.";
        return refused(StatusCode::BAD_REQUEST, "BadRequest", why);
    }
    let allowed = bucket.and_then(|bucket| rule(service, bucket, origin));
    if allowed.is_none() {
        return refused(
            StatusCode::FORBIDDEN,
            "AccessForbidden",
            "CORSResponse: This CORS request is not allowed.",
        );
    }
    HttpResponse::new(Body::empty())
}

pub fn refused(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut response = HttpResponse::new(Body::from(xml));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Adds what the browser needs to hand the answer on.
pub fn mark(service: &Service, bucket: &str, origin: &Origin, headers: &mut HeaderMap) {
    let Some(rule) = rule(service, bucket, origin) else { return };
    let any = rule.allowed_origins.iter().any(|pattern| pattern == "*");
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    set(ACCESS_CONTROL_ALLOW_ORIGIN, if any { "*".into() } else { origin.origin.clone() });
    set(ACCESS_CONTROL_ALLOW_METHODS, rule.allowed_methods.join(", "));
    if !origin.headers.is_empty() {
        set(ACCESS_CONTROL_ALLOW_HEADERS, origin.headers.join(", "));
    }
    if let Some(expose) = rule.expose_headers.filter(|list| !list.is_empty()) {
        set(ACCESS_CONTROL_EXPOSE_HEADERS, expose.join(", "));
    }
    if let Some(seconds) = rule.max_age_seconds {
        set(ACCESS_CONTROL_MAX_AGE, seconds.to_string());
    }
    if !any {
        set(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true".into());
    }
    set(VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("*", "http://a", true),
            ("start*end", "startend", true),
            ("start*end", "start1end", true),
            ("start*end", "0start12end", false),
            ("ab*ba", "aba", false),
            ("prefix*", "prefix", true),
            ("*suffix", "foo.suffix.get", false),
            ("http://a", "http://a", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
