//! Who may do what, asked over HTTP of a store that runs.
#![allow(clippy::unwrap_used)]

mod bed;
mod chunks;
mod length;
mod logs;
mod quota;
mod ranges;
mod refusals;
mod slow;
mod tls;

use bed::{Bed, Signer, user};

/// A policy of one statement.
fn policy(body: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":[{{{body}}}]}}"#)
}

fn role(name: &str) -> String {
    format!("Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam::home:role/{name}&RoleSessionName=test")
}

/// A bucket `box` of `home` with `key` and `secret` in it.
async fn filled() -> Bed {
    let bed = Bed::start().await;
    let admin = user("admin");
    for (target, body) in [("/box", ""), ("/box/key", "content"), ("/box/secret", "hidden")] {
        let answer = bed.call(&admin, "PUT", target, body).await;
        assert_eq!(answer.code(), "ok", "{target}: {}", answer.body);
    }
    bed
}

#[tokio::test]
async fn users_do_what_their_rights_say() {
    let bed = filled().await;
    // method, target, headers, viewer, member, another account
    type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], bool, bool, bool);
    let rows: [Row; 9] = [
        ("GET", "/box/key", &[], true, true, false),
        ("GET", "/box", &[], true, true, false),
        ("PUT", "/box/new", &[], false, true, false),
        ("PUT", "/box/new", &[("x-amz-acl", "private")], false, true, false),
        ("PUT", "/box/new", &[("x-amz-acl", "public-read")], false, false, false),
        ("PUT", "/box?acl", &[("x-amz-acl", "public-read")], false, false, false),
        ("DELETE", "/box?policy", &[], false, false, false),
        ("GET", "/box?policyStatus", &[], true, true, false),
        ("PUT", "/fresh", &[], false, true, true),
    ];
    for (method, target, headers, viewer, member, other) in rows {
        for (name, allowed) in [("viewer", viewer), ("member", member), ("other", other)] {
            let target = if target == "/fresh" { format!("/fresh-{name}") } else { target.to_owned() };
            let answer = bed.call_with(&user(name), method, &target, headers, "").await;
            let expected = if allowed { "ok" } else { "AccessDenied" };
            assert_eq!(answer.code(), expected, "{method} {target} {headers:?} by {name}: {}", answer.body);
        }
        let anonymous = bed.raw(method, target, headers, "").await;
        assert_eq!(anonymous.code(), "AccessDenied", "{method} {target} by nobody");
    }
    assert_eq!(bed.call(&user("other"), "GET", "/none", "").await.code(), "NoSuchBucket");
    bed.stop().await;
}

