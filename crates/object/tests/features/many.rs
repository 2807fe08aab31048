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
    let names = ["plain", "a&b<c>", "tab\tnew\nline\r", "ünï \u{1f333}", " spaces ", "\u{1}"];
    for name in names {
        let body = futures::stream::iter([Ok(Bytes::from_static(b"x"))]);
        s3.put("box", name, 1, Vec::new(), body).await.unwrap();
    }
    let listed = async || {
        let page = s3.versions("box").await.unwrap();
        let found = page.versions.into_iter().map(|found| (found.key.unwrap(), found.version_id));
        found.collect::<Vec<(String, Option<String>)>>()
    };
    let all = listed().await;
    assert_eq!(all.len(), names.len());
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
