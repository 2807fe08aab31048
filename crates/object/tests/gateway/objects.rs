//! Objects over S3, in front of another store.

use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use object::client::{Ask, Client};
use object::{Config, Store};

use crate::bed::content;
use crate::proxy::{Proxy, Way};
use crate::remote::{Remote, Single, client, gateway, until};

const BUCKET: &str = "photos";

struct Front {
    store: Store,
    client: Client,
    _data: tempfile::TempDir,
}

impl Front {
    async fn start(endpoint: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = Config::new(data.path().to_owned(), "127.0.0.1:0".parse().unwrap());
        config.gateway = Some(gateway(endpoint));
        let store = Store::start(config, Arc::new(Single)).await.unwrap();
        let client = client(&format!("http://{}", store.address()));
        client.bucket_create(BUCKET, false).await.unwrap();
        Self { store, client, _data: data }
    }

    async fn put(&self, key: &str, bytes: &Bytes, headers: &[(&str, &str)]) -> model::Result<()> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let body = futures::stream::iter([Ok(bytes.clone())]);
        self.client.put(BUCKET, key, bytes.len() as u64, headers, body).await.map(drop)
    }

    async fn get(&self, key: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut ask = Ask::new(http::Method::GET, BUCKET, key);
        for (name, value) in headers {
            ask = ask.header(name, *value);
        }
        self.client.ask(ask).await.unwrap().bytes().await.unwrap().to_vec()
    }

    async fn copy(&self, from: &str, to: &str) {
        let ask =
            Ask::new(http::Method::PUT, BUCKET, to).header("x-amz-copy-source", format!("/{BUCKET}/{from}"));
        self.client.ask(ask).await.unwrap();
    }
}

async fn work(remote: Remote) {
    let front = Front::start(&remote.endpoint).await;
    let (one, two) = (content(1, 11 << 20), content(2, 300_000));
    front.put("one", &one, &[("x-amz-checksum-algorithm", "CRC32C")]).await.unwrap();
    assert!(front.get("one", &[]).await == one);
    assert!(front.get("one", &[("range", "bytes=65530-9000000")]).await == one[65530..=9_000_000]);
    assert!(front.get("one", &[("range", "bytes=-5")]).await == one[one.len() - 5..]);
    front.copy("one", "copy").await;
    front.put("one", &two, &[]).await.unwrap();
    assert!(front.get("one", &[]).await == two);
    assert!(front.get("copy", &[]).await == one);

    let upload = front.client.upload_start(BUCKET, "parts", Vec::new()).await.unwrap();
    let parts = [content(3, 6 << 20), content(4, 9 << 20), content(5, 1000)];
    let mut etags = Vec::new();
    for (part, number) in parts.iter().zip(1..) {
        etags.push(front.client.upload_part(BUCKET, "parts", &upload, number, part.clone()).await.unwrap());
    }
    front.client.upload_complete(BUCKET, "parts", &upload, &etags).await.unwrap();
    assert!(front.get("parts", &[]).await == parts.concat());
    let across = format!("bytes={}-{}", (6 << 20) - 10, (15 << 20) + 10);
    assert!(
        front.get("parts", &[("range", &across)]).await == parts.concat()[(6 << 20) - 10..=(15 << 20) + 10]
    );

    front.put("sealed", &two, &[("x-amz-server-side-encryption", "AES256")]).await.unwrap();
    assert!(front.get("sealed", &[]).await == two);
    let key = [9; 32];
    let text = base64::engine::general_purpose::STANDARD.encode(key);
    let digest = object::checksum::md5_base64(&key);
    let customer = [
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-server-side-encryption-customer-key", text.as_str()),
        ("x-amz-server-side-encryption-customer-key-md5", digest.as_str()),
    ];
    front.put("own", &two, &customer).await.unwrap();
    assert!(front.get("own", &customer).await == two);

    // A body that is not what its checksum says leaves nothing there.
    let before = remote.blobs().await.len();
    let wrong = front.put("wrong", &two, &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]).await;
    assert!(wrong.unwrap_err().message.contains("BadDigest"));
    until(async || remote.blobs().await.len() <= before).await;

    let stats = front.store.service().engine.stats().unwrap();
    assert_eq!(stats.files.blobs, 0);
    assert!(stats.remote.blobs >= 6, "{stats:?}");
    for key in ["one", "copy", "parts", "sealed", "own"] {
        front.client.delete(BUCKET, key, None).await.unwrap();
    }
    front.client.bucket_delete(BUCKET).await.unwrap();
    front.store.stop().await;
    remote.stop().await;
}

#[tokio::test]
async fn objects_lie_in_a_store_of_ours() {
    work(Remote::ours().await).await;
}

#[tokio::test]
async fn objects_lie_in_moto() {
    work(Remote::moto().await).await;
}

#[tokio::test]
async fn a_remote_that_is_away_is_answered_with_503() {
    let remote = Remote::ours().await;
    let proxy = Proxy::start(&remote.endpoint).await;
    let front = Front::start(&proxy.endpoint).await;
    let (large, small) = (content(1, 2 << 20), content(2, 500));
    front.put("large", &large, &[]).await.unwrap();
    front.put("small", &small, &[]).await.unwrap();
    proxy.set(Way::Cut);
    let ask = || Ask::new(http::Method::GET, BUCKET, "large");
    let answer = front.client.send(ask()).await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("<Code>ServiceUnavailable</Code>"));
    let put = Ask::new(http::Method::PUT, BUCKET, "more").body(large.clone());
    assert_eq!(front.client.send(put).await.unwrap().status(), 503);
    assert_eq!(
        front.client.head(BUCKET, "large").await.unwrap().unwrap()["content-length"],
        (2 << 20).to_string()
    );
    proxy.set(Way::Open);
    assert!(front.get("large", &[]).await == large);
    assert!(front.get("small", &[]).await == small);
    front.put("more", &large, &[]).await.unwrap();
    assert!(front.get("more", &[]).await == large);
    front.store.stop().await;
    remote.stop().await;
}