#[tokio::test]
async fn a_missing_key_is_hidden_from_who_may_not_list() {
    let bed = filled().await;
    let get =
        policy(r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*""#);
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy", &get).await.code(), "ok");
    assert_eq!(bed.call(&user("other"), "GET", "/box/key", "").await.code(), "ok");
    assert_eq!(bed.call(&user("other"), "GET", "/box/none", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&user("viewer"), "GET", "/box/none", "").await.code(), "NoSuchKey");
    bed.stop().await;
}

#[tokio::test]
async fn reading_a_version_needs_its_own_right() {
    let bed = filled().await;
    let admin = user("admin");
    let get =
        policy(r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*""#);
    assert_eq!(bed.call(&admin, "PUT", "/box?policy", &get).await.code(), "ok");
    let other = user("other");
    assert_eq!(bed.call(&other, "GET", "/box/key", "").await.code(), "ok");
    assert_eq!(bed.call(&other, "GET", "/box/key?versionId=null", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&other, "GET", "/box?versions", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&admin, "GET", "/box/key?versionId=null", "").await.code(), "ok");
    bed.stop().await;
}

#[tokio::test]
async fn the_source_of_a_copy_must_be_readable() {
    let bed = filled().await;
    let other = user("other");
    assert_eq!(bed.call(&other, "PUT", "/mine", "").await.code(), "ok");
    let source = [("x-amz-copy-source", "/box/secret")];
    assert_eq!(bed.call_with(&other, "PUT", "/mine/copy", &source, "").await.code(), "AccessDenied");
    let upload = bed.call(&other, "POST", "/mine/parts?uploads", "").await;
    let upload = upload.text("UploadId").unwrap();
    let part = format!("/mine/parts?partNumber=1&uploadId={upload}");
    assert_eq!(bed.call_with(&other, "PUT", &part, &source, "").await.code(), "AccessDenied");
    let own = [("x-amz-copy-source", "/mine/own")];
    assert_eq!(bed.call(&other, "PUT", "/mine/own", "x").await.code(), "ok");
    assert_eq!(bed.call_with(&other, "PUT", "/mine/copy", &own, "").await.code(), "ok");
    bed.stop().await;
}

#[tokio::test]
async fn each_key_of_a_multi_delete_is_asked_for() {
    let bed = filled().await;
    let delete = policy(
        r#""Effect":"Allow","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::box/key""#,
    );
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy", &delete).await.code(), "ok");
    let body = "<Delete><Object><Key>key</Key></Object><Object><Key>secret</Key></Object></Delete>";
    let answer = bed.call(&user("other"), "POST", "/box?delete", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.text("Deleted"), Some("<Key>key</Key>"), "{}", answer.body);
    assert!(answer.text("Error").unwrap().contains("<Key>secret</Key>"), "{}", answer.body);
    assert!(answer.text("Error").unwrap().contains("AccessDenied"), "{}", answer.body);
    assert_eq!(bed.call(&user("admin"), "GET", "/box/secret", "").await.body, "hidden");
    bed.stop().await;
}

#[tokio::test]
async fn an_address_is_that_of_the_connection() {
    let bed = filled().await;
    let local = policy(
        r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#,
    );
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy", &local).await.code(), "ok");
    for header in ["x-forwarded-for", "x-real-ip", "forwarded", "cf-connecting-ip"] {
        let answer = bed.raw("GET", "/box/key", &[(header, "10.1.2.3")], "").await;
        assert_eq!(answer.code(), "AccessDenied", "{header}");
    }
    let here = local.replace("10.0.0.0/8", "127.0.0.0/8");
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy", &here).await.code(), "ok");
    assert_eq!(bed.raw("GET", "/box/key", &[("x-forwarded-for", "10.1.2.3")], "").await.code(), "ok");
    bed.stop().await;
}

#[tokio::test]
async fn a_denial_binds_the_owner_but_can_be_lifted() {
    let bed = filled().await;
    let admin = user("admin");
    let deny = policy(
        r#""Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::box","arn:aws:s3:::box/*"]"#,
    );
    assert_eq!(bed.call(&admin, "PUT", "/box?policy", &deny).await.code(), "ok");
    assert_eq!(bed.call(&admin, "GET", "/box/key", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&admin, "DELETE", "/box", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&user("member"), "DELETE", "/box?policy", "").await.code(), "AccessDenied");
    assert_eq!(bed.call(&admin, "DELETE", "/box?policy", "").await.code(), "ok");
    assert_eq!(bed.call(&admin, "GET", "/box/key", "").await.code(), "ok");
    let bad = bed.call(&admin, "PUT", "/box?policy", "{\"Statement\":[]}").await;
    assert_eq!(bad.code(), "MalformedPolicy");
    bed.stop().await;
}

#[tokio::test]
async fn presigned_addresses_do_one_thing_for_a_while() {
    let bed = filled().await;
    let admin = user("admin");
    let get = bed.presign(&admin, "GET", "/box/key", "60");
    assert_eq!(bed.raw("GET", &get, &[], "").await.body, "content");
    assert_eq!(bed.raw("PUT", &get, &[], "").await.code(), "SignatureDoesNotMatch");
    let other = get.replace("/box/key", "/box/secret");
    assert_eq!(bed.raw("GET", &other, &[], "").await.code(), "SignatureDoesNotMatch");
    let longer = get.replace("Expires=60", "Expires=600");
    assert_eq!(bed.raw("GET", &longer, &[], "").await.code(), "SignatureDoesNotMatch");
    for expires in ["0", "-7", "604801", "99999999999999999999"] {
        let target = bed.presign(&admin, "GET", "/box/key", expires);
        assert_eq!(bed.raw("GET", &target, &[], "").await.code(), "AccessDenied", "{expires}");
    }
    let put = bed.presign(&admin, "PUT", "/box/up", "60");
    for header in
        [("x-amz-copy-source", "/box/secret"), ("x-amz-acl", "public-read"), ("x-amz-tagging", "a=b")]
    {
        let answer = bed.raw("PUT", &put, &[header], "").await;
        assert_eq!(answer.code(), "AccessDenied", "{header:?}");
    }
    assert_eq!(bed.raw("PUT", &put, &[], "x").await.code(), "ok");
    bed.stop().await;
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_role() {
    let bed = filled().await;
    let viewer = bed.session(&user("member"), &role("viewer")).await;
    assert_eq!(bed.call(&viewer, "GET", "/box/key", "").await.code(), "ok");
    assert_eq!(bed.call(&viewer, "PUT", "/box/new", "").await.code(), "AccessDenied");
    let whole = bed.session(&user("member"), "Action=GetSessionToken").await;
    assert_eq!(bed.call(&whole, "PUT", "/box/new", "").await.code(), "ok");
    assert_eq!(bed.call(&whole, "DELETE", "/box?policy", "").await.code(), "AccessDenied");
    let identity = bed.sts(Some(&viewer), "Action=GetCallerIdentity").await;
    assert_eq!(identity.text("Arn"), Some("arn:aws:sts::home:assumed-role/viewer/test"));
    let identity = bed.sts(Some(&user("member")), "Action=GetCallerIdentity").await;
    assert_eq!(identity.text("Arn"), Some("arn:aws:iam::home:user/member"));
    assert_eq!(identity.text("Account"), Some("home"));
    let presigned = bed.presign(&viewer, "GET", "/box/key", "60");
    assert_eq!(bed.raw("GET", &presigned, &[], "").await.body, "content");
    bed.stop().await;
}

#[tokio::test]
async fn a_session_policy_narrows() {
    let bed = filled().await;
    let narrow = r#"{"Statement":{"Effect":"Allow","Action":["s3:GetObject","s3:PutBucketPolicy"],"Resource":["arn:aws:s3:::box/key","arn:aws:s3:::box"]}}"#;
    let narrow = narrow.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
    let session = bed.session(&user("member"), &format!("{}&Policy={narrow}", role("member"))).await;
    assert_eq!(bed.call(&session, "GET", "/box/key", "").await.code(), "ok");
    for (method, target) in [
        ("GET", "/box/secret"),
        ("GET", "/box"),
        ("PUT", "/box/key"),
        ("GET", "/"),
        ("PUT", "/fresh"),
        ("PUT", "/box?policy"),
    ] {
        let answer = bed.call(&session, method, target, "").await;
        assert_eq!(answer.code(), "AccessDenied", "{method} {target}: a policy of a session adds nothing");
    }
    bed.stop().await;
}

#[tokio::test]
async fn a_session_needs_its_own_token() {
    let bed = filled().await;
    let one = bed.session(&user("admin"), &role("viewer")).await;
    let two = bed.session(&user("admin"), &role("admin")).await;
    let with = |id: &Signer, token: Option<String>| Signer { token, ..id.clone() };
    let asked = [
        (with(&one, None), "InvalidToken"),
        (with(&one, two.token.clone()), "InvalidToken"),
        (with(&one, Some("forged".into())), "InvalidToken"),
        (with(&user("admin"), one.token.clone()), "InvalidToken"),
        (Signer { secret: "guess".into(), ..one.clone() }, "SignatureDoesNotMatch"),
        (Signer { id: format!("ASIA{}", "A".repeat(24)), ..one.clone() }, "InvalidAccessKeyId"),
        (Signer { id: "nobody".into(), ..user("admin") }, "InvalidAccessKeyId"),
    ];
    for (signer, expected) in asked {
        assert_eq!(bed.call(&signer, "GET", "/box/key", "").await.code(), expected, "{signer:?}");
    }
    bed.stop().await;
}

#[tokio::test]
async fn a_session_ends_with_the_key_that_made_it() {
    let bed = filled().await;
    let session = bed.session(&user("member"), &role("member")).await;
    assert_eq!(bed.call(&session, "GET", "/box/key", "").await.code(), "ok");
    bed.remove("member");
    assert_eq!(bed.call(&session, "GET", "/box/key", "").await.code(), "InvalidAccessKeyId");
    bed.stop().await;
}

#[tokio::test]
async fn nobody_gets_more_than_they_have() {
    let bed = filled().await;
    let member = user("member");
    let session = bed.session(&member, &role("member")).await;
    let away = role("viewer").replace("::home:", "::away:");
    let rows = [
        (None, role("viewer"), "AccessDenied"),
        (None, "Action=GetSessionToken".to_owned(), "AccessDenied"),
        (None, "Action=GetCallerIdentity".to_owned(), "AccessDenied"),
        (Some(&member), role("admin"), "AccessDenied"),
        (Some(&member), role("root"), "AccessDenied"),
        (Some(&member), away, "AccessDenied"),
        (Some(&session), role("viewer"), "AccessDenied"),
        (Some(&session), "Action=GetSessionToken".to_owned(), "AccessDenied"),
        (Some(&member), format!("{}&DurationSeconds=899", role("viewer")), "ValidationError"),
        (Some(&member), format!("{}&DurationSeconds=43201", role("viewer")), "ValidationError"),
        (Some(&member), format!("{}&DurationSeconds=x", role("viewer")), "ValidationError"),
        (Some(&member), format!("{}&Policy=x", role("viewer")), "MalformedPolicyDocument"),
        (Some(&member), role("viewer").replace("=test", "=a%20b"), "ValidationError"),
        (Some(&member), role("viewer").replace("arn:", ""), "ValidationError"),
        (Some(&member), "Action=AssumeRoleWithWebIdentity".to_owned(), "InvalidAction"),
        (Some(&member), "Version=2011-06-15".to_owned(), "MissingAction"),
    ];
    for (by, form, expected) in rows {
        let answer = bed.sts(by, &form).await;
        assert_eq!(answer.code(), expected, "{form}");
        assert!(answer.body.starts_with("<ErrorResponse"), "{}", answer.body);
    }
    let stranger = bed.sts(Some(&user("nobody")), "Action=GetCallerIdentity").await;
    assert_eq!(stranger.code(), "InvalidAccessKeyId");
    assert!(stranger.body.starts_with("<ErrorResponse"), "{}", stranger.body);
    bed.stop().await;
}

#[tokio::test]
async fn what_would_not_be_heeded_is_refused() {
    let bed = filled().await;
    let member = user("member");
    for more in
        ["PolicyArns.member.1.arn=arn:aws:iam::aws:policy/x", "Tags.member.1.Key=a", "TokenCode=123456"]
    {
        let answer = bed.sts(Some(&member), &format!("{}&{more}", role("viewer"))).await;
        assert_eq!((answer.status, answer.code()), (400, "ValidationError"), "{more}: {}", answer.body);
    }
    let answer = bed.sts(Some(&member), "Action=GetSessionToken&SerialNumber=x&TokenCode=1").await;
    assert_eq!(answer.code(), "ValidationError", "{}", answer.body);
    let admin = user("admin");
    let on = |key: &str, value: &str| {
        policy(&format!(
            r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*","Condition":{{"StringEquals":{{"{key}":"{value}"}}}}"#
        ))
    };
    for key in ["aws:ResourceTag/team", "aws:TokenIssueTime", "s3:LocationConstraint"] {
        let answer = bed.call(&admin, "PUT", "/box?policy", &on(key, "x")).await;
        assert_eq!(answer.code(), "MalformedPolicy", "{key}");
        assert!(answer.body.contains("not offered"), "{}", answer.body);
    }
    // What can be known is.
    for (region, expected) in [("elsewhere", "AccessDenied"), ("us-east-1", "ok")] {
        let answer = bed.call(&admin, "PUT", "/box?policy", &on("aws:RequestedRegion", region)).await;
        assert_eq!(answer.code(), "ok", "{}", answer.body);
        assert_eq!(bed.call(&user("other"), "GET", "/box/key", "").await.code(), expected, "{region}");
    }
    bed.stop().await;
}

#[tokio::test]
async fn a_policy_may_ask_for_conditional_writes() {
    let bed = filled().await;
    let admin = user("admin");
    let deny = policy(
        r#""Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::box/*","Condition":{"Null":{"s3:if-none-match":"true"},"Bool":{"s3:ObjectCreationOperation":"true"}}"#,
    );
    assert_eq!(bed.call(&admin, "PUT", "/box?policy", &deny).await.code(), "ok");
    let member = user("member");
    assert_eq!(bed.call(&member, "PUT", "/box/new", "x").await.code(), "AccessDenied");
    let fresh = [("if-none-match", "*")];
    assert_eq!(bed.call_with(&member, "PUT", "/box/new", &fresh, "x").await.code(), "ok");
    let begun = bed.call(&member, "POST", "/box/parts?uploads=", "").await;
    assert_eq!(begun.code(), "ok", "an upload that begins makes no object: {}", begun.body);
    bed.stop().await;
}

#[tokio::test]
async fn a_store_may_have_two_addresses() {
    let bed = filled().await;
    let other = bed.host().replace("127.0.0.1", "127.0.0.2");
    assert!(reqwest::get(format!("http://{other}/box/key")).await.is_err(), "nobody listens there yet");
    bed.listen_also("127.0.0.2").await.unwrap();
    bed.listen_also("127.0.0.1").await.expect("it has that one already");
    assert!(bed.listen_also("127.0.0.2").await.is_err(), "the address is taken");
    let answer = reqwest::get(format!("http://{other}/box/key")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 403);
    assert_eq!(answer.headers()["server"], "banyan");
    assert_eq!(bed.call(&user("admin"), "GET", "/box/key", "").await.body, "content");
    bed.stop().await;
    assert!(reqwest::get(format!("http://{other}/box/key")).await.is_err(), "it went on after its end");
}
