//! Websites, and buckets in host names.

use crate::bed::{Bed, user};
use crate::{ask, good, publish};

#[tokio::test]
async fn redirects_go_by_http_alone() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    for (protocol, code) in
        [("http", "ok"), ("https", "ok"), ("javascript", "InvalidArgument"), ("HTTP", "InvalidArgument")]
    {
        let all = format!(
            "<WebsiteConfiguration><RedirectAllRequestsTo><HostName>h</HostName><Protocol>{protocol}</Protocol></RedirectAllRequestsTo></WebsiteConfiguration>"
        );
        let rule = format!(
            "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument><RoutingRules><RoutingRule><Redirect><HostName>h</HostName><Protocol>{protocol}</Protocol></Redirect></RoutingRule></RoutingRules></WebsiteConfiguration>"
        );
        for document in [all, rule] {
            let answer = bed.call(&admin, "PUT", "/box?website=", &document).await;
            assert_eq!(answer.code(), code, "{protocol}: {}", answer.body);
        }
    }
    bed.stop().await;
}

#[tokio::test]
async fn a_bucket_is_a_website() {
    let bed = Bed::start_with(|config| config.website_domains = vec!["web.test".into()]).await;
    let admin = user("admin");
    for (target, body) in [
        ("/box", ""),
        ("/box/index.html", "home"),
        ("/box/docs/index.html", "docs"),
        ("/box/error.html", "lost"),
    ] {
        good(&bed, &admin, "PUT", target, body).await;
    }
    let get = async |path: &str| ask(&bed, "GET", path, &[("host", "box.web.test:7701")], b"").await;
    assert_eq!(get("/").await.status, 404, "it is no website yet");
    let site = "<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument><ErrorDocument><Key>error.html</Key></ErrorDocument></WebsiteConfiguration>";
    good(&bed, &admin, "PUT", "/box?website=", site).await;
    assert_eq!(get("/").await.status, 403, "its objects are private yet");
    publish(&bed).await;
    let home = get("/").await;
    assert_eq!((home.status, home.body.as_str()), (200, "home"));
    assert_eq!(get("/docs/").await.body, "docs");
    let folder = get("/docs").await;
    assert_eq!((folder.status, folder.header("location")), (302, Some("/docs/")));
    let lost = get("/none.html").await;
    assert!(lost.status >= 400 && lost.body == "lost", "{lost:?}");
    let written = ask(&bed, "PUT", "/new", &[("host", "box.web.test")], b"x").await;
    assert_eq!(written.status, 405);
    let away = "<WebsiteConfiguration><RedirectAllRequestsTo><HostName>example.org</HostName><Protocol>https</Protocol></RedirectAllRequestsTo></WebsiteConfiguration>";
    good(&bed, &admin, "PUT", "/box?website=", away).await;
    let moved = get("/a/b").await;
    assert_eq!((moved.status, moved.header("location")), (301, Some("https://example.org/a/b")));
    bed.stop().await;
}

#[tokio::test]
async fn a_bucket_stands_in_the_host_name() {
    let bed = Bed::start_with(|config| config.domains = vec!["s3.test".into()]).await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    good(&bed, &admin, "PUT", "/box/a/key", "content").await;
    let open = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject","s3:ListBucket"],"Resource":["arn:aws:s3:::box","arn:aws:s3:::box/*"]}}"#;
    good(&bed, &admin, "PUT", "/box?policy=", open).await;
    let host = [("host", "box.s3.test")];
    assert_eq!(ask(&bed, "GET", "/a/key", &host, b"").await.body, "content");
    assert!(ask(&bed, "GET", "/?list-type=2", &host, b"").await.body.contains("<Key>a/key</Key>"));
    assert_eq!(ask(&bed, "PUT", "/box/b", &host, b"by its host").await.status, 200);
    assert_eq!(good(&bed, &admin, "GET", "/box/box/b", "").await, "by its host");
    assert_eq!(ask(&bed, "GET", "/a/key", &[("host", "none.s3.test")], b"").await.status, 404);
    bed.stop().await;
}
