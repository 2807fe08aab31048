//! Quotas bound uploads under way, too: before their bytes have come, and several of them together.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::{Bed, Signer, answer, user};

/// A bucket of the account that may keep ten bytes.
async fn poor() -> (Bed, Signer) {
    let (bed, poor) = (Bed::start().await, user("poor"));
    assert_eq!(bed.call(&poor, "PUT", "/its", "").await.code(), "ok");
    (bed, poor)
}

/// Announces an upload and waits until the store asks for its bytes.
async fn announced(bed: &Bed, by: &Signer, target: &str, length: usize) -> TcpStream {
    let headers = [("connection", "close"), ("expect", "100-continue")];
    let mut stream = bed.wire(by, "PUT", target, &headers, length, b"").await;
    let mut asks = [0; 25];
    stream.read_exact(&mut asks).await.unwrap();
    assert_eq!(&asks, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// What becomes of an upload that sends nothing.
async fn told(bed: &Bed, by: &Signer, target: &str, length: usize) -> String {
    let stream = bed.wire(by, "PUT", target, &[("connection", "close")], length, b"").await;
    let told = answer(stream).await;
    assert_eq!(told.status, 403, "{}", told.body);
    told.code().to_owned()
}

async fn sent(mut stream: TcpStream, bytes: &[u8]) -> u16 {
    stream.write_all(bytes).await.unwrap();
    answer(stream).await.status
}

#[tokio::test]
async fn what_is_announced_counts_before_it_comes() {
    let (bed, poor) = poor().await;
    assert_eq!(told(&bed, &poor, "/its/key", 11).await, "QuotaExceeded");
    let first = announced(&bed, &poor, "/its/a", 8).await;
    assert_eq!(told(&bed, &poor, "/its/b", 3).await, "QuotaExceeded");
    assert_eq!(bed.call(&poor, "PUT", "/its/b", "12").await.code(), "ok");
    assert_eq!(sent(first, b"12345678").await, 200);
    assert_eq!(bed.call(&poor, "PUT", "/its/c", "1").await.code(), "QuotaExceeded");
    assert_eq!(bed.call(&poor, "GET", "/its/a", "").await.body, "12345678");
    bed.stop().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_gives_its_room_back() {
    let (bed, poor) = poor().await;
    drop(announced(&bed, &poor, "/its/a", 8).await);
    let mut code = String::new();
    for _ in 0..500 {
        code = bed.call(&poor, "PUT", "/its/b", "0123456789").await.code().to_owned();
        if code == "ok" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(code, "ok");
    bed.stop().await;
}

#[tokio::test]
async fn one_upload_counts_on_the_bytes_that_it_replaces() {
    let (bed, poor) = poor().await;
    assert_eq!(bed.call(&poor, "PUT", "/its/a", "123456").await.code(), "ok");
    let first = announced(&bed, &poor, "/its/a", 9).await;
    assert_eq!(told(&bed, &poor, "/its/a", 9).await, "QuotaExceeded");
    assert_eq!(sent(first, b"123456789").await, 200);
    assert_eq!(bed.call(&poor, "PUT", "/its/a", "0123456789").await.code(), "ok");
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(bed.call(&poor, "PUT", "/its?versioning=", on).await.code(), "ok");
    assert_eq!(told(&bed, &poor, "/its/a", 1).await, "QuotaExceeded");
    bed.stop().await;
}

#[tokio::test]
async fn parts_count_while_they_come_and_lie_there() {
    let (bed, poor) = poor().await;
    let begun = bed.call(&poor, "POST", "/its/a?uploads=", "").await;
    let upload = begun.text("UploadId").unwrap();
    let part = |number: u32| format!("/its/a?partNumber={number}&uploadId={upload}");
    let first = announced(&bed, &poor, &part(1), 8).await;
    assert_eq!(told(&bed, &poor, &part(2), 3).await, "QuotaExceeded");
    assert_eq!(sent(first, b"12345678").await, 200);
    assert_eq!(told(&bed, &poor, &part(2), 3).await, "QuotaExceeded");
    assert_eq!(told(&bed, &poor, "/its/b", 3).await, "QuotaExceeded");
    assert_eq!(told(&bed, &poor, &part(1), 11).await, "QuotaExceeded");
    assert_eq!(bed.call(&poor, "PUT", &part(1), "0123456789").await.code(), "ok");
    assert_eq!(bed.call(&poor, "DELETE", &format!("/its/a?uploadId={upload}"), "").await.code(), "ok");
    assert_eq!(bed.call(&poor, "PUT", "/its/b", "0123456789").await.code(), "ok");
    bed.stop().await;
}

#[tokio::test]
async fn the_quota_of_a_bucket_is_its_own() {
    let bed = Bed::start().await;
    let admin = user("admin");
    for bucket in ["/box", "/wide"] {
        assert_eq!(bed.call(&admin, "PUT", bucket, "").await.code(), "ok");
    }
    bed.quota_set("box", 10).await;
    let first = announced(&bed, &admin, "/box/a", 8).await;
    assert_eq!(told(&bed, &admin, "/box/b", 3).await, "QuotaExceeded");
    assert_eq!(bed.call(&admin, "PUT", "/wide/b", "more than ten bytes").await.code(), "ok");
    assert_eq!(sent(first, b"12345678").await, 200);
    bed.stop().await;
}
