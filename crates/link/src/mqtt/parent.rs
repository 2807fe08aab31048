//! The parent over MQTT: a client of the broker that speaks for the zone.
//!
//! Each child that was ever heard has a task with three loops: what it observes goes to the handler, the latest
//! first; what is desired goes out, one set at a time; calls go out. The connection's task only sorts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::exchange::{Call, Revision};
use model::{ChildId, Desired, Error, Observed, Result};
use rustls::ClientConfig;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Event, Options, Publisher, open};
use super::{Beat, Gone, Leaf, address_parse, child_of, topic};
use crate::calls::Calls;
use crate::identity::Credentials;
use crate::limits::{BACKOFF_MAX, BODY_MAX, GOT_WAIT, PACKET_MAX};
use crate::parent::ParentHandler;
use crate::tls::client_config;
use crate::uplink::Backoff;
use crate::wire;

pub struct MqttParentConfig {
    /// `host:port`; the broker's certificate must carry that host.
    pub broker: String,
    /// The zone's own certificate, as it shows to root.
    pub me: Credentials,
}

/// A parent that runs until it is dropped.
pub struct MqttParent {
    hub: Arc<Hub>,
    _task: AbortOnDropHandle<()>,
}

impl MqttParent {
    pub fn start(config: MqttParentConfig, handler: Arc<dyn ParentHandler>, calls: Calls) -> Result<Self> {
        let (host, port) = address_parse(&config.broker)?;
        let hub = Arc::new(Hub {
            me: config.me.identity.id.clone(),
            host,
            port,
            tls: Arc::new(client_config(&config.me)?),
            handler,
            calls,
            children: Mutex::default(),
            publisher: watch::Sender::new(None),
        });
        let task = AbortOnDropHandle::new(tokio::spawn(hub.clone().run()));
        Ok(Self { hub, _task: task })
    }

    /// Lets go of a child that was removed, and of what the broker keeps for it.
    pub async fn forget(&self, child: &ChildId) -> Result<()> {
        self.hub.children().remove(child);
        let publisher = self.hub.publisher.borrow().clone();
        match publisher {
            Some(publisher) => {
                publisher.publish(topic(child.as_str(), Leaf::Desired), Bytes::new(), true).await
            }
            None => Err(Error::unavailable("there is no link to the broker")),
        }
    }
}

struct Hub {
    me: String,
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    handler: Arc<dyn ParentHandler>,
    calls: Calls,
    children: Mutex<HashMap<ChildId, Child>>,
    /// There while connected; replaced by each connection.
    publisher: watch::Sender<Option<Publisher>>,
}

/// What the connection's task holds of a child.
struct Child {
    seen: watch::Sender<Seen>,
    observed: watch::Sender<Bytes>,
    route: mpsc::Sender<Call>,
    _task: AbortOnDropHandle<()>,
}

/// What a child's beats and its will say.
#[derive(Default, Clone, Copy, PartialEq)]
struct Seen {
    conn: Option<u64>,
    got: Option<Revision>,
}

impl Hub {
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        loop {
            if let Err(error) = self.connect(&mut backoff).await {
                tracing::debug!(%error, "no link to the broker");
            }
            self.publisher.send_replace(None);
            backoff.pause().await;
        }
    }

    async fn connect(self: &Arc<Self>, backoff: &mut Backoff) -> Result<()> {
        let (publisher, connection) = open(Options {
            client_id: self.me.clone(),
            host: self.host.clone(),
            port: self.port,
            tls: self.tls.clone(),
            will: None,
        })?;
        let connected = tokio::sync::Notify::new();
        let run = connection.run(|event| match event {
            Event::Connected => connected.notify_one(),
            Event::Message { topic, payload, retained } => self.message(&topic, payload, retained),
        });
        let speak = async {
            connected.notified().await;
            let filters = [Leaf::Beat, Leaf::Gone, Leaf::Observed].map(|leaf| topic("+", leaf));
            publisher.subscribe(filters.to_vec()).await?;
            backoff.reset();
            self.publisher.send_replace(Some(publisher.clone()));
            std::future::pending().await
        };
        tokio::select! {
            error = run => Err(error),
            error = speak => error,
        }
    }

    /// Sorts one message. The broker has checked that the child in the topic is the one that published it.
    fn message(self: &Arc<Self>, topic: &str, payload: Bytes, retained: bool) {
        let Some((child, leaf)) = child_of(topic) else { return };
        if payload.is_empty() || !self.handler.admits(&child) {
            return;
        }
        if !retained && leaf == Leaf::Observed {
            self.handler.heard(&child, None);
        }
        match leaf {
            Leaf::Beat => match wire::decode(&payload, PACKET_MAX) {
                Ok(beat) => self.beat(&child, &beat),
                Err(error) => tracing::warn!(%child, %error, "a beat is not understood"),
            },
            Leaf::Gone => match wire::decode(&payload, PACKET_MAX) {
                Ok(gone) => self.gone(&child, &gone),
                Err(error) => tracing::warn!(%child, %error, "a last will is not understood"),
            },
            Leaf::Observed => self.with_child(&child, |known| drop(known.observed.send_replace(payload))),
            Leaf::Desired | Leaf::Call => {}
        }
    }

    fn beat(self: &Arc<Self>, child: &ChildId, beat: &Beat) {
        self.handler.heard(child, Some(&beat.pulse));
        let mut new = false;
        self.with_child(child, |known| {
            let seen = Seen { conn: Some(beat.conn), got: beat.got };
            new = known.seen.borrow().conn != seen.conn;
            known.seen.send_if_modified(|now| std::mem::replace(now, seen) != seen);
            // Also when it is not new: the child may have been heard over HTTPS since, on a connection that ended.
            self.calls.route_use(child, &known.route);
        });
        if new {
            self.handler.link_state(child, true);
        }
    }

    /// The will of a connection that was already followed by another says nothing.
    fn gone(self: &Arc<Self>, child: &ChildId, gone: &Gone) {
        let mut ended = false;
        if let Some(known) = self.children().get(child) {
            ended = known.seen.borrow().conn == Some(gone.conn);
            if ended {
                known.seen.send_replace(Seen::default());
                self.calls.route_drop(child, &known.route);
            }
        }
        if ended {
            self.handler.link_state(child, false);
        }
    }

    fn with_child(self: &Arc<Self>, child: &ChildId, with: impl FnOnce(&Child)) {
        let mut children = self.children();
        with(children.entry(child.clone()).or_insert_with(|| self.child_start(child)));
    }

    fn child_start(self: &Arc<Self>, child: &ChildId) -> Child {
        let seen = watch::Sender::new(Seen::default());
        let observed = watch::Sender::new(Bytes::new());
        let (route, calls) = mpsc::channel(crate::limits::CALLS_QUEUE_MAX);
        let worker = Worker {
            child: child.clone(),
            handler: self.handler.clone(),
            publisher: self.publisher.subscribe(),
            seen: seen.subscribe(),
        };
        let reports = worker.clone().observed(observed.subscribe());
        let sets = worker.clone().desired();
        let calls = worker.calls(calls);
        let task = tokio::spawn(async move {
            tokio::join!(reports, sets, calls);
        });
        Child { seen, observed, route, _task: AbortOnDropHandle::new(task) }
    }

    fn children(&self) -> MutexGuard<'_, HashMap<ChildId, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work for one child. It ends with the hub, or when the child is forgotten.
