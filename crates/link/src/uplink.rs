//! What a child holds: one trait, two transports, and the inbox they share.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use model::exchange::{Ack, Call, Revision};
use model::{Desired, Digest, Error, Observed, Result};
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, watch};

use crate::limits::{BACKOFF_FIRST, BACKOFF_HOLD, BACKOFF_MAX, CALLS_QUEUE_MAX, GOODBYE_WAIT, HAVE_WAIT};
use crate::stream::ByteStream;
use crate::vitals::PulseSource;

/// What comes down to a child.
#[derive(Debug)]
pub enum Down {
    /// What should be. Call [`Uplink::set_have`] once it is kept, or refused.
    Desired(Desired),
    /// A question; answer it on [`Uplink::open_stream`] of its stream.
    Call(Call),
    /// Connected, for the first time or again: the parent may have forgotten what it was told.
    Up,
    Lost,
    /// The parent removed this child for good and has given away what it held: drop it. Told once, and only when
    /// the parent itself says so over TLS.
    Removed,
}

pub trait Uplink: Send + Sync + 'static {
    /// Sends one page of what is observed; the acknowledgement says what the parent now has.
    fn push(&self, observed: Observed) -> BoxFuture<'_, Result<Ack>>;

    /// Says which desired set is kept; `None` asks for a whole one.
    fn set_have(&self, have: Option<Revision>);

    /// What comes down next; never ends. A set with the revision that the child has is not delivered again.
    fn next(&self) -> BoxFuture<'_, Down>;

    /// Where the pulse comes from that every beat carries; without one it holds the time alone.
    fn pulse_from(&self, source: PulseSource);

    /// Says that this child stops and will be back. Best effort: it is lost with the link.
    fn goodbye(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// How long a message to the parent and its answer take on the way, once that was measured.
    fn rtt(&self) -> Option<Duration>;

    /// Opens the stream that answers a call.
    fn open_stream<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<ByteStream>>;

    /// Fetches a blob into `to`, checks its digest and returns its length. On an error what was
    /// written must be thrown away.
    fn blob<'a>(
        &'a self,
        digest: &'a Digest,
        to: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> BoxFuture<'a, Result<u64>>;
}

/// Nobody waits long for a goodbye to get through.
pub(crate) async fn in_time(goodbye: impl Future<Output = Result<()>>) -> Result<()> {
    match tokio::time::timeout(GOODBYE_WAIT, goodbye).await {
        Ok(said) => said,
        Err(_) => Err(Error::unavailable("the parent did not answer in time")),
    }
}

/// Between the transport's task and the child: the latest desired set, a bounded queue of calls, and the
/// state of the link.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    filled: Notify,
}

#[derive(Default)]
struct InboxState {
    desired: Option<Desired>,
    calls: VecDeque<Call>,
    up: bool,
    /// Counts connections, so that one which came and went between two reads is told all the same.
    ups: u64,
    ups_told: u64,
    up_told: bool,
    removed: bool,
    removed_told: bool,
}

impl InboxState {
    fn pop(&mut self) -> Option<Down> {
        if self.up_told && !self.up {
            self.up_told = false;
            return Some(Down::Lost);
        }
        if self.removed && !std::mem::replace(&mut self.removed_told, true) {
            return Some(Down::Removed);
        }
        if self.up && self.ups != self.ups_told {
            self.ups_told = self.ups;
            self.up_told = true;
            return Some(Down::Up);
        }
        let desired = self.desired.take().map(Down::Desired);
        desired.or_else(|| self.calls.pop_front().map(Down::Call))
    }
}

impl Inbox {
    pub(crate) fn up(&self) {
        let mut state = self.state();
        state.up = true;
        state.ups += 1;
        (state.removed, state.removed_told) = (false, false);
        drop(state);
        self.filled.notify_one();
    }

    pub(crate) fn lost(&self) {
        self.state().up = false;
        self.filled.notify_one();
    }

    /// What came before and was not read yet is no longer true.
    pub(crate) fn removed(&self) {
        let mut state = self.state();
        state.removed = true;
        state.desired = None;
        state.calls.clear();
        drop(state);
        self.filled.notify_one();
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state().removed
    }

    /// A later set takes the place of one that was not read yet. It answers what the child has now, so nothing
    /// is lost with the earlier one.
    fn desired(&self, desired: Desired) {
        self.state().desired = Some(desired);
        self.filled.notify_one();
    }

