//! Events that go to a webhook.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, user};
use crate::{good, until};

type Heard = Arc<Mutex<Vec<Value>>>;

/// A webhook that refuses the first `deaf` calls; answers its address and what it hears.
async fn webhook(deaf: usize) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let heard = Heard::default();
    let hears = heard.clone();
    tokio::spawn(async move {
        let mut left = deaf;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let Some(event) = event(&mut stream).await else { continue };
            let answer = if left > 0 { "503 Busy" } else { "200 OK" };
            if left == 0 {
                hears.lock().unwrap().push(event);
            }
            left = left.saturating_sub(1);
            let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    (address, heard)
}

async fn event(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
            if body.len() >= length {
                return serde_json::from_str(body).ok();
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn wish(address: &str, event: &str) -> String {
    format!(
        "<NotificationConfiguration><TopicConfiguration><Id>n</Id><Topic>arn:aws:sns:us-east-1:x:{address}</Topic><Event>{event}</Event><Filter><S3Key><FilterRule><Name>prefix</Name><Value>in/</Value></FilterRule></S3Key></Filter></TopicConfiguration></NotificationConfiguration>"
    )
}

#[tokio::test]
async fn a_webhook_hears_what_happened_in_order() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    let (address, heard) = webhook(2).await;
    good(&bed, &admin, "PUT", "/box?notification=", &wish(&address, "s3:ObjectCreated:*")).await;
    good(&bed, &admin, "PUT", "/box/in/a%20b", "four").await;
    good(&bed, &admin, "PUT", "/box/out/c", "not told").await;
    good(&bed, &admin, "DELETE", "/box/in/a%20b", "").await;
    good(&bed, &admin, "PUT", "/box/in/d", "").await;
    until("both puts are heard, although the webhook was deaf at first", async || {
        heard.lock().unwrap().len() >= 2
    })
    .await;
    let heard = heard.lock().unwrap().clone();
    let records: Vec<&Value> = heard.iter().map(|event| &event["Records"][0]).collect();
    assert_eq!(records.len(), 2, "{records:?}");
    assert_eq!(records[0]["eventName"], "ObjectCreated:Put");
    assert_eq!(records[0]["s3"]["bucket"]["name"], "box");
    assert_eq!(records[0]["s3"]["object"]["key"], "in/a+b");
    assert_eq!(records[0]["s3"]["object"]["size"], 4);
    assert_eq!(records[1]["s3"]["object"]["key"], "in/d");
    bed.stop().await;
}

#[tokio::test]
async fn what_would_never_be_told_is_refused() {
    let bed = Bed::start().await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    for (event, code) in [
        ("s3:ObjectCreated:*", "ok"),
        ("s3:LifecycleExpiration:Delete", "ok"),
        ("s3:ObjectCreated:Sing", "InvalidArgument"),
        ("s3:Replication:*", "InvalidArgument"),
        ("s3:*", "InvalidArgument"),
    ] {
        let answer =
            bed.call(&admin, "PUT", "/box?notification=", &wish("http://127.0.0.1:9/x", event)).await;
        assert_eq!(answer.code(), code, "{event}: {}", answer.body);
    }
    let bridge = "<NotificationConfiguration><EventBridgeConfiguration></EventBridgeConfiguration></NotificationConfiguration>";
    let answer = bed.call(&admin, "PUT", "/box?notification=", bridge).await;
    assert_eq!((answer.status, answer.code()), (501, "NotImplemented"), "{}", answer.body);
    bed.stop().await;
}
