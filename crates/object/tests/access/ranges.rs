//! Ranges that cannot be read, and such as are longer than any object, signed and not.

use crate::bed::{Bed, user};

const RANGES: [(&str, u16, &str); 7] = [
    ("bytes=1-2", 206, "bc"),
    ("bytes=5-1", 200, "abcdef"),
    ("bytes=0-1,3-4", 200, "abcdef"),
    ("lines=1-2", 200, "abcdef"),
    ("bytes=1-18446744073709551615", 206, "bcdef"),
    ("bytes=0-9223372036854775808", 206, "abcdef"),
    ("bytes=-18446744073709551616", 206, "abcdef"),
];

#[tokio::test]
async fn a_range_is_read_after_the_signature() {
    let bed = Bed::start().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box/k", "abcdef").await.code(), "ok");
    let link = bed.presign(&admin, "GET", "/box/k", "60");
    for (range, status, body) in RANGES {
        let headers = [("range", range)];
        let signed = bed.call_with(&admin, "GET", "/box/k", &headers, "").await;
        assert_eq!((signed.status, signed.body.as_str()), (status, body), "signed {range}");
        let head = bed.call_with(&admin, "HEAD", "/box/k", &headers, "").await;
        assert_eq!(head.code(), "ok", "head {range}");
        let unsigned = bed.raw("GET", &link, &headers, "").await;
        assert_eq!((unsigned.status, unsigned.body.as_str()), (status, body), "unsigned {range}");
    }
    let far = bed.call_with(&admin, "GET", "/box/k", &[("range", "bytes=9223372036854775808-")], "").await;
    assert_eq!((far.status, far.code()), (416, "InvalidRange"));
    bed.stop().await;
}

/// A part of what is there, or all of what has come since.
#[tokio::test]
async fn a_range_may_be_of_one_content_alone() {
    let bed = Bed::start().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box/k", "abcdef").await.code(), "ok");
    let listed = bed.call(&admin, "GET", "/box?list-type=2", "").await;
    let changed: jiff::Timestamp = listed.text("LastModified").unwrap().parse().unwrap();
    let date = |from: i64| {
        let at = changed + jiff::SignedDuration::from_secs(from);
        at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    let etag = format!("\"{}\"", hex::encode(<md5::Md5 as md5::Digest>::digest("abcdef")));
    let link = bed.presign(&admin, "GET", "/box/k", "60");
    for (of, part) in [
        (etag.clone(), true),
        (format!("W/{etag}"), false),
        ("\"other\"".to_owned(), false),
        (date(0), true),
        (date(-1), false),
        (date(1), false),
        ("no date".to_owned(), false),
    ] {
        for range in ["bytes=1-2", "bytes=90-"] {
            let headers = [("range", range), ("if-range", of.as_str())];
            let (status, body) = match (part, range) {
                (true, "bytes=1-2") => (206, "bc"),
                (true, _) => (416, ""),
                (false, _) => (200, "abcdef"),
            };
            let signed = bed.call_with(&admin, "GET", "/box/k", &headers, "").await;
            let unsigned = bed.raw("GET", &link, &headers, "").await;
            for told in [signed, unsigned] {
                assert_eq!(told.status, status, "{of} {range}: {}", told.body);
                assert!(status == 416 || told.body == body, "{of} {range}: {}", told.body);
            }
        }
    }
    bed.stop().await;
}

#[tokio::test]
async fn a_range_opens_nothing() {
    let bed = Bed::start().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box/k", "abcdef").await.code(), "ok");
    let odd = [("range", "bytes=5-1")];
    let mut wrong = admin.clone();
    wrong.secret.push('x');
    assert_eq!(bed.call_with(&wrong, "GET", "/box/k", &odd, "").await.code(), "SignatureDoesNotMatch");
    assert_eq!(bed.call_with(&user("other"), "GET", "/box/k", &odd, "").await.code(), "AccessDenied");
    assert_eq!(bed.call_with(&admin, "GET", "/box/none", &odd, "").await.code(), "NoSuchKey");
    let token = [("range", "bytes=5-1"), ("x-amz-expected-bucket-owner", "away")];
    assert_eq!(bed.call_with(&admin, "GET", "/box/k", &token, "").await.code(), "AccessDenied");
    bed.stop().await;
}
