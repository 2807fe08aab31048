//! One MQTT connection. All that is known of `rumqttc` is in this file.
//!
//! A client is made for each connection and thrown away with it: nothing queued on one connection goes
//! out on the next, and each has its own last will.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use rumqttc::{
    AsyncClient, Broker, ConnectionError, Event as Polled, EventLoop, Incoming, LastWill, MqttOptions,
    PubAckReason, PublishOptions, PublishResult, QoS, SubscribeFilter, SubscribeReasonCode, TlsConfiguration,
    Transport,
};
use rustls::ClientConfig;

use crate::limits::{
    CONNECT_WAIT, KEEP_ALIVE_S, MQTT_REQUESTS_MAX, PACKET_MAX, PACKET_ROOM, PUSH_WAIT, REQUEST_WAIT,
};

pub(super) struct Options {
    /// Also the name in the certificate.
    pub client_id: String,
    pub host: String,
    pub port: u16,
    pub tls: Arc<ClientConfig>,
    pub will: Option<(String, Bytes)>,
    /// Messages sent and not acknowledged by the broker.
    pub inflight: u16,
}

pub(super) enum Event {
    /// The broker took the connection.
    Connected,
    Message {
        topic: String,
        payload: Bytes,
    },
}

/// The side that writes; it works while its [`Connection`] runs.
#[derive(Clone)]
pub(super) struct Publisher(AsyncClient);

pub(super) struct Connection(EventLoop);

pub(super) fn open(options: Options) -> Result<(Publisher, Connection)> {
    let mut mqtt = MqttOptions::new(options.client_id, Broker::tcp(options.host, options.port));
    mqtt.set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(options.tls)));
    mqtt.set_keep_alive(KEEP_ALIVE_S);
    mqtt.set_clean_start(true);
    mqtt.set_connect_timeout(CONNECT_WAIT);
    mqtt.set_max_packet_size(Some(u32::try_from(PACKET_MAX).expect("a packet's size fits")));
    mqtt.set_request_channel_capacity(MQTT_REQUESTS_MAX);
    // The client keeps a slot for each message that may be in flight; by default 65,535 of them, 16 MB.
    mqtt.set_outgoing_inflight_upper_limit(options.inflight);
    if let Some((topic, payload)) = options.will {
        mqtt.set_last_will(LastWill::new(topic, payload.to_vec(), QoS::AtLeastOnce, false, None));
    }
    let mut network = mqtt.network_options();
    network.set_tcp_nodelay(true);
    mqtt.set_network_options(network);
    let (client, events) = AsyncClient::builder(mqtt)
        .try_build()
        .map_err(|error| Error::internal("the MQTT client cannot be made").because(error))?;
    Ok((Publisher(client), Connection(events)))
}

impl Connection {
    /// Runs until the connection ends and says why it did. `on` must not block.
    pub(super) async fn run(mut self, mut on: impl FnMut(Event)) -> Error {
        loop {
            match self.0.poll().await {
                Ok(Polled::Incoming(Incoming::ConnAck(_))) => on(Event::Connected),
                Ok(Polled::Incoming(Incoming::Publish(publish))) => {
                    let topic = String::from_utf8_lossy(&publish.topic).into_owned();
                    on(Event::Message { topic, payload: publish.payload });
                }
                Ok(Polled::Incoming(Incoming::Disconnect(_))) => {
                    return Error::unavailable("the broker ended the connection");
                }
                Ok(_) => {}
                Err(ConnectionError::ConnectionRefused(code)) => {
                    return Error::new(ErrorKind::Forbidden, format!("the broker refused us: {code:?}"));
                }
                Err(error) => {
                    return Error::unavailable(format!("no link to the broker: {error}")).because(error);
                }
            }
        }
    }
}

impl Publisher {
    /// Publishes and waits for the broker to acknowledge. False when it says that nobody is subscribed;
    /// not every broker says so.
    pub(super) async fn publish(&self, topic: String, payload: Bytes) -> Result<bool> {
        self.publish_with(topic, payload, PublishOptions::at_least_once()).await
    }

    /// Publishes and waits until it is written. For what is said again when nobody answers it.
    pub(super) async fn publish_once(&self, topic: String, payload: Bytes) -> Result<()> {
        self.publish_with(topic, payload, PublishOptions::at_most_once()).await.map(drop)
    }

    async fn publish_with(&self, topic: String, payload: Bytes, options: PublishOptions) -> Result<bool> {
        if payload.len() + PACKET_ROOM > PACKET_MAX {
            return Err(crate::wire::too_large(PACKET_MAX - PACKET_ROOM));
        }
        let wait = if payload.len() > PACKET_ROOM { PUSH_WAIT } else { REQUEST_WAIT };
        let acked = async {
            let notice = self.0.publish_tracked(topic, payload, options).await.map_err(closed)?;
            notice.wait_async().await.map_err(closed)
        };
        match in_time(wait, acked).await? {
            PublishResult::Qos1(ack) if ack.reason == PubAckReason::NotAuthorized => {
                Err(Error::new(ErrorKind::Forbidden, "the broker does not let us publish there"))
            }
            PublishResult::Qos1(ack) if ack.reason == PubAckReason::NoMatchingSubscribers => Ok(false),
            PublishResult::Qos1(ack) if ack.reason != PubAckReason::Success => {
                Err(Error::unavailable(format!("the broker refused a message: {:?}", ack.reason)))
            }
            _ => Ok(true),
        }
    }

    /// Subscribes and waits for the broker to grant all of it.
    pub(super) async fn subscribe(&self, filters: Vec<String>) -> Result<()> {
        let filters: Vec<_> =
            filters.into_iter().map(|filter| SubscribeFilter::new(filter, QoS::AtLeastOnce)).collect();
        let granted = async {
            let notice = self.0.subscribe_many_tracked(filters).await.map_err(closed)?;
            notice.wait_async().await.map_err(closed)
        };
        let ack = in_time(REQUEST_WAIT, granted).await?;
        if ack.return_codes.iter().all(|code| matches!(code, SubscribeReasonCode::Success(_))) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forbidden, "the broker does not let us subscribe there"))
    }
}

async fn in_time<T>(wait: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(wait, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::unavailable("the broker did not answer in time")),
    }
}

fn closed<E: std::error::Error + Send + Sync + 'static>(error: E) -> Error {
    Error::unavailable("the connection to the broker ended").because(error)
}
