//! Callers that mean no good: each is refused, cut off or told nothing.

use std::sync::Arc;
use std::time::Duration;

use api::{ExecFrame, ExecOptions, ImagePull, ListQuery, LogsOptions, TokenCreate, WatchKind};
use futures::TryStreamExt;
use model::{ErrorKind, Phase, Role};
use root::{Cloud, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::instance::status_put;
use crate::world::{World, ask_for};

/// Longest wait for what must come by itself.
const PATIENCE: Duration = Duration::from_secs(60);

async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// All the server sends until it closes.
async fn said(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = patiently("the end", stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn connections_that_ask_for_nothing_are_closed() {
    let world = World::new().await;
    let mut config = world.cloud.config.clone();
    config.head_timeout_ms = 200;
    let (state, images) = (world.cloud.state.clone(), world.cloud.images.clone());
    let cloud =
        Cloud::new(config, state, world.tree.clone(), images, Arc::new(work::SystemClock)).await.unwrap();
    let running = serve(cloud).await.unwrap();
    // The second could still become either version of HTTP, the fourth has chosen the newer one.
    for begun in ["", "P", "GET /v1/health HTTP/1.1\r\nHost: ", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        said(stream).await;
    }
    running.shutdown().await;
}

#[tokio::test]
async fn a_client_that_sends_a_huge_body_before_it_reads_gets_its_answer() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.running.addr).await.unwrap();
    let size = 16 << 20;
    let head = format!(
        "POST /v1/instances HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: {size}\r\n\r\n",
        world.credentials.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; size]).await.unwrap();
    assert!(said(stream).await.starts_with("HTTP/1.1 413 "));
}

#[tokio::test]
async fn streams_end_with_the_credentials_they_were_opened_with() {
    let world = World::new().await;
    world.admin.instance_create(&ask_for("web")).await.unwrap();
    status_put(&world, "web", Phase::Running).await;
    let body = TokenCreate { name: "short".parse().unwrap(), role: None, expires_in_s: None };
    let made = world.admin.token_create(&body).await.unwrap();
    let client = world.admin.with_token(made.secret);
    let seq = client.instance_list(&ListQuery::new()).await.unwrap().seq;
    let mut watch = client.watch(WatchKind::Instance, Some(seq)).await.unwrap();
    let follow = LogsOptions { follow: true, tail_lines: None };
    let logs = client.instance_logs("web", follow).await.unwrap();
    let cat = ExecOptions { command: vec!["cat".into()], stdin: true, ..ExecOptions::default() };
    let mut exec = client.instance_exec("web", &cat).await.unwrap();

    world.admin.token_delete(made.token.id.as_str()).await.unwrap();
    let last = patiently("the end of the watch", watch.next()).await;
    assert!(!matches!(last, Ok(Some(_))), "{last:?}");
    let _ = patiently("the end of the log", logs.try_collect::<Vec<_>>()).await;
    let _ = exec.send(ExecFrame::Stdin(bytes::Bytes::from_static(b"still here?"))).await;
    let frame = patiently("the end of the command", exec.recv()).await;
    assert!(!matches!(frame, Ok(Some(_))), "{frame:?}");
}

#[tokio::test]
async fn tenants_do_not_try_out_what_listens_on_roots_machine() {
    let world = World::new().await;
    let member = world.user("team", Role::Admin).await;
    let pull = async |client: &api::Client, reference: String| {
        let body = ImagePull { reference, public: false };
        client.image_pull("probe", &body).await.unwrap_err()
    };
    let own = world.running.addr;
    for reference in [format!("{own}/a/b:c"), format!("localhost:{}/a/b:c", own.port())] {
        assert_eq!(pull(&member, reference.clone()).await.kind, ErrorKind::Forbidden, "{reference}");
        assert_eq!(pull(&world.admin, reference.clone()).await.kind, ErrorKind::NotFound, "{reference}");
    }
    for host in ["127.1", "0", "2130706433", "0.0.0.0", "169.254.169.254"] {
        let error = pull(&member, format!("{host}:{}/a/b:c", own.port())).await;
        assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::Invalid, Some("reference")), "{host}");
    }
}

#[tokio::test]
async fn metrics_are_not_given_to_those_behind_a_proxy() {
    let world = World::new().await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = || http.get(world.url("/metrics"));
    assert_eq!(get().send().await.unwrap().status(), 200);
    for header in ["X-Forwarded-For", "Forwarded", "Via"] {
        assert_eq!(get().header(header, "198.51.100.7").send().await.unwrap().status(), 401, "{header}");
    }
    let operator = get().header("Via", "1.1 x").bearer_auth(&world.credentials.token);
    assert_eq!(operator.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_lost_master_key_is_not_silently_replaced() {
    let world = World::new().await;
    let key = world.dir.path().join("master.key");
    std::fs::remove_file(&key).unwrap();
    let (config, state, images) =
        (world.cloud.config.clone(), world.cloud.state.clone(), world.cloud.images.clone());
    let opened = Cloud::new(config, state, world.tree.clone(), images, Arc::new(work::SystemClock)).await;
    let error = opened.err().unwrap();
    assert!(error.message.contains("master.key") && error.hint.is_some(), "{error}");
    assert!(!key.exists());
}

#[tokio::test]
async fn a_command_is_not_started_without_somebody_to_hear_it() {
    let world = World::new().await;
    world.admin.instance_create(&ask_for("web")).await.unwrap();
    status_put(&world, "web", Phase::Running).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |query: &str| {
        let url = world.url(&format!("/v1/instances/web/exec?{query}"));
        http.get(url).bearer_auth(&world.credentials.token).send().await.unwrap().text().await.unwrap()
    };
    assert!(get("command=id").await.contains("WebSocket"));
    assert!(get("command=a%00b").await.contains("NUL"));
    assert_eq!(world.tree.asks.load(std::sync::atomic::Ordering::SeqCst), 0);
}
