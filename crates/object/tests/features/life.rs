//! Lifecycle rules that are carried out, with days of a second.

use std::time::Duration;

use crate::bed::{Bed, user};
use crate::{good, until};

async fn hasty() -> Bed {
    Bed::start_with(|config| config.day_set(Duration::from_secs(1))).await
}

fn rule(what: &str) -> String {
    format!(
        "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>old/</Prefix></Filter>{what}</Rule></LifecycleConfiguration>"
    )
}

#[tokio::test]
async fn objects_expire_and_uploads_end() {
    let bed = hasty().await;
    let admin = user("admin");
    for target in ["/box", "/box/old/a", "/box/old/b", "/box/new/a"] {
        good(&bed, &admin, "PUT", target, "").await;
    }
    good(&bed, &admin, "POST", "/box/old/parts?uploads=", "").await;
    good(&bed, &admin, "POST", "/box/new/parts?uploads=", "").await;
    let rules = rule(
        "<Expiration><Days>1</Days></Expiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
    );
    good(&bed, &admin, "PUT", "/box?lifecycle=", &rules).await;
    until("what is old is gone", async || {
        let names = good(&bed, &admin, "GET", "/box?list-type=2", "").await;
        let uploads = good(&bed, &admin, "GET", "/box?uploads=", "").await;
        !names.contains("old/") && !uploads.contains("old/")
    })
    .await;
    assert!(good(&bed, &admin, "GET", "/box?list-type=2", "").await.contains("new/a"));
    assert!(good(&bed, &admin, "GET", "/box?uploads=", "").await.contains("new/parts"));
    // What comes later goes, too: a pass that found nothing is not the last.
    good(&bed, &admin, "PUT", "/box/old/late", "").await;
    until("a later object is gone", async || {
        bed.call(&admin, "GET", "/box/old/late", "").await.code() == "NoSuchKey"
    })
    .await;
    bed.stop().await;
}

#[tokio::test]
async fn older_versions_go_and_the_newest_stays() {
    let bed = hasty().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    good(&bed, &admin, "PUT", "/box?versioning=", on).await;
    for text in ["one", "two", "three", "four"] {
        good(&bed, &admin, "PUT", "/box/old/a", text).await;
        good(&bed, &admin, "PUT", "/box/new/a", text).await;
    }
    let rules = rule(
        "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
    );
    good(&bed, &admin, "PUT", "/box?lifecycle=", &rules).await;
    let count = async |prefix: &str| {
        let listed = good(&bed, &admin, "GET", &format!("/box?prefix={prefix}&versions="), "").await;
        listed.matches("<Version>").count()
    };
    until("one older version is left", async || count("old").await == 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((count("old").await, count("new").await), (2, 4));
    assert_eq!(good(&bed, &admin, "GET", "/box/old/a", "").await, "four");
    bed.stop().await;
}
