//! Pulls from a registry on loopback that speaks the pull half of the distribution protocol.
#![allow(clippy::unwrap_used)]

mod image_support;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use image_support::*;
use model::ErrorKind;
use root::image::{ImageLimits, PullProgress};
use serde_json::{Value, json};

const TOKEN: &str = "let-me-in";

#[derive(Default)]
struct Shelf {
    blobs: Blobs,
    tags: Vec<(String, Value)>,
    bearer: bool,
    base: Mutex<String>,
    layer_reads: AtomicUsize,
    /// What is sent instead of blobs, when set.
    instead: Option<Vec<u8>>,
    redirect: Option<&'static str>,
}

/// A registry that ends with the test.
struct Registry {
    shelf: Arc<Shelf>,
    address: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registry {
    async fn start(shelf: Shelf) -> Self {
        let shelf = Arc::new(shelf);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        *shelf.base.lock().unwrap() = format!("http://{address}");
        let app = axum::Router::new()
            .route("/v2/team/app/manifests/{name}", get(manifest))
            .route("/v2/team/app/blobs/{digest}", get(blob))
            .route("/token", get(token))
            .with_state(shelf.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { shelf, address, task }
    }

    fn reference(&self, tail: &str) -> String {
        format!("{}/team/app{tail}", self.address)
    }
}

fn challenge(shelf: &Shelf, headers: &HeaderMap) -> Option<Response> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !shelf.bearer || given == Some(&format!("Bearer {TOKEN}")) {
        return None;
    }
    let ask = format!(r#"Bearer realm="{}/token",service="test registry""#, shelf.base.lock().unwrap());
    Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, ask)]).into_response())
}

async fn token(request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let asked =
        query.contains("scope=repository%3Ateam%2Fapp%3Apull") && query.contains("service=test+registry");
    match asked {
        true => axum::Json(json!({ "token": TOKEN })).into_response(),
        false => StatusCode::BAD_REQUEST.into_response(),
    }
}

async fn manifest(State(shelf): State<Arc<Shelf>>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refusal) = challenge(&shelf, &headers) {
        return refusal;
    }
    let tagged =
        shelf.tags.iter().find(|(tag, _)| *tag == name).map(|(_, descriptor)| descriptor["digest"].clone());
    let digest = tagged.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or(name);
    match shelf.blobs.0.get(&digest) {
        Some(bytes) => bytes.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn blob(State(shelf): State<Arc<Shelf>>, Path(digest): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refusal) = challenge(&shelf, &headers) {
        return refusal;
    }
    let Some(bytes) = shelf.blobs.0.get(&digest) else { return StatusCode::NOT_FOUND.into_response() };
    if bytes.starts_with(b"{") {
        return bytes.clone().into_response();
    }
    shelf.layer_reads.fetch_add(1, Ordering::SeqCst);
    match (&shelf.instead, shelf.redirect) {
        (_, Some(elsewhere)) => axum::response::Redirect::temporary(elsewhere).into_response(),
        (Some(other), _) => other.clone().into_response(),
        _ => bytes.clone().into_response(),
    }
}

fn layer(text: &str) -> Vec<u8> {
    Tar::default().file("srv/data", text.repeat(500)).end()
}

fn shelf() -> (Shelf, Value) {
    let mut shelf = Shelf::default();
    let gzip_media = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers = [(gzip_media, gzip(&layer("a")), layer("a")), (OCI_LAYER, layer("b"), layer("b"))];
    let other = if host_arch() == "arm64" { "amd64" } else { "arm64" };
    let foreign = shelf.blobs.image(other, &[(OCI_LAYER, layer("c"), layer("c"))]);
    let ours = shelf.blobs.image(host_arch(), &layers);
    let index = shelf.blobs.put_json(OCI_INDEX, &json!({ "schemaVersion": 2, "manifests": [foreign, ours] }));
    shelf.tags = vec![("1".into(), index), ("latest".into(), ours.clone())];
    (shelf, ours)
}

fn quiet(_: PullProgress) {}

