//! Clients that fall silent or go on too slowly: in the middle of a body, or while they are answered.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use s3s::StdError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::place::Seat;

/// The rate is measured over as much waiting as this many of the longest silences, so that one of them is forgiven.
const WINDOW: u32 = 2;
/// How much of a body that nobody wants is still received, for how long, and how long nothing of it may come.
const UNWANTED_MAX: u64 = 128 << 20;
const UNWANTED_WAIT: Duration = Duration::from_secs(30);
const UNWANTED_SILENCE: Duration = Duration::from_secs(1);

/// What is asked of a client.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long nothing may go on.
    pub most: Duration,
    /// Bytes a second.
    pub rate: u64,
}

/// How long a client is waited for. Only waiting counts, so the store's own slowness is not laid to a client. One timer
/// serves all waits, so that a wait costs no more than a look at the clock.
struct Patience {
    pace: Pace,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// How long the client was waited for in this window, and how many bytes went by in it.
    waited: Duration,
    moved: u64,
}

impl Patience {
    fn new(pace: Pace) -> Self {
        Self { pace, since: None, timer: None, waited: Duration::ZERO, moved: 0 }
    }

    /// Something went on. Whether it was enough; a window ends when the client was waited for long enough in it.
    fn went_on(&mut self, bytes: usize) -> bool {
        self.moved += bytes as u64;
        let Some(since) = self.since.take() else { return true };
        self.waited += since.elapsed();
        let window = self.pace.most * WINDOW;
        if self.waited < window {
            return true;
        }
        let enough = self.moved as f64 >= self.pace.rate as f64 * window.as_secs_f64();
        (self.waited, self.moved) = (Duration::ZERO, 0);
        enough
    }

    /// Ready when nothing went on for too long.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let end = *self.since.get_or_insert_with(Instant::now) + self.pace.most;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        loop {
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }
}

/// Whether a body fell silent, or came too slowly.
#[derive(Debug, Clone, Default)]
pub struct Silence(Arc<AtomicBool>);

impl Silence {
    pub fn fell(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request that must go on.
struct Watched {
    /// There until this is dropped.
    body: Option<Incoming>,
    patience: Patience,
    silence: Silence,
    /// Whether the client sends nothing before it is told to, by the first look at its body.
    waits: bool,
    looked_at: bool,
    ended: bool,
}

/// Ends a body with an error, and tells so, when it does not keep the pace. `waits` says that the client waits for
/// `100 Continue`.
pub fn watched(body: Incoming, pace: Pace, waits: bool) -> (s3s::Body, Silence) {
    let silence = Silence::default();
    if body.is_end_stream() {
        return (s3s::Body::empty(), silence);
    }
    let watched = Watched {
        body: Some(body),
        patience: Patience::new(pace),
        silence: silence.clone(),
        waits,
        looked_at: false,
        ended: false,
    };
    (s3s::Body::http_body(watched), silence)
}

/// Receives what is left of a body that is not wanted. A connection that is closed before its client has sent all is
/// reset, and the client never reads why it was refused.
async fn pass_over(mut body: Incoming) {
    let end = Instant::now() + UNWANTED_WAIT;
    let mut passed = 0;
    while passed <= UNWANTED_MAX && Instant::now() < end {
        match timeout(UNWANTED_SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => passed += frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => break,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        let nothing_comes = self.waits && !self.looked_at;
        if self.ended || nothing_comes || self.silence.fell() || body.is_end_stream() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(pass_over(body));
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.looked_at = true;
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            let bytes = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                _ => 0,
            };
            this.ended = !matches!(frame, Some(Ok(_)));
            // What is complete is taken, however long it took.
            if this.patience.went_on(bytes) || body.is_end_stream() || frame.is_none() {
                return Poll::Ready(frame.map(|frame| frame.map_err(StdError::from)));
            }
        } else {
            ready!(this.patience.poll_end(context));
        }
        this.silence.0.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err("the client fell silent or is too slow".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// A connection whose client must take what is written.
pub struct Taking<T> {
    stream: T,
    patience: Patience,
    seat: Arc<Seat>,
}

impl<T: AsyncWrite + Unpin> Taking<T> {
    pub fn new(stream: T, pace: Pace, seat: Arc<Seat>) -> Self {
        Self { stream, patience: Patience::new(pace), seat }
    }

    /// `bytes` says how many of them what is done has moved.
    fn written<R>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<R>>,
        bytes: impl FnOnce(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(done) = done {
            let moved = done.as_ref().map_or(0, bytes);
            if self.patience.went_on(moved) {
                return Poll::Ready(done);
            }
        } else {
            ready!(self.patience.poll_end(context));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing, or too slowly")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Taking<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Taking<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, done, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, done, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        if done.is_ready() {
            self.seat.sent();
        }
        self.written(context, done, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(context, done, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Writes to one who takes a byte every few milliseconds.
    async fn written(rate: u64, bytes: usize) -> io::Result<()> {
        let (here, mut there) = tokio::io::duplex(16);
        let reader = tokio::spawn(async move {
            while there.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
        });
        let seat = crate::http::place::Places::new(1).take().await;
        let mut taking = Taking::new(here, Pace { most: Duration::from_millis(500), rate }, seat);
        let done = taking.write_all(&vec![0; bytes]).await;
        reader.abort();
        done
    }

    #[tokio::test]
    async fn an_answer_must_be_taken_at_a_rate() {
        let error = written(1 << 20, 1 << 20).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        written(2, 400).await.unwrap();
    }
}
