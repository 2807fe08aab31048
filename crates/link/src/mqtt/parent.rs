//! The parent over MQTT: a client of the broker that speaks for the zone.
//!
//! The connection's task only sorts: a message of a child changes what is known of it, and its [`Worker`] does
//! the rest. A child that only beats wakes nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use model::exchange::Call;
use model::{ChildId, Error, ErrorKind, Result};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Event, Options, Publisher, open};
use super::worker::{Seen, Worker};
use super::{Beat, Gone, Have, Leaf, Newer, Wait, address_parse, child_of, filter_up, topic};
use crate::calls::Calls;
use crate::limits::{
    CALLS_QUEUE_MAX, MQTT_PARENT_INFLIGHT_MAX, PACKET_MAX, REFUSALS_MAX, REPORTS_QUEUE_MAX, SPARE_EVERY,
    TWINS_SAID_EVERY,
};
use crate::parent::ParentHandler;
use crate::tls::client_config;
use crate::turns::{Strange, Turn, Turns};
use crate::uplink::{Backoff, Rarely};
use crate::wallet::Wallet;
use crate::wire::{self, WireError};

pub struct MqttParentConfig {
    /// `host:port`; the broker's certificate must carry that host.
    pub broker: String,
    /// The zone's own certificate, as it shows to root.
    pub me: Wallet,
    /// The broker is the embedded one, which has seen that the certificates are of this zone's nodes. Any other
    /// vouches for their names alone.
    pub own_broker: bool,
}

/// A parent that runs until it is dropped.
pub struct MqttParent {
    hub: Arc<Hub>,
    _task: AbortOnDropHandle<()>,
}

impl MqttParent {
    pub fn start(config: MqttParentConfig, handler: Arc<dyn ParentHandler>, calls: Calls) -> Result<Self> {
        let (host, port) = address_parse(&config.broker)?;
        let (refuse, refused) = mpsc::channel(REFUSALS_MAX);
        let hub = Arc::new(Hub {
            me: config.me.identity().id,
            host,
            port,
            tls: Arc::new(client_config(&config.me)?),
            own_broker: config.own_broker,
            handler,
            calls,
            children: Mutex::default(),
            publisher: watch::Sender::new(None),
            refusals: (refuse, tokio::sync::Mutex::new(refused)),
        });
        let task = AbortOnDropHandle::new(tokio::spawn(hub.clone().run()));
        Ok(Self { hub, _task: task })
    }

    /// Whether there is a connection to the broker now.
    pub fn connected(&self) -> bool {
        self.hub.publisher.borrow().is_some()
    }
}

struct Hub {
    me: String,
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    own_broker: bool,
    handler: Arc<dyn ParentHandler>,
    calls: Calls,
    children: Mutex<HashMap<ChildId, Child>>,
    /// There while connected; replaced by each connection.
    publisher: watch::Sender<Option<Publisher>>,
    refusals: Refusals,
}

/// Beats of removed children, to be answered one by one.
type Refusals =
    (mpsc::Sender<(ChildId, u64, Wait)>, tokio::sync::Mutex<mpsc::Receiver<(ChildId, u64, Wait)>>);

/// What the connection's task holds of a child.
struct Child {
    seen: watch::Sender<Seen>,
    turns: Turns,
    said: Rarely,
    reports: mpsc::Sender<Bytes>,
    route: mpsc::Sender<Call>,
    _task: AbortOnDropHandle<()>,
}

impl Child {
    fn conn(&self) -> Option<u64> {
        self.seen.borrow().conn
    }

    /// Notes what the child waits for; its worker wakes when that is new.
    fn waits(&self, conn: u64, wait: Option<Wait>) {
        let seen = Seen { conn: Some(conn), wait };
        self.seen.send_if_modified(|now| std::mem::replace(now, seen) != seen);
    }
}

