//! What buckets do beyond keeping objects, as clients see it over HTTP.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../access/bed.rs"]
mod bed;
mod browser;
mod documents;
mod events;
mod full;
mod life;
mod lock;
mod many;
mod open;
mod website;

use std::time::{Duration, Instant};

use bed::{Bed, Signer, user};
use reqwest::header::HeaderMap;

/// How long to wait for what must come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer with its headers.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Told {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends as it is, and follows no redirect.
async fn ask(bed: &Bed, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Told {
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut req = http.request(method.parse().unwrap(), format!("http://{}{target}", bed.host()));
    for (name, value) in headers {
        req = req.header(*name, *value);
    }
    let response = req.body(body.to_vec()).send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Told { status, headers, body: response.text().await.unwrap() }
}

/// A call that must succeed; answers its body.
async fn good(bed: &Bed, by: &Signer, method: &str, target: &str, body: &str) -> String {
    good_with(bed, by, method, target, &[], body).await
}

async fn good_with(
    bed: &Bed,
    by: &Signer,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let answer = bed.call_with(by, method, target, headers, body).await;
    assert_eq!(answer.code(), "ok", "{method} {target}: {}", answer.body);
    answer.body
}

/// Lets anyone read the objects of `box`.
async fn publish(bed: &Bed) {
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*"}]}"#;
    good(bed, &user("admin"), "PUT", "/box?policy=", policy).await;
}

/// Waits until something is so.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
