//! Handlers of answers that go on: logs, commands, watch. All end when the server does.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use api::problem::Problem;
use api::{ExecFrame, WatchEvent, WatchKind};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use link::{ByteStream, Frame};
use model::{Error, Result};

use super::extract::{Item, Pairs};
use super::reply::Reply;
use super::server::Ending;
use crate::auth::stands;
use crate::cloud::{Caller, Shared};
use crate::ops::instance_ask::{self, ExecAsk};
use crate::ops::watch::Watch;

/// How long a watch waits for the point it begins at.
const CATCH_UP: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long an answer may hold back its head, so that an early error becomes a status.
const FIRST_FRAME: Duration = Duration::from_millis(500);
const SIZE_DEFAULT: (u16, u16) = (24, 80);
/// How often an answer that goes on looks whether a token or session has expired.
const EXPIRY_LOOK: Duration = Duration::from_secs(15);

/// Returns when the server ends, or when the credentials that the call was made with do.
async fn ended(cloud: Shared, caller: Caller, ending: Ending) {
    let mut changed = cloud.state.changed();
    let lapsed = async {
        while stands(&cloud.state.snapshot(), &caller.principal, cloud.now()) {
            // A change may have taken them away, and so may time.
            if let Ok(Err(_)) = tokio::time::timeout(EXPIRY_LOOK, changed.changed()).await {
                return;
            }
        }
    };
    tokio::select! {
        () = lapsed => {}
        () = ending.wait() => {}
    }
}

