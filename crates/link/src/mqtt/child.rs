//! The child over MQTT. Streams and blobs go to the parent's HTTPS listener.
//!
//! ```text
//!              broker takes it          parent's welcome             no parent there, or again a welcome
//!  connecting ----------------> calling ----------------> connected ------------------------> calling
//! ```
//!
//! A broker refuses without a reason. The child then asks the parent's HTTPS listener whether it was removed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use model::exchange::{Ack, Revision};
use model::{Desired, Digest, Error, ErrorKind, Observed, Result};
use rustls::ClientConfig;
use serde::Serialize;
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Event, Options, Publisher, open};
use super::{
    Acked, Beat, Gone, Have, Leaf, Newer, Report, Wait, Welcome, address_parse, filter_down, topic,
    topic_parse,
};
use crate::https::{PATH_STANDING, ParentClient, Parents};
use crate::limits::{
    ASIDE_OVER, BEAT, BODY_MAX, MQTT_CHILD_INFLIGHT_MAX, PACKET_MAX, REFUSED_SAID_EVERY, REMOVED_PAUSE,
    REQUEST_WAIT, WELCOME_WAIT, WELCOMES_MAX,
};
use crate::stream::ByteStream;
use crate::tls::client_config;
use crate::turns::Numbers;
use crate::uplink::{Backoff, Down, Inbox, Rarely, Uplink, in_time};
use crate::vitals::{PulseSource, Vitals};
use crate::wallet::Wallet;
use crate::wire::{self, WireError};