#[tokio::test]
async fn a_pull_brings_the_layers_and_brings_them_once() {
    for bearer in [false, true] {
        let (mut made, ours) = shelf();
        made.bearer = bearer;
        let registry = Registry::start(made).await;
        let home = Home::new();
        let (most, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let progress = |at: PullProgress| {
            most.fetch_max(at.bytes_done, Ordering::SeqCst);
            total.store(at.bytes_total, Ordering::SeqCst);
        };
        let imported = home.store.pull(id(), &registry.reference(":1"), &progress).await.unwrap();
        let digests: Vec<_> = imported.manifest.layers.iter().map(|layer| layer.digest.clone()).collect();
        assert_eq!(digests, [sha(&gzip(&layer("a"))), sha(&layer("b"))]);
        assert_eq!(imported.manifest.entrypoint, ["/bin/app"]);
        assert_eq!(most.load(Ordering::SeqCst), imported.size);
        assert_eq!(total.load(Ordering::SeqCst), imported.size);
        let by_digest = registry.reference(&format!("@{}", ours["digest"].as_str().unwrap()));
        for again in [registry.reference(""), by_digest] {
            assert_eq!(home.store.pull(id(), &again, &quiet).await.unwrap(), imported, "{again}");
        }
        assert_eq!(registry.shelf.layer_reads.load(Ordering::SeqCst), 2);
        assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (2, 0));
    }
}

async fn refused(name: &str, made: Shelf, tail: &str, kind: ErrorKind, words: &str) {
    let registry = Registry::start(made).await;
    let home = Home::with(ImageLimits { document_bytes_max: 64 << 10, ..ImageLimits::default() });
    let error = home.store.pull(id(), &registry.reference(tail), &quiet).await.expect_err(name);
    assert_eq!(error.kind, kind, "{name}: {error}");
    assert!(error.message.contains(words), "{name}: {error}");
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (0, 0), "{name}");
}

#[tokio::test]
async fn a_registry_that_lies_is_found_out() {
    let digest = "content its digest names";
    let with = |change: &dyn Fn(&mut Shelf, &Value)| {
        let (mut made, ours) = shelf();
        change(&mut made, &ours);
        made
    };
    let same_size = with(&|made, _| made.instead = Some(vec![0; layer("b").len()]));
    refused("other bytes", same_size, ":1", ErrorKind::Invalid, digest).await;
    refused(
        "too much",
        with(&|made, _| made.instead = Some(vec![1; 1 << 20])),
        ":1",
        ErrorKind::Invalid,
        digest,
    )
    .await;
    refused("too little", with(&|made, _| made.instead = Some(vec![1; 3])), ":1", ErrorKind::Invalid, digest)
        .await;
    let forged = with(&|made, ours| {
        let other = made.blobs.0.values().find(|bytes| bytes.starts_with(b"{")).unwrap().clone();
        made.blobs.0.insert(ours["digest"].as_str().unwrap().into(), other);
    });
    refused("forged manifest", forged, ":1", ErrorKind::Invalid, digest).await;
    let endless = with(&|made, _| {
        let long = made.blobs.put(OCI_MANIFEST, vec![b' '; 1 << 20]);
        made.tags.push(("long".into(), long));
    });
    refused("endless manifest", endless, ":long", ErrorKind::TooLarge, "larger than 65536 bytes").await;
    let away = with(&|made, _| made.redirect = Some("http://198.51.100.1/blob"));
    refused("redirect", away, ":1", ErrorKind::Unavailable, "not allowed").await;
    refused("no such tag", shelf().0, ":nope", ErrorKind::NotFound, "there is no image").await;
}

#[tokio::test]
async fn references_that_cannot_be_pulled_are_said() {
    let home = Home::new();
    for reference in ["", "a b", "http://example.com/x", "x@sha256:12"] {
        let error = home.store.pull(id(), reference, &quiet).await.expect_err(reference);
        assert_eq!(error.kind, ErrorKind::Invalid, "{reference}: {error}");
        assert!(error.message.contains("is not an image reference"), "{reference}: {error}");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let error = home.store.pull(id(), &format!("{closed}/x:1"), &quiet).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}
