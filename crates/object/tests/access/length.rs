//! Bodies whose length is not in `Content-Length`, and those that are refused before they have come.

use object::checksum::{self, Algorithm};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bed::{Answer, Bed, answer, stamp, user};
use crate::filled;

const KIND: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// Content in S3's own chunks with its checksum behind them, as the AWS tools send it.
fn in_chunks(content: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in content.chunks(1 << 20) {
        body.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    let sum = checksum::of(Algorithm::Crc32, content);
    body.extend(format!("0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n").into_bytes());
    body
}

/// Puts such a body in chunks of HTTP, as the tools do over TLS; `length` is that of the content.
async fn put(bed: &Bed, target: &str, length: Option<usize>, body: &[u8]) -> Answer {
    let length = length.map(|length| length.to_string());
    let mut headers = vec![
        ("connection", "close"),
        ("content-encoding", "aws-chunked"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
    ];
    headers.extend(length.iter().map(|length| ("x-amz-decoded-content-length", length.as_str())));
    let mut head = format!("PUT {target} HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n", bed.host());
    for (name, value) in bed.signed(&user("admin"), "PUT", target, &headers, KIND, (&stamp(0), "us-east-1")) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut request = format!("{head}\r\n").into_bytes();
    for piece in body.chunks(100_000) {
        request.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        request.extend_from_slice(piece);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let mut stream = TcpStream::connect(bed.host()).await.unwrap();
    stream.write_all(&request).await.unwrap();
    answer(stream).await
}

#[tokio::test]
async fn a_length_beside_chunks_is_enough() {
    let bed = filled().await;
    let admin = user("admin");
    for size in [0, 10, 300_000, 3 << 20] {
        let content = vec![b'z'; size];
        let target = format!("/box/{size}");
        let told = put(&bed, &target, Some(size), &in_chunks(&content)).await;
        assert_eq!((told.status, told.code()), (200, "ok"), "{size}: {}", told.body);
        let found = bed.call(&admin, "GET", &target, "").await;
        assert!(found.body.as_bytes() == content, "{size}: {} bytes came back", found.body.len());
    }
    let begun = bed.call(&admin, "POST", "/box/parts?uploads=", "").await;
    let upload = begun.text("UploadId").unwrap();
    let part = format!("/box/parts?partNumber=1&uploadId={upload}");
    let told = put(&bed, &part, Some(300_000), &in_chunks(&[b'p'; 300_000])).await;
    assert_eq!(told.status, 200, "{}", told.body);
    let listed = bed.call(&admin, "GET", &format!("/box/parts?uploadId={upload}"), "").await;
    assert_eq!(listed.text("Size"), Some("300000"), "{}", listed.body);
    bed.stop().await;
}

#[tokio::test]
async fn a_wrong_length_or_none_is_refused() {
    let bed = filled().await;
    let content = vec![b'z'; 3 << 20];
    let mut spoiled = in_chunks(&content);
    spoiled[100] = b'y';
    for (length, body, status, code) in [
        (Some(content.len() - 1), in_chunks(&content), 400, "IncompleteBody"),
        (Some(content.len() + 1), in_chunks(&content), 400, "IncompleteBody"),
        (Some(content.len()), spoiled, 400, "BadDigest"),
        (None, in_chunks(&content), 411, "MissingContentLength"),
    ] {
        let told = put(&bed, "/box/wrong", length, &body).await;
        assert_eq!((told.status, told.code()), (status, code), "{length:?}: {}", told.body);
    }
    assert_eq!(bed.call(&user("admin"), "GET", "/box/wrong", "").await.code(), "NoSuchKey");
    bed.stop().await;
}

/// Who sends all before it reads comes to read why it was refused.
#[tokio::test]
async fn a_refusal_is_read_behind_a_large_body() {
    let bed = filled().await;
    let body = vec![0; 32 << 20];
    for (by, target, code) in [
        (user("admin"), "/nowhere/key", "NoSuchBucket"),
        (user("viewer"), "/box/key", "AccessDenied"),
        (user("nobody"), "/box/key", "InvalidAccessKeyId"),
    ] {
        let told = bed.call_as_is(&by, "PUT", target, &body).await;
        assert_eq!(told.code(), code, "{target}: {}", told.body);
    }
    bed.stop().await;
}