    /// Hands over a set and waits, not for ever, until the child says what it has now, so that the same set is
    /// not fetched twice.
    pub(crate) async fn offer(&self, desired: Desired, have: &mut watch::Receiver<Option<Revision>>) {
        if *have.borrow() != Some(desired.at) {
            self.desired(desired);
            let _ = tokio::time::timeout(HAVE_WAIT, have.changed()).await;
        }
    }

    /// The oldest call gives way when there are too many; the parent that waits for it sees a time-out.
    pub(crate) fn call(&self, call: Call) {
        let mut state = self.state();
        if state.calls.len() >= CALLS_QUEUE_MAX {
            state.calls.pop_front();
        }
        state.calls.push_back(call);
        drop(state);
        self.filled.notify_one();
    }

    pub(crate) async fn next(&self) -> Down {
        loop {
            if let Some(down) = self.state().pop() {
                // Another reader may wait for what is still there.
                self.filled.notify_one();
                return down;
            }
            self.filled.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses that double up to a limit, each shortened by up to a half at random so that the children of a
/// parent that comes back do not all come at once.
pub(crate) struct Backoff {
    next: Duration,
    /// Since when there is a connection.
    connected: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: BACKOFF_FIRST, connected: None }
    }

    pub(crate) fn reset(&mut self) {
        self.next = BACKOFF_FIRST;
    }

    /// There is a connection. Only one that holds makes the next pause short again: where two hosts have one
    /// identity, each ends the connection of the other as soon as it has its own.
    pub(crate) fn connected(&mut self) {
        self.connected.get_or_insert_with(Instant::now);
    }

    pub(crate) async fn pause(&mut self) {
        if self.connected.take().is_some_and(|since| since.elapsed() >= BACKOFF_HOLD) {
            self.reset();
        }
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(BACKOFF_MAX);
        tokio::time::sleep(pause).await;
    }
}

/// Says when a thing that goes on happening is worth a word: at first, and then after a long while each time.
#[derive(Debug)]
pub struct Rarely {
    every: Duration,
    last: Option<Instant>,
}

impl Rarely {
    pub fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    pub fn due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    /// It is over; the next time is a first time.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::exchange::RevisionedSet;

    fn set(rev: u64) -> Desired {
        RevisionedSet {
            base: None,
            at: Revision { epoch: 1, rev },
            upserts: Vec::new(),
            removes: Vec::new(),
            more: false,
            upto: None,
        }
    }

    #[tokio::test]
    async fn only_a_connection_that_held_makes_the_next_pause_short() {
        let mut backoff = Backoff::new();
        for longer in [2, 4] {
            backoff.connected();
            backoff.pause().await;
            assert_eq!(backoff.next, BACKOFF_FIRST * longer);
        }
        backoff.connected = Instant::now().checked_sub(BACKOFF_HOLD);
        backoff.connected();
        backoff.pause().await;
        assert_eq!(backoff.next, BACKOFF_FIRST * 2);
    }

    #[tokio::test]
    async fn the_latest_set_wins_and_a_reconnect_is_never_missed() {
        let inbox = Inbox::default();
        inbox.up();
        assert!(matches!(inbox.next().await, Down::Up));
        inbox.desired(set(1));
        inbox.desired(set(2));
        inbox.lost();
        inbox.up();
        assert!(matches!(inbox.next().await, Down::Up), "a link that came back is told");
        let Down::Desired(desired) = inbox.next().await else { panic!("desired") };
        assert_eq!(desired.at.rev, 2);
        inbox.lost();
        assert!(matches!(inbox.next().await, Down::Lost));
    }

    #[tokio::test]
    async fn a_removal_is_told_once_and_takes_the_place_of_what_was_not_read() {
        use futures::FutureExt;
        let inbox = Inbox::default();
        inbox.up();
        assert!(matches!(inbox.next().await, Down::Up));
        inbox.desired(set(1));
        inbox.lost();
        inbox.removed();
        assert!(matches!(inbox.next().await, Down::Lost));
        assert!(matches!(inbox.next().await, Down::Removed));
        inbox.removed();
        assert!(inbox.next().now_or_never().is_none(), "once");
        inbox.up();
        assert!(!inbox.is_removed() && matches!(inbox.next().await, Down::Up));
    }

    #[test]
    fn what_goes_on_is_said_once_until_it_is_over() {
        let mut rarely = Rarely::new(Duration::from_secs(3600));
        assert!(rarely.due() && !rarely.due());
        rarely.reset();
        assert!(rarely.due());
        let mut often = Rarely::new(Duration::ZERO);
        assert!(often.due() && often.due());
    }
}