#[derive(Clone)]
struct Worker {
    child: ChildId,
    handler: Arc<dyn ParentHandler>,
    publisher: watch::Receiver<Option<Publisher>>,
    seen: watch::Receiver<Seen>,
}

impl Worker {
    async fn observed(self, mut latest: watch::Receiver<Bytes>) {
        while latest.changed().await.is_ok() {
            let payload = latest.borrow_and_update().clone();
            let taken = match wire::decode::<Observed>(&payload, BODY_MAX) {
                Ok(observed) => self.handler.observed(&self.child, observed).await.map(|_| ()),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                tracing::warn!(child = %self.child, %error, "an observed set was not taken");
            }
        }
    }

    /// Publishes the latest set, and the next one when the child has got it, has gone, or takes too long.
    async fn desired(mut self) {
        let mut published = None;
        let mut connection = self.publisher.clone();
        loop {
            let publisher = connection.borrow_and_update().clone();
            let Some(publisher) = publisher else {
                published = None;
                if connection.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let set = tokio::select! {
                set = self.whole(published) => set,
                // A broker that was away may have forgotten what it kept.
                changed = connection.changed() => {
                    published = None;
                    if changed.is_err() { return }
                    continue;
                }
            };
            match self.publish(&publisher, set, published).await {
                Ok(at) => {
                    published = Some(at);
                    self.got(at).await;
                }
                Err(error) => {
                    tracing::warn!(child = %self.child, %error, "a desired set was not published");
                    tokio::time::sleep(BACKOFF_MAX).await;
                }
            }
        }
    }

    /// Waits for something newer than `published` and gives the whole set.
    async fn whole(&self, published: Option<Revision>) -> Result<Desired> {
        let set = self.handler.desired(&self.child, published).await?;
        match set.base {
            Some(_) => self.handler.desired(&self.child, None).await,
            None => Ok(set),
        }
    }

    async fn publish(
        &self,
        publisher: &Publisher,
        set: Result<Desired>,
        last: Option<Revision>,
    ) -> Result<Revision> {
        let set = set?;
        if set.base.is_some() || Some(set.at) == last {
            return Err(Error::internal("the parent gave no newer whole set"));
        }
        let payload = wire::encode(&set, PACKET_MAX)?;
        publisher.publish(topic(self.child.as_str(), Leaf::Desired), payload, true).await?;
        Ok(set.at)
    }

    async fn got(&mut self, at: Revision) {
        let got = self.seen.wait_for(|seen| seen.conn.is_none() || seen.got == Some(at));
        let _ = tokio::time::timeout(GOT_WAIT, got).await;
    }

    async fn calls(self, mut calls: mpsc::Receiver<Call>) {
        while let Some(call) = calls.recv().await {
            let publisher = self.publisher.borrow().clone();
            let sent = match (publisher, wire::encode(&call, PACKET_MAX)) {
                (Some(publisher), Ok(payload)) => {
                    publisher.publish(topic(self.child.as_str(), Leaf::Call), payload, false).await
                }
                (None, _) => Err(Error::unavailable("there is no link to the broker")),
                (_, Err(error)) => Err(error),
            };
            if let Err(error) = sent {
                tracing::warn!(child = %self.child, %error, "a call was not sent");
            }
        }
    }
}
