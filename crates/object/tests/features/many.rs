//! Many deletes in one request, by the client of the command line.

use bytes::Bytes;
use object::client::{Client, Credentials};

use crate::bed::{Bed, user};
use crate::good_with;

#[tokio::test]
async fn any_name_can_be_deleted_with_others() {
    let bed = Bed::start().await;
    let admin = user("admin");
    let credentials = Credentials {
        access_key_id: admin.id.clone(),
        secret_access_key: admin.secret.clone().into(),
        session_token: None,
    };
    let s3 = Client::new(&format!("http://{}", bed.host()), "us-east-1", credentials).unwrap();
    s3.bucket_create("box", true).await.unwrap();
    let names = [
        "plain",
        "a&b<c>",
        "tab\tnew\nline\r",
        "ünï \u{1f333}",
        " spaces ",
        "\u{1}",
        "a/../b",
        "./y",
        "../../box/x",
        "a/..",
    ];
    for name in names {
        let body = futures::stream::iter([Ok(Bytes::copy_from_slice(name.as_bytes()))]);
        s3.put("box", name, name.len() as u64, Vec::new(), body).await.unwrap();
    }
    for name in names {
        let found = s3.get("box", name, None, None).await.unwrap().text().await.unwrap();
        assert_eq!(found, name);
        let link = s3.presign("GET", "box", name, 60).unwrap();
        assert_eq!(reqwest::get(link).await.unwrap().text().await.unwrap(), name, "by a link");
    }
    let listed = async || {
        let page = s3.versions("box").await.unwrap();
        let found = page.versions.into_iter().map(|found| (found.key.unwrap(), found.version_id));
        found.collect::<Vec<(String, Option<String>)>>()
    };
    let all = listed().await;
    let mut kept: Vec<&str> = all.iter().map(|(key, _)| key.as_str()).collect();
    let mut put = names.to_vec();
    kept.sort_unstable();
    put.sort_unstable();
    assert_eq!(kept, put);
    s3.delete_many("box", &all).await.unwrap();
    assert_eq!(listed().await, []);
    // What is held stays, and is told.
    for name in ["/box/held", "/box/too"] {
        good_with(&bed, &admin, "PUT", name, &[("x-amz-object-lock-legal-hold", "ON")], "kept").await;
    }
    let refused = s3.delete_many("box", &listed().await).await.unwrap_err().message;
    assert!(refused.contains("box/held") && refused.contains("1 more stayed"), "{refused}");
    assert_eq!(listed().await.len(), 2);
    bed.stop().await;
}
