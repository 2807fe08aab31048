//! Which children are connected over HTTPS, and the calls that wait for their next poll.
//!
//! A child is up from its first exchange on a connection until the last of its connections closes, unless it is
//! reached over MQTT as well. Streams and blobs do not count: a child that exchanges over MQTT uses them too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::exchange::Call;
use model::{ChildId, Error, Result, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::identity::Identity;
use crate::limits::{CALLS_QUEUE_MAX, TWINS_SAID_EVERY};
use crate::parent::ParentHandler;
use crate::turns::{Strange, Turn, Turns};
use crate::uplink::Rarely;

pub(super) struct Roster {
    handler: Arc<dyn ParentHandler>,
    calls: Calls,
    children: Mutex<HashMap<ChildId, Entry>>,
    /// Which processes spoke for a child, by the numbers of their connections.
    turns: Mutex<HashMap<ChildId, (Turns, Rarely)>>,
    /// What ends the connections, by whom they speak for.
    open: Mutex<HashMap<ChildId, Vec<(u64, CancellationToken)>>>,
    stop: CancellationToken,
    next: AtomicU64,
}

struct Entry {
    connections: usize,
    route: mpsc::Sender<Call>,
    queue: Queue,
}

type Queue = Arc<tokio::sync::Mutex<mpsc::Receiver<Call>>>;

impl Roster {
    pub(super) fn new(handler: Arc<dyn ParentHandler>, calls: Calls, stop: CancellationToken) -> Self {
        let (children, turns, open) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { handler, calls, children, turns, open, stop, next: AtomicU64::new(0) }
    }

    /// Takes a message of the child's connection with this number. One that another took the place of is sent away:
    /// where two hosts have one identity, each of them pauses longer and longer.
    pub(super) fn turn(&self, child: &ChildId, conn: u64) -> Result<()> {
        if self.calls.twins_heard(child, conn) {
            self.handler.twins(child);
        }
        let strange = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let (turns, said) = turns
                .entry(child.clone())
                .or_insert_with(|| (Turns::default(), Rarely::new(TWINS_SAID_EVERY)));
            let strange = match turns.take(conn, Instant::now()) {
                Turn::Same => return Ok(()),
                Turn::New(strange) => strange,
                Turn::Late => {
                    return Err(Error::conflict("another process speaks with this identity").hint(
                        "if it was copied to a second host, let that one join with a token of its own",
                    ));
                }
            };
            if let Some(strange) = strange.filter(|_| said.due()) {
                tracing::warn!(%child, "{}", strange.says());
            }
            strange
        };
        if strange == Some(Strange::Twin) {
            self.handler.twins(child);
        }
        Ok(())
    }

    /// Closes the connections of one child, and its streams.
    pub(super) fn kick(&self, child: &ChildId) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(child);
        self.calls.lives_forget(child);
        for (_, stop) in self.open().get(child).into_iter().flatten() {
            stop.cancel();
        }
    }

    pub(super) fn dismiss(&self) {
        for (_, stop) in self.open().values().flatten() {
            stop.cancel();
        }
    }

    fn opened(&self, child: &ChildId) -> (u64, CancellationToken) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let stop = self.stop.child_token();
        self.open().entry(child.clone()).or_default().push((number, stop.clone()));
        (number, stop)
    }

    fn closed(&self, child: &ChildId, number: u64) {
        let mut open = self.open();
        if let Some(connections) = open.get_mut(child) {
            connections.retain(|(other, _)| *other != number);
            if connections.is_empty() {
                open.remove(child);
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<ChildId, Vec<(u64, CancellationToken)>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, child: &ChildId) {
        let first = {
            let mut children = self.children();
            let entry = children.entry(child.clone()).or_insert_with(|| {
                let (route, queue) = self.calls.route_add(child);
                Entry { connections: 0, route, queue: Arc::new(tokio::sync::Mutex::new(queue)) }
            });
            entry.connections += 1;
            self.calls.route_use(child, &entry.route);
            entry.connections == 1
        };
        if first {
            self.handler.link_state(child, true);
        }
    }

    fn leave(&self, child: &ChildId) {
        let last = {
            let mut children = self.children();
            let Some(entry) = children.get_mut(child) else { return };
            entry.connections -= 1;
            if entry.connections > 0 {
                return;
            }
            let route = entry.route.clone();
            children.remove(child);
            self.calls.route_drop(child, &route)
        };
        if last {
            self.handler.link_state(child, false);
        }
    }

    /// Waits for calls to a child; takes all that are there.
    pub(super) async fn calls_next(&self, child: &ChildId) -> Vec<Call> {
        let queue = self.children().get(child).map(|entry| entry.queue.clone());
        let Some(queue) = queue else { return std::future::pending().await };
        let mut queue = queue.lock().await;
        let mut calls = Vec::new();
        if queue.recv_many(&mut calls, CALLS_QUEUE_MAX).await == 0 {
            return std::future::pending().await;
        }
        calls
    }

    fn children(&self) -> MutexGuard<'_, HashMap<ChildId, Entry>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, and whom its certificate speaks for.
pub(super) struct Connection {
    /// Until when the certificate is good stands beside it.
    pub(super) peer: Option<(Identity, Timestamp)>,
    number: u64,
    stop: CancellationToken,
    roster: Arc<Roster>,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    entered: Option<ChildId>,
    closed: bool,
}

impl Connection {
    pub(super) fn new(peer: Option<(Identity, Timestamp)>, roster: Arc<Roster>) -> Arc<Self> {
        let (number, stop) = match &peer {
            Some((identity, _)) => roster.opened(&identity.child_id()),
            None => (0, roster.stop.child_token()),
        };
        Arc::new(Self { peer, number, stop, roster, state: Mutex::default() })
    }

    /// Waits until the listener ends, or whom it speaks for is sent away.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// The child exchanged something on this connection.
    pub(super) fn exchanged(&self, child: &ChildId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.entered.is_none() && !state.closed {
            state.entered = Some(child.clone());
            self.roster.enter(child);
        }
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        if let Some(child) = state.entered.take() {
            self.roster.leave(&child);
        }
    }
}

/// A stream that was made out of the connection keeps it, so that it can be ended too.
impl Drop for Connection {
    fn drop(&mut self) {
        if let Some((identity, _)) = &self.peer {
            self.roster.closed(&identity.child_id(), self.number);
        }
    }
}
