//! The parent's work for one child over MQTT: answers what it asks and what it reports, and carries calls down.

use std::sync::Arc;

use bytes::Bytes;
use model::exchange::{Call, Revision};
use model::{ChildId, Desired, Error, Result};
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use super::client::Publisher;
use super::{Acked, Leaf, Newer, Report, Wait, Welcome, topic};
use crate::limits::{BODY_MAX, HAVE_WAIT, PACKET_MAX, REQUEST_WAIT};
use crate::page;
use crate::parent::ParentHandler;
use crate::uplink::Backoff;
use crate::wire::{self, WireError};

/// What a child's latest messages say: the connection that speaks, and what it waits for.
#[derive(Default, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub conn: Option<u64>,
    pub wait: Option<Wait>,
}

/// It ends with the hub, or when the child is forgotten.
#[derive(Clone)]
pub(super) struct Worker {
    pub child: ChildId,
    pub handler: Arc<dyn ParentHandler>,
    pub publisher: watch::Receiver<Option<Publisher>>,
    pub seen: watch::Receiver<Seen>,
}

impl Worker {
    pub(super) async fn run(self, reports: mpsc::Receiver<Bytes>, calls: mpsc::Receiver<Call>) {
        let reports = self.clone().reports(reports);
        let calls = self.clone().calls(calls);
        tokio::join!(reports, calls, self.questions());
    }

    /// Welcomes each connection, and answers what it asks as soon as there is something newer.
    async fn questions(mut self) {
        let mut news = self.seen.clone();
        let mut welcomed = None;
        let mut backoff = Backoff::new();
        loop {
            let seen = *news.borrow_and_update();
            let done = match seen {
                Seen { conn: Some(conn), .. } if welcomed != Some(conn) => {
                    let sent = self.send(Leaf::Welcome, &Welcome { conn }).await;
                    welcomed = sent.is_ok().then_some(conn);
                    sent
                }
                Seen { conn: Some(conn), wait: Some(wait) } => tokio::select! {
                    newer = self.newer(wait.have) => self.answer(conn, wait, newer).await,
                    changed = news.changed() => if changed.is_err() { return } else { continue },
                },
                _ => match news.changed().await {
                    Ok(()) => Ok(()),
                    Err(_) => return,
                },
            };
            match done {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(child = %self.child, %error, "a child was not answered");
                    backoff.pause().await;
                }
            }
        }
    }

    async fn newer(&self, have: Option<Revision>) -> Result<Desired> {
        let desired = self.handler.desired(&self.child, have).await?;
        if Some(desired.at) == have {
            // Nothing new after all; answering at once would make the child ask at once.
            std::future::pending::<()>().await;
        }
        Ok(desired)
    }

    /// Answers, and gives the child time to take it. A child that still waits for the same after that did not get it.
    async fn answer(&mut self, conn: u64, wait: Wait, newer: Result<Desired>) -> Result<()> {
        let seq = wait.seq;
        let page = match newer {
            Ok(desired) => {
                let message = |desired| Newer { conn, seq, result: Ok(desired) };
                page::fit(&*self.handler, &self.child, wait.have, desired, PACKET_MAX, message).await
            }
            Err(error) => Err(error),
        };
        let payload = match page {
            Ok(payload) => payload,
            Err(error) => {
                if error.kind == model::ErrorKind::TooLarge {
                    tracing::error!(child = %self.child, %error, "a desired set cannot be sent");
                }
                wire::encode(&Newer { conn, seq, result: Err(WireError::from(&error)) }, PACKET_MAX)?
            }
        };
        self.publish(Leaf::Desired, payload).await?;
        let taken = self.seen.wait_for(|seen| seen.conn != Some(conn) || seen.wait != Some(wait));
        let _ = tokio::time::timeout(HAVE_WAIT, taken).await;
        Ok(())
    }

    async fn reports(mut self, mut reports: mpsc::Receiver<Bytes>) {
        while let Some(payload) = reports.recv().await {
            if let Err(error) = self.report(payload).await {
                tracing::warn!(child = %self.child, %error, "an observed set was not acknowledged");
            }
        }
    }

    async fn report(&mut self, payload: Bytes) -> Result<()> {
        let Report { conn, seq, observed } = wire::decode_large(payload, BODY_MAX).await?;
        if self.seen.borrow().conn != Some(conn) {
            return Ok(());
        }
        let result = self.handler.observed(&self.child, observed).await;
        if let Err(error) = &result {
            tracing::warn!(child = %self.child, %error, "an observed set was not taken");
        }
        let result = result.map_err(|error| WireError::from(&error));
        self.send(Leaf::Ack, &Acked { conn, seq, result }).await
    }

    async fn calls(mut self, mut calls: mpsc::Receiver<Call>) {
        while let Some(call) = calls.recv().await {
            if let Err(error) = self.send(Leaf::Call, &call).await {
                tracing::warn!(child = %self.child, %error, "a call was not sent");
            }
        }
    }

    async fn send<T: Serialize>(&mut self, leaf: Leaf, message: &T) -> Result<()> {
        self.publish(leaf, wire::encode(message, PACKET_MAX)?).await
    }

    /// Publishes as soon as there is a connection to the broker, which is not waited for without end.
    async fn publish(&mut self, leaf: Leaf, payload: Bytes) -> Result<()> {
        let connected =
            async { self.publisher.wait_for(Option::is_some).await.ok().and_then(|it| it.clone()) };
        let publisher = tokio::time::timeout(REQUEST_WAIT, connected).await.ok().flatten();
        let publisher = publisher.ok_or_else(|| Error::unavailable("there is no link to the broker"))?;
        let topic = topic(self.child.as_str(), leaf);
        match leaf {
            // The child asks and reports again when nothing comes.
            Leaf::Desired | Leaf::Ack => publisher.publish_once(topic, payload).await,
            _ => publisher.publish(topic, payload).await.map(drop),
        }
    }
}
