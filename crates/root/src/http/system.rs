//! Health, metrics, the OpenAPI document, and what is answered where there is nothing.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use model::{Error, ErrorKind};

use super::reply::{Reply, fault, ok};
use crate::cloud::Shared;
use crate::{metrics, openapi};

pub async fn health(State(cloud): State<Shared>) -> Reply {
    if !cloud.state.following() {
        return Err(Error::unavailable("the store cannot be followed now").into());
    }
    ok(api::Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

pub async fn openapi_get() -> Reply {
    Ok(([(CONTENT_TYPE, "application/json")], openapi::text()).into_response())
}

pub async fn metrics_get(State(cloud): State<Shared>) -> Reply {
    let text = cloud.metrics.render(&cloud.state, &cloud.clusters, cloud.objects.get());
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

pub async fn not_found() -> Response {
    let error = Error::new(ErrorKind::NotFound, "there is nothing at this address");
    fault(error.hint("GET /v1/openapi.json lists what there is"), None)
}

pub async fn method_not_allowed() -> Response {
    let error = Error::invalid("this address does not know this method");
    fault(error.hint("GET /v1/openapi.json lists what there is"), Some(405))
}
