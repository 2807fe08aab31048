//! Answers: JSON with a version, or a fault that the outer layer turns into problem details.

use std::sync::Arc;

use axum::Json;
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use model::Error;
use serde::Serialize;

/// An error on its way out.
#[derive(Clone)]
pub struct Fault {
    pub error: Arc<Error>,
    /// Instead of the one that fits the kind.
    pub status: Option<u16>,
}

/// What handlers fail with.
pub struct Failure(pub Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        fault(self.0, None)
    }
}

pub fn fault(error: Error, status: Option<u16>) -> Response {
    let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
    response.extensions_mut().insert(Fault { error: Arc::new(error), status });
    response
}

pub type Reply = Result<Response, Failure>;

/// 200 with a body.
pub fn ok<T: Serialize>(body: T) -> Reply {
    Ok(Json(body).into_response())
}

/// 200 with a body and its version as entity tag.
pub fn versioned<T: Serialize>(version: i64, body: T) -> Reply {
    Ok(tagged(StatusCode::OK, version, &body))
}

/// 202: asked for, not done yet.
pub fn accepted<T: Serialize>(version: i64, body: T) -> Reply {
    Ok(tagged(StatusCode::ACCEPTED, version, &body))
}

/// 201 with where the new thing is.
pub fn created<T: Serialize>(version: i64, location: &str, body: T) -> Reply {
    let mut response = tagged(StatusCode::CREATED, version, &body);
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, value);
    }
    Ok(response)
}

pub fn done() -> Reply {
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn tagged<T: Serialize>(status: StatusCode, version: i64, body: &T) -> Response {
    let mut response = (status, Json(body)).into_response();
    let tag = HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are a header value");
    response.headers_mut().insert(ETAG, tag);
    response
}
