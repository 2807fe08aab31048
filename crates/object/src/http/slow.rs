//! Clients that fall silent: in the middle of a body, or while they are answered.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use s3s::StdError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long nothing may go on. One timer serves all waits, so that a wait costs no more than a look at the clock.
struct Patience {
    most: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    fn new(most: Duration) -> Self {
        Self { most, since: None, timer: None }
    }

    fn renew(&mut self) {
        self.since = None;
    }

    /// Ready when nothing went on for too long.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let end = *self.since.get_or_insert_with(Instant::now) + self.most;
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

/// Whether a body fell silent.
#[derive(Debug, Clone, Default)]
pub struct Silence(Arc<AtomicBool>);

impl Silence {
    pub fn fell(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request that must go on.
struct Watched {
    body: Incoming,
    patience: Patience,
    silence: Silence,
}

/// Ends a body with an error, and tells so, when nothing of it comes for that long.
pub fn watched(body: Incoming, most: Duration) -> (s3s::Body, Silence) {
    let silence = Silence::default();
    if body.is_end_stream() {
        return (s3s::Body::empty(), silence);
    }
    let watched = Watched { body, patience: Patience::new(most), silence: silence.clone() };
    (s3s::Body::http_body(watched), silence)
}

impl Body for Watched {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.patience.renew();
            return Poll::Ready(frame.map(|frame| frame.map_err(StdError::from)));
        }
        ready!(this.patience.poll_end(context));
        this.silence.0.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err("the client fell silent".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose client must take what is written.
pub struct Taking<T> {
    stream: T,
    patience: Patience,
}

impl<T: AsyncWrite + Unpin> Taking<T> {
    pub fn new(stream: T, most: Duration) -> Self {
        Self { stream, patience: Patience::new(most) }
    }

    fn written<R>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if done.is_ready() {
            self.patience.renew();
            return done;
        }
        ready!(self.patience.poll_end(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
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
        self.written(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(context, done)
    }
}
