//! Access logs as objects of another bucket.

use std::time::{Duration, Instant};

use crate::bed::{Bed, user};
use crate::policy;

fn asked(format: &str) -> String {
    format!(
        "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix>of/</TargetPrefix>{format}</LoggingEnabled></BucketLoggingStatus>"
    )
}

#[tokio::test]
async fn lines_come_where_the_target_lets_them_in() {
    let bed = Bed::start_with(|config| config.log_every = Duration::from_millis(300)).await;
    let admin = user("admin");
    for bucket in ["/box", "/logs"] {
        assert_eq!(bed.call(&admin, "PUT", bucket, "").await.code(), "ok");
    }
    let format = "<TargetObjectKeyFormat><PartitionedPrefix><PartitionDateSource>DeliveryTime</PartitionDateSource></PartitionedPrefix></TargetObjectKeyFormat>";
    assert_eq!(bed.call(&admin, "PUT", "/box?logging=", &asked(format)).await.code(), "AccessDenied");
    let lets = policy(
        r#""Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::logs/of/*","Condition":{"StringEquals":{"aws:SourceAccount":"home"},"ArnLike":{"aws:SourceArn":"arn:aws:s3:::box"}}"#,
    );
    assert_eq!(bed.call(&admin, "PUT", "/logs?policy=", &lets).await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box?logging=", &asked(format)).await.code(), "ok");
    let (id, _) = bed.head_of(&admin, "GET", "/box/no%20key").await;

    let end = Instant::now() + Duration::from_secs(60);
    let line = loop {
        let listed =
            bed.call(&admin, "GET", "/logs?list-type=2&prefix=of%2Fhome%2Fus-east-1%2Fbox%2F", "").await;
        let key = listed.text("Key").map(str::to_owned);
        let body = match key {
            Some(key) => bed.call(&admin, "GET", &format!("/logs/{key}"), "").await.body,
            None => String::new(),
        };
        if let Some(line) = body.lines().find(|line| line.contains(&id)) {
            break line.to_owned();
        }
        assert!(Instant::now() < end, "{}", listed.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(line.starts_with("home box ["), "{line}");
    assert!(
        line.contains(&format!(
            " arn:aws:iam::home:user/admin {id} REST.GET.OBJECT no%20key \"GET /box/no%20key HTTP/1.1\" 404 NoSuchKey "
        )),
        "{line}"
    );
    assert!(line.contains(" SigV4 - AuthHeader "), "{line}");
    bed.stop().await;
}
