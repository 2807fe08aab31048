//! Logs, commands, statistics and nodes: questions that go down the tree.

use api::{ExecFrame, ExecOptions, ListQuery, LogsOptions};
use bytes::Bytes;
use futures::TryStreamExt;
use model::{ErrorKind, Phase};

use crate::instance::status_put;
use crate::world::{World, ask_for};

async fn placed(phase: Phase) -> World {
    let world = World::new().await;
    world.admin.instance_create(&ask_for("web")).await.unwrap();
    let early = world.admin.instance_stats("web").await.unwrap_err();
    assert_eq!(early.kind, ErrorKind::Conflict, "not placed: {early}");
    status_put(&world, "web", phase).await;
    world
}

#[tokio::test]
async fn logs_and_statistics_come_up() {
    let world = placed(Phase::Running).await;
    let options = LogsOptions { follow: false, tail_lines: Some(5) };
    let chunks: Vec<Bytes> =
        world.admin.instance_logs("web", options).await.unwrap().try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"follow false tail Some(5)\n");
    assert_eq!(world.admin.instance_stats("web").await.unwrap().memory_bytes, 42);
    let missing = world.admin.instance_logs("nothere", options).await.err().unwrap();
    assert_eq!(missing.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_command_runs_both_ways() {
    let world = placed(Phase::Running).await;
    let options = ExecOptions { command: vec!["cat".into()], tty: true, stdin: true, rows: 10, cols: 20 };
    let mut exec = world.admin.instance_exec("web", &options).await.unwrap();
    exec.send(ExecFrame::Stdin(Bytes::from_static(b"hello"))).await.unwrap();
    assert_eq!(exec.recv().await.unwrap(), Some(ExecFrame::Stdout(Bytes::from_static(b"HELLO"))));
    exec.send(ExecFrame::Resize { rows: 3, cols: 4 }).await.unwrap();
    assert_eq!(exec.recv().await.unwrap(), Some(ExecFrame::Stderr(Bytes::from_static(b"3x4"))));
    exec.send(ExecFrame::StdinEnd).await.unwrap();
    assert_eq!(exec.recv().await.unwrap(), Some(ExecFrame::Exit(7)));
    assert_eq!(exec.recv().await.unwrap(), None);

    let missing = ExecOptions { command: vec!["missing".into()], ..ExecOptions::default() };
    let mut exec = world.admin.instance_exec("web", &missing).await.unwrap();
    assert!(exec.recv().await.unwrap_err().message.contains("no such program"));
    let empty = world.admin.instance_exec("web", &ExecOptions::default()).await.err().unwrap();
    assert_eq!((empty.kind, empty.field.as_deref()), (ErrorKind::Invalid, Some("command")));
}

#[tokio::test]
async fn a_command_needs_a_running_instance() {
    let world = placed(Phase::Exited).await;
    let options = ExecOptions { command: vec!["cat".into()], ..ExecOptions::default() };
    let error = world.admin.instance_exec("web", &options).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("exited"), "{error}");
}

#[tokio::test]
async fn the_end_of_the_server_ends_streams() {
    let world = placed(Phase::Running).await;
    let options = LogsOptions { follow: true, tail_lines: None };
    let mut logs = world.admin.instance_logs("web", options).await.unwrap();
    assert!(logs.try_next().await.unwrap().is_some());
    let mut watch = world.admin.watch(api::WatchKind::Instance, None).await.unwrap();
    world.running.shutdown().await;
    assert!(!matches!(logs.try_next().await, Ok(Some(_))));
    assert!(!matches!(watch.next().await, Ok(Some(_))));
}

#[tokio::test]
async fn zones_and_nodes_are_listed() {
    let world = World::new().await;
    let zones = world.admin.zone_list(&ListQuery::new()).await.unwrap();
    assert_eq!(zones.items[0].name.as_str(), "alpha");
    assert!(zones.items[0].details.is_some());
    let viewer = world.user("team", model::Role::Viewer).await;
    assert!(viewer.zone_get("alpha").await.unwrap().details.is_none(), "for operators only");
    let nodes = world.admin.node_list(&ListQuery::new()).await.unwrap();
    assert_eq!((nodes.items[0].name.as_str(), nodes.items[0].instances), ("node-1", 3));
    assert!(world.admin.node_mode("node-1", model::PlaceMode::Cordoned, false).await.unwrap().facts.cordoned);
    assert_eq!(world.admin.node_get("node-9").await.unwrap_err().kind, ErrorKind::NotFound);
    let token = world.admin.enrolment_create(&api::EnrolmentCreate::zone()).await.unwrap();
    assert_eq!((token.token.as_str(), token.parents.len()), ("once", 1));
}