pub async fn logs(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    Extension(ending): Extension<Ending>,
) -> Reply {
    pairs.only(&["follow", "tail"])?;
    let (follow, tail) = (pairs.flag("follow")?, pairs.number("tail")?);
    let mut stream = instance_ask::logs(&cloud, &caller, &name, follow, tail).await?;
    let first = match tokio::time::timeout(FIRST_FRAME, stream.recv()).await {
        Ok(Some(Frame::Error(message))) => return Err(Error::unavailable(message).into()),
        Ok(frame) => Some(frame),
        Err(_) => None,
    };
    let body = Body::from_stream(log_bytes(stream, first).take_until(Box::pin(ended(cloud, caller, ending))));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// `first` is a frame that was read already; `Some(None)` is the end.
fn log_bytes(
    stream: ByteStream,
    first: Option<Option<Frame>>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    futures::stream::unfold(Some((stream, first)), |state| async move {
        let (mut stream, mut first) = state?;
        loop {
            let frame = match first.take() {
                Some(frame) => frame,
                None => stream.recv().await,
            };
            match frame {
                Some(Frame::Data(data) | Frame::Stdout(data) | Frame::Stderr(data)) => {
                    return Some((Ok(data), Some((stream, None))));
                }
                Some(Frame::Error(message)) => return Some((Err(std::io::Error::other(message)), None)),
                Some(Frame::Resize { .. }) => {}
                Some(Frame::Eof | Frame::Exit { .. }) | None => return None,
            }
        }
    })
}

pub async fn exec(
    State(cloud): State<Shared>,
    caller: Caller,
    Item(name): Item,
    pairs: Pairs,
    Extension(ending): Extension<Ending>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Reply {
    pairs.only(&["command", "tty", "stdin", "rows", "cols"])?;
    let size = |given: Option<u16>, default: u16| given.filter(|n| *n > 0).unwrap_or(default);
    let ask = ExecAsk {
        command: pairs
            .0
            .iter()
            .filter(|(field, _)| field == "command")
            .map(|(_, word)| word.clone())
            .collect(),
        tty: pairs.flag("tty")?,
        stdin: pairs.flag("stdin")?,
        rows: size(pairs.number("rows")?, SIZE_DEFAULT.0),
        cols: size(pairs.number("cols")?, SIZE_DEFAULT.1),
    };
    // What is wrong is said first, and nothing is started whose output nobody can take.
    instance_ask::exec_check(&cloud, &caller, &name, &ask)?;
    let upgrade = upgrade.map_err(|_| Error::invalid("this address speaks WebSocket; send an upgrade"))?;
    let stream = instance_ask::exec(&cloud, &caller, &name, ask).await?;
    let upgrade =
        upgrade.max_message_size(api::exec::EXEC_FRAME_MAX).max_frame_size(api::exec::EXEC_FRAME_MAX);
    Ok(upgrade
        .on_upgrade(move |socket| exec_run(socket, stream, ended(cloud, caller, ending)))
        .into_response())
}

/// Carries both directions; the end of either, or of the server, ends it.
async fn exec_run(socket: WebSocket, stream: ByteStream, ended: impl Future<Output = ()>) {
    let (mut sink, mut source) = socket.split();
    let (to_zone, mut from_zone) = stream.split();
    let inward = async {
        while let Some(Ok(message)) = source.next().await {
            let Message::Binary(data) = message else { continue };
            let frame = match ExecFrame::decode(data) {
                Ok(ExecFrame::Stdin(data)) => Frame::Data(data),
                Ok(ExecFrame::StdinEnd) => Frame::Eof,
                Ok(ExecFrame::Resize { rows, cols }) => Frame::Resize { rows, cols },
                _ => return,
            };
            if to_zone.send(frame).await.is_err() {
                // The command may have ended; what it said last is still on its way out.
                std::future::pending::<()>().await;
            }
        }
    };
    let outward = async {
        let mut pulse = tokio::time::interval(KEEP_ALIVE);
        loop {
            let message = tokio::select! {
                frame = from_zone.recv() => match exec_frame(frame) {
                    Some(frame) => frame,
                    None => continue,
                },
                _ = pulse.tick() => {
                    if sink.send(Message::Ping(Bytes::new())).await.is_err() { return }
                    continue;
                }
            };
            let last = matches!(message, ExecFrame::Exit(_) | ExecFrame::Error(_));
            if sink.send(Message::Binary(message.encode())).await.is_err() || last {
                let _ = sink.close().await;
                return;
            }
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
        () = ended => {}
    }
}

/// What the zone's frame is to the client; some are nothing to it.
fn exec_frame(frame: Option<Frame>) -> Option<ExecFrame> {
    let failed =
        |message: String| ExecFrame::Error(Box::new(Problem::new(&Error::unavailable(message), None)));
    match frame {
        Some(Frame::Data(data) | Frame::Stdout(data)) => Some(ExecFrame::Stdout(data)),
        Some(Frame::Stderr(data)) => Some(ExecFrame::Stderr(data)),
        Some(Frame::Exit { code }) => Some(ExecFrame::Exit(code)),
        Some(Frame::Error(message)) => Some(failed(message)),
        Some(Frame::Resize { .. } | Frame::Eof) => None,
        None => Some(failed("the connection to the command broke off".to_owned())),
    }
}

pub async fn watch(
    State(cloud): State<Shared>,
    caller: Caller,
    pairs: Pairs,
    headers: HeaderMap,
    Extension(ending): Extension<Ending>,
) -> Reply {
    pairs.only(&["kind", "name", "since"])?;
    let kind = match pairs.get("kind").unwrap_or("instance") {
        "instance" => WatchKind::Instance,
        "image" => WatchKind::Image,
        "zone" => WatchKind::Zone,
        "workload" => WatchKind::Workload,
        "app" => WatchKind::App,
        "cluster" => WatchKind::Cluster,
        _ => {
            let why = "kind must be instance, workload, app, cluster, image or zone";
            return Err(Error::invalid(why).at("kind").into());
        }
    };
    // A browser that lost the connection says where it was.
    let since = match headers.get("last-event-id").and_then(|value| value.to_str().ok()) {
        Some(text) => Some(text.parse().map_err(|_| {
            Error::invalid("Last-Event-ID must be the id of an event of this watch").at("Last-Event-ID")
        })?),
        None => pairs.number("since")?,
    };
    if let Some(since) = since {
        // The point may come from another server that is a moment ahead.
        let mut changed = cloud.state.changed();
        let _ = tokio::time::timeout(CATCH_UP, changed.wait_for(|seq| *seq >= since)).await;
    }
    let watch = Watch::new(&cloud, kind, pairs.get("name").map(str::to_owned), since)?;
    let ended = Box::pin(ended(cloud.clone(), caller.clone(), ending));
    let events = watch_events(cloud, caller, watch).take_until(ended);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

fn watch_events(
    cloud: Shared,
    caller: Caller,
    watch: Watch,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let start = Some((watch, VecDeque::<WatchEvent>::new()));
    futures::stream::unfold(start, move |state| {
        let (cloud, caller) = (cloud.clone(), caller.clone());
        async move {
            let (mut watch, mut ready) = state?;
            if ready.is_empty() {
                match watch.next(&cloud, &caller).await {
                    Ok(events) => ready.extend(events),
                    Err(error) => {
                        let problem = serde_json::to_string(&Problem::new(&error, None)).unwrap_or_default();
                        return Some((Ok(Event::default().event("problem").data(problem)), None));
                    }
                }
            }
            let event = ready.pop_front()?;
            let data = serde_json::to_string(&event).unwrap_or_default();
            let event = Event::default().id(event.seq.to_string()).event("change").data(data);
            Some((Ok(event), Some((watch, ready))))
        }
    })
}
