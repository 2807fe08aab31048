//! Calls: a parent asks, the child opens a stream and answers on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::exchange::{Ask, Call};
use model::{ChildId, Error, ErrorKind, Result};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

use crate::limits::{CALL_WAIT, CALLS_QUEUE_MAX, CALLS_WAITING_MAX, KICKS_MAX, ROUTE_WAIT};
use crate::stream::ByteStream;
use crate::turns::{Lives, Strange};

/// The calls of one parent, shared by its listeners: MQTT carries a call down, HTTPS takes its stream.
#[derive(Clone)]
pub struct Calls(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    kicks: broadcast::Sender<ChildId>,
    /// A child came that was not there.
    arrivals: Notify,
    lives: Mutex<HashMap<ChildId, Lives>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self(Arc::new(Shared {
            book: Mutex::default(),
            kicks: broadcast::Sender::new(KICKS_MAX),
            arrivals: Notify::new(),
            lives: Mutex::default(),
        }))
    }
}

#[derive(Default)]
struct Book {
    /// Streams that a child is to open, by their name.
    waiting: HashMap<String, (ChildId, oneshot::Sender<ByteStream>)>,
    /// The ways by which a call reaches a child, the one that was heard last at the end.
    routes: HashMap<ChildId, Vec<mpsc::Sender<Call>>>,
}

impl Calls {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends the question down and waits, not for ever, for the child to open the stream that answers it.
    pub async fn call(&self, child: &ChildId, ask: Ask) -> Result<ByteStream> {
        let away = || Error::unavailable(format!("{child} is not connected")).hint("try again in a moment");
        let stream = format!("{:032x}", rand::random::<u128>());
        let (opened, open) = oneshot::channel();
        let route = tokio::time::timeout(ROUTE_WAIT, self.route(child)).await.map_err(|_| away())?;
        {
            let mut book = self.book();
            if book.waiting.len() >= CALLS_WAITING_MAX {
                return Err(Error::new(ErrorKind::RateLimited, "too many calls are waiting"));
            }
            book.waiting.insert(stream.clone(), (child.clone(), opened));
        }
        let _forget = Forget { calls: self, stream: &stream };
        route.try_send(Call { stream: stream.clone(), ask }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Error::new(ErrorKind::RateLimited, format!("too many calls wait for {child}"))
            }
            mpsc::error::TrySendError::Closed(_) => away(),
        })?;
        match tokio::time::timeout(CALL_WAIT, open).await {
            Ok(Ok(stream)) => Ok(stream),
            _ => Err(Error::unavailable(format!("{child} did not answer in time"))),
        }
    }

    /// The way down to a child, as soon as there is one: it may be between two connections.
    async fn route(&self, child: &ChildId) -> mpsc::Sender<Call> {
        loop {
            let arrival = self.0.arrivals.notified();
            tokio::pin!(arrival);
            arrival.as_mut().enable();
            let ways = self.book().routes.get(child).cloned().unwrap_or_default();
            if let Some(route) = ways.into_iter().rfind(|route| !route.is_closed()) {
                return route;
            }
            arrival.await;
        }
    }

    /// Closes the connections of a child that was removed, at every listener that shares this. Whoever calls has
    /// made sure that the child is no longer admitted.
    pub fn kick(&self, child: &ChildId) {
        let _ = self.0.kicks.send(child.clone());
    }

    pub(crate) fn kicks(&self) -> broadcast::Receiver<ChildId> {
        self.0.kicks.subscribe()
    }

    /// Notes which process speaks for a child, on whichever way. True when two of them do so in turns.
    pub(crate) fn twins_heard(&self, child: &ChildId, conn: u64) -> bool {
        let mut lives = self.0.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = lives.get_mut(child) else {
            lives.insert(child.clone(), Lives::new(conn));
            return false;
        };
        let twins = known.heard(conn);
        if twins == Some(true) {
            tracing::warn!(%child, "{}", Strange::Twin.says());
        }
        twins.is_some()
    }

    pub(crate) fn lives_forget(&self, child: &ChildId) {
        self.0.lives.lock().unwrap_or_else(PoisonError::into_inner).remove(child);
    }

    /// Claims a waiting stream for the child that opens it; another child's stream is not found.
    pub(crate) fn claim(&self, child: &ChildId, stream: &str) -> Option<oneshot::Sender<ByteStream>> {
        let mut book = self.book();
        match book.waiting.get(stream) {
            Some((owner, _)) if owner == child => book.waiting.remove(stream).map(|(_, opened)| opened),
            _ => None,
        }
    }

    /// Makes a way down to a child; calls are read from what is returned.
    pub(crate) fn route_add(&self, child: &ChildId) -> (mpsc::Sender<Call>, mpsc::Receiver<Call>) {
        let (sender, receiver) = mpsc::channel(CALLS_QUEUE_MAX);
        self.route_use(child, &sender);
        (sender, receiver)
    }

    pub(crate) fn route_use(&self, child: &ChildId, route: &mpsc::Sender<Call>) {
        let mut book = self.book();
        let ways = book.routes.entry(child.clone()).or_default();
        if ways.last().is_some_and(|used| used.same_channel(route)) {
            return;
        }
        ways.retain(|way| !way.same_channel(route) && !way.is_closed());
        ways.push(route.clone());
        drop(book);
        self.0.arrivals.notify_waiters();
    }

    /// Takes a way back. True when the child has no other: it is not reached any more.
    pub(crate) fn route_drop(&self, child: &ChildId, route: &mpsc::Sender<Call>) -> bool {
        let mut book = self.book();
        let Some(ways) = book.routes.get_mut(child) else { return true };
        ways.retain(|way| !way.same_channel(route) && !way.is_closed());
        let none = ways.is_empty();
        if none {
            book.routes.remove(child);
        }
        none
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a call that nobody waits for any more out of the book.
struct Forget<'a> {
    calls: &'a Calls,
    stream: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.calls.book().waiting.remove(self.stream);
    }
}
