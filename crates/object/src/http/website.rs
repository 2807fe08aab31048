//! Buckets as websites: index and error documents, redirects. Readers are anonymous.

use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use s3s::dto::{RedirectAllRequestsTo, RoutingRule, WebsiteConfiguration};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};

use crate::access::Peer;
use crate::escape::escape;
use crate::service::{Records, Service};
use crate::trace::Trace;

/// Answers a request on a website's host.
pub async fn serve(
    service: &Service,
    s3: &S3Service,
    bucket: &str,
    req: Request<Body>,
) -> Result<HttpResponse, HttpError> {
    if ![Method::GET, Method::HEAD].contains(req.method()) {
        return Ok(page(StatusCode::METHOD_NOT_ALLOWED, "A website is read only."));
    }
    let found = service.engine.read().ok().and_then(|view| view.bucket(bucket).ok());
    let Some(site) = found.and_then(|bucket| bucket.settings.website) else {
        return Ok(page(StatusCode::NOT_FOUND, "There is no website here."));
    };
    let path = req.uri().path().to_owned();
    if let Some(all) = &site.redirect_all_requests_to {
        return Ok(redirect_all(all, &path));
    }
    let key = object(&site, &path);
    let host = text(&req, HOST);
    if let Some(rule) = rule_for(&site, &key, None) {
        return Ok(redirect(rule, &host, &key));
    }
    let response = fetch(s3, bucket, &key, &req).await?;
    if let Some(to) = response.headers().get("x-amz-website-redirect-location").cloned() {
        return Ok(moved(StatusCode::MOVED_PERMANENTLY, to));
    }
    if response.status().is_success() || response.status().is_redirection() {
        return Ok(response);
    }
    missing(s3, bucket, &site, &path, &key, &req, response).await
}

/// A folder without its slash is led to it; else a routing rule or the error document answers.
async fn missing(
    s3: &S3Service,
    bucket: &str,
    site: &WebsiteConfiguration,
    path: &str,
    key: &str,
    req: &Request<Body>,
    response: HttpResponse,
) -> Result<HttpResponse, HttpError> {
    let status = response.status();
    if !path.ends_with('/') {
        let index = object(site, &format!("{path}/"));
        if fetch(s3, bucket, &index, req).await?.status().is_success() {
            let to = HeaderValue::from_str(&format!("{path}/"));
            return Ok(to.map_or_else(|_| response, |to| moved(StatusCode::FOUND, to)));
        }
    }
    if let Some(rule) = rule_for(site, key, Some(status)) {
        return Ok(redirect(rule, &text(req, HOST), key));
    }
    if let Some(document) = &site.error_document {
        let escaped = escape(&document.key, true);
        let mut shown = fetch(s3, bucket, &escaped, req).await?;
        if shown.status().is_success() {
            *shown.status_mut() = status;
            return Ok(shown);
        }
    }
    Ok(page(status, status.canonical_reason().unwrap_or("Error")))
}

/// The key behind a path, still escaped as the path is: the index document of a folder.
fn object(site: &WebsiteConfiguration, path: &str) -> String {
    let key = path.strip_prefix('/').unwrap_or(path);
    match &site.index_document {
        Some(index) if key.is_empty() || key.ends_with('/') => {
            format!("{key}{}", escape(&index.suffix, true))
        }
        _ => key.to_owned(),
    }
}

/// Reads as anyone would.
async fn fetch(
    s3: &S3Service,
    bucket: &str,
    key: &str,
    req: &Request<Body>,
) -> Result<HttpResponse, HttpError> {
    let mut inner = Request::new(Body::empty());
    *inner.method_mut() = req.method().clone();
    let uri = format!("/{bucket}/{key}").parse::<Uri>();
    *inner.uri_mut() = uri.map_err(|error| HttpError::new(Box::new(error)))?;
    for name in [
        "range",
        "if-match",
        "if-range",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "referer",
        "user-agent",
    ] {
        if let Some(value) = req.headers().get(name) {
            inner.headers_mut().insert(name, value.clone());
        }
    }
    inner.headers_mut().insert(HOST, HeaderValue::from_static("127.0.0.1"));
    // Nothing is signed here, so nothing remains to be asked.
    let _ = super::range::settle(&mut inner);
    if let Some(peer) = req.extensions().get::<Peer>() {
        inner.extensions_mut().insert(*peer);
    }
    if let Some(trace) = req.extensions().get::<Trace>() {
        inner.extensions_mut().insert(trace.clone());
    }
    s3.call(inner).await
}

fn rule_for<'a>(
    site: &'a WebsiteConfiguration,
    key: &str,
    status: Option<StatusCode>,
) -> Option<&'a RoutingRule> {
    site.routing_rules.iter().flatten().find(|rule| {
        let condition = rule.condition.as_ref();
        let code = condition.and_then(|condition| condition.http_error_code_returned_equals.as_deref());
        let prefix = condition.and_then(|condition| condition.key_prefix_equals.as_deref());
        let code_fits = match (code, status) {
            (None, None) => true,
            (Some(code), Some(status)) => code == status.as_str(),
            _ => false,
        };
        code_fits && prefix.is_none_or(|prefix| key.starts_with(prefix))
    })
}

fn redirect(rule: &RoutingRule, host: &str, key: &str) -> HttpResponse {
    let to = &rule.redirect;
    let prefix = rule.condition.as_ref().and_then(|condition| condition.key_prefix_equals.as_deref());
    let key = match (&to.replace_key_with, &to.replace_key_prefix_with) {
        (Some(whole), _) => whole.clone(),
        (None, Some(new)) => format!("{new}{}", key.strip_prefix(prefix.unwrap_or_default()).unwrap_or(key)),
        (None, None) => key.to_owned(),
    };
    let protocol = to.protocol.as_ref().map_or("http", |protocol| protocol.as_str());
    let host = to.host_name.as_deref().unwrap_or(host);
    let code = to.http_redirect_code.as_deref().and_then(|code| code.parse().ok());
    let status = code.filter(StatusCode::is_redirection).unwrap_or(StatusCode::MOVED_PERMANENTLY);
    address(status, &format!("{protocol}://{host}/{key}"))
}

fn redirect_all(to: &RedirectAllRequestsTo, path: &str) -> HttpResponse {
    let protocol = to.protocol.as_ref().map_or("http", |protocol| protocol.as_str());
    address(StatusCode::MOVED_PERMANENTLY, &format!("{protocol}://{}{path}", to.host_name))
}

fn address(status: StatusCode, to: &str) -> HttpResponse {
    match HeaderValue::from_str(to) {
        Ok(to) => moved(status, to),
        Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, "The website's redirect is not an address."),
    }
}

fn moved(status: StatusCode, to: HeaderValue) -> HttpResponse {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, to);
    response
}

fn page(status: StatusCode, text: &str) -> HttpResponse {
    let code = status.as_u16();
    let mut response = HttpResponse::new(Body::from(format!(
        "<!doctype html><html><head><title>{code}</title></head><body><h1>{code}</h1><p>{text}</p></body></html>"
    )));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn text(req: &Request<Body>, name: http::HeaderName) -> String {
    req.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