/// Connects to a zone's broker (`host:port`) and stays connected until it is dropped.
pub fn mqtt_uplink(
    wallet: impl Into<Wallet>,
    broker: &str,
    parents: impl Into<Parents>,
) -> Result<Arc<dyn Uplink>> {
    let wallet = wallet.into();
    let (host, port) = address_parse(broker)?;
    let link = Arc::new(Link {
        me: wallet.identity().id,
        host,
        port,
        tls: Arc::new(client_config(&wallet)?),
        https: ParentClient::new(&wallet, parents)?,
        inbox: Inbox::default(),
        vitals: Vitals::default(),
        have: watch::Sender::new(None),
        session: Mutex::default(),
        numbers: Numbers::new(),
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
    have: watch::Sender<Option<Revision>>,
    /// There while the parent hears us.
    session: Mutex<Option<Arc<Session>>>,
    numbers: Numbers,
}

impl Link {
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        let mut refused = Rarely::new(REFUSED_SAID_EVERY);
        loop {
            let Err(error) = self.connect(&mut backoff).await;
            if self.unheard() {
                refused.reset();
            }
            if self.was_removed(&error).await {
                self.inbox.removed();
                tokio::time::sleep(REMOVED_PAUSE).await;
                continue;
            }
            if error.kind == ErrorKind::Forbidden && refused.due() {
                tracing::warn!(%error, "the zone does not let us in");
            } else {
                tracing::debug!(%error, "no link to the zone");
            }
            backoff.pause().await;
        }
    }

    /// Only the zone itself is believed in this, never the broker.
    async fn was_removed(&self, error: &Error) -> bool {
        let refused = error.kind == ErrorKind::Forbidden;
        wire::removed(error) || refused && self.standing().await.is_err_and(|error| wire::removed(&error))
    }

    async fn standing(&self) -> Result<()> {
        let answer = self.https.post_any::<_, ()>(PATH_STANDING, &(), REQUEST_WAIT).await;
        // Nothing else is asked there for long.
        self.https.reconnect()?;
        answer.map(drop)
    }

    /// One connection, from its first byte to its end.
    async fn connect(&self, backoff: &mut Backoff) -> Result<Infallible> {
        let conn = self.numbers.next();
        let will = (topic(&self.me, Leaf::Gone), wire::encode(&Gone { conn }, PACKET_MAX)?);
        let (publisher, connection) = open(Options {
            client_id: self.me.clone(),
            host: self.host.clone(),
            port: self.port,
            tls: self.tls.clone(),
            will: Some(will),
            inflight: MQTT_CHILD_INFLIGHT_MAX,
        })?;
        let session = Arc::new(Session::new(&self.me, conn, publisher));
        let connected = Notify::new();
        let run = connection.run(|event| match event {
            Event::Connected => connected.notify_one(),
            Event::Message { topic, payload } => self.message(&session, &topic, &payload),
        });
        let speak = async {
            connected.notified().await;
            session.publisher.subscribe(vec![filter_down(&self.me)]).await?;
            loop {
                self.call_out(&session, backoff).await?;
                backoff.connected();
                self.heard(&session);
                tokio::select! {
                    ended = self.beats(&session) => ended?,
                    ended = self.polls(&session) => match ended? {},
                    // The parent has a new life: it knows nothing of what this connection said.
                    () = session.welcomed.notified() => {}
                }
                self.unheard();
            }
        };
        tokio::select! {
            error = run => Err(error),
            ended = speak => ended,
        }
    }

    fn heard(&self, session: &Arc<Session>) {
        *locked(&self.session) = Some(session.clone());
        self.inbox.up();
    }

    /// Whether it was heard until now.
    fn unheard(&self) -> bool {
        let Some(session) = locked(&self.session).take() else { return false };
        session.forget();
        self.inbox.lost();
        true
    }

    /// Beats until the parent says that it heard of this connection.
    async fn call_out(&self, session: &Session, backoff: &mut Backoff) -> Result<()> {
        let mut unanswered = 0;
        while unanswered < WELCOMES_MAX {
            if self.beat(session).await? {
                if tokio::time::timeout(WELCOME_WAIT, session.welcomed.notified()).await.is_ok() {
                    return Ok(());
                }
                unanswered += 1;
            }
            backoff.pause().await;
        }
        // A broker of somebody else lets in whom the zone does not.
        self.standing().await?;
        Err(Error::unavailable("the zone does not answer"))
    }

    /// Ends when the broker says that nobody hears the beats.
    async fn beats(&self, session: &Session) -> Result<()> {
        loop {
            tokio::time::sleep(BEAT).await;
            if !self.beat(session).await? {
                return Ok(());
            }
        }
    }

    /// Acknowledged by the broker, so that a connection that is dead without knowing it is noticed. False when
    /// the broker knows nobody who listens.
    async fn beat(&self, session: &Session) -> Result<bool> {
        let beat = Beat { conn: session.conn, wait: session.wait(), pulse: self.vitals.pulse() };
        let payload = wire::encode(&beat, PACKET_MAX)?;
        let sent = Instant::now();
        let heard = session.publisher.publish(topic(&self.me, Leaf::Beat), payload).await?;
        self.vitals.trip(sent.elapsed());
        Ok(heard)
    }

    /// One question is open at all times, except while the child takes what came.
    async fn polls(&self, session: &Session) -> Result<Infallible> {
        let mut have = self.have.subscribe();
        let mut backoff = Backoff::new();
        loop {
            let now = *have.borrow_and_update();
            let newer = session.ask(now).await?;
            let answer = tokio::select! {
                answer = newer => answer.map_err(|_| Error::unavailable("the question was dropped"))?,
                // What the child has changed meanwhile: ask again, with that.
                _ = have.changed() => continue,
            };
            match answer {
                Ok(desired) => {
                    backoff.reset();
                    self.inbox.offer(desired, &mut have).await;
                }
                Err(error) => {
                    let error = Error::from(error);
                    if error.kind == ErrorKind::Forbidden {
                        return Err(Error::new(ErrorKind::Forbidden, error.message));
                    }
                    tracing::warn!(%error, "the parent gave no desired set");
                    backoff.pause().await;
                }
            }
        }
    }

    fn message(&self, session: &Arc<Session>, topic: &str, payload: &Bytes) {
        let taken = match topic_parse(topic) {
            Some((_, Leaf::Desired)) if payload.len() > ASIDE_OVER => {
                let (session, payload) = (session.clone(), payload.clone());
                tokio::spawn(async move {
                    match wire::decode_large(payload, BODY_MAX).await {
                        Ok(newer) => session.newer(newer),
                        Err(error) => tracing::warn!(%error, "a desired set of the parent is not understood"),
                    }
                });
                Ok(())
            }
            Some((_, Leaf::Welcome)) => wire::decode(payload, PACKET_MAX).map(|said| session.welcome(&said)),
            Some((_, Leaf::Desired)) => wire::decode(payload, BODY_MAX).map(|newer| session.newer(newer)),
            Some((_, Leaf::Ack)) => wire::decode(payload, PACKET_MAX).map(|acked| session.acked(acked)),
            Some((_, Leaf::Call)) => wire::decode(payload, PACKET_MAX).map(|call| self.inbox.call(call)),
            _ => Ok(()),
        };
        if let Err(error) = taken {
            tracing::warn!(topic, %error, "a message of the parent is not understood");
        }
    }
}

/// What is open on one connection.
struct Session {
    me: String,
    conn: u64,
    publisher: Publisher,
    seq: AtomicU64,
    welcomed: Notify,
    asked: Mutex<Option<Asked>>,
    pushed: Mutex<HashMap<u64, oneshot::Sender<Result<Ack, WireError>>>>,
}

struct Asked {
    wait: Wait,
    answer: oneshot::Sender<Result<Desired, WireError>>,
}

impl Session {
    fn new(me: &str, conn: u64, publisher: Publisher) -> Self {
        Self {
            me: me.to_owned(),
            conn,
            publisher,
            seq: AtomicU64::new(1),
            welcomed: Notify::new(),
            asked: Mutex::default(),
            pushed: Mutex::default(),
        }
    }

    fn seq_next(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed)
    }

    /// What is asked and not answered.
    fn wait(&self) -> Option<Wait> {
        locked(&self.asked).as_ref().map(|asked| asked.wait)
    }

    /// Asks for what is newer; an earlier question is given up.
    async fn ask(&self, have: Option<Revision>) -> Result<oneshot::Receiver<Result<Desired, WireError>>> {
        let wait = Wait { seq: self.seq_next(), have };
        let (answer, newer) = oneshot::channel();
        *locked(&self.asked) = Some(Asked { wait, answer });
        // Every beat says it again until it is answered.
        let payload = wire::encode(&Have { conn: self.conn, wait }, PACKET_MAX)?;
        self.publisher.publish_once(topic(&self.me, Leaf::Have), payload).await?;
        Ok(newer)
    }

    async fn push(&self, observed: Observed) -> Result<Ack> {
        let seq = self.seq_next();
        let (answer, acked) = oneshot::channel();
        locked(&self.pushed).insert(seq, answer);
        let _forget = Forget { session: self, seq };
        if !self.send(Leaf::Observed, &Report { conn: self.conn, seq, observed }).await? {
            return Err(Error::unavailable("the zone is not at the broker"));
        }
        match tokio::time::timeout(REQUEST_WAIT, acked).await {
            Ok(Ok(answer)) => answer.map_err(Error::from),
            _ => Err(Error::unavailable("the zone did not acknowledge")),
        }
    }

    async fn send<T: Serialize + Sync>(&self, leaf: Leaf, message: &T) -> Result<bool> {
        let payload = wire::encode_large(message, PACKET_MAX).await?;
        self.publisher.publish(topic(&self.me, leaf), payload).await
    }

    fn welcome(&self, said: &Welcome) {
        if said.conn == self.conn {
            self.welcomed.notify_one();
        }
    }

    fn newer(&self, newer: Newer) {
        let mut asked = locked(&self.asked);
        if newer.conn == self.conn
            && let Some(open) = asked.take_if(|asked| asked.wait.seq == newer.seq)
        {
            let _ = open.answer.send(newer.result);
        }
    }

    fn acked(&self, acked: Acked) {
        if acked.conn == self.conn
            && let Some(push) = locked(&self.pushed).remove(&acked.seq)
        {
            let _ = push.send(acked.result);
        }
    }

    /// Lets everybody know that no answer will come.
    fn forget(&self) {
        locked(&self.asked).take();
        locked(&self.pushed).clear();
    }
}

/// Takes a push that nobody waits for any more out of the book.
struct Forget<'a> {
    session: &'a Session,
    seq: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        locked(&self.session.pushed).remove(&self.seq);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uplink for MqttUplink {
    fn push(&self, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        Box::pin(async move {
            let session = locked(&self.link.session).clone();
            let session = session.ok_or_else(|| Error::unavailable("there is no link to the zone"))?;
            session.push(observed).await
        })
    }

    fn set_have(&self, have: Option<Revision>) {
        self.link.have.send_replace(have);
    }

    fn pulse_from(&self, source: PulseSource) {
        self.link.vitals.source_set(source);
    }

    fn goodbye(&self) -> BoxFuture<'_, Result<()>> {
        self.link.vitals.leave();
        Box::pin(in_time(async {
            let session = locked(&self.link.session).clone();
            let session = session.ok_or_else(|| Error::unavailable("there is no link to the zone"))?;
            self.link.beat(&session).await.map(drop)
        }))
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
