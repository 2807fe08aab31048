//! What is wrong with a gateway is said when it opens, in a sentence.

use crate::bed::{content, put};
use crate::remote::{BUCKET, PREFIX, Remote, config, open, refusal};

#[tokio::test]
async fn an_unusable_gateway_says_why() {
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let check = async |change: &dyn Fn(&mut object::config::Gateway), words: &[&str]| {
        let mut gateway = remote.gateway();
        change(&mut gateway);
        let said = refusal(config(folder.path(), gateway)).await;
        for word in words {
            assert!(said.contains(word), "{said:?} does not say {word:?}");
        }
        assert!(!said.contains(crate::remote::SECRET) && !said.contains('\n'), "{said}");
    };
    check(
        &|gateway| gateway.bucket = "nowhere".into(),
        &["bucket 'nowhere'", "is not there", "NoSuchBucket"],
    )
    .await;
    check(
        &|gateway| gateway.secret_key = "wrong".to_owned().into(),
        &["cannot be listed", "SignatureDoesNotMatch"],
    )
    .await;
    check(&|gateway| gateway.access_key = "nobody".into(), &["cannot be listed", "InvalidAccessKeyId"]).await;
    check(&|gateway| gateway.endpoint = "http://127.0.0.1:1".into(), &["cannot be listed", "refused"]).await;
    check(&|gateway| gateway.endpoint = "somewhere".into(), &["'somewhere' is not the address"]).await;
    check(&|gateway| gateway.prefix = "a//b".into(), &["'a//b' cannot be the prefix"]).await;
    check(&|gateway| gateway.prefix = "/".into(), &["'/' cannot be the prefix"]).await;
    check(&|gateway| gateway.ca = Some(b"-----BEGIN CERTIFICATE-----\nx".to_vec()), &["cannot be set up"])
        .await;
    // Nothing is left behind, and the right settings work.
    let left = remote.client.list(BUCKET, "", None, None).await.unwrap();
    assert!(left.objects.is_empty(), "{left:?}");
    drop(open(config(folder.path(), remote.gateway())).await);
    remote.stop().await;
}

#[tokio::test]
async fn a_bucket_that_may_only_be_read_is_refused() {
    let remote = Remote::ours().await;
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Deny","Principal":"*","Action":"s3:ACTION","Resource":"arn:aws:s3:::{BUCKET}/*"}}]}}"#
    );
    let folder = tempfile::tempdir().unwrap();
    for (action, words) in [
        ("PutObject", "cannot be written"),
        ("GetObject", "cannot be read"),
        ("DeleteObject", "cannot be deleted from"),
    ] {
        let ask = object::client::Ask::new(http::Method::PUT, BUCKET, "").query("policy", "");
        remote.client.ask(ask.body(policy.replace("ACTION", action))).await.unwrap();
        let said = refusal(config(folder.path(), remote.gateway())).await;
        assert!(said.contains(words) && said.contains("AccessDenied"), "{said}");
    }
    remote.stop().await;
}

#[tokio::test]
async fn a_bucket_that_keeps_versions_is_refused_at_first() {
    let remote = Remote::ours().await;
    let folder = tempfile::tempdir().unwrap();
    let versions = async |status: &str| {
        let ask = object::client::Ask::new(http::Method::PUT, BUCKET, "").query("versioning", "");
        let body = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        remote.client.ask(ask.body(body)).await.unwrap();
    };
    versions("Enabled").await;
    let said = refusal(config(folder.path(), remote.gateway())).await;
    assert!(said.contains("keeps versions"), "{said}");
    versions("Suspended").await;
    drop(open(config(folder.path(), remote.gateway())).await);
    // What lies there must stay within reach.
    versions("Enabled").await;
    drop(open(config(folder.path(), remote.gateway())).await);
    remote.stop().await;
}

#[tokio::test]
async fn a_prefix_has_one_owner() {
    let remote = Remote::ours().await;
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(config(one.path(), remote.gateway())).await;
    put(&engine, "key", &content(1, 200_000)).await.unwrap();
    let said = refusal(config(other.path(), remote.gateway())).await;
    assert!(said.contains(PREFIX) && said.contains("holds the data of another store"), "{said}");
    drop(engine);
    // It is the data folder that counts, not who was there last.
    assert!(refusal(config(other.path(), remote.gateway())).await.contains("another store"));
    let engine = open(config(one.path(), remote.gateway())).await;
    assert_eq!(remote.blobs().await.len(), 1);
    drop(engine);
    remote.stop().await;
}

#[tokio::test]
async fn the_secret_stays_out_of_what_is_printed() {
    let gateway = crate::remote::gateway("http://127.0.0.1:1");
    let folder = tempfile::tempdir().unwrap();
    let mut store = object::Config::new(folder.path().to_owned(), "127.0.0.1:0".parse().unwrap());
    store.gateway = Some(gateway.clone());
    let printed = format!("{gateway:?} {store:?} {:?}", config(folder.path(), gateway.clone()));
    assert!(!printed.contains(crate::remote::SECRET) && printed.contains(BUCKET), "{printed}");
}
