//! What browsers do: requests from other origins, and forms.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::bed::{Bed, mac, stamp, user};
use crate::{Told, ask, good, publish};

#[tokio::test]
async fn other_origins_ask_first() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    good(&bed, &admin, "PUT", "/box/key", "content").await;
    publish(&bed).await;
    let preflight = async |origin: &str, method: &str| {
        let headers = [("origin", origin), ("access-control-request-method", method)];
        ask(&bed, "OPTIONS", "/box/key", &headers, b"").await
    };
    assert_eq!(preflight("https://app.test", "PUT").await.status, 403, "no rule yet");
    let rules = "<CORSConfiguration><CORSRule><AllowedOrigin>https://*.test</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod><ExposeHeader>etag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>";
    good(&bed, &admin, "PUT", "/box?cors=", rules).await;
    let allowed = preflight("https://app.test", "PUT").await;
    assert_eq!(allowed.status, 200, "{allowed:?}");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.test"));
    assert_eq!(allowed.header("access-control-max-age"), Some("60"));
    assert_eq!(preflight("https://app.test", "DELETE").await.status, 403);
    assert_eq!(preflight("https://elsewhere.org", "PUT").await.status, 403);
    let read = ask(&bed, "GET", "/box/key", &[("origin", "https://app.test")], b"").await;
    assert_eq!(read.header("access-control-allow-origin"), Some("https://app.test"));
    assert_eq!(read.header("access-control-expose-headers"), Some("etag"));
    let strange = ask(&bed, "GET", "/box/key", &[("origin", "https://elsewhere.org")], b"").await;
    assert_eq!((strange.status, strange.header("access-control-allow-origin")), (200, None));
    bed.stop().await;
}

/// Posts a form of these fields and a file.
async fn post(bed: &Bed, fields: &[(&str, &str)], file: &str) -> Told {
    let mut body = String::new();
    for (name, value) in fields {
        body.push_str(&format!(
            "--cut\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    body.push_str(&format!(
        "--cut\r\ncontent-disposition: form-data; name=\"file\"; filename=\"cat.txt\"\r\ncontent-type: text/plain\r\n\r\n{file}\r\n--cut--\r\n"
    ));
    let kind = [("content-type", "multipart/form-data; boundary=cut")];
    ask(bed, "POST", "/box", &kind, body.as_bytes()).await
}

#[tokio::test]
async fn a_form_uploads_what_its_policy_allows() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    let at = stamp(0);
    let scope = format!("{}/us-east-1/s3/aws4_request", &at[..8]);
    let credential = format!("admin/{scope}");
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(600);
    let policy = format!(
        r#"{{"expiration":"{}","conditions":[{{"bucket":"box"}},["starts-with","$key","in/"],["content-length-range",1,20],{{"x-amz-credential":"{credential}"}},{{"x-amz-algorithm":"AWS4-HMAC-SHA256"}},{{"x-amz-date":"{at}"}},{{"success_action_status":"201"}}]}}"#,
        until.strftime("%Y-%m-%dT%H:%M:%SZ")
    );
    let policy = STANDARD.encode(policy);
    let key =
        scope.split('/').fold(format!("AWS4{}", admin.secret).into_bytes(), |key, step| mac(&key, step));
    let signature = hex::encode(mac(&key, &policy));
    let with = |key: &'static str, signature: &str| {
        [
            ("key", key.to_owned()),
            ("policy", policy.clone()),
            ("x-amz-credential", credential.clone()),
            ("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("x-amz-date", at.clone()),
            ("success_action_status", "201".to_owned()),
            ("x-amz-signature", signature.to_owned()),
        ]
    };
    let send = async |key: &'static str, signature: &str, file: &str| {
        let fields = with(key, signature);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        post(&bed, &fields, file).await
    };
    let done = send("in/${filename}", &signature, "meow").await;
    assert_eq!(done.status, 201, "{}", done.body);
    assert!(done.body.contains("<Key>in/cat.txt</Key>"), "{}", done.body);
    assert_eq!(good(&bed, &admin, "GET", "/box/in/cat.txt", "").await, "meow");
    assert_eq!(send("out/cat.txt", &signature, "meow").await.status, 403, "another prefix");
    assert_eq!(send("in/forged", &"0".repeat(64), "meow").await.status, 403);
    let long = send("in/long", &signature, &"m".repeat(21)).await;
    assert!(long.status == 400 && long.body.contains("EntityTooLarge"), "{}", long.body);
    for missing in ["/box/out/cat.txt", "/box/in/forged", "/box/in/long"] {
        assert_eq!(bed.call(&admin, "GET", missing, "").await.code(), "NoSuchKey", "{missing}");
    }
    bed.stop().await;
}
