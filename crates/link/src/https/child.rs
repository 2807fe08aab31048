//! The child over HTTPS: one poll open at all times, and a beat that also notices a dead connection.
//!
//! ```text
//!            beat answered            poll or beat fails
//!  connecting ------------> connected ------------------> pause (longer each time) --> connecting
//! ```
//!
//! A child that was removed says so upwards once, and from then on the pause is a very long one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use model::exchange::{Ack, Revision};
use model::{Digest, Error, ErrorKind, Observed, Result};
use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::client::{ParentClient, Parents};
use super::{PATH_BEAT, PATH_DESIRED, PATH_OBSERVED, Poll, Polled};
use crate::limits::{BEAT, POLL_MAX, PUSH_WAIT, REFUSED_SAID_EVERY, REMOVED_PAUSE, REQUEST_WAIT};
use crate::stream::ByteStream;
use crate::turns::Numbers;
use crate::uplink::{Backoff, Down, Inbox, Rarely, Uplink, in_time};
use crate::vitals::{PulseSource, Vitals};
use crate::wallet::Wallet;
use crate::wire::{self, Removed};

/// Connects to a parent and stays connected until it is dropped. Of several addresses it uses the one that answers
/// and holds the duty.
pub fn https_uplink(wallet: impl Into<Wallet>, parents: impl Into<Parents>) -> Result<Arc<dyn Uplink>> {
    let wallet = wallet.into();
    let link = Arc::new(Link {
        client: ParentClient::new(&wallet, parents)?,
        wallet,
        inbox: Inbox::default(),
        have: watch::Sender::new(None),
        vitals: Vitals::default(),
    });
    let task = AbortOnDropHandle::new(tokio::spawn(link.clone().run()));
    Ok(Arc::new(HttpsUplink { link, _task: task }))
}

struct HttpsUplink {
    link: Arc<Link>,
    _task: AbortOnDropHandle<()>,
}

struct Link {
    client: ParentClient,
    wallet: Wallet,
    inbox: Inbox,
    have: watch::Sender<Option<Revision>>,
    vitals: Vitals,
}

impl Link {
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        let mut refused = Rarely::new(REFUSED_SAID_EVERY);
        let mut failed = 0;
        let numbers = Numbers::new();
        loop {
            self.client.conn_set(numbers.next());
            let error = match self.beat().await {
                Ok(()) => {
                    failed = 0;
                    backoff.connected();
                    refused.reset();
                    self.inbox.up();
                    let error = tokio::select! {
                        error = self.beats() => error,
                        error = self.polls() => error,
                        error = self.renewals() => error,
                    };
                    self.inbox.lost();
                    error
                }
                Err(error) => error,
            };
            let removed = wire::removed(&error);
            match error.kind {
                // Waiting does not help: we speak to the wrong parent, or it forgot us.
                ErrorKind::Forbidden if !removed && refused.due() => {
                    tracing::warn!(%error, "the parent does not let us in");
                }
                _ => tracing::debug!(%error, "no link to the parent"),
            }
            self.client.move_on(&error);
            if let Err(error) = self.client.reconnect() {
                tracing::error!(%error, "no new connection to the parent");
            }
            if removed {
                self.inbox.removed();
                tokio::time::sleep(REMOVED_PAUSE).await;
                continue;
            }
            failed += 1;
            // Every address is tried before the pause.
            if failed % self.client.addresses() == 0 {
                backoff.pause().await;
            }
        }
    }

    /// A renewed certificate is shown by a new connection, which is there before the old one goes. What is under way
    /// ends where it began.
    async fn renewals(&self) -> Error {
        let mut changes = self.wallet.changes();
        while changes.changed().await.is_ok() {
            let pulse = self.vitals.pulse();
            if let Err(error) = self.client.hand_over(PATH_BEAT, &pulse, REQUEST_WAIT).await {
                return error;
            }
        }
        std::future::pending().await
    }

    async fn beat(&self) -> Result<()> {
        self.client.post::<_, ()>(PATH_BEAT, &self.vitals.pulse(), REQUEST_WAIT).await.map(|_| ())
    }

    async fn beats(&self) -> Error {
        loop {
            let sent = Instant::now();
            if let Err(error) = self.beat().await {
                return error;
            }
            self.vitals.trip(sent.elapsed());
            tokio::time::sleep(BEAT).await;
        }
    }

    async fn polls(&self) -> Error {
        let mut have = self.have.subscribe();
        loop {
            let poll = Poll { have: *have.borrow_and_update() };
            let polled = tokio::select! {
                polled = self.client.post(PATH_DESIRED, &poll, POLL_MAX + REQUEST_WAIT) => polled,
                // What the child has changed meanwhile: ask again, with that.
                _ = have.changed() => continue,
            };
            match polled {
                Ok(Some(polled)) => self.deliver(polled, &mut have).await,
                Ok(None) => {}
                Err(error) => return error,
            }
        }
    }

    async fn deliver(&self, polled: Polled, have: &mut watch::Receiver<Option<Revision>>) {
        for call in polled.calls {
            self.inbox.call(call);
        }
        if let Some(desired) = polled.desired {
            self.inbox.offer(desired, have).await;
        }
    }
}

impl Uplink for HttpsUplink {
    fn push(&self, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
        Box::pin(async move {
            if self.link.inbox.is_removed() {
                return Err(Removed.error(self.link.wallet.identity()));
            }
            let ack = self.link.client.post(PATH_OBSERVED, &observed, PUSH_WAIT).await?;
            ack.ok_or_else(|| Error::unavailable("the parent did not acknowledge"))
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
        Box::pin(in_time(self.link.beat()))
    }

    fn rtt(&self) -> Option<Duration> {
        self.link.vitals.rtt()
    }

    fn next(&self) -> BoxFuture<'_, Down> {
        Box::pin(self.link.inbox.next())
    }

    fn open_stream<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<ByteStream>> {
        Box::pin(self.link.client.open_stream(id))
    }

    fn blob<'a>(
        &'a self,
        digest: &'a Digest,
        to: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.link.client.blob(digest, to))
    }
}
