//! Carries a byte stream through a WebSocket, the same way on both sides.

use axum::extract::ws;
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio_tungstenite::tungstenite;

use crate::limits::STREAM_PING;
use crate::stream::{ByteStream, Frame, FrameReceiver, FrameSender};

/// What both WebSocket libraries call a message.
pub(super) trait Message: Send + Sized {
    fn binary(bytes: Bytes) -> Self;
    fn ping() -> Self;
    fn read(self) -> Incoming;
}

pub(super) enum Incoming {
    Binary(Bytes),
    Closed,
    Other,
}

impl Message for ws::Message {
    fn binary(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
    fn ping() -> Self {
        Self::Ping(Bytes::new())
    }
    fn read(self) -> Incoming {
        match self {
            Self::Binary(bytes) => Incoming::Binary(bytes),
            Self::Close(_) => Incoming::Closed,
            _ => Incoming::Other,
        }
    }
}

impl Message for tungstenite::Message {
    fn binary(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
    fn ping() -> Self {
        Self::Ping(Bytes::new())
    }
    fn read(self) -> Incoming {
        match self {
            Self::Binary(bytes) => Incoming::Binary(bytes),
            Self::Close(_) => Incoming::Closed,
            _ => Incoming::Other,
        }
    }
}

/// Runs until the socket closes or the user of the other end has let go of both halves. What was sent before
/// is delivered.
pub(super) async fn pump<W, M, E>(socket: W, end: ByteStream)
where
    W: Stream<Item = Result<M, E>> + Sink<M> + Send,
    M: Message,
{
    let (mut sink, source) = socket.split();
    let (sender, receiver) = end.split();
    tokio::select! {
        () = read(source, &sender) => {}
        () = async {
            if write(receiver, &mut sink).await {
                sender.closed().await;
            }
        } => {}
    }
    let _ = tokio::time::timeout(STREAM_PING, sink.close()).await;
}

/// A user that does not read any more does not stop the socket from being read: its close must be noticed.
async fn read<S, M, E>(mut source: S, sender: &FrameSender)
where
    S: Stream<Item = Result<M, E>> + Unpin,
    M: Message,
{
    let mut wanted = true;
    while let Some(Ok(message)) = source.next().await {
        match message.read() {
            Incoming::Binary(bytes) => {
                let Ok(frame) = Frame::decode(bytes) else { return };
                wanted = wanted && sender.send(frame).await.is_ok();
            }
            Incoming::Closed => return,
            Incoming::Other => {}
        }
    }
}

/// True when the user sent its last frame, false when the socket broke.
async fn write<S, M>(mut receiver: FrameReceiver, sink: &mut S) -> bool
where
    S: Sink<M> + Unpin,
    M: Message,
{
    loop {
        let message = match tokio::time::timeout(STREAM_PING, receiver.recv()).await {
            Ok(Some(frame)) => M::binary(frame.encode()),
            Ok(None) => return true,
            Err(_) => M::ping(),
        };
        if sink.send(message).await.is_err() {
            return false;
        }
    }
}
