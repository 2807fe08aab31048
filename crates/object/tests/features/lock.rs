//! Versions that nobody may delete for a while.

use crate::bed::{Bed, user};
use crate::{good, good_with};

#[tokio::test]
async fn a_locked_version_stays() {
    let bed = Bed::start().await;
    let (admin, member) = (user("admin"), user("member"));
    good_with(&bed, &admin, "PUT", "/box", &[("x-amz-bucket-object-lock-enabled", "true")], "").await;
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    for (key, mode) in [("strict", "COMPLIANCE"), ("mild", "GOVERNANCE")] {
        let headers =
            [("x-amz-object-lock-mode", mode), ("x-amz-object-lock-retain-until-date", until.as_str())];
        good_with(&bed, &admin, "PUT", &format!("/box/{key}"), &headers, "kept").await;
    }
    good_with(&bed, &admin, "PUT", "/box/held", &[("x-amz-object-lock-legal-hold", "ON")], "kept").await;
    let listed = good(&bed, &admin, "GET", "/box?versions=", "").await;
    let target = |key: &str| {
        let (_, rest) = listed.split_once(&format!("<Key>{key}</Key>")).unwrap();
        let id = rest.split_once("<VersionId>").unwrap().1.split_once('<').unwrap().0;
        format!("/box/{key}?versionId={id}")
    };
    let bypass = [("x-amz-bypass-governance-retention", "true")];
    for key in ["strict", "mild", "held"] {
        let refused = bed.call(&admin, "DELETE", &target(key), "").await;
        assert_eq!((refused.status, refused.code()), (403, "AccessDenied"), "{key}");
        assert_eq!(good(&bed, &admin, "GET", &target(key), "").await, "kept");
    }
    for (key, by) in [("strict", &admin), ("held", &admin), ("mild", &member)] {
        let refused = bed.call_with(by, "DELETE", &target(key), &bypass, "").await;
        assert_eq!(refused.code(), "AccessDenied", "{key} by {}", by.id);
    }
    good_with(&bed, &admin, "DELETE", &target("mild"), &bypass, "").await;
    let off = "<LegalHold><Status>OFF</Status></LegalHold>";
    let hold = target("held").replace('?', "?legal-hold=&");
    good(&bed, &admin, "PUT", &hold, off).await;
    good(&bed, &admin, "DELETE", &target("held"), "").await;
    // A delete without a version hides it and takes nothing away.
    good(&bed, &admin, "DELETE", "/box/strict", "").await;
    assert_eq!(bed.call(&admin, "GET", "/box/strict", "").await.code(), "NoSuchKey");
    assert_eq!(good(&bed, &admin, "GET", &target("strict"), "").await, "kept");
    bed.stop().await;
}
