//! Settings that are documents: what is not known in them is refused, and nothing changes.

use crate::bed::{Bed, user};
use crate::good;

#[tokio::test]
async fn elements_that_nobody_knows_are_refused_by_name() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    good(&bed, &admin, "PUT", "/box/k", "v").await;
    let block = "<PublicAccessBlockConfiguration><BlockPublicPolicy>true</BlockPublicPolicy></PublicAccessBlockConfiguration>";
    good(&bed, &admin, "PUT", "/box?publicAccessBlock=", block).await;
    for (target, document) in [
        (
            "/box?publicAccessBlock=",
            "<PublicAccessBlockConfiguration><PublicAccessBlock/></PublicAccessBlockConfiguration>",
        ),
        ("/box?logging=", "<BucketLoggingStatus><LogingEnabled/></BucketLoggingStatus>"),
        (
            "/box?website=",
            "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument><ErorDocument/></WebsiteConfiguration>",
        ),
        ("/box?notification=", "<NotificationConfiguration><TopicConfig/></NotificationConfiguration>"),
        ("/box?versioning=", "<VersioningConfiguration><State>Enabled</State></VersioningConfiguration>"),
        ("/box?tagging=", "<Tagging><TagSet/><Tags/></Tagging>"),
        ("/box/k?tagging=", "<Tagging><TagSet/><Tags/></Tagging>"),
        (
            "/box?acl=",
            "<AccessControlPolicy><Owner><ID>home</ID></Owner><AccessControlList/><Odd/></AccessControlPolicy>",
        ),
        (
            "/box?requestPayment=",
            "<RequestPaymentConfiguration><Payer>BucketOwner</Payer><Odd/></RequestPaymentConfiguration>",
        ),
    ] {
        let answer = bed.call(&admin, "PUT", target, document).await;
        assert_eq!((answer.status, answer.code()), (400, "MalformedXML"), "{target}: {}", answer.body);
        assert!(answer.text("Message").unwrap().contains("is not known here"), "{}", answer.body);
    }
    let kept = good(&bed, &admin, "GET", "/box?publicAccessBlock=", "").await;
    assert!(kept.contains("<BlockPublicPolicy>true<"), "{kept}");
    bed.stop().await;
}
