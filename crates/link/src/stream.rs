//! Byte streams: a duplex of frames with bounded buffers.
//!
//! A stream is two bounded channels. Over the network a task carries them through a
//! WebSocket (`https/socket.rs`); in a test or within a process the two ends are joined directly.

use bytes::{BufMut, Bytes, BytesMut};
use model::{Error, Result};
use tokio::sync::mpsc;

use crate::limits::{FRAME_MAX, STREAM_FRAMES_MAX};

/// One piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Bytes towards the one who answers (standard input), or plain bytes of a log.
    Data(Bytes),
    Stdout(Bytes),
    Stderr(Bytes),
    Resize {
        rows: u16,
        cols: u16,
    },
    Exit {
        code: i32,
    },
    /// It went wrong, in a sentence for the user.
    Error(String),
    /// No more data from this side.
    Eof,
}

impl Frame {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let mut tagged = |tag: u8, payload: &[u8]| {
            out.reserve(1 + payload.len());
            out.put_u8(tag);
            out.put_slice(payload);
        };
        match self {
            Self::Data(bytes) => tagged(0, bytes),
            Self::Stdout(bytes) => tagged(1, bytes),
            Self::Stderr(bytes) => tagged(2, bytes),
            Self::Resize { rows, cols } => {
                let [a, b] = rows.to_be_bytes();
                let [c, d] = cols.to_be_bytes();
                tagged(3, &[a, b, c, d]);
            }
            Self::Exit { code } => tagged(4, &code.to_be_bytes()),
            Self::Error(text) => tagged(5, text.as_bytes()),
            Self::Eof => tagged(6, &[]),
        }
        out.freeze()
    }

    pub(crate) fn decode(mut message: Bytes) -> Result<Self> {
        let wrong = || Error::invalid("a frame of the stream is damaged");
        if message.is_empty() {
            return Err(wrong());
        }
        let tag = message.split_to(1)[0];
        Ok(match tag {
            0 => Self::Data(message),
            1 => Self::Stdout(message),
            2 => Self::Stderr(message),
            3 => {
                let [a, b, c, d]: [u8; 4] = message[..].try_into().map_err(|_| wrong())?;
                Self::Resize { rows: u16::from_be_bytes([a, b]), cols: u16::from_be_bytes([c, d]) }
            }
            4 => Self::Exit { code: i32::from_be_bytes(message[..].try_into().map_err(|_| wrong())?) },
            5 => Self::Error(String::from_utf8_lossy(&message).into_owned()),
            6 => Self::Eof,
            _ => return Err(wrong()),
        })
    }

    /// Cuts bytes that are too many for one frame; the order is kept.
    fn cut(self) -> Vec<Self> {
        let (bytes, make): (Bytes, fn(Bytes) -> Self) = match self {
            Self::Data(bytes) if bytes.len() > FRAME_MAX => (bytes, Self::Data),
            Self::Stdout(bytes) if bytes.len() > FRAME_MAX => (bytes, Self::Stdout),
            Self::Stderr(bytes) if bytes.len() > FRAME_MAX => (bytes, Self::Stderr),
            Self::Error(text) if text.len() > FRAME_MAX => {
                return vec![Self::Error(text.chars().take(FRAME_MAX / 4).collect())];
            }
            small => return vec![small],
        };
        let starts = (0..bytes.len()).step_by(FRAME_MAX);
        starts.map(|from| make(bytes.slice(from..bytes.len().min(from + FRAME_MAX)))).collect()
    }
}

/// The sending half.
#[derive(Debug, Clone)]
pub struct FrameSender(mpsc::Sender<Frame>);

