//! What keeps a bucket from being public, whoever opens it.

use crate::bed::{Bed, user};
use crate::{good, good_with, publish};

#[tokio::test]
async fn a_block_closes_what_lists_and_policies_open() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    let public = [("x-amz-acl", "public-read")];
    good_with(&bed, &admin, "PUT", "/box/listed", &public, "by its list").await;
    good(&bed, &admin, "PUT", "/box/plain", "by the policy").await;
    let anyone = async |target: &str| bed.raw("GET", target, &[], "").await.status;
    assert_eq!((anyone("/box/listed").await, anyone("/box/plain").await), (200, 403));
    publish(&bed).await;
    assert_eq!(anyone("/box/plain").await, 200);
    let block = |acls: bool, policies: bool| {
        format!(
            "<PublicAccessBlockConfiguration><BlockPublicAcls>{acls}</BlockPublicAcls><IgnorePublicAcls>{acls}</IgnorePublicAcls><BlockPublicPolicy>{policies}</BlockPublicPolicy><RestrictPublicBuckets>{policies}</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
        )
    };
    good(&bed, &admin, "PUT", "/box?publicAccessBlock=", &block(false, true)).await;
    assert_eq!(anyone("/box/plain").await, 403);
    let policy = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*"}}"#;
    assert_eq!(bed.call(&admin, "PUT", "/box?policy=", policy).await.code(), "AccessDenied");
    good(&bed, &admin, "DELETE", "/box?policy=", "").await;
    assert_eq!(anyone("/box/listed").await, 200, "lists are not blocked");
    good(&bed, &admin, "PUT", "/box?publicAccessBlock=", &block(true, false)).await;
    assert_eq!(anyone("/box/listed").await, 403);
    let opened = bed.call_with(&admin, "PUT", "/box/more", &public, "x").await;
    assert_eq!(opened.code(), "AccessDenied");
    good(&bed, &admin, "DELETE", "/box?publicAccessBlock=", "").await;
    assert_eq!(anyone("/box/listed").await, 200);
    bed.stop().await;
}
