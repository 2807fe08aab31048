//! The typed client: one method per endpoint, noun first.
//!
//! It speaks plain REST to one base URL with one bearer token. Answers that are
//! problems come back as [`model::Error`] with their kind, field and hint.

mod bucket;
mod catalogue;
mod cluster;
mod identity;
mod image;
mod instance;
mod place;
mod resource;
mod stream;
mod workload;

use std::time::Duration;

use model::{Error, ErrorKind, Result};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, IF_MATCH};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::{Problem, kind_of_status};

pub use image::Upload;
pub use instance::{ExecOptions, ExecReceiver, ExecSender, ExecStream, LogsOptions};
pub use resource::ResourceUpload;
pub use stream::WatchStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For answers that are not streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Most of an error's body that is looked at.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// A handle on one cloud; cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    tenant: Option<String>,
}

/// Which part of a list: `limit`, `after` and filters such as `phase=running`, `name=web*`, `label=app=db`.
#[derive(Debug, Clone, Default)]
pub struct ListQuery(Vec<(String, String)>);

impl ListQuery {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, field: &str, value: impl ToString) -> Self {
        self.0.push((field.to_owned(), value.to_string()));
        self
    }

    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        self.with("limit", limit)
    }

    #[must_use]
    pub fn after(self, cursor: &str) -> Self {
        self.with("after", cursor)
    }
}

impl Client {
    /// `base` is such as `http://127.0.0.1:7700`.
    pub fn new(base: &str, token: Option<String>) -> Result<Self> {
        let base = base.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::invalid(format!(
                "'{base}' is not an endpoint: write http://HOST:PORT or https://HOST:PORT"
            )));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if base.starts_with("http://") {
            // Without TLS the system's certificates are not needed, and may be missing.
            builder = builder.tls_certs_only(std::iter::empty());
        }
        if ["//127.", "//localhost", "//[::1]"].iter().any(|host| base.contains(host)) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| Error::internal("the HTTP client cannot be made").because(error))?;
        Ok(Self { http, base, token, tenant: None })
    }

    /// The same cloud with other credentials.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self.clone() }
    }

    /// For operators: act in another tenant.
    #[must_use]
    pub fn with_tenant(&self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self.clone() }
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub async fn health(&self) -> Result<crate::Health> {
        self.get("/v1/health").await
    }

    /// The OpenAPI document as it is served.
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.get("/v1/openapi.json").await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(tenant) = &self.tenant {
            request = request.query(&[("tenant", tenant)]);
        }
        request
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(error_of(response).await)
    }

    fn unreachable(&self, error: reqwest::Error) -> Error {
        let what = if error.is_timeout() { "does not answer in time" } else { "cannot be reached" };
        Error::unavailable(format!("{} {what}", self.base))
            .hint("is the cloud running? 'banyan up' starts one on this machine")
            .because(error)
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        let response = self.send(request.timeout(REQUEST_TIMEOUT)).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::internal(format!("the answer cannot be read: {error}")).because(error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(self.request(Method::GET, path)).await
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, query: &ListQuery) -> Result<T> {
        self.json(self.request(Method::GET, path).query(&query.0)).await
    }

    async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// A create; `key` makes it safe to repeat.
    async fn create<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        key: Option<&str>,
    ) -> Result<T> {
        let mut request = self.request(Method::POST, path).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.json(request).await
    }

    /// A delete with an answer that does not matter.
    async fn delete(&self, path: &str, version: Option<i64>) -> Result<()> {
        let request = self.request(Method::DELETE, path).headers(if_match(version));
        self.send(request.timeout(REQUEST_TIMEOUT)).await.map(drop)
    }
}

/// The `If-Match` header for a version that was seen.
fn if_match(version: Option<i64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(version) = version {
        let value = HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are a header value");
        headers.insert(IF_MATCH, value);
    }
    headers
}

/// One segment of a path; what is not plain is percent-encoded.
fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

async fn error_of(mut response: Response) -> Error {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > ERROR_BODY_MAX {
            break;
        }
    }
    error_from(status, &body)
}

fn error_from(status: u16, body: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.into(),
        Err(_) if status == 404 => Error::new(ErrorKind::NotFound, "the server does not know this address"),
        Err(_) => Error::new(kind_of_status(status), format!("the server answered with status {status}")),
    }
}
