//! Which children are connected over HTTPS, and the calls that wait for their next poll.
//!
//! A child is up from its first exchange on a connection until the last of its connections closes.
//! Streams and blobs do not count: a child that exchanges over MQTT uses them too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::ChildId;
use model::exchange::Call;
use tokio::sync::mpsc;

use crate::calls::Calls;
use crate::identity::Identity;
use crate::limits::CALLS_QUEUE_MAX;
use crate::parent::ParentHandler;

pub(super) struct Roster {
    handler: Arc<dyn ParentHandler>,
    calls: Calls,
    children: Mutex<HashMap<ChildId, Entry>>,
}

struct Entry {
    connections: usize,
    route: mpsc::Sender<Call>,
    queue: Queue,
}

type Queue = Arc<tokio::sync::Mutex<mpsc::Receiver<Call>>>;

impl Roster {
    pub(super) fn new(handler: Arc<dyn ParentHandler>, calls: Calls) -> Self {
        Self { handler, calls, children: Mutex::default() }
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
            let last = entry.connections == 0;
            if last {
                self.calls.route_drop(child, &entry.route);
                children.remove(child);
            }
            last
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
    pub(super) peer: Option<Identity>,
    roster: Arc<Roster>,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    entered: Option<ChildId>,
    closed: bool,
}

impl Connection {
    pub(super) fn new(peer: Option<Identity>, roster: Arc<Roster>) -> Self {
        Self { peer, roster, state: Mutex::default() }
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
