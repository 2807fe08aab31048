//! The embedded broker. All that is known of `rmqtt` is in this file.
//!
//! Nothing is allowed that is not named here: a client needs a certificate of our CA whose common name is its
//! client id, it must be a node of this zone or the zone itself, and each may touch its own topics alone.
//! The broker runs on a small runtime of its own, because it leaves tasks behind that only end with theirs.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::{ChildId, Error, Result};
use rmqtt::codec::v5::SubscribeAckReason;
use rmqtt::context::ServerContext;
use rmqtt::hook::{Handler, HookResult, Parameter, ReturnType, Type};
use rmqtt::net::Builder;
use rmqtt::server::MqttServer;
use rmqtt::types::{AuthResult, ConnectInfo, Id, LastWill, PublishAclResult, SubscribeAclResult};
use tokio::runtime::Runtime;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{filter_down, filter_up, topic_parse};
use crate::calls::Calls;
use crate::limits::{
    BROKER_QUEUE_MAX, CONNECT_WAIT, CONNECTIONS_MAX, KEEP_ALIVE_S, MQTT_PARENT_INFLIGHT_MAX, PACKET_MAX,
    REFUSALS_SAID_EVERY,
};
use crate::parent::{ParentHandler, listen_check};
use crate::tls::provider_install;
use crate::uplink::Rarely;
use crate::wallet::Wallet;

const HANDSHAKES_MAX: usize = 64;
const INFLIGHT_MAX: NonZeroU16 = NonZeroU16::new(MQTT_PARENT_INFLIGHT_MAX).expect("more than zero");
const CLIENT_ID_MAX: usize = 63;

pub struct BrokerConfig {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// A [`crate::Kind::Server`] certificate with the names and addresses that clients use.
    pub server: Wallet,
    /// The zone whose broker this is: its own client, and the parent in its nodes' certificates.
    pub zone: String,
    /// Where the certificate and its key are written, because the broker takes them from files.
    pub dir: PathBuf,
    /// Says who is still one of ours.
    pub handler: Arc<dyn ParentHandler>,
    /// Says who is to be sent away.
    pub calls: Calls,
}

