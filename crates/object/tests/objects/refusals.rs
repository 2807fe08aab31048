//! What is refused leaves nothing behind.

use object::service::Records as _;
use s3s::S3Error;
use s3s::dto::GetObjectInput;

use crate::bed::{BUCKET, Bed, CUSTOMER, customer};

fn code<T>(answer: Result<T, S3Error>) -> String {
    answer.err().map_or_else(|| "none".into(), |error| error.code().as_str().to_owned())
}

fn bytes_kept(bed: &Bed) -> u64 {
    let view = bed.service().engine.read().unwrap();
    let bucket = view.bucket(BUCKET).unwrap();
    object::version::usage(&view, bucket.id).unwrap().bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_digests_and_lengths_store_nothing() {
    let bed = Bed::new().await;
    let body = vec![1; 100_000];
    for (expected, headers) in [
        ("BadDigest", vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]),
        ("InvalidDigest", vec![("content-md5", "AAAA")]),
        ("BadDigest", vec![("x-amz-checksum-crc32", "AAAAAA==")]),
        ("BadDigest", vec![("x-amz-checksum-sha256", "bad")]),
        ("InvalidRequest", vec![("x-amz-trailer", "x-amz-checksum-crc32c")]),
        ("IncompleteBody", vec![("content-length", "100001")]),
        ("IncompleteBody", vec![("content-length", "99999")]),
        ("EntityTooLarge", vec![("content-length", "5368709121")]),
        ("InvalidArgument", vec![("x-amz-server-side-encryption", "rot13")]),
        ("InvalidStorageClass", vec![("x-amz-storage-class", "COLD")]),
        ("InvalidTag", vec![("x-amz-tagging", "a=1&a=2")]),
    ] {
        assert_eq!(code(bed.put("key", &body, &headers).await), expected, "{headers:?}");
    }
    let absent = GetObjectInput { key: "key".into(), ..GetObjectInput::default() };
    assert_eq!(code(bed.get(absent).await), "NoSuchKey");
    assert_eq!(bytes_kept(&bed), 0);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_have_limits() {
    let bed = Bed::new().await;
    assert_eq!(code(bed.put(&"k".repeat(1025), b"", &[]).await), "KeyTooLongError");
    assert_eq!(code(bed.put("a\0b", b"", &[]).await), "InvalidArgument");
    for name in ["..", "../../etc/passwd", "a//b", "/", "\u{1f333}", &"ü".repeat(512)] {
        bed.put(name, name.as_bytes(), &[]).await.unwrap();
        let input = GetObjectInput { key: name.into(), ..GetObjectInput::default() };
        assert_eq!(bed.get(input).await.unwrap().1, name.as_bytes());
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_first_writers_wins() {
    let bed = Bed::new().await;
    let bodies: Vec<Vec<u8>> = (0..16).map(|number| vec![number; 1000]).collect();
    let puts = bodies.iter().map(|body| bed.put("key", body, &[("if-none-match", "*")]));
    let answers = futures::future::join_all(puts).await;
    let winners: Vec<usize> = (0..16).filter(|at| answers[*at].is_ok()).collect();
    let losers = answers.into_iter().filter(|answer| answer.is_err()).map(code);
    assert!(losers.into_iter().all(|code| code == "PreconditionFailed"));
    let input = GetObjectInput { key: "key".into(), ..GetObjectInput::default() };
    let (_, kept) = bed.get(input).await.unwrap();
    assert_eq!(winners.len(), 1);
    assert_eq!(kept, bodies[winners[0]]);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_and_frees() {
    let bed = Bed::with_quota(Some(1000)).await;
    bed.put("a", &[0; 600], &[]).await.unwrap();
    assert_eq!(code(bed.put("b", &[0; 401], &[]).await), "QuotaExceeded");
    bed.put("a", &[0; 900], &[]).await.unwrap();
    bed.delete("a").await;
    bed.put("b", &[0; 1000], &[]).await.unwrap();
    assert_eq!(bytes_kept(&bed), 1000);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_key_must_be_shown_again() {
    let bed = Bed::new().await;
    let values = customer(1);
    let headers: Vec<_> = CUSTOMER.into_iter().zip(values.iter().map(String::as_str)).collect();
    bed.put("key", b"secret", &headers).await.unwrap();
    let plain = GetObjectInput { key: "key".into(), ..GetObjectInput::default() };
    assert_eq!(code(bed.get(plain.clone()).await), "InvalidRequest");
    let with = |byte| {
        let [algorithm, key, md5] = customer(byte);
        GetObjectInput {
            sse_customer_algorithm: Some(algorithm),
            sse_customer_key: Some(key),
            sse_customer_key_md5: Some(md5),
            ..plain.clone()
        }
    };
    assert_eq!(code(bed.get(with(2)).await), "InvalidRequest");
    assert_eq!(bed.get(with(1)).await.unwrap().1, b"secret");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_at_the_beginning_is_an_error_and_not_a_broken_answer() {
    let bed = Bed::new().await;
    bed.put("key", &vec![1; 3 << 20], &[]).await.unwrap();
    let blobs = bed.folder().to_owned();
    let mut folders = vec![blobs];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::metadata(&path).unwrap().len() > 3 << 20
                && path.to_string_lossy().contains("/blobs/")
            {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[77] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
        }
    }
    let input = GetObjectInput { key: "key".into(), ..GetObjectInput::default() };
    let error = bed.get(input).await.err().unwrap();
    assert_eq!(
        (error.code().as_str(), error.message()),
        ("InternalError", Some("The bytes of this object are damaged."))
    );
    bed.stop().await;
}
