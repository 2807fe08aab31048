//! Clients that fall silent, or go on too slowly, are let go, and leave nothing behind.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::{Bed, answer, user};

async fn impatient() -> Bed {
    let bed = Bed::start_with(|config| config.silence_max = Duration::from_millis(300)).await;
    assert_eq!(bed.call(&user("admin"), "PUT", "/box", "").await.code(), "ok");
    bed
}

#[tokio::test]
async fn a_body_must_go_on() {
    let bed = impatient().await;
    let admin = user("admin");
    for target in ["/box/key", "/box?policy="] {
        let stream = bed.wire(&admin, "PUT", target, &[], 100, b"only this").await;
        let told = answer(stream).await;
        assert_eq!((told.status, told.code()), (400, "RequestTimeout"), "{target}: {}", told.body);
    }
    assert_eq!(bed.call(&admin, "GET", "/box/key", "").await.code(), "NoSuchKey");
    assert_eq!(bed.call(&admin, "GET", "/box?policy=", "").await.code(), "NoSuchBucketPolicy");
    bed.stop().await;
}

#[tokio::test]
async fn a_head_must_come() {
    let bed = impatient().await;
    let mut stream = TcpStream::connect(bed.host()).await.unwrap();
    stream.write_all(b"GET /box HTTP/1.1\r\nhost: ").await.unwrap();
    assert_ne!(answer(stream).await.status, 200);
    bed.stop().await;
}

#[tokio::test]
async fn connections_do_not_rest_forever() {
    let bed = impatient().await;
    let silent = TcpStream::connect(bed.host()).await.unwrap();
    assert_eq!(answer(silent).await.status, 0);
    // Ends although it may be used again.
    let used = bed.wire(&user("admin"), "GET", "/box?location=", &[], 0, b"").await;
    assert_eq!(answer(used).await.status, 200);
    // As a client writes that speaks HTTP/2 without asking.
    let mut other = TcpStream::connect(bed.host()).await.unwrap();
    other.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    assert_ne!(answer(other).await.status, 200);
    bed.stop().await;
}

#[tokio::test]
async fn an_answer_must_be_taken() {
    const SIZE: usize = 64 << 20;
    let bed = impatient().await;
    let admin = user("admin");
    let body = "x".repeat(SIZE);
    assert_eq!(bed.call(&admin, "PUT", "/box/large", &body).await.code(), "ok");
    let mut stream = bed.wire(&admin, "GET", "/box/large", &[("connection", "close")], 0, b"").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(bytes.len() < SIZE, "all of it was kept for a client that did not read");
    bed.stop().await;
}