impl Hub {
    async fn run(self: Arc<Self>) {
        let kicks = self.kicks_follow(self.calls.kicks());
        let refusals = self.refusals_send();
        let silence = self.silence_follow();
        let connections = async {
            let mut backoff = Backoff::new();
            loop {
                if let Err(error) = self.connect(&mut backoff).await {
                    tracing::warn!(%error, "no link to the broker");
                }
                self.publisher.send_replace(None);
                backoff.pause().await;
            }
        };
        tokio::join!(kicks, connections, refusals, silence);
    }

    /// Without a connection to the broker no child can be heard through it, and none is lost for that. What is told
    /// when it is back gives them the time to come back too.
    async fn silence_follow(&self) {
        let mut publisher = self.publisher.subscribe();
        loop {
            let known: Vec<ChildId> = self.children().keys().cloned().collect();
            self.handler.spare(&known);
            let connected = publisher.borrow_and_update().is_some();
            let changed = publisher.changed();
            let ended = match connected {
                true => changed.await,
                false => tokio::time::timeout(SPARE_EVERY, changed).await.unwrap_or(Ok(())),
            };
            if ended.is_err() {
                return;
            }
        }
    }

    /// Lets go of children that were removed.
    async fn kicks_follow(&self, mut kicks: broadcast::Receiver<ChildId>) {
        loop {
            match kicks.recv().await {
                Ok(child) => self.forget(&child),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    /// Answers removed children that a broker of somebody else still lets in.
    async fn refusals_send(&self) {
        let mut refusals = self.refusals.1.lock().await;
        while let Some((child, conn, wait)) = refusals.recv().await {
            let error = Error::new(ErrorKind::Forbidden, "this is no child of this zone");
            let refusal = Newer { conn, seq: wait.seq, result: Err(WireError::from(&error)) };
            let publisher = self.publisher.borrow().clone();
            if let (Some(publisher), Ok(payload)) = (publisher, wire::encode(&refusal, PACKET_MAX)) {
                let sent = publisher.publish(topic(child.as_str(), Leaf::Desired), payload).await;
                tracing::debug!(%child, ?sent, "a removed child is told that it is refused");
            }
        }
    }

    /// A removed child that has a question open is answered; it asks the HTTPS listener what that means.
    fn refuse(&self, child: &ChildId, payload: &[u8]) {
        let Ok(Beat { conn, wait: Some(wait), .. }) = wire::decode(payload, PACKET_MAX) else { return };
        // The next beat asks again where there is no room.
        let _ = self.refusals.0.try_send((child.clone(), conn, wait));
    }

    async fn connect(self: &Arc<Self>, backoff: &mut Backoff) -> Result<()> {
        let (publisher, connection) = open(Options {
            client_id: self.me.clone(),
            host: self.host.clone(),
            port: self.port,
            tls: self.tls.clone(),
            will: None,
            inflight: MQTT_PARENT_INFLIGHT_MAX,
        })?;
        let connected = tokio::sync::Notify::new();
        let run = connection.run(|event| match event {
            Event::Connected => connected.notify_one(),
            Event::Message { topic, payload } => self.message(&topic, payload),
        });
        let speak = async {
            connected.notified().await;
            publisher.subscribe(vec![filter_up()]).await?;
            backoff.connected();
            self.publisher.send_replace(Some(publisher.clone()));
            std::future::pending().await
        };
        tokio::select! {
            error = run => Err(error),
            error = speak => error,
        }
    }

    /// Sorts one message. The broker has checked that the child in the topic is the one that published it.
    fn message(self: &Arc<Self>, topic: &str, payload: Bytes) {
        let Some((child, leaf)) = child_of(topic) else { return };
        if !self.handler.admits(&child) || !(self.own_broker || self.handler.knows(&child)) {
            self.forget(&child);
            if matches!(leaf, Leaf::Beat) && self.handler.removed(&child) {
                self.refuse(&child, &payload);
            }
            return;
        }
        match leaf {
            Leaf::Beat => self.read(&child, &payload, |beat| self.beat(&child, &beat)),
            Leaf::Have => self.read(&child, &payload, |have| self.have(&child, &have)),
            Leaf::Gone => self.read(&child, &payload, |gone| self.gone(&child, &gone)),
            Leaf::Observed => self.observed(&child, payload),
            Leaf::Welcome | Leaf::Desired | Leaf::Ack | Leaf::Call => {}
        }
    }

    fn read<T: DeserializeOwned>(&self, child: &ChildId, payload: &[u8], take: impl FnOnce(T)) {
        match wire::decode(payload, PACKET_MAX) {
            Ok(message) => take(message),
            Err(error) => tracing::warn!(%child, %error, "a message of a child is not understood"),
        }
    }

    fn beat(self: &Arc<Self>, child: &ChildId, beat: &Beat) {
        let mut children = self.children();
        let known = children.entry(child.clone()).or_insert_with(|| self.child_start(child));
        let strange = match known.turns.take(beat.conn, Instant::now()) {
            Turn::Late => return,
            Turn::Same => None,
            Turn::New(strange) => strange,
        };
        let new = known.conn() != Some(beat.conn);
        if let Some(strange) = strange.filter(|_| known.said.due()) {
            tracing::warn!(%child, "{}", strange.says());
        }
        known.waits(beat.conn, beat.wait);
        // Also when it is not new: the child may have been heard over HTTPS since, on a connection that ended.
        self.calls.route_use(child, &known.route);
        drop(children);
        if new {
            self.handler.link_state(child, true);
        }
        if self.calls.twins_heard(child, beat.conn) || strange == Some(Strange::Twin) {
            self.handler.twins(child);
        }
        self.handler.heard(child, Some(&beat.pulse));
    }

    /// A question of a connection that no beat told of waits for that beat, which repeats it.
    fn have(&self, child: &ChildId, have: &Have) {
        let children = self.children();
        let Some(known) = children.get(child).filter(|known| known.conn() == Some(have.conn)) else { return };
        known.waits(have.conn, Some(have.wait));
        drop(children);
        self.handler.heard(child, None);
    }

    /// A child that sends more than is taken waits for its acknowledgement and sends again.
    fn observed(&self, child: &ChildId, payload: Bytes) {
        let children = self.children();
        let Some(known) = children.get(child).filter(|known| known.conn().is_some()) else { return };
        if known.reports.try_send(payload).is_err() {
            tracing::debug!(%child, "an observed set came too early after the one before");
        }
        drop(children);
        self.handler.heard(child, None);
    }

    /// The will of a connection that was already followed by another says nothing.
    fn gone(&self, child: &ChildId, gone: &Gone) {
        let mut children = self.children();
        let Some(known) = children.get_mut(child).filter(|known| known.conn() == Some(gone.conn)) else {
            return;
        };
        known.turns.end();
        known.seen.send_replace(Seen::default());
        let last = self.calls.route_drop(child, &known.route);
        drop(children);
        if last {
            self.handler.link_state(child, false);
        }
    }

    fn forget(&self, child: &ChildId) {
        let Some(known) = self.children().remove(child) else { return };
        let last = self.calls.route_drop(child, &known.route);
        if last && known.conn().is_some() {
            self.handler.link_state(child, false);
        }
    }

    fn child_start(self: &Arc<Self>, child: &ChildId) -> Child {
        let seen = watch::Sender::new(Seen::default());
        let (reports, reported) = mpsc::channel(REPORTS_QUEUE_MAX);
        let (route, calls) = mpsc::channel(CALLS_QUEUE_MAX);
        let worker = Worker {
            child: child.clone(),
            handler: self.handler.clone(),
            publisher: self.publisher.subscribe(),
            seen: seen.subscribe(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(worker.run(reported, calls)));
        let (turns, said) = (Turns::default(), Rarely::new(TWINS_SAID_EVERY));
        Child { seen, turns, said, reports, route, _task: task }
    }

    fn children(&self) -> MutexGuard<'_, HashMap<ChildId, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
