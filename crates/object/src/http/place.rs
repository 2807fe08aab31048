//! Places for connections. Where all are taken, the connection that has rested longest gives up its own to one that
//! comes: it waits for a request, or still receives the head of one. A request under way is never cut.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use s3s::{Body, StdError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::share::Share;

/// Whoever has just come, or was just answered, keeps the place for so long, to send a request.
const REST_MIN: Duration = Duration::from_millis(100);

/// No request is under way.
const RESTS: u8 = 0;
/// One is.
const WORKS: u8 = 1;
/// The answer is complete, but not all of it is sent.
const ENDS: u8 = 2;
/// Another connection has its place.
const LEAVES: u8 = 3;

/// So many connections are served at once.
#[derive(Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    resting: Mutex<Resting>,
    /// A connection has begun to rest.
    rested: Notify,
}

/// Those that rest, in the order in which they began to.
#[derive(Default)]
struct Resting {
    next: u64,
    order: BTreeMap<u64, (Instant, Weak<Seat>)>,
}

/// The place of a connection. Free again when it is dropped.
pub struct Seat {
    shared: Arc<Shared>,
    state: AtomicU8,
    /// Where it is among those that rest.
    at: Mutex<Option<u64>>,
    leave: Notify,
    /// What its request counts for.
    share: Mutex<Option<Share>>,
    _place: OwnedSemaphorePermit,
}

impl Places {
    pub fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most.max(1))), shared: Arc::default() }
    }

    /// A place, as soon as there is one.
    pub async fn take(&self) -> Arc<Seat> {
        let mut free = pin!(self.free.clone().acquire_owned());
        let place = match self.free.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => loop {
                let mut rested = pin!(self.shared.rested.notified());
                rested.as_mut().enable();
                let Some(next) = self.shared.send_away() else {
                    break free.await.expect("the semaphore is never closed");
                };
                tokio::select! {
                    place = free.as_mut() => break place.expect("the semaphore is never closed"),
                    () = rested => {}
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                }
            },
        };
        let seat = Arc::new(Seat {
            shared: self.shared.clone(),
            state: AtomicU8::new(RESTS),
            at: Mutex::default(),
            leave: Notify::new(),
            share: Mutex::default(),
            _place: place,
        });
        seat.rest(&mut self.shared.resting());
        seat
    }
}

impl Shared {
    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the connection that has rested longest. If there is none, when there may be one, as far as that is
    /// known.
    fn send_away(&self) -> Option<Option<Instant>> {
        let mut resting = self.resting();
        let seat = loop {
            let Some(first) = resting.order.first_entry() else { return Some(None) };
            let end = first.get().0 + REST_MIN;
            if end > Instant::now() {
                return Some(Some(end));
            }
            if let Some(seat) = first.remove().1.upgrade() {
                break seat;
            }
        };
        seat.state.store(LEAVES, Ordering::Release);
        // A seat that is dropped looks at those that rest.
        drop(resting);
        seat.leave.notify_one();
        None
    }
}

impl Seat {
    /// Ends when the connection is to be let go.
    pub async fn lost(&self) {
        self.leave.notified().await;
    }

    /// A request begins. False if the connection is let go at this moment.
    pub fn begin(&self) -> bool {
        let mut resting = self.shared.resting();
        if self.state.load(Ordering::Acquire) == LEAVES {
            return false;
        }
        self.forget(&mut resting);
        self.state.store(WORKS, Ordering::Release);
        true
    }

    /// The request counts until its answer is sent.
    pub fn counts(&self, share: Share) {
        *self.share.lock().unwrap_or_else(PoisonError::into_inner) = Some(share);
    }

    /// The body of an answer; when it has ended and is sent, the connection rests.
    pub fn hold(self: &Arc<Self>, body: Body) -> Body {
        Body::http_body(Held { body, _end: End(self.clone()) })
    }

    /// All that was answered so far is sent.
    pub fn sent(self: &Arc<Self>) {
        if self.state.load(Ordering::Acquire) != ENDS {
            return;
        }
        let mut resting = self.shared.resting();
        if self.state.compare_exchange(ENDS, RESTS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.rest(&mut resting);
        }
        drop(resting);
        if let Some(share) = self.share.lock().unwrap_or_else(PoisonError::into_inner).take() {
            share.leave();
        }
        self.shared.rested.notify_waiters();
    }

    fn rest(self: &Arc<Self>, resting: &mut Resting) {
        let number = resting.next;
        resting.next += 1;
        resting.order.insert(number, (Instant::now(), Arc::downgrade(self)));
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
    }

    fn forget(&self, resting: &mut Resting) {
        if let Some(number) = self.at.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resting.order.remove(&number);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        self.forget(&mut shared.resting());
    }
}

/// Tells when the body of an answer is not wanted any more.
struct End(Arc<Seat>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.state.compare_exchange(WORKS, ENDS, Ordering::AcqRel, Ordering::Acquire);
    }
}

struct Held {
    body: Body,
    _end: End,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this does not come to an end soon.
    async fn waits<F: Future>(what: F) -> bool {
        tokio::time::timeout(REST_MIN * 2, what).await.is_err()
    }

    #[tokio::test]
    async fn who_rested_longest_gives_way() {
        let places = Places::new(2);
        let (first, second) = (places.take().await, places.take().await);
        assert!(first.begin());
        drop(first.hold(Body::empty()));
        first.sent();
        // The second rests longer by now.
        let taken = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        second.lost().await;
        assert!(!second.begin(), "it is let go");
        assert!(waits(first.lost()).await);
        drop(second);
        let third = taken.await.expect("a place");
        assert!(third.begin() && first.begin());
    }

    #[tokio::test]
    async fn who_works_keeps_the_place() {
        let places = Places::new(1);
        let only = places.take().await;
        assert!(only.begin());
        let body = only.hold(Body::empty());
        only.sent();
        assert!(waits(places.take()).await && waits(only.lost()).await);
        drop(body);
        assert!(waits(places.take()).await && waits(only.lost()).await, "the answer is not sent yet");
        let taken = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        tokio::task::yield_now().await;
        only.sent();
        let since = Instant::now();
        only.lost().await;
        assert!(since.elapsed() >= REST_MIN / 2, "it could have sent a request");
        drop(only);
        taken.await.expect("a place");
    }
}