/// Sends a body in drops that are never silent for long; the answer.
async fn drip(rate_min: u64) -> (Bed, crate::bed::Answer) {
    const DROPS: usize = 100;
    let bed = Bed::start_with(|config| {
        config.silence_max = Duration::from_secs(1);
        config.rate_min = rate_min;
    })
    .await;
    let admin = user("admin");
    assert_eq!(bed.call(&admin, "PUT", "/box", "").await.code(), "ok");
    let close = [("connection", "close")];
    let mut stream = bed.wire(&admin, "PUT", "/box/key", &close, 10 * DROPS, b"").await;
    for _ in 0..DROPS {
        if stream.write_all(b"0123456789").await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let told = answer(stream).await;
    (bed, told)
}

#[tokio::test]
async fn a_body_must_come_at_a_rate() {
    let (bed, told) = drip(1 << 20).await;
    assert_eq!((told.status, told.code()), (400, "RequestTimeout"), "{}", told.body);
    assert_eq!(bed.call(&user("admin"), "GET", "/box/key", "").await.code(), "NoSuchKey");
    bed.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_taken() {
    let (bed, told) = drip(10).await;
    assert_eq!(told.status, 200, "{}", told.body);
    assert_eq!(bed.call(&user("admin"), "GET", "/box/key", "").await.body, "0123456789".repeat(100));
    bed.stop().await;
}

/// A store with this many places.
async fn narrow(connections_max: usize) -> Bed {
    let bed = Bed::start_with(|config| config.connections_max = connections_max).await;
    assert_eq!(bed.call(&user("admin"), "PUT", "/box", "").await.code(), "ok");
    bed
}

#[tokio::test]
async fn connections_that_rest_take_no_place_from_others() {
    let bed = narrow(3).await;
    let admin = user("admin");
    let mut held = Vec::new();
    for number in 0..12 {
        let mut stream = TcpStream::connect(bed.host()).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /box HTTP/1.1\r\nhost: ").await.unwrap();
        }
        held.push(stream);
    }
    let asked = tokio::time::timeout(Duration::from_secs(10), async {
        for _ in 0..3 {
            let own = [("connection", "close")];
            let stream = bed.wire(&admin, "GET", "/box?location=", &own, 0, b"").await;
            assert_eq!(answer(stream).await.status, 200);
        }
    });
    asked.await.expect("a place at once, and not when the others are let go for their silence");
    bed.stop().await;
}

#[tokio::test]
async fn a_request_under_way_keeps_its_place() {
    let bed = narrow(2).await;
    let admin = user("admin");
    let close = [("connection", "close")];
    let mut slow = bed.wire(&admin, "PUT", "/box/slow", &close, 8, b"half").await;
    let mut slow_too = bed.wire(&admin, "PUT", "/box/slow-too", &close, 8, b"half").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let waiting = tokio::spawn(answer(bed.wire(&admin, "GET", "/box?location=", &close, 0, b"").await));
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(TcpStream::connect(bed.host()).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    slow.write_all(b"done").await.unwrap();
    assert_eq!(answer(slow).await.status, 200);
    assert_eq!(waiting.await.unwrap().status, 200);
    slow_too.write_all(b"done").await.unwrap();
    assert_eq!(answer(slow_too).await.status, 200);
    bed.stop().await;
}

#[tokio::test]
async fn a_large_answer_is_whole_although_others_want_its_place() {
    let bed = narrow(1).await;
    let admin = user("admin");
    let body = "x".repeat(8 << 20);
    assert_eq!(bed.call(&admin, "PUT", "/box/large", &body).await.code(), "ok");
    // Kept alive: its place is free for others once all is sent.
    let mut stream = bed.wire(&admin, "GET", "/box/large", &[], 0, b"").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = tokio::spawn(answer(
        bed.wire(&admin, "GET", "/box?location=", &[("connection", "close")], 0, b"").await,
    ));
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let head = String::from_utf8_lossy(&bytes).find("\r\n\r\n").unwrap() + 4;
    assert_eq!(bytes.len() - head, body.len());
    assert_eq!(other.await.unwrap().status, 200);
    bed.stop().await;
}

/// Announces a body and waits until the store asks for it.
async fn begun(mut stream: TcpStream, head: String) -> TcpStream {
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asks = [0; 25];
    stream.read_exact(&mut asks).await.unwrap();
    assert_eq!(&asks, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// A store where everyone may have two requests under way.
async fn shared() -> Bed {
    let bed = Bed::start_with(|config| config.share_max = 2).await;
    assert_eq!(bed.call(&user("admin"), "PUT", "/box", "").await.code(), "ok");
    bed
}

#[tokio::test]
async fn an_account_has_a_share_of_the_places() {
    let bed = shared().await;
    let admin = user("admin");
    let mut held = Vec::new();
    for target in ["/box/one", "/box/two"] {
        let headers = [("connection", "close"), ("expect", "100-continue")];
        let stream = bed.wire(&admin, "PUT", target, &headers, 4, b"").await;
        held.push(begun(stream, String::new()).await);
    }
    let told = bed.call(&user("member"), "GET", "/box/one", "").await;
    assert_eq!((told.status, told.code()), (503, "SlowDown"), "{}", told.body);
    assert_eq!(bed.call(&user("other"), "PUT", "/other", "").await.code(), "ok");
    assert_eq!(bed.raw("GET", "/box/one", &[], "").await.code(), "AccessDenied");
    for mut stream in held {
        stream.write_all(b"done").await.unwrap();
        assert_eq!(answer(stream).await.status, 200);
    }
    assert_eq!(bed.call(&admin, "GET", "/box/two", "").await.body, "done");
    bed.stop().await;
}

#[tokio::test]
async fn an_address_has_a_share_of_the_places() {
    let bed = shared().await;
    let head = |more: &str| format!("GET /box HTTP/1.1\r\nhost: {}\r\n{more}\r\n", bed.host());
    let mut held = Vec::new();
    for _ in 0..2 {
        // Its body is received before anyone knows whose it is.
        let stream = TcpStream::connect(bed.host()).await.unwrap();
        held.push(begun(stream, head("transfer-encoding: chunked\r\nexpect: 100-continue\r\n")).await);
    }
    let asked = async |from: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(bed.host().parse().unwrap()).await.unwrap();
        stream.write_all(head("connection: close\r\n").as_bytes()).await.unwrap();
        answer(stream).await.code().to_owned()
    };
    assert_eq!(asked("127.0.0.1").await, "SlowDown");
    assert_eq!(asked("127.0.0.2").await, "AccessDenied");
    drop(held);
    let since = std::time::Instant::now();
    while asked("127.0.0.1").await != "AccessDenied" {
        assert!(since.elapsed() < Duration::from_secs(60), "who is gone holds no place");
    }
    bed.stop().await;
}