/// A broker that runs until it is dropped.
pub struct Broker {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Broker {
    pub async fn start(config: BrokerConfig) -> Result<Self> {
        provider_install();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("broker")
            .enable_all()
            .build()?;
        let (listening, address) = oneshot::channel();
        let config_address = config.listen;
        runtime.spawn(serve(config, listening));
        let mut broker = Self { address: config_address, runtime: Some(runtime) };
        broker.address = address.await.map_err(|_| Error::internal("the broker ended before it began"))??;
        Ok(broker)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(config: BrokerConfig, listening: oneshot::Sender<Result<SocketAddr>>) {
    let context = ServerContext::new()
        .task_exec_workers(16)
        .task_exec_queue_max(BROKER_QUEUE_MAX)
        .busy_check_enable(false);
    let context = context.build().await;
    let hooks = context.extends.hook_mgr().register();
    let rules = Arc::new(Rules { zone: config.zone.clone() });
    for kind in [Type::ClientAuthenticate, Type::ClientSubscribeCheckAcl, Type::MessagePublishCheckAcl] {
        let (rules, handler) = (rules.clone(), config.handler.clone());
        let said = Mutex::new(Rarely::new(REFUSALS_SAID_EVERY));
        hooks.add(kind, Box::new(Gate { rules, handler, said })).await;
    }
    hooks.start().await;
    let mut changes = config.server.changes();
    let mut kicks = config.calls.kicks();
    let (address, listener) = match listen_check(config.listen).and_then(|()| bind(&config, config.listen)) {
        Ok(bound) => bound,
        Err(error) => return drop(listening.send(Err(error))),
    };
    let _ = listening.send(Ok(address));
    let mut number = 1;
    let mut serving = AbortOnDropHandle::new(tokio::spawn(accept(context.clone(), listener, number)));
    loop {
        tokio::select! {
            kicked = kicks.recv() => match kicked {
                Ok(child) => kick(&context, &child).await,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            changed = changes.changed() => {
                if changed.is_err() { return }
                // The new listener stands beside the old one on the same port before that ends. What is connected stays; who
                // was about to connect to the old one comes again.
                match bind(&config, address) {
                    Ok((_, listener)) => {
                        number += 1;
                        serving = AbortOnDropHandle::new(tokio::spawn(accept(context.clone(), listener, number)));
                    }
                    Err(error) => tracing::error!(%error, "the broker goes on with its old certificate"),
                }
            },
            _ = &mut serving => return,
        }
    }
}

async fn accept(context: ServerContext, listener: rmqtt::net::Listener, number: u16) {
    if let Err(error) = MqttServer::new(context).listener_by_id(listener, number).build().run().await {
        tracing::error!(%error, "the broker stopped");
    }
}

/// Ends the connection of a client, if it has one.
async fn kick(context: &ServerContext, child: &ChildId) {
    let id = Id::from(context.node.id(), child.as_str().to_owned().into());
    let kicked = async {
        let entry = context.extends.shared().await.entry(id);
        entry.try_lock().await?.kick(true, true, true).await
    };
    if let Err(error) = kicked.await {
        tracing::debug!(%child, %error, "a client was not there to be sent away");
    }
}

fn bind(config: &BrokerConfig, listen: SocketAddr) -> Result<(SocketAddr, rmqtt::net::Listener)> {
    let server = config.server.credentials();
    std::fs::create_dir_all(&config.dir)?;
    server.files_write(&config.dir, "broker")?;
    let file = |kind: &str| config.dir.join(format!("broker.{kind}.pem")).to_string_lossy().into_owned();
    let (cert, key, ca) = (file("cert"), file("key"), file("ca"));
    let builder = Builder::new()
        .name("banyan")
        .laddr(listen)
        // A broker that was killed must be able to come back at once on the same port.
        .reuseaddr(Some(true))
        .reuseport(Some(true))
        .nodelay(true)
        .allow_anonymous(false)
        .allow_zero_keepalive(false)
        .max_keepalive(KEEP_ALIVE_S * 6)
        .max_connections(CONNECTIONS_MAX)
        .max_handshaking_limit(HANDSHAKES_MAX)
        .handshake_timeout(CONNECT_WAIT)
        .max_packet_size(u32::try_from(PACKET_MAX).expect("a packet's size fits"))
        .max_inflight(INFLIGHT_MAX)
        .max_mqueue_len(BROKER_QUEUE_MAX)
        .max_clientid_len(CLIENT_ID_MAX)
        .max_topic_levels(5)
        .max_subscriptions(2)
        // Sessions end with their connection, and with them what waits.
        .message_expiry_interval(Duration::ZERO)
        .max_session_expiry_interval(Duration::from_secs(1))
        .tls_cross_certificate(true)
        .tls_cert(Some(cert))
        .tls_key(Some(key))
        .tls_client_ca_certs(Some(ca))
        .collect_cert_info(true);
    let refused =
        |error: rmqtt::Error| Error::unavailable(format!("the broker cannot listen on {listen}: {error:#}"));
    let listener = builder.bind().and_then(|listener| listener.tls()).map_err(refused)?;
    Ok((listener.local_addr().map_err(refused)?, listener))
}

/// Who may connect, publish and subscribe.
struct Rules {
    zone: String,
}

impl Rules {
    fn admit(&self, connect: &ConnectInfo) -> bool {
        let ConnectInfo::V5(id, _) = connect else { return false };
        let Some(cert) = connect.cert() else { return false };
        let client = id.client_id.as_ref();
        let named = cert.common_name.as_deref() == Some(client);
        // The broker does not ask the publish rule about a will, so it is asked here.
        let will = connect.last_will().is_none_or(|will| {
            let LastWill::V5(will) = will else { return false };
            !will.retain && self.may_publish(client, will.topic.as_ref())
        });
        named && will && self.belongs(client, cert.organization.as_deref())
    }

    /// A node of this zone, by the organisation in its certificate, or the zone itself.
    fn belongs(&self, client: &str, organisation: Option<&str>) -> bool {
        match organisation {
            Some(parent) => parent == self.zone && client != self.zone,
            None => client == self.zone,
        }
    }

    fn may_publish(&self, client: &str, topic: &str) -> bool {
        match topic_parse(topic) {
            Some((child, leaf)) if leaf.upwards() => child == client && client != self.zone,
            Some(_) => client == self.zone,
            None => false,
        }
    }

    fn may_subscribe(&self, client: &str, filter: &str) -> bool {
        match client == self.zone {
            true => filter == filter_up(),
            false => filter == filter_down(client),
        }
    }
}

struct Gate {
    rules: Arc<Rules>,
    handler: Arc<dyn ParentHandler>,
    said: Mutex<Rarely>,
}

impl Gate {
    /// Whether a client, whose certificate is right, was not removed.
    fn admits(&self, client: &str) -> bool {
        client == self.rules.zone || self.handler.admits(&ChildId::from(client))
    }

    /// Who is refused comes again and again; not every time is worth a line.
    fn refused(&self, client: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).due() {
            tracing::warn!(%client, "the broker refused a client");
        } else {
            tracing::debug!(%client, "the broker refused a client");
        }
    }
}

#[async_trait]
impl Handler for Gate {
    async fn hook(&self, parameter: &Parameter, _: Option<HookResult>) -> ReturnType {
        let result = match parameter {
            Parameter::ClientAuthenticate(connect) => {
                HookResult::AuthResult(if self.rules.admit(connect) && self.admits(connect.client_id()) {
                    AuthResult::Allow(false, None)
                } else {
                    self.refused(connect.client_id());
                    AuthResult::NotAuthorized
                })
            }
            Parameter::ClientSubscribeCheckAcl(session, subscribe) => {
                let allowed = self.rules.may_subscribe(&session.id.client_id, &subscribe.topic_filter);
                HookResult::SubscribeAclResult(if allowed {
                    SubscribeAclResult::new_success(subscribe.opts.qos(), None)
                } else {
                    SubscribeAclResult::new_failure(SubscribeAckReason::NotAuthorized)
                })
            }
            Parameter::MessagePublishCheckAcl(session, publish) => {
                let allowed =
                    !publish.retain && self.rules.may_publish(&session.id.client_id, &publish.topic);
                HookResult::PublishAclResult(if !self.admits(&session.id.client_id) {
                    PublishAclResult::rejected(true, None)
                } else if allowed {
                    PublishAclResult::allow()
                } else {
                    PublishAclResult::rejected(false, None)
                })
            }
            _ => return (true, None),
        };
        (false, Some(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_own_topics_and_nothing_else() {
        let rules = Rules { zone: "z-1".into() };
        let rows = [
            // client, topic, publish, subscribe
            ("n-1", "banyan/v1/n-1/up/observed", true, false),
            ("n-1", "banyan/v1/n-1/up/have", true, false),
            ("n-1", "banyan/v1/n-1/up/beat", true, false),
            ("n-1", "banyan/v1/n-1/up/gone", true, false),
            ("n-1", "banyan/v1/n-1/up/else", false, false),
            ("n-1", "banyan/v1/n-1/down/+", false, true),
            ("n-1", "banyan/v1/n-1/down/desired", false, false),
            ("n-1", "banyan/v1/n-2/up/observed", false, false),
            ("n-1", "banyan/v1/n-2/down/+", false, false),
            ("n-1", "banyan/v1/+/down/+", false, false),
            ("n-1", "banyan/v1/+/up/+", false, false),
            ("n-1", "banyan/v1/#", false, false),
            ("n-1", "#", false, false),
            ("n-1", "$SYS/brokers", false, false),
            ("n-1", "$share/g/banyan/v1/n-1/down/+", false, false),
            ("z-1", "banyan/v1/+/up/+", false, true),
            ("z-1", "banyan/v1/n-1/down/desired", true, false),
            ("z-1", "banyan/v1/n-1/down/ack", true, false),
            ("z-1", "banyan/v1/+/down/ack", false, false),
            ("z-1", "banyan/v1/n-1/up/observed", false, false),
            ("z-1", "banyan/v1/z-1/up/beat", false, false),
        ];
        for (client, topic, publish, subscribe) in rows {
            assert_eq!(rules.may_publish(client, topic), publish, "{client} publishes {topic}");
            assert_eq!(rules.may_subscribe(client, topic), subscribe, "{client} subscribes {topic}");
        }
        assert!(rules.belongs("n-1", Some("z-1")) && rules.belongs("z-1", None));
        assert!(
            !rules.belongs("n-1", Some("z-2"))
                && !rules.belongs("z-2", None)
                && !rules.belongs("z-1", Some("z-1"))
        );
    }
}
