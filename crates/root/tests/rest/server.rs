//! The listener itself.

use std::sync::Arc;

use root::{Cloud, serve};

use crate::world::World;

#[tokio::test]
async fn a_port_in_use_is_one_sentence() {
    let world = World::new().await;
    let mut config = world.cloud.config.clone();
    config.listen = world.running.addr;
    let cloud = Cloud::new(
        config,
        world.cloud.state.clone(),
        world.tree.clone(),
        world.cloud.images.clone(),
        Arc::new(work::SystemClock),
    )
    .await
    .unwrap();
    let error = serve(cloud).await.err().unwrap();
    assert!(error.message.contains("in use"), "{error}");
    assert!(error.hint.unwrap().contains("--listen"));
}

#[tokio::test]
async fn nobody_listens_after_the_end() {
    let world = World::new().await;
    let client = world.admin.clone();
    assert!(client.health().await.is_ok());
    world.running.shutdown().await;
    assert_eq!(client.health().await.unwrap_err().kind, model::ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_store_that_went_away_is_told_in_health() {
    let world = World::with("sqlite:").await;
    assert!(world.admin.health().await.is_ok());
    world.cloud.state.store().clone().close().await;
    let refused = world.admin.instance_create(&crate::world::ask_for("late")).await.unwrap_err();
    assert_eq!(refused.kind, model::ErrorKind::Unavailable, "{refused}");
    while world.cloud.state.following() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(world.admin.health().await.unwrap_err().kind, model::ErrorKind::Unavailable);
    assert!(world.admin.instance_list(&api::ListQuery::new()).await.is_ok(), "reads go on from memory");
}

/// The head of the answer to one request as it stands on the wire.
async fn head_of(world: &World, request: String) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(world.running.addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the connection ended before its answer");
    }
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test]
async fn a_body_that_nobody_read_ends_its_connection_and_says_so() {
    let world = World::new().await;
    let ask = |line: &str, length: usize, sent: &str| {
        format!("{line} HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n{sent}")
    };
    for line in ["PUT /v1/nowhere", "PUT /v1/instances", "POST /v1/instances"] {
        let head = head_of(&world, ask(line, 100_000, "{")).await;
        assert!(head.contains("connection: close"), "{line}: {head}");
    }
    let login = ask("POST /v1/login", 2, "{}");
    let head = head_of(&world, login).await;
    assert!(head.starts_with("http/1.1 4") && !head.contains("connection: close"), "{head}");
    let head = head_of(&world, "GET /v1/nowhere HTTP/1.1\r\nHost: here\r\n\r\n".into()).await;
    assert!(!head.contains("connection: close"), "{head}");
}
