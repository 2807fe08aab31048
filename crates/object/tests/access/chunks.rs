//! Bodies in signed chunks with a trailer: each chunk and the trailer have a signature, and each is checked.

use object::checksum::{self, Algorithm};
use sha2::{Digest, Sha256};

use crate::bed::{Answer, Bed, mac, stamp, user};
use crate::filled;

const KIND: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const CHUNK: usize = 64 << 10;
/// Several chunks, the last of them short.
const SIZE: usize = 3 * CHUNK + 1000;

/// What is wrong with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A chunk has the signature of another.
    Signature(usize),
    /// A byte of a chunk is not the one that was signed.
    Byte(usize),
    /// The end of the chunks is not signed.
    End,
    /// The checksum is of other bytes, and signed.
    Checksum,
    /// The signature of the trailer is of another.
    Trailer,
    /// It has none.
    Unsigned,
    /// The trailer that was announced does not come.
    Absent,
    /// The last chunks do not come.
    Short,
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| b'a' + (at % 23) as u8).collect()
}

/// Signs one thing after the other.
struct Chain {
    key: Vec<u8>,
    at: String,
    scope: String,
    last: String,
}

impl Chain {
    fn next(&mut self, kind: &str, digests: &str) -> String {
        let text = format!("{kind}\n{}\n{}\n{}\n{digests}", self.at, self.scope, self.last);
        self.last = hex::encode(mac(&self.key, &text));
        self.last.clone()
    }

    fn chunk(&mut self, bytes: &[u8]) -> String {
        let (none, digest) = (hex::encode(Sha256::digest(b"")), hex::encode(Sha256::digest(bytes)));
        self.next("AWS4-HMAC-SHA256-PAYLOAD", &format!("{none}\n{digest}"))
    }

    fn trailer(&mut self, line: &str) -> String {
        let digest = hex::encode(Sha256::digest(format!("{line}\n")));
        self.next("AWS4-HMAC-SHA256-TRAILER", &digest)
    }
}

fn body(chain: &mut Chain, content: &[u8], flaw: Flaw) -> Vec<u8> {
    let wrong = "0".repeat(64);
    let mut body = Vec::new();
    let count = content.chunks(CHUNK).len();
    for (number, chunk) in content.chunks(CHUNK).enumerate() {
        if flaw == Flaw::Short && number + 1 == count {
            return body;
        }
        let signature = chain.chunk(chunk);
        let signature = if flaw == Flaw::Signature(number) { &wrong } else { &signature };
        body.extend(format!("{:x};chunk-signature={signature}\r\n", chunk.len()).into_bytes());
        let start = body.len();
        body.extend_from_slice(chunk);
        if flaw == Flaw::Byte(number) {
            body[start] ^= 1;
        }
        body.extend_from_slice(b"\r\n");
    }
    let signature = chain.chunk(b"");
    let signature = if flaw == Flaw::End { &wrong } else { &signature };
    body.extend(format!("0;chunk-signature={signature}\r\n").into_bytes());
    let of = if flaw == Flaw::Checksum { &content[1..] } else { content };
    let line = format!("x-amz-checksum-crc32c:{}", checksum::of(Algorithm::Crc32c, of));
    let signature = chain.trailer(&line);
    let signature = if flaw == Flaw::Trailer { &wrong } else { &signature };
    match flaw {
        Flaw::Absent => {}
        Flaw::Unsigned => body.extend(format!("{line}\r\n").into_bytes()),
        _ => body.extend(format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n").into_bytes()),
    }
    body.extend_from_slice(b"\r\n");
    body
}

async fn put(bed: &Bed, target: &str, flaw: Flaw) -> Answer {
    let by = user("admin");
    let content = content();
    let length = content.len().to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("x-amz-decoded-content-length", length.as_str()),
        ("x-amz-trailer", "x-amz-checksum-crc32c"),
    ];
    let at = stamp(0);
    let headers = bed.signed(&by, "PUT", target, &headers, KIND, (&at, "us-east-1"));
    let seed = headers.iter().find(|(name, _)| name == "authorization").unwrap();
    let seed = seed.1.rsplit_once("Signature=").unwrap().1.to_owned();
    let scope = format!("{}/us-east-1/s3/aws4_request", &at[..8]);
    let first = format!("AWS4{}", by.secret).into_bytes();
    let key = scope.split('/').fold(first, |key, step| mac(&key, step));
    let mut chain = Chain { key, at, scope, last: seed };
    let body = body(&mut chain, &content, flaw);
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    bed.raw("PUT", target, &headers, &String::from_utf8(body).unwrap()).await
}

#[tokio::test]
async fn signed_chunks_with_a_trailer_are_taken() {
    let bed = filled().await;
    let told = put(&bed, "/box/chunks", Flaw::None).await;
    assert_eq!(told.code(), "ok", "{}", told.body);
    let found = bed.call(&user("admin"), "GET", "/box/chunks", "").await;
    assert!(found.body.as_bytes() == content(), "{} bytes came back", found.body.len());
    let begun = bed.call(&user("admin"), "POST", "/box/parts?uploads=", "").await;
    let upload = begun.text("UploadId").unwrap();
    let part = format!("/box/parts?partNumber=1&uploadId={upload}");
    assert_eq!(put(&bed, &part, Flaw::None).await.code(), "ok");
    assert_eq!(put(&bed, &part, Flaw::Byte(1)).await.code(), "SignatureDoesNotMatch");
    let listed = bed.call(&user("admin"), "GET", &format!("/box/parts?uploadId={upload}"), "").await;
    let etag = hex::encode(<md5::Md5 as md5::Digest>::digest(content()));
    assert!(listed.body.contains(&etag), "the part of before is there: {}", listed.body);
    bed.stop().await;
}

#[tokio::test]
async fn one_wrong_signature_or_checksum_stores_nothing() {
    let bed = filled().await;
    let old = bed.call(&user("admin"), "GET", "/box/key", "").await.body;
    for (flaw, status, code) in [
        (Flaw::Signature(0), 403, "SignatureDoesNotMatch"),
        (Flaw::Signature(3), 403, "SignatureDoesNotMatch"),
        (Flaw::Byte(2), 403, "SignatureDoesNotMatch"),
        (Flaw::End, 403, "SignatureDoesNotMatch"),
        (Flaw::Checksum, 400, "BadDigest"),
        (Flaw::Trailer, 403, "SignatureDoesNotMatch"),
        (Flaw::Unsigned, 400, "InvalidRequest"),
        (Flaw::Absent, 400, "InvalidRequest"),
        (Flaw::Short, 400, "IncompleteBody"),
    ] {
        for target in ["/box/new", "/box/key"] {
            let told = put(&bed, target, flaw).await;
            assert_eq!((told.status, told.code()), (status, code), "{flaw:?}: {}", told.body);
        }
    }
    assert_eq!(bed.call(&user("admin"), "GET", "/box/new", "").await.code(), "NoSuchKey");
    assert_eq!(bed.call(&user("admin"), "GET", "/box/key", "").await.body, old);
    bed.stop().await;
}
