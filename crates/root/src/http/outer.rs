//! Around every request: errors become problem details, headers that protect, counts and times.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use api::problem::{self, Problem};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use model::ErrorKind;

use super::reply::Fault;
use crate::cloud::Shared;

/// The row of the table that served a request.
#[derive(Debug, Clone, Copy)]
pub struct Matched {
    pub method: &'static str,
    pub route: &'static str,
}

pub async fn outer(State(cloud): State<Shared>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let path = request.uri().path().to_owned();
    let (request, unread) = watched(request);
    let mut response = next.run(request).await;
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        response = problem(response, fault, path);
    }
    protect(response.headers_mut());
    if unread.is_some_and(|unread| unread.load(Ordering::Relaxed)) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let matched = response.extensions().get::<Matched>().copied();
    let Matched { method, route } = matched.unwrap_or(Matched { method: "", route: "unknown" });
    cloud.metrics.request(method, route, response.status().as_u16(), begun.elapsed());
    response
}

fn problem(old: Response, fault: Fault, path: String) -> Response {
    let error = &fault.error;
    if error.kind == ErrorKind::Internal {
        let source = error.source.as_ref().map(ToString::to_string);
        tracing::error!(path, error = %error, source, "internal error");
    }
    let mut body = Problem::new(error, Some(path));
    if let Some(status) = fault.status {
        body.status = status;
    }
    let text = serde_json::to_vec(&body).expect("a problem is plain data");
    let (mut parts, _) = old.into_parts();
    parts.status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    if error.kind == ErrorKind::Unauthenticated {
        parts.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if matches!(error.kind, ErrorKind::RateLimited | ErrorKind::Unavailable) {
        parts.headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    Response::from_parts(parts, Body::from(text))
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// A body that says whether some of it was left unread.
struct Watched {
    body: Body,
    unread: Arc<AtomicBool>,
}

/// HTTP/1 cannot go on behind a body that nobody read: its connection ends, and the client must be told.
fn watched(request: Request) -> (Request, Option<Arc<AtomicBool>>) {
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return (request, None);
    }
    let unread = Arc::new(AtomicBool::new(true));
    let (parts, body) = request.into_parts();
    let body = Watched { body, unread: unread.clone() };
    (Request::from_parts(parts, Body::new(body)), Some(unread))
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.unread.store(false, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