impl FrameSender {
    /// Waits for room; fails when the other side is gone.
    pub async fn send(&self, frame: Frame) -> Result<()> {
        for part in frame.cut() {
            self.0
                .send(part)
                .await
                .map_err(|_| Error::unavailable("the other side of the stream is gone"))?;
        }
        Ok(())
    }

    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct FrameReceiver(mpsc::Receiver<Frame>);

impl FrameReceiver {
    /// The next frame, or `None` when the other side is gone.
    pub async fn recv(&mut self) -> Option<Frame> {
        self.0.recv().await
    }
}

/// One end of a duplex. Dropping it ends the stream, after what was sent is delivered.
#[derive(Debug)]
pub struct ByteStream {
    sender: FrameSender,
    receiver: FrameReceiver,
}

impl ByteStream {
    /// Two ends that are joined.
    pub fn pair() -> (Self, Self) {
        let (to_right, from_left) = mpsc::channel(STREAM_FRAMES_MAX);
        let (to_left, from_right) = mpsc::channel(STREAM_FRAMES_MAX);
        (
            Self { sender: FrameSender(to_right), receiver: FrameReceiver(from_right) },
            Self { sender: FrameSender(to_left), receiver: FrameReceiver(from_left) },
        )
    }

    pub async fn send(&self, frame: Frame) -> Result<()> {
        self.sender.send(frame).await
    }

    pub async fn recv(&mut self) -> Option<Frame> {
        self.receiver.recv().await
    }

    /// Waits until nobody takes any more what is sent.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    pub fn split(self) -> (FrameSender, FrameReceiver) {
        (self.sender, self.receiver)
    }

    /// Collects all plain bytes up to the end, at most `max`; an error frame becomes an error.
    pub async fn read_all(&mut self, max: usize) -> Result<Bytes> {
        let mut all = BytesMut::new();
        while let Some(frame) = self.recv().await {
            match frame {
                Frame::Data(bytes) | Frame::Stdout(bytes) => all.extend_from_slice(&bytes),
                Frame::Error(text) => return Err(Error::unavailable(text)),
                Frame::Eof | Frame::Exit { .. } => return Ok(all.freeze()),
                Frame::Stderr(_) | Frame::Resize { .. } => {}
            }
            if all.len() > max {
                return Err(crate::wire::too_large(max));
            }
        }
        Err(Error::unavailable("the stream ended too early"))
    }
}

/// Joins two streams until both directions have ended. A zone pipes root's stream to its node's this way.
pub async fn pipe(left: ByteStream, right: ByteStream) {
    let (left_sender, left_receiver) = left.split();
    let (right_sender, right_receiver) = right.split();
    tokio::join!(copy(left_receiver, right_sender), copy(right_receiver, left_sender));
}

async fn copy(mut from: FrameReceiver, to: FrameSender) {
    loop {
        tokio::select! {
            frame = from.recv() => match frame {
                Some(frame) => if to.send(frame).await.is_err() { return },
                None => return,
            },
            () = to.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_read_back() {
        for frame in [
            Frame::Data(Bytes::from_static(b"abc")),
            Frame::Stdout(Bytes::new()),
            Frame::Stderr(Bytes::from_static(b"\0")),
            Frame::Resize { rows: 24, cols: 65535 },
            Frame::Exit { code: -1 },
            Frame::Error("no".into()),
            Frame::Eof,
        ] {
            assert_eq!(Frame::decode(frame.encode()).unwrap(), frame);
        }
        for bad in [&b""[..], b"\x09", b"\x03\x00", b"\x04"] {
            assert!(Frame::decode(Bytes::copy_from_slice(bad)).is_err());
        }
    }

    #[tokio::test]
    async fn a_pipe_carries_both_ways_and_ends_when_one_end_goes() {
        let (client, inner) = ByteStream::pair();
        let (outer, mut server) = ByteStream::pair();
        let piped = tokio::spawn(pipe(inner, outer));
        client.send(Frame::Data(Bytes::from(vec![7; 3 * FRAME_MAX + 1]))).await.unwrap();
        let mut got = 0;
        while got < 3 * FRAME_MAX + 1 {
            let Some(Frame::Data(bytes)) = server.recv().await else { panic!("data") };
            got += bytes.len();
        }
        server.send(Frame::Exit { code: 3 }).await.unwrap();
        drop(server);
        let (sender, mut receiver) = client.split();
        assert_eq!(receiver.recv().await, Some(Frame::Exit { code: 3 }));
        assert_eq!(receiver.recv().await, None);
        sender.closed().await;
        piped.await.unwrap();
    }
}
