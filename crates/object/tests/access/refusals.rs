//! Bad requests, as they come over the wire: each gets its own code and changes nothing.

use crate::bed::{Answer, Bed, stamp, user};
use crate::filled;

fn told(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.body);
}

async fn get_signed(bed: &Bed, by: &crate::Signer, at: &str, region: &str) -> Answer {
    let headers = bed.signed(by, "GET", "/box/key", &[], "UNSIGNED-PAYLOAD", (at, region));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    bed.raw("GET", "/box/key", &headers, "").await
}

#[tokio::test]
async fn signatures_must_be_right_and_fresh() {
    let bed = filled().await;
    let admin = user("admin");
    let wrong = crate::Signer { secret: "guessed".into(), ..admin.clone() };
    let refused = get_signed(&bed, &wrong, &stamp(0), "us-east-1").await;
    told(&refused, 403, "SignatureDoesNotMatch");
    assert!(refused.text("Message").is_some_and(|message| message.contains("Check your key")));
    told(&get_signed(&bed, &user("nobody"), &stamp(0), "us-east-1").await, 403, "InvalidAccessKeyId");
    for skew in [-16 * 60, 16 * 60] {
        told(&get_signed(&bed, &admin, &stamp(skew), "us-east-1").await, 403, "RequestTimeTooSkewed");
    }
    told(&get_signed(&bed, &admin, &stamp(-14 * 60), "us-east-1").await, 200, "ok");
    told(&get_signed(&bed, &admin, &stamp(0), "elsewhere-9").await, 200, "ok");
    let abroad = get_signed(&bed, &admin, &stamp(0), "US").await;
    told(&abroad, 400, "AuthorizationHeaderMalformed");
    assert_eq!(abroad.text("Region"), Some("us-east-1"), "clients sign again with it");
    let odd = bed.raw("GET", "/box/key", &[("authorization", "AWS4-HMAC-SHA256 nonsense")], "").await;
    told(&odd, 400, "AuthorizationHeaderMalformed");
    bed.stop().await;
}

#[tokio::test]
async fn links_end() {
    let bed = filled().await;
    let admin = user("admin");
    let link = |made: i64, expires: &str| bed.presign_at(&admin, "GET", "/box/key", expires, &stamp(made));
    told(&bed.raw("GET", &link(-30, "60"), &[], "").await, 200, "ok");
    let late = bed.raw("GET", &link(-61, "60"), &[], "").await;
    told(&late, 403, "AccessDenied");
    assert_eq!(late.text("Message"), Some("Request has expired"));
    told(&bed.raw("GET", &link(16 * 60, "60"), &[], "").await, 403, "RequestTimeTooSkewed");
    told(&bed.raw("PUT", &link(0, "60"), &[], "").await, 403, "SignatureDoesNotMatch");
    bed.stop().await;
}

#[tokio::test]
async fn keys_are_bytes_of_utf8_and_no_paths() {
    let bed = filled().await;
    let admin = user("admin");
    let long = format!("/box/{}", "k".repeat(1025));
    for (target, status, code) in [
        ("/box/a%00b", 400, "InvalidArgument"),
        ("/box/%AE%8A-", 400, "InvalidURI"),
        (&long, 400, "KeyTooLongError"),
    ] {
        told(&bed.call_as_is(&admin, "PUT", target, b"x").await, status, code);
    }
    let longest = format!("/box/{}", "k".repeat(1024));
    for target in [
        "/box/..",
        "/box/../box/key",
        "/box/../../etc/passwd",
        "/box/a//b",
        "/box/%01%7F",
        "/box/%F0%9F%8C%B3%CC%88",
        &longest,
    ] {
        told(&bed.call_as_is(&admin, "PUT", target, target.as_bytes()).await, 200, "ok");
        let found = bed.call_as_is(&admin, "GET", target, b"").await;
        assert_eq!(found.body, target);
    }
    assert_eq!(bed.call(&admin, "GET", "/box/key", "").await.body, "content", "it is another object");
    bed.stop().await;
}

