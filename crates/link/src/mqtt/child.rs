//! The child over MQTT. Streams and blobs go to the parent's HTTPS listener.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use model::exchange::{Ack, Revision};
use model::{Desired, Digest, Error, Observed, Result};
use rustls::ClientConfig;
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Event, Options, Publisher, open};
use super::{Beat, Gone, Leaf, address_parse, topic, topic_parse};
use crate::https::ParentClient;
use crate::identity::Credentials;
use crate::limits::{BEAT, BODY_MAX, PACKET_MAX};
use crate::stream::ByteStream;
use crate::tls::client_config;
use crate::uplink::{Backoff, Down, Inbox, Uplink};
use crate::vitals::{PulseSource, Vitals};
use crate::wire;

/// Connects to a zone's broker (`host:port`) and stays connected until it is dropped.
pub fn mqtt_uplink(credentials: &Credentials, broker: &str, parent_url: &str) -> Result<Arc<dyn Uplink>> {
    let (host, port) = address_parse(broker)?;
    let link = Arc::new(Link {
        me: credentials.identity.id.clone(),
        host,
        port,
        tls: Arc::new(client_config(credentials)?),
        https: ParentClient::new(credentials, parent_url)?,
        inbox: Inbox::default(),
        vitals: Vitals::default(),
        sets: Mutex::default(),
        publisher: watch::Sender::new(None),
        beat_now: Notify::new(),
        fetch_again: Notify::new(),
    });
    let task = AbortOnDropHandle::new(tokio::spawn(link.clone().run()));
    Ok(Arc::new(MqttUplink { link, _task: task }))
}

struct MqttUplink {
    link: Arc<Link>,
    _task: AbortOnDropHandle<()>,
}

struct Link {
    me: String,
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    https: ParentClient,
    inbox: Inbox,
    vitals: Vitals,
    sets: Mutex<Sets>,
    /// There while connected.
    publisher: watch::Sender<Option<Publisher>>,
    beat_now: Notify,
    fetch_again: Notify,
}

/// Which desired sets are known.
#[derive(Default)]
struct Sets {
    /// What the child keeps.
    have: Option<Revision>,
    /// What was last put into the inbox.
    offered: Option<Revision>,
    /// What the last message on this connection held, for the parent to know.
    got: Option<Revision>,
}

impl Link {
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        loop {
            let error = match self.connect(&mut backoff).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            self.publisher.send_replace(None);
            self.inbox.lost();
            tracing::debug!(%error, "no link to the zone");
            backoff.pause().await;
        }
    }

    /// One connection, from its first byte to its end.
    async fn connect(&self, backoff: &mut Backoff) -> Result<std::convert::Infallible> {
        let conn = rand::random();
        let will = (topic(&self.me, Leaf::Gone), wire::encode(&Gone { conn }, PACKET_MAX)?);
        let (publisher, connection) = open(Options {
            client_id: self.me.clone(),
            host: self.host.clone(),
            port: self.port,
            tls: self.tls.clone(),
            will: Some(will),
        })?;
        self.sets().got = None;
        let connected = Notify::new();
        let run = connection.run(|event| match event {
            Event::Connected => connected.notify_one(),
            Event::Message { topic, payload, .. } => self.message(&topic, &payload),
        });
        let speak = async {
            connected.notified().await;
            publisher.subscribe(vec![topic(&self.me, Leaf::Desired), topic(&self.me, Leaf::Call)]).await?;
            self.beat(&publisher, conn).await?;
            backoff.reset();
            self.publisher.send_replace(Some(publisher.clone()));
            self.inbox.up();
            self.beats(&publisher, conn).await
        };
        tokio::select! {
            error = run => Err(error),
            error = speak => error,
        }
    }

    async fn beats(&self, publisher: &Publisher, conn: u64) -> Result<std::convert::Infallible> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(BEAT) => {}
                () = self.beat_now.notified() => {}
                // Subscribing again makes the broker send what it keeps.
                () = self.fetch_again.notified() => publisher.subscribe(vec![topic(&self.me, Leaf::Desired)]).await?,
            }
            self.beat(publisher, conn).await?;
        }
    }

    /// Acknowledged by the broker, so that a connection that is dead without knowing it is noticed.
    async fn beat(&self, publisher: &Publisher, conn: u64) -> Result<()> {
        let got = self.sets().got;
        let beat = Beat { conn, got, pulse: self.vitals.pulse() };
        let payload = wire::encode(&beat, PACKET_MAX)?;
        let sent = Instant::now();
        publisher.publish(topic(&self.me, Leaf::Beat), payload, false).await?;
        self.vitals.trip(sent.elapsed());
        Ok(())
    }

    fn message(&self, topic: &str, payload: &Bytes) {
        let taken = match topic_parse(topic) {
            Some((_, Leaf::Desired)) if payload.is_empty() => Ok(()),
            Some((_, Leaf::Desired)) => wire::decode(payload, BODY_MAX).map(|desired| self.desired(desired)),
            Some((_, Leaf::Call)) => wire::decode(payload, BODY_MAX).map(|call| self.inbox.call(call)),
            _ => Ok(()),
        };
        if let Err(error) = taken {
            tracing::warn!(topic, %error, "a message of the parent is not understood");
        }
    }

    /// Offers a set once. A set that is older than one of the same life was overtaken on its way.
    fn desired(&self, desired: Desired) {
        let mut sets = self.sets();
        sets.got = Some(desired.at);
        let overtaken = |known: Option<Revision>| {
            known.is_some_and(|known| known.epoch == desired.at.epoch && known.rev >= desired.at.rev)
        };
        if !overtaken(sets.have) && !overtaken(sets.offered) {
            sets.offered = Some(desired.at);
            drop(sets);
            self.inbox.desired(desired);
        }
        self.beat_now.notify_one();
    }

    fn sets(&self) -> std::sync::MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uplink for MqttUplink {
    fn push(&self, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        Box::pin(async move {
            if observed.set.base.is_some() {
                return Err(Error::internal("over MQTT only whole observed sets are sent"));
            }
            let publisher = self.link.publisher.borrow().clone();
            let publisher = publisher.ok_or_else(|| Error::unavailable("there is no link to the zone"))?;
            let payload = wire::encode(&observed, PACKET_MAX)?;
            publisher.publish(topic(&self.link.me, Leaf::Observed), payload, true).await?;
            Ok(Ack { have: Some(observed.set.at) })
        })
    }

    fn wants_whole(&self) -> bool {
        true
    }

    fn set_have(&self, have: Option<Revision>) {
        let mut sets = self.link.sets();
        sets.have = have;
        // A child that has nothing wants what it was offered once more.
        if have.is_none() && sets.offered.take().is_some() {
            drop(sets);
            self.link.fetch_again.notify_one();
        }
    }

    fn pulse_from(&self, source: PulseSource) {
        self.link.vitals.source_set(source);
    }

    fn rtt(&self) -> Option<Duration> {
        self.link.vitals.rtt()
    }

    fn next(&self) -> BoxFuture<'_, Down> {
        Box::pin(self.link.inbox.next())
    }

    fn open_stream<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<ByteStream>> {
        Box::pin(self.link.https.open_stream(id))
    }

    fn blob<'a>(
        &'a self,
        digest: &'a Digest,
        to: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.link.https.blob(digest, to))
    }
}