#[tokio::test]
async fn bodies_must_be_what_was_promised() {
    let bed = filled().await;
    let admin = user("admin");
    let mut cut = bed.wire(&admin, "PUT", "/box/new", &[], 10, b"three").await;
    tokio::io::AsyncWriteExt::shutdown(&mut cut).await.unwrap();
    let answer = crate::bed::answer(cut).await;
    assert!(answer.status == 0 || answer.code() == "IncompleteBody", "{answer:?}");
    let md5 = ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    told(&bed.call_with(&admin, "PUT", "/box/new", &[md5], "body").await, 400, "BadDigest");
    let crc = ("x-amz-checksum-crc32", "AAAAAA==");
    told(&bed.call_with(&admin, "PUT", "/box/new", &[crc], "body").await, 400, "BadDigest");
    let other = hex::encode([0; 32]);
    let headers = bed.signed(&admin, "PUT", "/box/new", &[], &other, (&stamp(0), "us-east-1"));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    told(&bed.raw("PUT", "/box/new", &headers, "body").await, 400, "XAmzContentSHA256Mismatch");
    told(&bed.call(&admin, "GET", "/box/new", "").await, 404, "NoSuchKey");
    bed.stop().await;
}

#[tokio::test]
async fn parts_have_numbers_in_order() {
    let bed = filled().await;
    let admin = user("admin");
    let begun = bed.call(&admin, "POST", "/box/big?uploads=", "").await;
    let id = begun.text("UploadId").unwrap();
    for (number, code) in [("0", "InvalidArgument"), ("10001", "InvalidArgument"), ("1", "ok"), ("2", "ok")] {
        let target = format!("/box/big?partNumber={number}&uploadId={id}");
        assert_eq!(bed.call(&admin, "PUT", &target, "part").await.code(), code, "{number}");
    }
    let etag = hex::encode(<md5::Md5 as md5::Digest>::digest("part"));
    let target = format!("/box/big?uploadId={id}");
    for (numbers, code) in [
        (&[2, 1][..], "InvalidPartOrder"),
        (&[1, 1], "InvalidPartOrder"),
        (&[1, 2], "EntityTooSmall"),
        (&[3], "InvalidPart"),
        (&[], "MalformedXML"),
        (&[1], "ok"),
        (&[1, 2], "NoSuchUpload"),
        (&[2], "NoSuchUpload"),
        (&[1], "ok"),
    ] {
        let parts: String = numbers
            .iter()
            .map(|number| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
            .collect();
        let xml = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let answer = bed.call(&admin, "POST", &target, &xml).await;
        assert_eq!(answer.code(), code, "{numbers:?}: {}", answer.body);
    }
    bed.stop().await;
}

#[tokio::test]
async fn xml_cannot_grow_on_its_own() {
    let bed = filled().await;
    let admin = user("admin");
    let mut bomb = String::from("<!DOCTYPE lolz [<!ENTITY a \"aaaaaaaaaa\">");
    for (one, next) in ["a", "b", "c", "d", "e", "f", "g"].iter().zip(["b", "c", "d", "e", "f", "g", "h"]) {
        bomb.push_str(&format!("<!ENTITY {next} \"{}\">", format!("&{one};").repeat(10)));
    }
    let tagging = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>k</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
    for xml in [
        format!("{bomb}]>{}", tagging("&h;")),
        format!("<!DOCTYPE t [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>{}", tagging("&x;")),
        deep,
        tagging("v").replace("</TagSet>", ""),
        "no xml".to_owned(),
    ] {
        let answer = bed.call(&admin, "PUT", "/box/key?tagging=", &xml).await;
        told(&answer, 400, "MalformedXML");
    }
    let huge = tagging(&"v".repeat(3 << 20));
    let answer = bed.call(&admin, "PUT", "/box/key?tagging=", &huge).await;
    told(&answer, 400, "MaxMessageLengthExceeded");
    assert_eq!(bed.call(&admin, "GET", "/box/key?tagging=", "").await.text("Key"), None);
    bed.stop().await;
}

#[tokio::test]
async fn a_default_key_that_there_is_not_is_refused() {
    let bed = filled().await;
    let admin = user("admin");
    let rule = |inner: &str| {
        format!(
            "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm>{inner}</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"
        )
    };
    for inner in ["", "<KMSMasterKeyID></KMSMasterKeyID>"] {
        let answer = bed.call(&admin, "PUT", "/box?encryption=", &rule(inner)).await;
        told(&answer, 400, "InvalidArgument");
    }
    let named = rule("<KMSMasterKeyID>mine</KMSMasterKeyID>");
    told(&bed.call(&admin, "PUT", "/box?encryption=", &named).await, 200, "ok");
    told(&bed.call(&admin, "PUT", "/box/sealed", "x").await, 200, "ok");
    bed.stop().await;
}

#[tokio::test]
async fn errors_say_what_they_are_about() {
    let bed = filled().await;
    let response = bed.head_of(&user("admin"), "GET", "/box/none").await;
    let header = response.0;
    let answer = response.1;
    told(&answer, 404, "NoSuchKey");
    assert_eq!(answer.text("Key"), Some("none"));
    assert_eq!(answer.text("Resource"), Some("/box/none"));
    assert_eq!(answer.text("RequestId"), Some(header.as_str()));
    assert!(answer.text("HostId").is_some());
    let missing = bed.call(&user("admin"), "GET", "/nowhere", "").await;
    assert_eq!(missing.text("BucketName"), Some("nowhere"));
    bed.stop().await;
}

#[tokio::test]
async fn what_is_not_offered_changes_nothing() {
    let bed = filled().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/empty", "").await.code(), "ok");
    for (method, target) in [
        ("PUT", "/box/key?encryption="),
        ("PUT", "/box/key?renameObject="),
        ("PUT", "/box/key?append=&position=7"),
        ("PUT", "/box/key?somethingNew="),
        ("PUT", "/box/key?torrent="),
        ("DELETE", "/box/key?encryption="),
        ("DELETE", "/empty?metadataConfiguration="),
        ("DELETE", "/empty?metadataTable="),
        ("DELETE", "/empty?somethingNew="),
        ("PUT", "/empty?abac="),
        ("POST", "/empty?metadataTable="),
        ("GET", "/empty?session="),
    ] {
        let answer = bed.call(&admin, method, target, "").await;
        assert_eq!((answer.status, answer.code()), (501, "NotImplemented"), "{method} {target}: {answer:?}");
    }
    told(&bed.call(&admin, "GET", "/box/key?torrent=", "").await, 404, "NoSuchKey");
    told(&bed.call(&admin, "PUT", "/box/key?uploadId=none", "part").await, 400, "InvalidArgument");
    let route = [("x-amz-request-route", "a"), ("x-amz-request-token", "b")];
    told(&bed.call_with(&admin, "POST", "/box", &route, "").await, 501, "NotImplemented");
    assert_eq!(bed.call(&admin, "GET", "/box/key", "").await.body, "content");
    told(&bed.call(&admin, "HEAD", "/empty", "").await, 200, "ok");
    bed.stop().await;
}

#[tokio::test]
async fn checksums_that_nobody_verifies_are_refused() {
    let bed = Bed::start().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    for (name, code) in [
        ("x-amz-checksum-sha512", "InvalidRequest"),
        ("x-amz-checksum-md5", "InvalidRequest"),
        ("x-amz-checksum-xxhash3", "InvalidRequest"),
        ("x-amz-checksum-crc32", "ok"),
    ] {
        // The CRC32 of nothing.
        let answer = bed.call_with(&admin, "PUT", "/box/k", &[(name, "AAAAAA==")], "").await;
        assert_eq!(answer.code(), code, "{name}: {}", answer.body);
    }
    let odd = [("x-amz-checksum-sha512", "AAAA")];
    let answer = bed.call_with(&admin, "PUT", "/box?versioning=", &odd, "<VersioningConfiguration/>").await;
    assert_eq!((answer.code(), answer.status), ("InvalidRequest", 400));
    bed.stop().await;
}

#[tokio::test]
async fn policies_shut_out_who_is_there() {
    let bed = Bed::start().await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    for (principal, code) in [
        (r#"{"AWS":"away"}"#, "ok"),
        (r#"{"AWS":"arn:aws:iam::home:user/member"}"#, "ok"),
        (r#"{"AWS":"arn:aws:iam::home:role/viewer"}"#, "ok"),
        (r#"{"CanonicalUser":"home"}"#, "ok"),
        (r#"{"AWS":["away","arn:aws:iam::home:user/nobody"]}"#, "MalformedPolicy"),
        // Whoever asks is not told who is there elsewhere.
        (r#"{"AWS":"arn:aws:iam::away:user/other"}"#, "ok"),
        (r#"{"AWS":"arn:aws:iam::away:user/nobody"}"#, "ok"),
        (r#"{"AWS":"nowhere"}"#, "ok"),
        (r#"{"AWS":"arn:aws:iam::nowhere:root"}"#, "ok"),
        (r#"{"CanonicalUser":"nowhere"}"#, "ok"),
    ] {
        let text = crate::policy(&format!(
            r#""Effect":"Deny","Principal":{principal},"Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*""#
        ));
        let answer = bed.call(&admin, "PUT", "/box?policy=", &text).await;
        assert_eq!(answer.code(), code, "{principal}: {}", answer.body);
        let allow = text.replace("Deny", "Allow");
        assert_eq!(bed.call(&admin, "PUT", "/box?policy=", &allow).await.code(), "ok", "it lets nobody in");
    }
    bed.stop().await;
}
